"""The node's clock: whether chronyd, ntpd or systemd-timesyncd keeps it right, and how far it is off.

If none of them answers, the kernel is asked: every time service tells it by adjtimex(2) how far the clock may be off.
"""

from __future__ import annotations

import os
import re

from nhc.core.check import check, flag, opt
from nhc.core.host import Completed, Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Outcome, crit, known, ok, skip, unknown, warn
from nhc.core.units import seconds

if TYPE_CHECKING:
    from typing import Dict, Optional

KERNEL = "the kernel"
UNBOUNDED = 16.0
"""Seconds. After a time service last set the bound, the kernel raises it by 0.5 ms a second, up to this value. At this
value, as at boot, no service keeps the clock (NTP_PHASE_LIMIT, linux/timex.h; adjtimex(2))."""
_TIME_ERROR, _PLL, _CLOCK_ERROR, _NANO = 5, 0x0001, 0x1000, 0x2000


class ClockState(NamedTuple):
    """The answer of a time service, or of the kernel (KERNEL), which knows only what the last service told it.

    `offset` is how far the clock is off in seconds, None if the service does not say; `bound` is the
    most it can be off by (half the root delay plus the root dispersion come on top of the offset).
    """

    service: str
    synchronized: bool
    offset: Optional[float] = None
    bound: Optional[float] = None
    source: str = ""
    evidence: str = ""


class NoTimeServiceError(Exception):
    """Neither a time service nor the kernel answered. `tools` has the message of each, by its name."""

    def __init__(self, tools: Dict[str, str]) -> None:
        super().__init__("no time service answers")
        self.tools = tools


def parse_chronyc_tracking(text: str) -> Optional[ClockState]:
    """The one line of `chronyc -n -c tracking`; None for anything else, as `506 Cannot talk to daemon`.

    Fields (chronyc(1), client.c): id, source, stratum, reference time, system time, last offset, RMS offset,
    frequency, residual frequency, skew, root delay, root dispersion, update interval, leap status.
    """
    line = text.strip()
    fields = line.split(",")
    if len(fields) != 14 or "\n" in line:
        return None
    try:
        offset, delay, dispersion = float(fields[4]), float(fields[10]), float(fields[11])
    except ValueError:
        return None
    leap = fields[13].strip()
    # 7F7F0101 is the local reference clock: a free-running clock that claims to be a source.
    synchronized = leap.lower() != "not synchronised" and fields[0] not in ("00000000", "7F7F0101")
    return ClockState(
        "chronyd", synchronized, offset, abs(offset) + delay / 2 + dispersion, fields[1] or fields[0], line
    )


_VARIABLE = re.compile(r'(\w+)=("[^"]*"|[^,\n]*)')


def parse_ntpq_rv(text: str) -> Optional[ClockState]:
    """The system variables of `ntpq -c rv`; None for anything else. ntpd's times are milliseconds."""
    variables = {match[1]: match[2].strip().strip('"') for match in _VARIABLE.finditer(text)}
    try:
        leap, stratum = int(variables["leap"], 2), int(variables["stratum"])
        offset = float(variables["offset"]) / 1000
        bound = abs(offset) + (float(variables["rootdelay"]) / 2 + float(variables["rootdisp"])) / 1000
    except (KeyError, ValueError):
        return None
    evidence = " ".join(text.split())
    return ClockState("ntpd", leap != 3 and stratum < 16, offset, bound, variables.get("refid", ""), evidence)


_SPAN = re.compile(r"(\d+(?:\.\d+)?)(us|µs|μs|ms|s|min|h|d|day|days|w|month|y)(?=[\s\d]|$)")
_SPAN_SECONDS = {
    "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0,
    "d": 86400.0, "day": 86400.0, "days": 86400.0, "w": 604800.0, "month": 2629800.0, "y": 31557600.0,
}  # fmt: skip


def parse_timespan(text: str) -> Optional[float]:
    """A time span as systemd writes it, in seconds: `-1.020ms`, `+2min 3.5s`, `0`."""
    text = text.strip()
    sign = -1.0 if text.startswith("-") else 1.0
    body = text.lstrip("+-").strip()
    if body == "0":
        return 0.0
    parts = _SPAN.findall(body)
    if not parts or _SPAN.sub("", body).strip():
        return None
    return sign * sum(float(number) * _SPAN_SECONDS[unit] for number, unit in parts)


def parse_timesync_status(text: str) -> Dict[str, str]:
    """The `Name: value` lines of `timedatectl timesync-status`, by name."""
    pairs = (line.strip().partition(": ") for line in text.splitlines())
    return {key: value.strip() for key, colon, value in pairs if colon}


