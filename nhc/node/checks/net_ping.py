"""Hosts that must answer a ping, soon and every time."""

from __future__ import annotations

from nhc.core.check import check, flag, opt, rest
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Metric, Outcome, crit, known, ok, unknown, warn
from nhc.core.units import number, percent, seconds, show_seconds, text, whole
from nhc.node.facts.ping import Summary, parse_summary

if TYPE_CHECKING:
    from typing import Callable, List, Optional, Sequence, Tuple

_PRIVILEGE = ("not permitted", "Permission denied", "usage:", "Usage:", "invalid argument", "invalid option")
"""In what ping says where it could not even try."""


@check(
    "check_net_ping",
    opt("-I --interface", "interface", text, "interface or address to send from"),
    opt("-W --wait", "wait", number, "seconds to wait for an answer"),
    opt("-c --count", "count", whole, "packets to send (default 1)", 1),
    opt("-i --interval", "interval", number, "seconds between packets"),
    opt("-s --size", "size", whole, "bytes of data in a packet"),
    opt("-t --ttl", "ttl", whole, "hops a packet may take (default 2)", 2),
    opt("-w --deadline", "deadline", whole, "seconds for one target, all packets (default 1)", 1),
    opt("-a --average", "average", seconds, "longest average round trip, as 500ms"),
    opt("-m --max", "longest", seconds, "longest round trip of any packet"),
    opt("-l --loss", "loss", percent, "share of packets that may be lost; without it every packet must come back"),
    flag("-0 --non-fatal", "nonfatal", "only warn of what is slow or lost; no answer at all stays CRIT"),
    rest("targets", text, "hosts to ping", required=True),
    timeout=30.0,
)
def check_net_ping(
    host: Host,
    targets: Sequence[str],
    interface: Optional[str] = None,
    wait: Optional[float] = None,
    count: int = 1,
    interval: Optional[float] = None,
    size: Optional[int] = None,
    ttl: int = 2,
    deadline: int = 1,
    average: Optional[float] = None,
    longest: Optional[float] = None,
    loss: Optional[float] = None,
    nonfatal: bool = False,
) -> Outcome:
    """Every given host answers a ping.

    Runs `ping -q -n` once for each host with the options as given; the default of two hops keeps it in the
    cluster. Stops at the first host that does not answer, or answers too slowly (-a, -m) or too seldom (-l). LBNL
    NHC's check has no such limits; without them this one judges as it does. Give -c and -w with them: one packet
    tells little, and packets are a second apart unless -i says less.

    Example: * || check_net_ping -I eth0 -W 3 -c 5 -i 0.2 -w 3 -a 2ms -l 0 10.0.0.1
    """
    options: List[str] = []
    for letter, value in (("-I", interface), ("-i", interval), ("-s", size), ("-t", ttl), ("-c", count),
                          ("-w", deadline), ("-W", wait)):  # fmt: skip
        if value is not None:
            options += [letter, value if isinstance(value, str) else f"{value:g}"]
    limits = (average, longest, loss)
    metrics: Tuple[Metric, ...] = ()
    for target in targets:
        try:
            ended = host.run(("ping", "-q", "-n", *options, "--", target), timeout=max(deadline, 1) + 1.0)
        except OSError as error:
            return unknown("CommandMissing", f"ping: {error.strerror}")
        lines = ended.tail(10)
        if ended.status and any(sign in line for line in lines for sign in _PRIVILEGE):
            return unknown("PingFailed", f"ping cannot be used: {lines[-1]}", evidence=lines)
        summary = parse_summary(ended.stdout)
        # With -c and -w ping's status is 1 as soon as one packet of them is missing.
        some = loss is not None and summary.loss is not None and summary.loss < 100
        if ended.timed_out or (ended.status and not some):
            return crit("NoResponse", f"No response received from {target}", evidence=lines)
        if limits == (None, None, None):
            continue
        metrics = (
            *known("%", packet_loss=summary.loss),
            *known("s", round_trip_average=summary.average, round_trip_max=summary.longest),
        )
        outcome = _judge(target, summary, limits, metrics, warn if nonfatal else crit, lines)
        if outcome:
            return outcome
    return ok(f"{len(targets)} host(s) answer", metrics=metrics if len(targets) == 1 else ())


def _judge(
    target: str,
    summary: Summary,
    limits: Tuple[Optional[float], Optional[float], Optional[float]],
    metrics: Tuple[Metric, ...],
    say: Callable[..., Outcome],
    lines: Tuple[str, ...],
) -> Optional[Outcome]:
    """What is wrong with a host's answers, None where nothing is. `say` makes the outcome."""
    average, longest, loss = limits
    if (summary.loss is None and loss is not None) or (summary.average is None and (average or longest)):
        return unknown("PingUnreadable", f"ping's summary for {target} is not understood", evidence=lines)
    if loss is not None and (summary.loss or 0.0) > loss:
        message = f"{summary.loss:g} % of packets to {target} are lost, limit {loss:g} %"
        return say("PacketLoss", message, target=target, metrics=metrics, evidence=lines)
    for limit, time, what in ((average, summary.average, "on average"), (longest, summary.longest, "at most")):
        if limit is not None and time is not None and time > limit:
            message = f"{target} answers in {_short(time)} {what}, limit {_short(limit)}"
            return say("LatencyHigh", message, target=target, metrics=metrics, evidence=lines)
    return None


def _short(value: float) -> str:
    return f"{value * 1000:.3g}ms" if value < 1 else show_seconds(value)
