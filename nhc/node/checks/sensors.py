"""Sensors that the kernel reads itself: the alarms of its drivers (Documentation/hwmon/sysfs-interface.rst)."""

from __future__ import annotations

import re

from nhc.core.check import Judged, check, flag, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Action, Metric, Outcome, crit, ok, skip, unknown, warn
from nhc.core.units import text

if TYPE_CHECKING:
    from typing import List, Sequence, Tuple

HWMON = "/sys/class/hwmon"
_ALARM = re.compile(r"((temp|fan|in|curr|power)\d+)_(\w*alarm|fault)")


class Alarm(NamedTuple):
    """One alarm file: `kind` is temp, fan, in, curr or power, `alarm` its name (`crit_alarm`, `alarm`, `fault`).

    `unread` says why nothing is known of it, "" if `raised` is what it says.
    """

    chip: str
    sensor: str
    kind: str
    alarm: str
    raised: bool
    reading: str
    unread: str = ""


def alarms(host: Host) -> Tuple[Alarm, ...]:
    """Every alarm. A sensor of a sleeping device gives an error, which `unread` holds."""
    read: List[Alarm] = []
    for chip in host.names(HWMON):
        base = f"{HWMON}/{chip}"
        for name in host.names(base):
            match = _ALARM.fullmatch(name)
            value = host.read_or(f"{base}/{name}") if match else ""
            unread = ""
            if match and value not in ("0", "1"):
                unread = f"{value[:40]!r} is not 0 or 1" if value else host.why_unread(f"{base}/{name}")
            if match and (value in ("0", "1") or unread):
                label = host.read_or(f"{base}/{match[1]}_label") or match[1]
                driver = host.read_or(f"{base}/name") or chip
                reading = _with_unit(match[2], host.read_or(f"{base}/{match[1]}_input")) if value == "1" else ""
                read.append(Alarm(f"{driver} ({chip})", label, match[2], match[3], value == "1", reading, unread))
    return tuple(read)


def _with_unit(kind: str, value: str) -> str:
    """A reading with its unit: sysfs has thousandths of degrees, volts and amperes, millionths of watts."""
    if not re.fullmatch(r"-?\d{1,12}", value):
        return ""
    number = int(value)
    return {"temp": f"{number / 1000:g} °C", "fan": f"{number} RPM", "in": f"{number / 1000:g} V",
            "curr": f"{number / 1000:g} A", "power": f"{number / 1e6:g} W"}[kind]  # fmt: skip


_SEVERE = ("crit_alarm", "emergency_alarm")


@check(
    "check_sensors_hwmon",
    flag("-a --all", "every", "voltages, currents and power too: boards often leave such inputs unconnected"),
    opt("-i --ignore", "ignore", text, "CHIP/SENSOR to leave out, as a shell pattern; may be repeated", many=True),
    every=300,
)  # fmt: skip
def check_sensors_hwmon(host: Host, every: bool = False, ignore: Sequence[str] = ()) -> Judged:
    """No sensor that the kernel reads raises an alarm.

    Reads the alarm and fault files of temperatures and fans in /sys/class/hwmon; each driver compares with its
    chip's own limits. A critical or emergency alarm of a temperature, and a fan that has failed, are CRIT; other
    alarms WARN. An alarm that cannot be read is UNKNOWN. SKIP where no driver here has alarms, as on most virtual
    machines.

    Example: * |every 5m| check_sensors_hwmon -i 'nct6798*/SYSTIN'
    """
    from fnmatch import fnmatchcase

    judged = [each for each in alarms(host) if every or each.kind in ("temp", "fan")]
    if not judged:
        return skip("NoSensors", "no sensor with an alarm on this node")
    outcomes: List[Outcome] = []
    for each in judged:
        target = f"{each.chip.split(' ')[0]}/{each.sensor}"
        if any(fnmatchcase(target, pattern) for pattern in ignore):
            continue
        if each.unread:
            message = f"{each.alarm} of {each.sensor} of {each.chip} cannot be read: {each.unread}"
            outcomes.append(unknown("SensorUnreadable", message, target=target))
        if not each.raised:
            continue
        alarm = each.alarm.replace("_", " ") if each.alarm == "fault" else f"{each.alarm.replace('_', ' ')} raised"
        message = f"{each.sensor} of {each.chip}: {alarm}" + (f" at {each.reading}" if each.reading else "")
        if each.alarm in _SEVERE or (each.kind == "fan" and each.alarm in ("fault", "alarm")):
            outcomes.append(crit("SensorAlarm", message, target=target))
        else:
            outcomes.append(warn("SensorAlarm", message, target=target, action=Action.INSPECT))
    return outcomes or ok(f"{len(judged)} alarms are quiet", metrics=(Metric("alarms", len(judged)),))
