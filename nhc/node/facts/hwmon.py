"""Alarms of the kernel's own drivers of sensors (Documentation/hwmon/sysfs-interface.rst)."""

from __future__ import annotations

import re

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import List, Tuple

HWMON = "/sys/class/hwmon"
_ALARM = re.compile(r"((temp|fan|in|curr|power)\d+)_(\w*alarm|fault)")


class Alarm(NamedTuple):
    """One alarm file: `kind` is temp, fan, in, curr or power, `alarm` its name (`crit_alarm`, `alarm`, `fault`).

    `unread` says why nothing is known of it, "" where `raised` is what it says.
    """

    chip: str
    sensor: str
    kind: str
    alarm: str
    raised: bool
    reading: str
    unread: str = ""


def alarms(host: Host) -> Tuple[Alarm, ...]:
    """Every alarm. A sensor of a device that sleeps gives an error, and says so."""
    read: List[Alarm] = []
    for chip in host.names(HWMON):
        base = f"{HWMON}/{chip}"
        for name in host.names(base):
            match = _ALARM.fullmatch(name)
            text = host.read_or(f"{base}/{name}") if match else ""
            unread = ""
            if match and text not in ("0", "1"):
                unread = f"{text[:40]!r} is not 0 or 1" if text else host.why_unread(f"{base}/{name}")
            if match and (text in ("0", "1") or unread):
                label = host.read_or(f"{base}/{match[1]}_label") or match[1]
                driver = host.read_or(f"{base}/name") or chip
                reading = _with_unit(match[2], host.read_or(f"{base}/{match[1]}_input")) if text == "1" else ""
                read.append(Alarm(f"{driver} ({chip})", label, match[2], match[3], text == "1", reading, unread))
    return tuple(read)


def _with_unit(kind: str, value: str) -> str:
    """A reading with its unit: sysfs has thousandths of degrees, volts and amperes, millionths of watts."""
    if not re.fullmatch(r"-?\d{1,12}", value):
        return ""
    number = int(value)
    return {"temp": f"{number / 1000:g} °C", "fan": f"{number} RPM", "in": f"{number / 1000:g} V",
            "curr": f"{number / 1000:g} A", "power": f"{number / 1e6:g} W"}[kind]  # fmt: skip
