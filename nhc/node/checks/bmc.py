"""The board's management controller: its sensors, and the events that it has logged."""

from __future__ import annotations

import re

from nhc.core.check import Judged, check, flag, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, skip, unknown, warn
from nhc.core.units import percent, seconds, show_seconds
from nhc.node.facts import bmc
from nhc.node.facts.history import first_seen

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Pattern, Sequence, Tuple

    from nhc.node.facts.bmc import BmcEvent, EventLogInfo, Sensor

_DEADLINE = 40.0
_BROKEN = re.compile(
    r"failure detected|predictive failure|ac lost|ac out-of-range|input lost|input out-of-range"
    r"|config(?:uration)? error|redundancy lost|redundancy degraded|non-redundant|ierr|thermal trip"
    r"|uncorrectable|drive fault|in failed array|transition to (?:critical|non-recoverable)",
    re.IGNORECASE,
)
"""What a sensor of states says when something is wrong (IPMI 2.0, tables 42-2 and 42-3)."""
_FATAL = re.compile(
    r"uncorrectable (?:ecc|machine check|error)|bus (?:fatal|uncorrectable) error|\bierr\b|thermal trip"
    r"|frb[123]|fatal nmi|transition to non-recoverable|(?:upper|lower) non-recoverable",
    re.IGNORECASE,
)
_BAD = re.compile(
    _BROKEN.pattern + r"|(?:upper|lower) critical|correctable ecc.*limit|transition to degraded|throttled"
    r"|hard reset|power supply inactive|soft power control failure|i/o channel check|\bperr\b|\bserr\b|os stop"
    r"|run-time critical stop|log (?:almost )?full",
    re.IGNORECASE,
)


def regexp(value: str) -> Pattern[str]:
    """A regular expression, without regard to case. Raises ValueError."""
    try:
        return re.compile(value, re.IGNORECASE)
    except re.error as error:
        raise ValueError(f"{value!r} is no regular expression: {error}") from None


_IGNORE = opt("-i --ignore", "ignore", regexp, "regular expression of lines to leave out; may be repeated", many=True)


def _absent(host: Host) -> Optional[Outcome]:
    """Why the controller cannot be asked, None if it can."""
    if bmc.device(host) is None:
        if bmc.expected(host):
            return unknown(
                "NoBmcDevice", "the board has a management controller, but no /dev/ipmi0: ipmi_si is not loaded"
            )
        return skip("NoBmc", "no management controller on this node")
    if not host.which("ipmitool"):
        return unknown("CommandMissing", "ipmitool is not installed, though there is a management controller")
    return None


@check(
    "check_bmc_sensors",
    _IGNORE,
    flag("-c --critical", "critical", "a power supply or a redundancy that is lost is CRIT, not WARN"),
    timeout=60,
    every=600,
)  # fmt: skip
def check_bmc_sensors(host: Host, ignore: Sequence[Pattern[str]] = (), critical: bool = False) -> Judged:
    """Fans, power supplies, temperatures and voltages are well, as the management controller sees them.

    Reads `ipmitool sdr elist` (40 s at most, as a controller may hang). A sensor beyond its critical or
    non-recoverable limit is CRIT, beyond its non-critical one WARN: the limits are the board's own. A sensor of
    states that says failure (`Power Supply AC lost`, `Redundancy Lost`, `IERR`, IPMI 2.0 tables 42-2 and 42-3) is
    WARN, as one power supply of two still carries the node; -c makes it CRIT. SKIP where there is no controller;
    UNKNOWN where it does not answer, or its driver or ipmitool is missing.

    Example: * |every 10m| check_bmc_sensors -i '^PCIe Slot'
    """
    absent = _absent(host)
    if absent:
        return absent
    try:
        sensors = bmc.parse_sensors(bmc.run(host, "sdr", "elist", timeout=_DEADLINE))
    except (bmc.BmcError, OSError) as error:
        return unknown("BmcSilent", str(error))
    if not sensors:
        return unknown("BmcUnreadable", "ipmitool sdr elist names no sensor")
    judged = [each for each in sensors if not any(pattern.search(f"{each.name} {each.reading}") for pattern in ignore)]
    outcomes = [outcome for outcome in (_judge_sensor(each, critical) for each in judged) if outcome]
    return outcomes or ok(f"{len(judged)} sensors of the board are well", metrics=(Metric("bmc_sensors", len(judged)),))


def _judge_sensor(sensor: Sensor, critical: bool) -> Optional[Outcome]:
    target = f"{sensor.name} ({sensor.entity})"
    message = f"{target}: {sensor.reading or 'no reading'}"
    level = sensor.status[-2:] if sensor.status not in ("ok", "ns") else ""
    if level in ("cr", "nr"):
        severity = "critical" if level == "cr" else "non-recoverable"
        return crit("SensorCritical", f"{message}, {severity}", target=target)
    if _BROKEN.search(sensor.reading):
        say = crit if critical else warn
        return say("SensorFailure", message, target=target, action=Action.INSPECT)
    if level == "nc":
        return warn("SensorWarning", f"{message}, beyond its limit", target=target, action=Action.INSPECT)
    return None


