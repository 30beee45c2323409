"""The node's clock: whether something keeps it right, and how far it is off."""

from __future__ import annotations

from nhc.check import check, flag, opt
from nhc.facts.timesync import ClockState, NoTimeServiceError, clock_state
from nhc.host import Host
from nhc.light import TYPE_CHECKING
from nhc.model import Metric, Outcome, crit, ok, unknown, warn
from nhc.units import seconds

if TYPE_CHECKING:
    from typing import Union


@check("check_clock_sync", flag("-c --critical", "critical", "a clock that is not synchronized is CRIT, not WARN"))
def check_clock_sync(host: Host, critical: bool = False) -> Outcome:
    """A time service keeps the clock synchronized.

    Asks chronyd (`chronyc -c tracking`), else ntpd (`ntpq -c rv`), else systemd (`timedatectl show`), and
    takes the first that answers. Not synchronized is WARN, as in Prometheus' node-mixin
    (NodeClockNotSynchronising): a clock that runs freely drifts by about a second a day, and
    check_clock_offset judges where it has got to. UNKNOWN where no time service answers.

    Example: * || check_clock_sync
    """
    state = _ask(host)
    if isinstance(state, Outcome):
        return state
    if state.synchronized:
        return ok(f"{state.service} keeps the clock" + (f", from {state.source}" if state.source else ""))
    say = crit if critical else warn
    return say(
        "ClockNotSynchronized", f"{state.service} says the clock is not synchronized", evidence=(state.evidence,)
    )


@check(
    "check_clock_offset",
    opt("-w --warn", "warn_at", seconds, "WARN from this offset on", 0.05),
    opt("-c --crit", "crit_at", seconds, "CRIT from this offset on", 1.0),
)
def check_clock_offset(host: Host, warn_at: float = 0.05, crit_at: float = 1.0) -> Outcome:
    """The clock is off by less than a limit.

    The offset is the time service's own estimate (see check_clock_sync for which is asked). WARN from
    50 ms, the limit of Prometheus' node-mixin (NodeClockSkewDetected) and of Ceph's monitors
    (mon_clock_drift_allowed); CRIT from 1 s, where the distributions' chrony.conf gives up slewing
    (`makestep 1.0 3`). UNKNOWN where the clock is not synchronized: then nobody knows its offset.

    Example: * || check_clock_offset -w 10ms -c 500ms
    """
    state = _ask(host)
    if isinstance(state, Outcome):
        return state
    if not state.synchronized:
        return unknown(
            "ClockNotSynchronized", f"{state.service} is not synchronized: the offset is not known",
            evidence=(state.evidence,),
        )  # fmt: skip
    if state.offset is None:
        return unknown("OffsetUnknown", f"{state.service} does not tell the clock's offset", evidence=(state.evidence,))
    metrics = [Metric("offset", state.offset, "s")]
    if state.bound is not None:
        metrics.append(Metric("offset_bound", state.bound, "s"))
    off = abs(state.offset)
    message = f"the clock is off by {off * 1000:.3f} ms ({state.service})"
    if off >= crit_at:
        return crit(
            "ClockOffset", f"{message}, limit {crit_at:g} s", metrics=tuple(metrics), evidence=(state.evidence,)
        )
    if off >= warn_at:
        return warn(
            "ClockOffset", f"{message}, limit {warn_at:g} s", metrics=tuple(metrics), evidence=(state.evidence,)
        )
    return ok(message, metrics=tuple(metrics))


def _ask(host: Host) -> Union[ClockState, Outcome]:
    try:
        return host.fact(clock_state)
    except NoTimeServiceError as error:
        if not error.tools:
            return unknown("NoTimeService", "none of chronyc, ntpq and timedatectl is installed")
        said = "; ".join(f"{tool}: {text}" for tool, text in error.tools.items())
        return unknown("NoTimeService", f"no time service answers ({said})")
