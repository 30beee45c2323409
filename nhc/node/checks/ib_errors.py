"""Growing error counts of RDMA ports: links that flip bits, lose packets, wait for answers."""

from __future__ import annotations

from nhc.core.check import Judged, check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Metric, Outcome, crit, ok, skip, unknown, warn
from nhc.core.units import seconds, show_seconds
from nhc.node.checks.ib import NAMES, NO_PORT, chosen
from nhc.node.facts.history import amount, growth
from nhc.node.facts.infiniband import CEILING, EFA_LAYER, Port, read_counters, unread_counters

if TYPE_CHECKING:
    from typing import Dict, Iterable, List, Optional, Sequence

LINK: Dict[str, float] = {
    # The thresholds of rdma-core's infiniband-diags/etc/error_thresholds, taken by the hour.
    "symbol_error": 10,
    "link_error_recovery": 10,
    "link_downed": 10,
    "port_rcv_errors": 10,
    "port_rcv_remote_physical_errors": 100,
    "port_rcv_switch_relay_errors": 0,  # counts multicast that comes back: not an error of this port
    "port_xmit_discards": 100,
    "port_xmit_constraint_errors": 100,
    "port_rcv_constraint_errors": 100,
    "local_link_integrity_errors": 10,
    "excessive_buffer_overrun_errors": 10,
    "VL15_dropped": 100,
}
TRANSPORT: Dict[str, float] = {
    # The driver's counters (mlx5 and others). No vendor publishes limits: timeouts and sequence errors mean that
    # packets were lost, and a hundred an hour is far above what a sound fabric shows. Those with 0 grow on
    # a sound one too (adaptive routing reorders, receivers are slow): reported, judged with -l only.
    "local_ack_timeout_err": 100,
    "packet_seq_err": 100,
    "implied_nak_seq_err": 100,
    "roce_adp_retrans_to": 100,
    "rx_icrc_encapsulated": 100,
    "out_of_sequence": 0,
    "out_of_buffer": 0,
    "rnr_nak_retry_err": 0,
    "duplicate_request": 0,
    "roce_adp_retrans": 0,
    "roce_slow_restart": 0,
    "rx_icrc_errors": 0,
    "seq_err_naks_rcvd": 0,
    "to_retransmits": 0,
}
IN_GIGABIT = 3.6
"""Bit errors an hour for each Gb/s at a bit error rate of 1e-12, the most that InfiniBand allows a link
(ibdiagnet's default threshold, too)."""


class CounterLimit(NamedTuple):
    """What one counter may grow by: WARN from `warn_at` on, CRIT from `crit_at` on (0: never)."""

    name: str
    warn_at: float
    crit_at: float


def limit(value: str) -> CounterLimit:
    """`symbol_error=10` or, with a limit for CRIT, `symbol_error=10:1000`. Raises ValueError."""
    name, equals, numbers = value.partition("=")
    low, colon, high = numbers.partition(":")
    known = name in LINK or name in TRANSPORT
    if not equals or not low.isdigit() or (colon and not high.isdigit()):
        raise ValueError(f"{value!r} is not NAME=WARN or NAME=WARN:CRIT, as in symbol_error=10:1000")
    if not known:
        raise ValueError(f"{name!r} is not a counter that this check reads ({', '.join((*LINK, *TRANSPORT))})")
    return CounterLimit(name, float(low), float(high) if high else 0.0)


