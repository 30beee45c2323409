"""What ping's summary says, of iputils, inetutils, busybox and the BSDs."""

from __future__ import annotations

import re

from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Optional

_LOSS = re.compile(r"(\d+(?:\.\d+)?)% packet loss")
_TIMES = re.compile(r"(?:rtt|round-trip)\s+min/avg/max(?:/\S+)?\s*=\s*([\d.]+)/([\d.]+)/([\d.]+)")


class Summary(NamedTuple):
    """Round-trip times in seconds, None where nothing came back; `loss` in percent, None where it is not known."""

    loss: Optional[float]
    average: Optional[float] = None
    longest: Optional[float] = None


def parse_summary(text: str) -> Summary:
    """The last lines of `ping -q`."""
    loss, times = _LOSS.search(text), _TIMES.search(text)
    return Summary(
        float(loss[1]) if loss else None,
        float(times[2]) / 1000 if times else None,
        float(times[3]) / 1000 if times else None,
    )
