"""RDMA ports (InfiniBand, RoCE, EFA): they are present, up, and as fast as they should be."""

from __future__ import annotations

from nhc.core.check import Judged, arg, check, flag, opt, rest
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.matching.nodeset import mcheck
from nhc.core.model import Action, Metric, Outcome, crit, known, ok, skip, unknown
from nhc.core.units import number, text, whole
from nhc.node.facts.carrier import seen_outages
from nhc.node.facts.infiniband import EFA_LAYER, Port, adapter, best_rate, read_counters, without_verbs
from nhc.node.facts.infiniband import ports as all_ports

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence, Tuple

NO_PORT = skip("NoRdmaPort", "no RDMA port on this node")
NAMES = rest("ports", text, "ports (mlx5_0:1), devices (mlx5_0) or match strings; none means every port")
SEEN = "ib-ports"
"""Memory: which ports have been up since boot, and how fast each was at best."""

LAYERS = {"ib": "InfiniBand", "roce": "Ethernet", "eth": "Ethernet", "efa": EFA_LAYER}


def layer(value: str) -> str:
    """A link layer as sysfs calls it: `ib`, `roce` (or `eth`), `efa`."""
    name = LAYERS.get(value.lower())
    if name is None:
        raise ValueError(f"{value!r} is not a link layer (ib, roce or efa)")
    return name


def named(port: Port, name: str) -> bool:
    """Whether a name in the configuration means this port."""
    return name in (port.name, port.device) or mcheck(port.name, name) or mcheck(port.device, name)


def chosen(host: Host, names: Sequence[str]) -> Tuple[List[Port], List[Outcome]]:
    """The ports to judge, and an outcome for each name that no port has."""
    ports = host.fact(all_ports)
    if not names:
        return list(ports), []
    missing = [name for name in dict.fromkeys(names) if not any(named(port, name) for port in ports)]
    message = "there is no RDMA port {}: the adapter is gone, or its driver is not loaded"
    outcomes = [crit("IbPortMissing", message.format(name), target=name, action=Action.REBOOT) for name in missing]
    return [port for port in ports if any(named(port, name) for name in names)], outcomes


def port_text(port: Port) -> str:
    speed = "rate unknown" if port.rate_gbps is None else f"{port.rate_gbps:g} Gb/s"
    parts = (port.name, port.state or "?", port.phys_state or "?", speed, port.link_layer, port.netdev)
    return " ".join(part for part in parts if part)


def remembered(host: Host) -> Dict[str, float]:
    """The best rate at which each port has been up since boot, this run included; 0 if it had no rate."""
    boot = host.boot_id()
    best: Dict[str, float] = {}

    def change(stored: Dict[str, object]) -> None:
        kept = stored.get("best") if stored.get("boot") == boot else {}
        best.clear()
        if isinstance(kept, dict):
            best.update((str(k), float(v)) for k, v in kept.items() if isinstance(v, (int, float)))
        for port in host.fact(all_ports):
            if port.up:
                best[port.name] = max(best.get(port.name, 0.0), port.rate_gbps or 0.0)
        stored.clear()
        stored.update(boot=boot, best=dict(best))

    host.memory.update(SEEN, change)
    return best


def _waits_for_subnet_manager(port: Port) -> bool:
    """Whether a port that is not up has its link, and only waits to be activated."""
    return port.phys_state == "LinkUp" and port.link_layer == "InfiniBand"


def unusable(host: Host, ports: Sequence[Port]) -> List[Outcome]:
    """An outcome for each device that no program can open, in any state of its ports."""
    missing = host.fact(without_verbs)
    return [
        crit("IbVerbsMissing", f"{device} is no device that a program can open: {missing[device]}", target=device,
             action=Action.RELOAD_DRIVER)
        for device in dict.fromkeys(port.device for port in ports) if device in missing
    ]  # fmt: skip


def down(port: Port) -> Outcome:
    """What is wrong with a port that is not up."""
    if port.state_unread or not port.state:
        why = f" ({port.state_unread})" if port.state_unread else ""
        return unknown("IbStateUnknown", f"{port.name} does not tell its state{why}", target=port.name)
    evidence = (port_text(port),)
    if _waits_for_subnet_manager(port):
        message = f"{port.fault()} on a link that is up: no subnet manager has activated it"
        return crit("IbNotActive", message, target=port.name, evidence=evidence)
    message = f"{port.fault()} ({port.phys_state or 'physical state unknown'})"
    return crit("IbPortDown", message, target=port.name, evidence=evidence)