@check(
    "check_ib_errors",
    opt("-l --limit", "limits", limit, "NAME=WARN[:CRIT]: what a counter may grow by; 0 for never", many=True),
    opt("-p --per", "per", seconds, "the time over which growth counts", 3600.0),
    NAMES,
    timeout=20,
)
def check_ib_errors(
    host: Host, limits: Sequence[CounterLimit] = (), per: float = 3600.0, ports: Sequence[str] = ()
) -> Judged:
    """RDMA links see few errors, and none more than the standard allows.

    Reads each port's counters and hw_counters below /sys/class/infiniband, and judges what was added over
    an hour (-p), remembered from run to run; totals say nothing, and the first run after boot only takes
    note. WARN from 10 symbol errors, link recoveries, link downs, receive errors, integrity errors or
    buffer overruns on, and from 100 discards, constraint errors, remote physical errors or dropped
    management packets on, the thresholds of rdma-core's error_thresholds taken by the hour; from 100
    acknowledgement timeouts, sequence errors, adaptive retransmission timeouts or ICRC errors on. CRIT where
    symbol errors exceed a bit error rate of 1e-12 at the port's rate (1440 an hour at 400 Gb/s), which is
    InfiniBand's limit. Other counters are reported, and judged where -l gives them a limit. A counter that has
    reached its ceiling cannot grow and is UNKNOWN: clear it with `perfquery -R`.

    Example: * || check_ib_errors -l port_xmit_discards=1000 -l out_of_sequence=100000
    """
    judged, outcomes = chosen(host, ports)
    if not judged and not outcomes:
        return NO_PORT
    judged = [port for port in judged if port.link_layer != EFA_LAYER]
    if not judged and not outcomes:
        return skip("NoPortCounters", "only EFA devices on this node: see check_efa_errors")
    values = {port.name: _read(host, port) for port in judged}
    flat = {f"{name} {key}": float(value) for name, counters in values.items() for key, value in counters.items()}
    # Counters outlive a restart of the node on a virtual function: what they held at boot is not known.
    grown = growth(host, f"ib-errors-{per:g}", flat, per, since_boot=False)
    allowed = {each.name: each for each in limits}
    judgements = 0
    for port in judged:
        counters = values[port.name]
        unread = _unread(host, port, counters, allowed, per)
        if unread or not counters:
            shown = [f"{key}: {why}" for key, why in unread.items()]
            message = f"{port.name} has {len(unread) or 'no'} counters that can{'not' * bool(unread)} be read"
            message += f" ({', '.join(shown[:3])}{' ...' * (len(shown) > 3)})" if shown else ""
            outcomes.append(unknown("IbCountersUnreadable", message, target=port.name, evidence=tuple(shown)))
        if not counters:
            continue
        new = {key: amount(grown, f"{port.name} {key}") for key in counters}
        outcomes += _judge(port, counters, new, allowed, per)
        judgements += 1
    return outcomes or ok(f"{judgements} RDMA ports without errors that count")


def _read(host: Host, port: Port) -> Dict[str, int]:
    return {**read_counters(host, port, tuple(LINK)), **read_counters(host, port, tuple(TRANSPORT), "hw_counters")}


def _unread(
    host: Host, port: Port, counters: Dict[str, int], allowed: Dict[str, CounterLimit], per: float
) -> Dict[str, str]:
    """Why counters that would be judged, and that the port has, cannot be read."""

    def judged(names: Iterable[str]) -> List[str]:
        missing = [name for name in names if name not in counters]
        return [name for name in missing if (allowed.get(name) or _default(port, name, per)).warn_at]

    return {**unread_counters(host, port, judged(LINK)),
            **unread_counters(host, port, judged(TRANSPORT), "hw_counters")}  # fmt: skip


def _judge(
    port: Port, counters: Dict[str, int], new: Dict[str, float], allowed: Dict[str, CounterLimit], per: float
) -> List[Outcome]:
    outcomes: List[Outcome] = []
    evidence = tuple(f"{key} +{value:g}" for key, value in new.items() if value)
    for key, value in new.items():
        bound = allowed.get(key) or _default(port, key, per)
        metrics = (Metric(f"ib_{key}", value),)
        message = f"{port.name} {key} grew by {value:g} in {show_seconds(per)}"
        if bound.crit_at and value >= bound.crit_at:
            message += f" (limit {bound.crit_at:g})"
            outcomes.append(crit("IbErrors", message, target=port.name, metrics=metrics, evidence=evidence))
        elif bound.warn_at and value >= bound.warn_at:
            message += f" (limit {bound.warn_at:g})"
            outcomes.append(warn("IbErrors", message, target=port.name, metrics=metrics, evidence=evidence))
        elif bound.warn_at and CEILING.get(key) == counters[key]:
            message = f"{port.name} {key} is at its ceiling of {counters[key]}: errors no longer show"
            outcomes.append(unknown("IbCounterFull", message, target=port.name, metrics=metrics))
    return outcomes


def _default(port: Port, key: str, per: float) -> CounterLimit:
    hours = per / 3600
    warn_at = LINK.get(key, TRANSPORT.get(key, 0.0)) * hours
    if warn_at:
        warn_at = max(warn_at, 1.0)
    ber: Optional[float] = None
    if key == "symbol_error" and port.rate_gbps and port.link_layer == "InfiniBand":
        ber = max(port.rate_gbps * IN_GIGABIT * hours, warn_at)
    return CounterLimit(key, warn_at, ber or 0.0)
