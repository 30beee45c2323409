"""Amazon's Elastic Fabric Adapters: all present, up, and without relevant errors."""

from __future__ import annotations

from nhc.core.check import Judged, arg, check, flag, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Action, Metric, Outcome, crit, ok, skip, unknown, warn
from nhc.core.units import count, percent, seconds, show_seconds, whole
from nhc.node.checks.ib import unusable
from nhc.node.facts.history import amount, growth
from nhc.node.facts.infiniband import TROUBLE, efa_counters, efa_devices, efa_functions, unread_efa_counters

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence

_NO_EFA = skip("NoEfa", "no Elastic Fabric Adapter on this node")

LIMITS: Dict[str, float] = {
    # Amazon publishes no limits. An administrative command without an answer means that the device hangs; the other
    # limits are far above what a healthy fabric counts in an hour.
    "no_completion_cmds": 1,
    "retrans_timeout_events": 100,
    "unresponsive_remote_events": 100,
    "impaired_remote_conn_events": 100,
}


@check(
    "check_efa_devices",
    flag("-o --or-none", "or_none", "SKIP where none is attached: instances can be made without"),
    arg("count", whole, "how many adapters the node has"),
    timeout=5,
    settles=("EfaPortDown", "EfaMissing", "EfaNoDriver"),
)
def check_efa_devices(host: Host, count: Optional[int] = None, or_none: bool = False) -> Judged:
    """Every Elastic Fabric Adapter is there, and its port is up.

    Counts RDMA devices of the efa driver, whatever udev called them, and compares with the number given and
    with the adapters on the PCI bus: one on the bus that the driver does not show is CRIT. So are a missing
    adapter and a port that is not ACTIVE. Without a number, or with -o, SKIP where there is none.

    Example: p5-* || check_efa_devices 32
    """
    ports = host.fact(efa_devices)
    on_bus = host.fact(efa_functions)
    metrics = (Metric("efa_devices", len(ports)), Metric("efa_on_bus", on_bus))
    if not ports and not on_bus and (or_none or not count):
        return _NO_EFA
    outcomes = [
        crit("EfaPortDown", f"{port.name} is {port.state or 'in an unknown state'}", target=port.name)
        for port in ports
        if port.state != "ACTIVE"
    ]
    outcomes += unusable(host, ports)
    if count is not None and len(ports) < count:
        message = f"{len(ports)} Elastic Fabric Adapters, {count} expected"
        if on_bus > len(ports):
            message += f" ({on_bus} on the PCI bus: is the efa driver loaded?)"
        outcomes.append(crit("EfaMissing", message, metrics=metrics, action=Action.REBOOT))
    elif on_bus > len(ports):
        message = f"{len(ports)} of {on_bus} Elastic Fabric Adapters on the PCI bus have a driver"
        outcomes.append(crit("EfaNoDriver", message, metrics=metrics, action=Action.RELOAD_DRIVER))
    elif count is not None and len(ports) > count:
        message = f"{len(ports)} Elastic Fabric Adapters, {count} expected: another node type?"
        outcomes.append(warn("EfaSurplus", message, metrics=metrics))
    return outcomes or ok(f"{len(ports)} Elastic Fabric Adapters up", metrics=metrics)


class GrowthLimit(NamedTuple):
    """What a counter may grow by within the window."""

    name: str
    warn_at: float


def limit(value: str) -> GrowthLimit:
    """`retrans_timeout_events=100`. Raises ValueError."""
    name, equals, digits = value.partition("=")
    if not equals or not digits.isdigit():
        raise ValueError(f"{value!r} is not NAME=NUMBER, as in retrans_timeout_events=100")
    if name not in TROUBLE:
        raise ValueError(f"{name!r} is not a counter that this check reads ({', '.join(TROUBLE)})")
    return GrowthLimit(name, float(digits))


@check(
    "check_efa_errors",
    opt("-d --drops", "drops", percent, "WARN from this share of received packets dropped on", 1.0),
    opt("-n --packets", "packets", count, "packets within --per below which a share tells nothing", 1000),
    opt("-l --limit", "limits", limit, "NAME=WARN: what a counter may grow by; 0 for never", many=True),
    opt("-p --per", "per", seconds, "the time over which growth counts", 3600.0),
    timeout=15,
)
def check_efa_errors(
    host: Host, drops: float = 1.0, packets: int = 1000, limits: Sequence[GrowthLimit] = (), per: float = 3600.0
) -> Judged:
    """Elastic Fabric Adapters lose next to nothing and answer their driver.

    Reads hw_counters of each adapter and judges what was added over an hour (-p), remembered from run to
    run. WARN where a hundredth of the received packets was dropped (the share that Prometheus' node-mixin
    takes for other interfaces), where a command had no answer (no_completion_cmds), and from 100 timeouts of
    retransmission, unresponsive or impaired remotes on. Amazon publishes no limits; -l sets others. Trouble
    with a remote is often the remote's: compare nodes.

    Example: p5-* || check_efa_errors -l retrans_timeout_events=1000
    """
    ports = host.fact(efa_devices)
    if not ports:
        return _NO_EFA
    outcomes: List[Outcome] = []
    values = {port.device: efa_counters(host, port) for port in ports}
    unread = {port.device: unread_efa_counters(host, port, values[port.device]) for port in ports}
    flat = {f"{device} {key}": float(value) for device, counters in values.items() for key, value in counters.items()}
    grown = growth(host, f"efa-errors-{per:g}", flat, per, since_boot=False)
    allowed = {**LIMITS, **{each.name: each.warn_at for each in limits}}
    for device, counters in values.items():
        if not counters:
            outcomes.append(unknown("EfaCountersUnreadable", f"{device} has no counters to read", target=device))
            continue
        outcomes += [
            unknown("EfaCountersUnreadable", f"{device}: {key} cannot be read: {why}", target=device)
            for key, why in unread[device].items()
        ]
        new = {key: amount(grown, f"{device} {key}") for key in counters}
        evidence = tuple(f"{key} +{value:g}" for key, value in new.items() if value)
        total = new.get("rx_pkts", 0.0) + new.get("rx_drops", 0.0)
        share = new.get("rx_drops", 0.0) * 100 / total if total >= max(packets, 1) else 0.0
        if drops and share >= drops:
            message = f"{device} dropped {share:.2f} % of received packets in {show_seconds(per)}"
            metrics = (Metric("efa_drop_share", share, "%"),)
            outcomes.append(warn("EfaDrops", message, target=device, metrics=metrics, evidence=evidence))
        for key, warn_at in allowed.items():
            value = new.get(key, 0.0)
            if warn_at and value >= warn_at:
                message = f"{device} {key} grew by {value:g} in {show_seconds(per)} (limit {warn_at:g})"
                metrics = (Metric(f"efa_{key}", value),)
                outcomes.append(warn("EfaErrors", message, target=device, metrics=metrics, evidence=evidence))
    return outcomes or ok(f"{len(ports)} Elastic Fabric Adapters without errors that count")
