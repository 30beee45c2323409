"""The board's management controller, read with ipmitool: sensors and the event log (SEL).

ipmitool waits without a limit for a controller that does not answer, so every command here has a deadline.
"""

from __future__ import annotations

import re

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import List, Optional, Tuple

DEVICES = ("/dev/ipmi0", "/dev/ipmi/0", "/dev/ipmidev/0")
_SMBIOS = "/sys/firmware/dmi/entries/38-0"
"""SMBIOS type 38, IPMI Device Information: the board has a controller."""


class Sensor(NamedTuple):
    """One line of `ipmitool sdr elist`. `status` is ok, ns, nc, cr, nr (or with l or u in front)."""

    name: str
    status: str
    entity: str
    reading: str


class BmcEvent(NamedTuple):
    """One line of `ipmitool sel elist`. `at` is the text of its time; `asserted` False if a state ended."""

    number: str
    at: str
    sensor: str
    event: str
    asserted: bool
    line: str


class EventLogInfo(NamedTuple):
    """`ipmitool sel info`: `used` in percent, None if the controller does not tell."""

    entries: Optional[int]
    used: Optional[int]
    overflow: bool


class BmcError(Exception):
    """ipmitool failed; the text says why."""


def device(host: Host) -> Optional[str]:
    """The kernel's device file of the controller, None if there is none."""
    return next((path for path in DEVICES if host.exists(path)), None)


def expected(host: Host) -> bool:
    """Whether the firmware says that the board has a controller."""
    return host.exists(_SMBIOS)


_SENSOR = re.compile(r"(\S.*?)\s*\|\s*[0-9A-Fa-f]{1,4}h\s*\|\s*(\w+)\s*\|\s*(\d+\.\d+)\s*\|\s*(.*?)\s*")


def parse_sensors(text: str) -> Tuple[Sensor, ...]:
    """The lines of `sdr elist`; others are left out."""
    matches = (_SENSOR.fullmatch(line.strip()) for line in text.splitlines())
    return tuple(Sensor(match[1], match[2].lower(), match[3], match[4]) for match in matches if match)


def parse_events(text: str) -> Tuple[BmcEvent, ...]:
    """The lines of `sel elist`, in the log's order; others are left out. A vendor-specific record has no direction."""
    events: List[BmcEvent] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) < 5 or not re.fullmatch(r"[0-9A-Fa-f]+", cells[0]):
            continue
        number, date, time, sensor, *rest = cells
        at = "" if date.startswith("Pre-Init") else f"{date} {time}"
        ended = any(cell.startswith("Deasserted") for cell in rest)
        kept = [cell for cell in rest if cell not in ("Asserted", "Deasserted")]
        events.append(BmcEvent(number.lower(), at, sensor, " | ".join(kept), not ended, line.strip()))
    return tuple(events)


def parse_log(text: str) -> EventLogInfo:
    """Raises BmcError if this is no `sel info`."""
    pairs = (line.partition(":") for line in text.splitlines())
    values = {name.strip(): value.strip() for name, colon, value in pairs if colon}
    if "Entries" not in values:
        raise BmcError("ipmitool sel info tells no number of entries")
    used = values.get("Percent Used", "").rstrip("%")
    entries = values["Entries"]
    return EventLogInfo(
        int(entries) if entries.isdigit() else None,
        int(used) if used.isdigit() else None,
        values.get("Overflow", "").lower() == "true",
    )


_LAN_ADDRESS = re.compile(r"^IP Address\s*: (\d{1,3}(?:\.\d{1,3}){3})\s*$", re.MULTILINE)


def parse_lan(text: str) -> str:
    """The controller's own IPv4 address in what `ipmitool lan print` says of its first LAN channel (ipmitool(1)), ""
    if it has none. This address is reachable from a network; the one in SMBIOS type 42 only from the host.
    """
    match = _LAN_ADDRESS.search(text)
    return match[1] if match and match[1].strip("0.") else ""


_DATE = re.compile(r"(\d\d)/(\d\d)/(\d{4}|\d\d) (\d\d):(\d\d):(\d\d)(?: (AM|PM))?(?: (\S+))?")


def event_time(text: str) -> Optional[float]:
    """Unix time of an event, its clock read as UTC: good to within a day. None for one without a time."""
    from calendar import timegm

    match = _DATE.fullmatch(text)
    if not match:
        return None
    month, day, year, hour, minute, second = (int(match[n]) for n in range(1, 7))
    if match[7]:
        hour = hour % 12 + (12 if match[7] == "PM" else 0)
    try:
        return float(timegm((year if year > 99 else 2000 + year, month, day, hour, minute, second)))
    except ValueError:  # a month of 13: a time, but of no clock
        return None


def run(host: Host, *arguments: str, timeout: float) -> str:
    """What ipmitool prints. Raises BmcError, FileNotFoundError if it is not installed."""
    ended = host.run(["ipmitool", *arguments], timeout=timeout)
    if ended.timed_out:
        raise BmcError(f"the controller did not answer ipmitool within {timeout:g} s")
    # If a sensor does not answer, `sdr` fails after it has printed all others.
    if ended.status and not ended.stdout.strip():
        raise BmcError(f"ipmitool {' '.join(arguments)}: {ended.complaint}")
    return ended.stdout
