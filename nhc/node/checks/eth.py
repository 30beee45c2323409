"""Ethernet: ports have a stable link at full speed, without errors, and the right frame sizes."""

from __future__ import annotations

from nhc.core.check import Judged, check, opt, rest
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, skip, unknown, warn
from nhc.core.units import count, percent, seconds, show_number, show_seconds, text, whole
from nhc.node.facts import ethernet
from nhc.node.facts.ethernet import Interface
from nhc.node.facts.history import amount, growth

if TYPE_CHECKING:
    from typing import List, Optional, Sequence

    from nhc.node.facts.ethernet import Sized

if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional, Sequence, Tuple, TypeVar

    Found = TypeVar("Found")

_NAMES = rest("interfaces", text, "interfaces; none means every Ethernet port and bond that is in use")
_NO_PORT = skip("NoEthernet", "no Ethernet port on this node")


def megabits(value: str) -> int:
    """A speed in Mb/s, Mb/s where no unit is given: `25G` is 25000. Raises ValueError."""
    if value.isascii() and value.isdigit():
        return int(value)
    try:
        return count(value) // 1000000
    except ValueError:
        raise ValueError(f"{value!r} is not a link speed (as 25G or 1000)") from None


def named(
    host: Host, names: Sequence[str], find: Callable[[Host, str], Optional[Found]]
) -> Tuple[List[Found], List[Outcome]]:
    """The interfaces of these names, and what is wrong with the names."""
    interfaces = [(name, find(host, name)) for name in dict.fromkeys(names)]
    missing = [
        crit("NoSuchInterface", f"there is no interface {n}", target=n) for n, each in interfaces if each is None
    ]
    return [each for _, each in interfaces if each is not None], missing


def _chosen(host: Host, names: Sequence[str]) -> Tuple[List[Interface], List[Outcome]]:
    """The interfaces to judge, and what is wrong with the names."""
    return named(host, names, ethernet.interface) if names else (list(ethernet.interfaces(host)), [])


def _result(outcomes: List[Outcome], judged: int, text: str) -> Judged:
    return outcomes or ok(f"{show_number(judged, 'Ethernet interface')} {text}")


@check("check_eth_carrier", _NAMES, settles=("InterfaceDown", "NoCarrier", "NoSuchInterface"))
def check_eth_carrier(host: Host, interfaces: Sequence[str] = ()) -> Judged:
    """Ethernet interfaces have a carrier.

    Reads carrier in /sys/class/net. A named interface must be up and have a carrier: CRIT where not.
    Without names, a port that is up but has never had a carrier since its driver was loaded is taken for
    unused, one that has lost it is CRIT, and a node where no port has one is CRIT. SKIP where there is no
    Ethernet port.

    Example: * || check_eth_carrier eno1 bond0
    """
    chosen, outcomes = _chosen(host, interfaces)
    if not chosen and not outcomes:
        return _NO_PORT
    linked = 0
    for each in chosen:
        if each.up and each.carrier:
            linked += 1
        elif interfaces and not each.up:
            outcomes.append(crit("InterfaceDown", f"{each.name} is down", target=each.name))
        elif interfaces or (each.up and each.gains):
            outcomes.append(crit("NoCarrier", f"{each.name} has no carrier", target=each.name))
    if not linked and not outcomes:
        return crit("NoCarrier", f"none of {len(chosen)} Ethernet ports has a carrier")
    return _result(outcomes, linked, "with carrier")


@check(
    "check_eth_speed",
    opt("-m --min", "least", megabits, "least speed, as 25G; the port's best where not given"),
    _NAMES,
    settles=("SpeedDegraded", "HalfDuplex", "NoCarrier", "InterfaceDown", "NoSuchInterface"),
)
def check_eth_speed(host: Host, least: Optional[int] = None, interfaces: Sequence[str] = ()) -> Judged:
    """Ethernet links run at full speed.

    Reads speed and duplex in /sys/class/net of interfaces with a carrier. The expected speed is -m, else
    the fastest mode that ethtool lists as supported: a 25G port at 10G, or at half duplex, is CRIT, as a
    worn cable or transceiver makes links train down. SKIP where no interface has a wire with a speed, as
    virtual ones; UNKNOWN where neither -m nor ethtool says what to expect.

    Example: * || check_eth_speed -m 100G ens1np0
    """
    chosen, outcomes = _chosen(host, interfaces)
    linked = [each for each in chosen if each.up and each.carrier and each.has_speed and (interfaces or not each.bond)]
    if not linked and not outcomes:
        return skip("NoLinkSpeed", "no Ethernet interface with a link that has a speed") if chosen else _NO_PORT
    for each in linked:
        outcome = _judge_speed(host, each, least)
        if outcome:
            outcomes.append(outcome)
    return _result(outcomes, len(linked), "at full speed")


