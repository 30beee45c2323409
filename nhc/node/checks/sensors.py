"""Sensors that the kernel reads itself."""

from __future__ import annotations

from nhc.core.check import Judged, check, flag, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, skip, unknown, warn
from nhc.core.units import text
from nhc.node.facts import hwmon

if TYPE_CHECKING:
    from typing import List, Sequence

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

    alarms = [each for each in hwmon.alarms(host) if every or each.kind in ("temp", "fan")]
    if not alarms:
        return skip("NoSensors", "no sensor with an alarm on this node")
    outcomes: List[Outcome] = []
    for each in alarms:
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
    return outcomes or ok(f"{len(alarms)} alarms are quiet", metrics=(Metric("alarms", len(alarms)),))