def parse_kernel_clock(answer: Dict[str, int]) -> ClockState:
    """What adjtimex(2) says: `state` is its result, `offset` in µs, or ns with STA_NANO, `maxerror` in µs.

    Synchronized means a bound below 16 s, as in systemd-timedated and Prometheus' node-mixin: chronyd leaves STA_UNSYNC
    set, and so TIME_ERROR, if its settings lack `rtcsync`. The offset is an estimate only while the kernel's own loop
    (STA_PLL) steers the clock, for ntpd and systemd-timesyncd.
    """
    status, bound = answer["status"], answer["maxerror"] / 1e6
    offset = answer["offset"] / (1e9 if status & _NANO else 1e6) if status & _PLL else None
    state = "TIME_ERROR" if answer["state"] == _TIME_ERROR else str(answer["state"])
    evidence = f"adjtimex: {state}, status 0x{status:04x}, offset {answer['offset']}, maxerror {answer['maxerror']} us"
    return ClockState(KERNEL, bound < UNBOUNDED and not status & _CLOCK_ERROR, offset, bound, evidence=evidence)


def _ask_kernel() -> Dict[str, int]:
    """Read the kernel's clock, as anybody may. Raises OSError."""
    import ctypes

    class Timex(ctypes.Structure):
        """struct timex of adjtimex(2), with room for what later kernels add."""

        _fields_ = (
            ("modes", ctypes.c_uint), ("offset", ctypes.c_long), ("freq", ctypes.c_long), ("maxerror", ctypes.c_long),
            ("esterror", ctypes.c_long), ("status", ctypes.c_int), ("rest", ctypes.c_long * 64),
        )  # fmt: skip

    library = ctypes.CDLL(None, use_errno=True)
    asked = Timex()  # modes 0: nothing is set
    if not hasattr(library, "adjtimex"):
        raise OSError(38, "this C library has no adjtimex")
    state = library.adjtimex(ctypes.byref(asked))
    if state < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "adjtimex")
    return {"state": state, "status": asked.status, "offset": asked.offset, "maxerror": asked.maxerror}


def clock_state(host: Host) -> ClockState:
    """Ask chronyd, then ntpd, then systemd-timesyncd, then the kernel. Raises NoTimeServiceError when none answers."""
    tools: Dict[str, str] = {}
    for argv, parse in (
        (("chronyc", "-n", "-c", "tracking"), parse_chronyc_tracking), (("ntpq", "-n", "-c", "rv"), parse_ntpq_rv),
    ):  # fmt: skip
        if host.which(argv[0]):
            answer = host.run(argv, timeout=5)
            state = parse(answer.stdout)
            if state:
                return state
            tools[argv[0]] = _complaint(answer)
    properties: Dict[str, str] = {}
    if host.which("timedatectl"):
        answer = host.run(["timedatectl", "show"], timeout=5)
        from nhc.node.facts.systemd import parse_properties

        properties = parse_properties(answer.stdout)
        if "NTPSynchronized" not in properties:
            tools["timedatectl"] = _complaint(answer)
        elif properties.get("NTP") == "yes":
            return _timesyncd_state(host, properties)
        else:
            tools["timedatectl"] = f"NTP={properties.get('NTP', '?')} NTPSynchronized={properties['NTPSynchronized']}"
    asked = "; ".join(f"{tool}: {text}" for tool, text in tools.items())
    try:
        kernel = parse_kernel_clock(host.system.ask("adjtimex", _ask_kernel))
    except OSError as error:
        if "NTPSynchronized" in properties:  # systemd has asked the kernel
            return ClockState(KERNEL, properties["NTPSynchronized"] == "yes", evidence=asked)
        raise NoTimeServiceError({**tools, "adjtimex": error.strerror or str(error)}) from None
    return kernel._replace(evidence="; ".join(filter(None, (kernel.evidence, asked))))


def _timesyncd_state(host: Host, properties: Dict[str, str]) -> ClockState:
    """NTPSynchronized is the kernel's own state, from any service; only systemd-timesyncd can be asked for an
    offset.
    """
    synchronized = properties["NTPSynchronized"] == "yes"
    evidence = f"NTP=yes NTPSynchronized={properties['NTPSynchronized']}"
    status = parse_timesync_status(host.run(["timedatectl", "timesync-status"], timeout=5).stdout)
    offset = parse_timespan(status.get("Offset", ""))
    distance = parse_timespan(status.get("Root distance", "").partition(" (")[0])
    bound = None if offset is None or distance is None else abs(offset) + distance
    return ClockState("systemd-timesyncd", synchronized, offset, bound, status.get("Server", ""), evidence)


def _complaint(answer: Completed) -> str:
    return "timed out" if answer.timed_out else answer.complaint


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
