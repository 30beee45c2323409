"""The site's time zone by name. `tzinfo` objects do not compare by name, so a policy keeps both."""

from __future__ import annotations

from datetime import timezone, tzinfo
from typing import NamedTuple


class Zone(NamedTuple):
    """A zone and its name, as `Europe/Zurich`."""

    name: str
    info: tzinfo


UTC = Zone("UTC", timezone.utc)


def read_zone(name: str) -> Zone:
    """The zone of that name. Raises ValueError."""
    from zoneinfo import ZoneInfo

    if name.upper() == "UTC":
        return UTC
    try:
        return Zone(name, ZoneInfo(name))
    except (KeyError, ValueError, OSError):
        raise ValueError(f"{name!r} is no time zone that this system knows, such as Europe/Zurich or UTC") from None
