"""Frame sizes of Ethernet: as wanted, and the same from a bond or VLAN down to its ports."""

from __future__ import annotations

from nhc.core.check import Judged, check, opt, rest
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, skip, unknown, warn
from nhc.core.units import text, whole
from nhc.node.checks.eth import named
from nhc.node.facts import ethernet

if TYPE_CHECKING:
    from typing import List, Optional, Sequence

    from nhc.node.facts.ethernet import Sized


@check(
    "check_eth_mtu",
    opt("-m --mtu", "wanted", whole, "the frame size that each interface must have, in bytes"),
    rest("interfaces", text, "interfaces to judge; none means ports with a link, bonds and VLANs"),
)
def check_eth_mtu(host: Host, wanted: Optional[int] = None, interfaces: Sequence[str] = ()) -> Judged:
    """Ethernet interfaces have the frame size (MTU) that they should.

    Reads mtu in /sys/class/net. With -m each interface must have just that size: CRIT where not, as a node with
    small frames among large ones loses connections when it sends much. Without -m, and with it, what is stacked
    must fit: a port of a bond with another size than the bond, and a VLAN larger than the interface below it, is
    WARN (the kernel's Documentation/networking/bonding.rst wants one size for all of a bond). Without names, ports
    that are up and have a link are judged, and all bonds and VLANs. InfiniBand and RoCE have checks of their own.
    SKIP where there is nothing to judge.

    Example: * || check_eth_mtu -m 9000 bond0
    """
    chosen, outcomes = named(host, interfaces, ethernet.sized)
    if not interfaces:
        ports = [each.name for each in ethernet.interfaces(host) if each.up and each.carrier]
        sized = [ethernet.sized(host, name) for name in ports] + list(ethernet.stacked(host))
        chosen = list({each.name: each for each in sized if each is not None}.values())
    if not chosen and not outcomes:
        return skip("NoEthernet", "no Ethernet interface with a link on this node")
    for each in chosen:
        outcomes += _judge(host, each, wanted)
    sizes = ", ".join(f"{each.name} {each.mtu}" for each in chosen[:8])
    metrics = tuple(Metric(f"mtu_{each.name}", each.mtu, "B") for each in chosen[:8] if each.mtu is not None)
    return outcomes or ok(f"frame sizes fit ({sizes})", metrics=metrics)


def _judge(host: Host, each: Sized, wanted: Optional[int]) -> List[Outcome]:
    name, size = each.name, each.mtu
    if size is None:
        return [unknown("Unreadable", f"{name} tells no frame size", target=name)]
    outcomes: List[Outcome] = []
    metrics = (Metric("mtu", size, "B"),)
    if wanted is not None and size != wanted:
        outcomes.append(crit("MtuMismatch", f"{name} has an MTU of {size}, {wanted} expected", target=name,
                          metrics=metrics))  # fmt: skip
    if each.kind not in ("bond", "vlan"):
        return outcomes
    for lower in each.lower:
        below = ethernet.sized(host, lower)
        if below is None or below.mtu is None:
            continue
        if (each.kind == "bond" and below.mtu != size) or (each.kind == "vlan" and below.mtu < size):
            message = f"{name} has an MTU of {size}, {lower} below it {below.mtu}"
            outcomes.append(warn("MtuInconsistent", message, target=name, metrics=metrics, action=Action.INSPECT))
    return outcomes