@check(
    "check_ib_state",
    NAMES,
    timeout=5,
    settles=("IbPortDown", "IbPortMissing", "IbVerbsMissing"),
    starting=("IbNotActive",),
)
def check_ib_state(host: Host, ports: Sequence[str] = ()) -> Judged:
    """RDMA ports are ACTIVE and LinkUp.

    Reads state and phys_state below /sys/class/infiniband. A named port must be up: CRIT where it is not or
    is missing. Without names every port that has been up since boot must still be; a port that never was is
    taken for unused, as dual-port adapters with one cable have one, unless none is up at all. A link that is
    up but not ACTIVE is CRIT in either case: no subnet manager has configured it. So is a device without
    /dev/infiniband/uverbsN, which no program can open. SKIP without RDMA ports.
    `check_ib_ports` says how many there should be.

    Example: {gpu[01-64]} || check_ib_state mlx5_0 mlx5_1
    """
    judged, outcomes = chosen(host, ports)
    if not judged and not outcomes:
        return NO_PORT
    best = remembered(host)
    host.fact(seen_outages)  # for check_ib_link_flapping, which may look less often
    outcomes += unusable(host, judged)
    up = [port for port in judged if port.up]
    for port in judged:
        if port.up:
            continue
        trained = port.phys_state == "LinkUp"
        used = port.name in best or read_counters(host, port, ("link_downed",)).get("link_downed")
        if ports or trained or used or port.state_unread or not port.state or not up:
            outcomes.append(down(port))
    unused = len(judged) - len(up)
    return outcomes or ok(f"{len(up)} RDMA ports up" + (f", {unused} never used" if unused else ""))


@check(
    "check_ib_ports",
    opt("-l --layer", "link_layer", layer, "count only ports of this link layer: ib, roce or efa"),
    opt("-d --device", "devices", text, "count only these devices, ports or match strings; may be repeated", many=True),
    flag(
        "-o --or-none", "or_none", "SKIP where the node has no such port at all: adapters that are attached by choice"
    ),
    arg("count", whole, "how many ports must be up", required=True),
    arg("rate", number, "data rate in Gb/s that each of them must have at least, as in 400"),
    timeout=5,
    settles=("IbPortDown", "IbPortMissing", "IbVerbsMissing", "IbRateMismatch"),
    starting=("IbNotActive",),
)
def check_ib_ports(
    host: Host,
    count: int,
    rate: Optional[float] = None,
    link_layer: str = "",
    devices: Sequence[str] = (),
    or_none: bool = False,
) -> Judged:
    """As many RDMA ports are up, at full rate, as a node of this type has.

    Counts the ports that are ACTIVE and LinkUp at the given rate or more, whatever they are called, so that
    one line serves a node type on which device names differ. Fewer than expected is CRIT, with the ports that
    are down, slow or missing as evidence; more is fine, as the management network's adapter often can do
    RDMA as well. With -o a node without any such port is SKIP: in clouds where adapters are attached when
    an instance is made, it was made without.

    Example: {gpu[01-64]} || check_ib_ports -l ib 8 400
    """
    host.fact(seen_outages)
    ports = [p for p in host.fact(all_ports) if not link_layer or p.link_layer == link_layer]
    if devices:
        ports = [port for port in ports if any(named(port, name) for name in devices)]
    if or_none and not ports:
        return NO_PORT
    up = [port for port in ports if port.up]
    silent = [port for port in up if rate is not None and port.rate_gbps is None]
    hidden = [port for port in ports if port.state_unread and not port.up]
    good = [port for port in up if rate is None or (port.rate_gbps is not None and port.rate_gbps >= rate)]
    kind = next((key for key, value in LAYERS.items() if value == link_layer), "RDMA")
    at = f" with at least {rate:g} Gb/s" if rate is not None else ""
    metrics = (Metric("ib_ports_up", len(up)), Metric("ib_ports_good", len(good)))
    closed = unusable(host, good)
    if closed:
        return closed
    if len(good) >= count:
        return ok(f"{len(good)} {kind} ports up{at}", metrics=metrics)
    evidence = tuple(port_text(port) for port in ports if port not in good)
    if len(good) + len(silent) + len(hidden) >= count and hidden:
        told = ", ".join(f"{port.name} {port.state_unread}" for port in hidden)
        message = f"{len(good)} of {count} {kind} ports are up{at}; the state of others cannot be read: {told}"
        return unknown("IbStateUnknown", message, metrics=metrics, evidence=evidence)
    if len(good) + len(silent) >= count:
        message = f"{len(silent)} of {len(up)} {kind} ports are up, but their driver does not tell their rate"
        return unknown("IbRateUnknown", message, metrics=metrics, evidence=evidence)
    message = f"{len(good)} of {count} {kind} ports are up{at}"
    faults = ", ".join(port.fault(rate) for port in ports if port not in good)
    message += f": {faults or ('no adapter' if not ports else '')}".removesuffix(": ")
    if len(ports) < count:
        message += f" ({len(ports)} there)"
        return crit("IbPortMissing", message, metrics=metrics, evidence=evidence, action=Action.REBOOT)
    bad = [port for port in ports if port not in good]
    reason = "IbRateMismatch" if len(up) >= count else "IbPortDown"
    if len(up) < count and all(_waits_for_subnet_manager(port) for port in bad if not port.up):
        reason = "IbNotActive"
    return crit(reason, message, metrics=metrics, evidence=evidence)


