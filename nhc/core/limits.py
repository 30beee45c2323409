"""Limits on what nhc does by itself, as every settings file and option writes them: whether, how many nodes, how often.

`20` is a number of nodes, `10%` a share of the group (of one node at least), `20 10%` the lower of both,
`10% at least 4` a share that is never less than four nodes, and `none` no limit.
"""

from __future__ import annotations

import re
import sys
from enum import Enum
from typing import NamedTuple, Optional

from nhc.core.units import seconds, show_seconds

NO_LIMIT = sys.maxsize
_WRITTEN = "a number of nodes, a share such as 10%, both, '10% at least 4', or none"


class Mode(str, Enum):
    """What the site allows of one action. DRY_RUN says what would be done and does not do it."""

    ON = "on"
    DRY_RUN = "dry-run"
    OFF = "off"


class Limit(NamedTuple):
    """At most so many nodes: a number, a share (0 to 1) of the group, or both (the lower counts). Neither: no limit.

    A share comes to `least` nodes at least, and one above 0 to one node where `least` is 0.
    """

    nodes: Optional[int] = None
    share: Optional[float] = None
    least: int = 0

    def of(self, size: int) -> int:
        """The number for a group of `size` nodes; NO_LIMIT for no limit."""
        most = NO_LIMIT if self.nodes is None else self.nodes
        if self.share is not None:
            # The tiny addition keeps 0.07 * 100 from being 7.000000000000001's neighbour below.
            most = min(most, max(self.least or int(self.share > 0), int(size * self.share + 1e-9)))
        return most

    def show(self) -> str:
        """As in a line for a person: `at most 20 and 10%`."""
        parts = [] if self.nodes is None else [str(self.nodes)]
        if self.share is not None:
            parts.append(f"{self.share * 100:g}%{f' ({self.least} at least)' if self.least else ''}")
        return " and ".join(parts) or "no limit"

    def written(self) -> str:
        """As `read_limit` reads it."""
        parts = [] if self.nodes is None else [str(self.nodes)]
        if self.share is not None:
            parts.append(f"{self.share * 100:g}%{f' at least {self.least}' if self.least else ''}")
        return " ".join(parts) or "none"


class Rate(NamedTuple):
    """At most `operations` of a kind within `seconds`."""

    operations: int
    seconds: float

    def written(self) -> str:
        """As `read_rate` reads it."""
        return f"{self.operations} per {show_seconds(self.seconds)}"


def read_limit(text: str) -> Limit:
    """`20`, `10%`, `20 10%` for the lower of both, `10% at least 4`, or `none`. Raises ValueError."""
    parts = text.replace(",", " ").split()
    if parts == ["none"]:
        return Limit()
    limit = Limit()
    if len(parts) > 3 and parts[-3:-1] == ["at", "least"] and parts[-1].isdecimal():
        limit, parts = limit._replace(least=int(parts[-1])), parts[:-3]
    for part in parts or [""]:
        match = re.fullmatch(r"(\d+)|(\d+(?:\.\d+)?)%", part, re.ASCII)
        if match is None or (match[2] and float(match[2]) > 100):
            raise ValueError(f"{text!r} is not {_WRITTEN}")
        limit = limit._replace(nodes=int(part)) if match[1] else limit._replace(share=float(match[2]) / 100)
    if limit.least and limit.share is None:
        raise ValueError(f"{text!r} is not {_WRITTEN}")
    return limit


def read_rate(text: str) -> Rate:
    """`20 per 1h`. Raises ValueError."""
    match = re.fullmatch(r"\s*(\d+)\s+per\s+(\S+)\s*", text, re.ASCII)
    if match is None:
        raise ValueError(f"{text!r} is not a rate such as '20 per 1h'")
    return Rate(int(match[1]), seconds(match[2]))