def _judge_speed(host: Host, each: Interface, least: Optional[int]) -> Optional[Outcome]:
    """What is wrong with a link's speed, None if nothing is."""
    if each.speed is None:
        return unknown("SpeedUnknown", f"{each.name} tells no speed", target=each.name)
    metrics = (Metric("link_speed", each.speed / 1000, "Gb/s"),)
    wanted = least
    if wanted is None and not each.bond:
        if not host.which("ethtool"):
            message = (
                f"{each.name} runs at {each.speed} Mb/s: neither -m nor ethtool (not installed) says what to expect"
            )
            return unknown("NoExpectation", message, target=each.name, metrics=metrics)
        wanted = ethernet.parse_ethtool_best(host.run(["ethtool", each.name], timeout=5).stdout)
        if wanted is None:
            message = f"{each.name} runs at {each.speed} Mb/s: ethtool lists no mode that it supports"
            return unknown("NoExpectation", message, target=each.name, metrics=metrics)
    if wanted is not None and each.speed < wanted:
        message = f"{each.name} runs at {each.speed} Mb/s, {wanted} expected"
        return crit("SpeedDegraded", message, target=each.name, metrics=metrics)
    if each.duplex == "half":
        return crit("HalfDuplex", f"{each.name} runs at half duplex", target=each.name, metrics=metrics)
    return None


@check(
    "check_eth_errors",
    opt("-w --warn", "warn_at", percent, "WARN from this share of packets with errors on", 1.0),
    opt("-c --crit", "crit_at", percent, "CRIT from this share on (0: never)", 0.0),
    opt("-n --packets", "packets", count, "packets within --per below which a share tells nothing", 1000),
    opt("-f --flaps", "flaps", count, "WARN from this many losses of carrier within --per on", 3),
    opt("-p --per", "per", seconds, "the time over which errors count", 600.0),
    _NAMES,
)
def check_eth_errors(
    host: Host,
    warn_at: float = 1.0,
    crit_at: float = 0.0,
    packets: int = 1000,
    flaps: int = 3,
    per: float = 600.0,
    interfaces: Sequence[str] = (),
) -> Judged:
    """Ethernet links are steady and lose next to nothing.

    Compares the growth of rx_errors and tx_errors with that of the packets, over ten minutes, remembered
    from run to run. WARN from 1 %, the limit of Prometheus' node-mixin (NodeNetworkReceiveErrs), once a
    thousand packets have passed. Three losses of carrier in that time are WARN too: GPUd calls three a
    flapping link. 0 turns a limit off. SKIP where there is no Ethernet port.

    Example: * || check_eth_errors -w 0.1 -c 5 ens1np0
    """
    chosen, outcomes = _chosen(host, interfaces)
    if not chosen and not outcomes:
        return _NO_PORT
    counters: Dict[str, float] = {}
    unread: Dict[str, Dict[str, str]] = {}
    for each in chosen:
        read = ethernet.statistics(host, each.name)
        unread[each.name] = ethernet.unread_statistics(host, each.name, read)
        counters.update({f"{each.name} {k}": float(v) for k, v in read.items()})
        if each.losses is not None:
            counters[f"{each.name} losses"] = float(each.losses)
    grown = growth(host, "eth_errors", counters, per)
    for each in chosen:
        if f"{each.name} rx_packets" not in counters:
            outcomes.append(unknown("Unreadable", f"{each.name} tells no statistics", target=each.name))
            continue
        outcomes += [
            unknown("Unreadable", f"{each.name}: {name} cannot be read: {why}", target=each.name)
            for name, why in unread[each.name].items()
        ]
        new = {k: amount(grown, f"{each.name} {k}") for k in (*ethernet.COUNTERS, "losses")}
        outcomes += _judge_errors(each.name, new, (warn_at, crit_at), packets, flaps, per)
    return _result(outcomes, len(chosen), "without errors that count")


def _judge_errors(
    name: str, new: Dict[str, float], levels: Tuple[float, float], packets: int, flaps: int, per: float
) -> List[Outcome]:
    outcomes: List[Outcome] = []
    evidence = tuple(f"{key} +{value:.0f}" for key, value in new.items() if value)
    for way, verb in (("rx", "received"), ("tx", "sent")):
        errors, passed = new[f"{way}_errors"], new[f"{way}_packets"]
        share = errors * 100 / (passed + errors) if passed + errors >= max(packets, 1) else 0.0
        metrics = (Metric(f"{way}_error_share", share, "%"), Metric(f"{way}_errors", errors))
        message = f"{name} has errors in {share:.2f} % of {verb} packets ({errors:.0f} in {show_seconds(per)})"
        if levels[1] and share >= levels[1]:
            outcomes.append(crit("EthernetErrors", message, target=name, metrics=metrics, evidence=evidence))
        elif levels[0] and share >= levels[0]:
            outcomes.append(
                warn("EthernetErrors", message, target=name, metrics=metrics, action=Action.INSPECT, evidence=evidence)
            )
    if flaps and new["losses"] >= flaps:
        message = f"{name} lost its carrier {new['losses']:.0f} times in {show_seconds(per)}"
        outcomes.append(warn("LinkFlaps", message, target=name, action=Action.INSPECT, evidence=evidence))
    return outcomes


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
