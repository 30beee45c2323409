"""Times as the API writes them: RFC 3339 in UTC, whole seconds (`Time`), or microseconds (`MicroTime`, of Leases)."""

from __future__ import annotations

import time
from calendar import timegm


def stamp(when: float) -> str:
    """Unix time as the API writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when))


def unstamp(text: object, default: float = 0.0) -> float:
    """The API's time (RFC 3339 in UTC) as Unix time; `default` where there is none or it makes no sense."""
    # strptime takes ten times as long, and a controller reads three of these a node.
    written = str(text)
    try:
        return float(
            timegm(
                (
                    int(written[:4]), int(written[5:7]), int(written[8:10]),
                    int(written[11:13]), int(written[14:16]), int(written[17:19]),
                )
            )
        )  # fmt: skip
    except (ValueError, OverflowError):
        return default


def micro_stamp(when: float) -> str:
    """Unix time as the API writes it where seconds are too coarse."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(when)) + f".{int(when % 1 * 1e6):06d}Z"
