"""Unix time as RFC 3339 in UTC, and back; ISO 8601 as other programs write it."""

from __future__ import annotations

import time

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Optional


MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
"""As the C locale and mail write them."""


AHEAD = 60.0
"""Seconds that a stamp may lie ahead of our clock. One of the two clocks is wrong where it lies further ahead, and the
stamp proves nothing: what it is on may have been written at any time."""


def is_recent(at: float, now: float, within: float) -> bool:
    """Whether what was stamped `at` was so within so many seconds; what lies ahead of our clock was not."""
    return -AHEAD <= now - at <= within


LATEST = 253402300799.0
"""The last second of the year 9999: RFC 3339 has four digits for a year."""


def utc(when: float) -> str:
    """`2025-01-31T08:15:00Z`: whole seconds, as Kubernetes' `Time`. What is later than LATEST is LATEST."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(min(when, LATEST)))


def utc_milliseconds(when: float) -> str:
    """`2025-01-31T08:15:00.000Z`: as reports and events have it."""
    seconds, rest = divmod(round(when * 1000), 1000)
    return f"{utc(seconds)[:-1]}.{rest:03d}Z"


def utc_microseconds(when: float) -> str:
    """`2025-01-31T08:15:00.000000Z`: as Kubernetes' `MicroTime`, of Leases."""
    return f"{utc(when)[:-1]}.{int(when % 1 * 1e6):06d}Z"


def from_utc(text: object, default: float = 0.0) -> float:
    """The Unix time that such a text says, in whole seconds; `default` where there is none or it makes no sense."""
    from calendar import timegm

    # strptime takes ten times as long, and the Kubernetes controller reads three of these a node.
    stamp = text if isinstance(text, str) else ""
    try:
        return float(timegm((int(stamp[:4]), int(stamp[5:7]), int(stamp[8:10]),
                             int(stamp[11:13]), int(stamp[14:16]), int(stamp[17:19]))))  # fmt: skip
    except (ValueError, OverflowError):
        return default


def from_iso(text: str) -> Optional[float]:
    """Unix time of an ISO 8601 or RFC 3339 date with its fraction; without a zone local time; None for others.

    The zone may stand apart, with its name, as programs in Go write it (`2026-07-31 16:26:53 +0000 UTC`).
    """
    import re

    match = re.fullmatch(
        r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d+))?"
        r"(?:(Z)| ?([+-])(\d\d):?(\d\d)(?: [A-Z]{3,4})?)?",
        text,
        re.ASCII,
    )
    if not match:
        return None
    year, month, day, hour, minute, second = (int(match[index]) for index in range(1, 7))
    fraction = float(f"0.{match[7]}") if match[7] else 0.0
    try:
        if not (match[8] or match[9]):
            return time.mktime((year, month, day, hour, minute, second, 0, 0, -1)) + fraction
        from calendar import timegm

        offset = (int(match[10]) * 3600 + int(match[11]) * 60) if match[9] else 0
        return timegm((year, month, day, hour, minute, second)) + fraction - (offset if match[9] != "-" else -offset)
    except (ValueError, OverflowError):
        return None