@check(
    "check_bmc_sel",
    opt("-p --per", "per", seconds, "how long an event stands", 86400.0),
    opt("-f --full", "full", percent, "WARN from this share of the log used on (0: never)", 90.0),
    opt("-c --crit", "fatal", regexp, "regular expression of further events that are CRIT; may be repeated", many=True),
    opt("-w --warn", "bad", regexp, "regular expression of further events that are WARN; may be repeated", many=True),
    _IGNORE,
    timeout=90,
    every=600,
)
def check_bmc_sel(
    host: Host,
    per: float = 86400.0,
    full: float = 90.0,
    fatal: Sequence[Pattern[str]] = (),
    bad: Sequence[Pattern[str]] = (),
    ignore: Sequence[Pattern[str]] = (),
) -> Judged:
    """The management controller has logged no fault lately, and its log has room.

    Reads `ipmitool sel info` and the last 200 events (40 s at most each). Uncorrectable memory errors, IERR,
    fatal bus errors and trips are CRIT, failed or lost power supplies, critical limits, correctable errors at
    their limit and the like WARN; others are of no interest. An event stands for a day, by the controller's clock
    on the first run, then by when nhc first saw it, and ends when the log says that its state has ended
    (`Deasserted`). A log that is 90 % full or has overflowed is WARN: `Overflow` means that new events are lost.
    SKIP where there is no controller; UNKNOWN where it does not answer, or its driver or ipmitool is missing.

    Example: * |every 10m| check_bmc_sel -p 3d -i 'Timestamp Clock Sync'
    """
    absent = _absent(host)
    if absent:
        return absent
    try:
        log = bmc.parse_log(bmc.run(host, "sel", "info", timeout=_DEADLINE))
        events = (
            bmc.parse_events(bmc.run(host, "sel", "elist", "last", "200", timeout=_DEADLINE)) if log.entries else ()
        )
    except (bmc.BmcError, OSError) as error:
        return unknown("BmcSilent", str(error))
    if log.entries and not events:
        return unknown("BmcUnreadable", f"ipmitool sel elist shows none of {log.entries} events")
    outcomes = [outcome for outcome in (_judge_log(log, full),) if outcome]
    wanted = [each for each in events if not any(pattern.search(each.line) for pattern in ignore)]
    # On the first run the controller gives each event's time: 0 (long ago) for one from before its clock was set.
    seen = first_seen(host, "bmc_sel", {_key(event): bmc.event_time(event.at) or 0.0 for event in events})
    for each in _standing(wanted):
        if host.time() - seen[_key(each)] < per:
            outcome = _judge_event(each, fatal, bad)
            if outcome:
                outcomes.append(outcome)
    metrics = (Metric("sel_entries", log.entries or 0),)
    return outcomes or ok(f"no fault among {log.entries} events within {show_seconds(per)}", metrics=metrics)


def _judge_log(log: EventLogInfo, full: float) -> Optional[Outcome]:
    if log.overflow:
        return warn("SelFull", "the controller's log has overflowed: new events are lost", action=Action.INSPECT)
    if full and log.used is not None and log.used >= full:
        return warn("SelFull", f"the controller's log is {log.used} % full", action=Action.INSPECT)
    return None


def _judge_event(event: BmcEvent, fatal: Sequence[Pattern[str]], bad: Sequence[Pattern[str]]) -> Optional[Outcome]:
    message = f"{event.sensor}: {event.event}" + (f" [{event.at}]" if event.at else "")
    text = f"{event.sensor} {event.event}"
    if _FATAL.search(text) or any(pattern.search(text) for pattern in fatal):
        return crit("SelFatal", message, target=event.sensor, evidence=(event.line,))
    if _BAD.search(text) or any(pattern.search(text) for pattern in bad):
        return warn("SelEvent", message, target=event.sensor, action=Action.INSPECT, evidence=(event.line,))
    return None


def _standing(events: Sequence[BmcEvent]) -> List[BmcEvent]:
    """The events whose state has not ended; of several equal ones only the latest."""
    latest: Dict[Tuple[str, str], BmcEvent] = {}
    for event in events:
        state = re.split(r" \| Reading|\s+going (?:high|low)", event.event)[0]
        key = (event.sensor, state)
        latest.pop(key, None)
        if event.asserted:
            latest[key] = event
    return list(latest.values())


def _key(event: BmcEvent) -> str:
    return f"{event.number} {event.at} {event.sensor} {event.event}"
