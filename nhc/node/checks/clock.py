"""The node's clock: whether something keeps it right, and how far it is off."""

from __future__ import annotations

from nhc.core.check import check, flag, opt
from nhc.core.host import Host
from nhc.core.model import Outcome, crit, known, ok, skip, unknown, warn
from nhc.core.units import seconds
from nhc.node.facts.timesync import KERNEL, ClockState, NoTimeServiceError, clock_state


@check("check_clock_sync", flag("-c --critical", "critical", "a clock that is not synchronized is CRIT, not WARN"))
def check_clock_sync(host: Host, critical: bool = False) -> Outcome:
    """A time service keeps the clock synchronized.

    Asks chronyd (`chronyc -c tracking`), else ntpd (`ntpq -c rv`), else systemd-timesyncd (`timedatectl show`),
    and takes the first that answers; else the kernel (adjtimex(2)), which every time service tells how far the
    clock may be off. Not synchronized is WARN, as in Prometheus' node-mixin (NodeClockNotSynchronising): a clock
    that runs freely drifts by about a second a day, and check_clock_offset judges where it has got to. UNKNOWN
    where the kernel may not be asked either.

    Example: * || check_clock_sync
    """
    try:
        state = host.fact(clock_state)
    except NoTimeServiceError as error:
        answers = "; ".join(f"{tool}: {text}" for tool, text in error.tools.items())
        return unknown("NoTimeService", f"no time service answers ({answers})")
    evidence = (state.evidence,)
    if not state.synchronized:
        say = crit if critical else warn
        nobody = ": no time service keeps it" if state.service == KERNEL else ""
        return say(
            "ClockNotSynchronized", f"{state.service} says the clock is not synchronized{nobody}", evidence=evidence
        )
    if state.service == KERNEL:
        return ok(f"the kernel says the clock is synchronized{_at_most(state)}")
    return ok(f"{state.service} keeps the clock" + (f", from {state.source}" if state.source else ""))


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
    (`makestep 1.0 3`). Where only the kernel can be asked and has no estimate, the most that it allows for
    is held to the CRIT limit. UNKNOWN where a time service is not synchronized: then nobody knows the offset.
    SKIP where no time service runs, which check_clock_sync reports.

    Example: * || check_clock_offset -w 10ms -c 500ms
    """
    try:
        state = host.fact(clock_state)
    except NoTimeServiceError:
        return skip("NoTimeService", "no time service tells the offset; check_clock_sync says why")
    evidence = (state.evidence,)
    if not state.synchronized:
        if state.service == KERNEL:
            return skip("NoTimeService", "no time service tells the offset; check_clock_sync says why")
        return unknown(
            "ClockNotSynchronized", f"{state.service} is not synchronized: the offset is not known", evidence=evidence
        )
    metrics = known("s", offset=state.offset, offset_bound=state.bound)
    if state.offset is None:
        if state.bound is not None and state.bound < crit_at:
            return ok(f"the clock is synchronized{_at_most(state)} ({state.service})", metrics=metrics)
        return unknown(
            "OffsetUnknown", f"{state.service} does not tell the clock's offset", metrics=metrics, evidence=evidence
        )
    off = abs(state.offset)
    message = f"the clock is off by {off * 1000:.3f} ms ({state.service})"
    if off >= crit_at:
        return crit("ClockOffset", f"{message}, limit {crit_at:g} s", metrics=metrics, evidence=evidence)
    if off >= warn_at:
        return warn("ClockOffset", f"{message}, limit {warn_at:g} s", metrics=metrics, evidence=evidence)
    return ok(message, metrics=metrics)


def _at_most(state: ClockState) -> str:
    return "" if state.bound is None else f", off by {state.bound * 1000:.0f} ms at most"
