"""RoCE: Ethernet ports with RDMA have an interface, a carrier, addresses and the right MTU."""

from __future__ import annotations

from nhc.core.check import Judged, check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, skip, unknown
from nhc.core.units import whole
from nhc.node.checks.ib import NAMES, chosen
from nhc.node.facts.ethernet import NET
from nhc.node.facts.infiniband import Port, gid_type, gids

if TYPE_CHECKING:
    from typing import List, Optional, Sequence


@check(
    "check_roce_ports",
    opt("-m --mtu", "mtu", whole, "least MTU of the interface; 4200 lets RDMA use its largest MTU, 4096"),
    opt("-g --gids", "least_gids", whole, "least number of RoCE v2 addresses of a port", 1),
    NAMES,
    timeout=5,
    settles=("RoceNoCarrier", "RoceGidMissing", "IbPortDown", "IbPortMissing"),
)
def check_roce_ports(host: Host, mtu: Optional[int] = None, least_gids: int = 1, ports: Sequence[str] = ()) -> Judged:
    """RoCE ports can be reached: interface up, carrier there, RoCE v2 addresses and MTU as the fabric needs.

    Looks at RDMA ports whose link layer is Ethernet and that are up, or that are named. The interface behind
    the port (the GID table names it) must be up with a carrier; the GID table must hold RoCE v2 entries,
    without which no peer can address the port: an interface that lost its IP address keeps only link-local
    ones, so give -g what a configured port has (4: two addresses, link-local and IP, in two versions each make 2
    of v2). An MTU below -m is CRIT, since peers that agree on less fall to half the rate. SKIP where no port is RoCE.

    Example: {gpu[01-64]} || check_roce_ports -m 4200 -g 2 mlx5_0 mlx5_1
    """
    judged, outcomes = chosen(host, ports)
    judged = [port for port in judged if port.link_layer == "Ethernet" and (ports or port.up)]
    if not judged and not outcomes:
        return skip("NoRocePort", "no RoCE port in use on this node")
    for port in judged:
        outcomes += _judge(host, port, mtu, least_gids)
    return outcomes or ok(f"{len(judged)} RoCE ports with carrier and addresses")


def _judge(host: Host, port: Port, mtu: Optional[int], least_gids: int) -> List[Outcome]:
    if not port.netdev:
        message = f"{port.name} has no network interface: it may be in a container, or its driver is not loaded"
        return [unknown("RoceNoInterface", message, target=port.name)]
    base = f"{NET}/{port.netdev}"
    if not host.isdir(base):
        message = f"{port.name}: its network interface {port.netdev} is not to be seen here: it may be in a container"
        return [unknown("RoceNoInterface", message, target=port.name)]
    outcomes: List[Outcome] = []
    carrier = host.read_or(f"{base}/carrier")  # EINVAL while the interface is down
    if carrier != "1":
        state = "has no carrier" if carrier == "0" else "is down"
        return [crit("RoceNoCarrier", f"{port.name}: interface {port.netdev} {state}", target=port.name)]
    size = host.number(f"{base}/mtu")
    if mtu is not None and size is None:
        outcomes.append(unknown("RoceMtuUnknown", f"{port.name}: {port.netdev} tells no MTU", target=port.name))
    elif mtu is not None and size is not None and size < mtu:
        message = f"{port.name}: MTU of {port.netdev} is {size}, {mtu} expected"
        metrics = (Metric("roce_mtu", size, "B"),)
        outcomes.append(crit("RoceMtuMismatch", message, target=port.name, metrics=metrics, action=Action.INSPECT))
    kinds = [gid_type(host, port, index) for index in gids(host, port)]
    usable = kinds.count("RoCE v2")
    if kinds and not any(kinds):
        outcomes.append(unknown("RoceGidTypeUnknown", f"{port.name} does not tell its GIDs' types", target=port.name))
    elif usable < least_gids:
        message = f"{port.name} has {usable} RoCE v2 GIDs, {least_gids} expected: has {port.netdev} its addresses?"
        outcomes.append(crit("RoceGidMissing", message, target=port.name))
    return outcomes