@check("check_ib_layer", arg("link_layer", layer, "ib, roce or efa", required=True), NAMES, timeout=5)
def check_ib_layer(host: Host, link_layer: str, ports: Sequence[str] = ()) -> Judged:
    """RDMA ports have the link layer they should: InfiniBand, or Ethernet for RoCE.

    Adapters that can do both (VPI) come up as the other one after a firmware reset; applications then find
    no peer. Reads link_layer of each port below /sys/class/infiniband.

    Example: * || check_ib_layer ib mlx5_0 mlx5_1
    """
    judged, outcomes = chosen(host, ports)
    if not judged and not outcomes:
        return NO_PORT
    for port in judged:
        if not port.link_layer:
            why = f" ({port.unread['link_layer']})" if "link_layer" in port.unread else ""
            outcomes.append(
                unknown("IbLayerUnknown", f"{port.name} does not tell its link layer{why}", target=port.name)
            )
        elif port.link_layer != link_layer:
            message = f"{port.name} is {port.link_layer}, {link_layer} expected"
            outcomes.append(crit("IbLayerMismatch", message, target=port.name, action=Action.RESET_DEVICE))
    return outcomes or ok(f"{len(judged)} ports are {link_layer}")


@check(
    "check_ib_rate",
    opt("-r --rate", "rate", number, "least data rate in Gb/s; the port's own best where not given"),
    NAMES,
    timeout=15,
    settles=("IbRateDegraded", "IbPortDown", "IbPortMissing"),
    starting=("IbNotActive",),
)
def check_ib_rate(host: Host, rate: Optional[float] = None, ports: Sequence[str] = ()) -> Judged:
    """RDMA links run at full rate.

    A worn cable, a dirty connector or a bad lane makes a link train down to fewer lanes or a lower speed: it
    stays ACTIVE. The expected rate is -r. Without it, it is the best of what the port itself says it
    supports (smpquery of infiniband-diags, InfiniBand only), what it has run at since boot, and what another
    port of the same adapter model on this node runs at. A port that is the only one of its model and whose
    own best nothing tells is UNKNOWN, never OK. Ports that are down are `check_ib_state`'s.

    Example: {gpu[01-64]} || check_ib_rate -r 400
    """
    judged, outcomes = chosen(host, ports)
    if not judged and not outcomes:
        return NO_PORT
    up = [port for port in judged if port.up]
    best = remembered(host)
    outcomes += filter(None, (_judge_rate(host, port, rate, best) for port in up))
    outcomes += [down(port) for port in judged if port.state_unread and not port.up]
    if not up and not outcomes:
        return skip("NoActivePort", "no RDMA port is up: see check_ib_state")
    slowest = min((port.rate_gbps for port in up if port.rate_gbps is not None), default=None)
    metrics = known("Gb/s", ib_rate_min=slowest)
    return outcomes or ok(f"{len(up)} RDMA ports at full rate", metrics=metrics)


def _judge_rate(host: Host, port: Port, rate: Optional[float], best: Dict[str, float]) -> Optional[Outcome]:
    if port.rate_gbps is None:
        why = f" ({port.unread['rate']})" if "rate" in port.unread else ""
        message = f"{port.name} is up, but its driver does not tell the rate{why}"
        return unknown("IbRateUnknown", message, target=port.name)
    metrics = (Metric("ib_rate", port.rate_gbps, "Gb/s"),)
    if rate is not None:
        wanted, because = rate, "expected"
    else:
        reference = _own_best(host, port, best)
        if reference is None:
            message = f"{port.name} runs at {port.rate_gbps:g} Gb/s: nothing tells what it should do (-r, or smpquery)"
            return unknown("NoExpectation", message, target=port.name, metrics=metrics)
        wanted, because = reference
    if port.rate_gbps >= wanted:
        return None
    message = f"{port.fault(wanted)}: {wanted:g} {because}"
    return crit("IbRateDegraded", message, target=port.name, metrics=metrics, evidence=(port_text(port),))


def _own_best(host: Host, port: Port, best: Dict[str, float]) -> Optional[Tuple[float, str]]:
    """The rate that the port should have and where that comes from; None if nothing tells."""
    assert port.rate_gbps is not None
    own = best_rate(host, port)
    guesses = [(own, "is what it supports")] if own is not None else []
    if best.get(port.name, 0.0) > port.rate_gbps:
        guesses.append((best[port.name], "since boot"))
    board = adapter(host, port.device).board
    alike = [
        p
        for p in host.fact(all_ports)
        if p.name != port.name and p.up and p.link_layer == port.link_layer and p.rate_gbps
        and board and adapter(host, p.device).board == board
    ]  # fmt: skip
    if alike:
        fastest = max(alike, key=lambda p: p.rate_gbps or 0.0)
        guesses.append((fastest.rate_gbps or 0.0, f"on {fastest.name} of the same model"))
    return max(guesses, key=lambda guess: guess[0]) if guesses else None
