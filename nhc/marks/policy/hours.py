"""Hours of the week: `Mon-Fri 08:00-18:00`, `Sat 22:00-Sun 06:00`, `daily 01:00-05:00`. Pure.

Times are read in the site's zone, so that a window keeps its place when the clocks change. `tzinfo` objects do not
compare by name, so a policy keeps both.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, List, NamedTuple, Optional, Sequence, Tuple

if TYPE_CHECKING:
    from datetime import tzinfo

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY = 24 * 60
_WEEK = 7 * _DAY
_SPAN = re.compile(
    r"(?:(?P<first>[a-z]{3})(?:-(?P<last>[a-z]{3}))?|daily)\s+(?P<begin>\d{2}:\d{2})\s*-\s*"
    r"(?:(?P<day>[a-z]{3})\s+)?(?P<end>\d{2}:\d{2})",
    re.IGNORECASE,
)


class Hours(NamedTuple):
    """Spans of the week, as minutes from Monday 00:00; a span that goes past Sunday is two."""

    text: str
    spans: Tuple[Tuple[int, int], ...]

    def holds(self, at: float, zone: Optional[tzinfo] = None) -> bool:
        """Whether a moment (Unix time) lies in it, in this zone; None is UTC."""
        if zone is None:
            local = time.gmtime(at)
        else:
            from datetime import datetime  # a hook that marks is there before a job ends: most sites have no zone

            local = datetime.fromtimestamp(at, zone).timetuple()
        minute = local.tm_wday * _DAY + local.tm_hour * 60 + local.tm_min
        return any(begin <= minute < end for begin, end in self.spans)


def read_hours(text: str) -> Hours:
    """The hours that a text names. Raises ValueError."""
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"{text!r} are no hours such as 'Mon-Fri 08:00-18:00', 'Sat 22:00-Sun 06:00', 'daily 01:00-05:00'"
        )
    begin, end = _minutes(match["begin"], text), _minutes(match["end"], text)
    first = 0 if match["first"] is None else _day(match["first"], text)
    last = 6 if match["first"] is None else _day(match["last"] or match["first"], text)
    if match["day"] is not None:
        if match["first"] is None or match["last"] is not None:
            raise ValueError(f"{text!r}: one day, or 'daily', stands before a span that ends on another day")
        return Hours(text, _split(first * _DAY + begin, _day(match["day"], text) * _DAY + end))
    spans: List[Tuple[int, int]] = []
    for offset in range((last - first) % 7 + 1):
        day = (first + offset) % 7 * _DAY
        spans += _split(day + begin, day + end + (_DAY if end <= begin else 0))
    return Hours(text, tuple(spans))


def any_holds(hours: Sequence[Hours], at: float, zone: Optional[tzinfo]) -> str:
    """The first of the hours that a moment lies in, as it was written; "" for none."""
    return next((span.text for span in hours if span.holds(at, zone)), "")


def _split(begin: int, end: int) -> Tuple[Tuple[int, int], ...]:
    if end <= begin:
        end += _WEEK
    return ((begin, end),) if end <= _WEEK else ((begin, _WEEK), (0, end - _WEEK))


def _day(day: str, text: str) -> int:
    try:
        return DAYS.index(day.lower())
    except ValueError:
        raise ValueError(f"{text!r}: {day!r} is no day: expected one of {', '.join(DAYS)}") from None


def _minutes(moment: str, text: str) -> int:
    hour, _, minute = moment.partition(":")
    if int(hour) > 24 or int(minute) > 59 or (int(hour) == 24 and int(minute)):
        raise ValueError(f"{text!r}: {moment!r} is no time of day")
    return int(hour) * 60 + int(minute)


class Zone(NamedTuple):
    """A zone and its name, as `Europe/Zurich`; None is UTC."""

    name: str
    info: Optional[tzinfo]


UTC = Zone("UTC", None)


def read_zone(name: str) -> Zone:
    """The zone of that name. Raises ValueError."""
    from zoneinfo import ZoneInfo

    if name.upper() == "UTC":
        return UTC
    try:
        return Zone(name, ZoneInfo(name))
    except (KeyError, ValueError, OSError):
        raise ValueError(f"{name!r} is no time zone that this system knows, such as Europe/Zurich or UTC") from None
