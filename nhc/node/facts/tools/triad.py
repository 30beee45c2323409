"""The result of our own memory bandwidth test (nhc/core/data/triad.c): a line a kernel, then `validated` and `end`."""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.node.facts.tools.output import figure, lines

if TYPE_CHECKING:
    from typing import Dict, Optional


class Triad(NamedTuple):
    """A run: bytes of one array, threads, best GB/s by kernel, whether the arrays hold what they must (None: not said),
    and whether it came to its end.
    """

    array: int
    threads: int
    rates: Dict[str, float]
    validated: Optional[bool]
    ended: bool


def parse(text: str) -> Triad:
    """What it printed. Raises ValueError."""
    array = threads = 0
    rates: Dict[str, float] = {}
    validated: Optional[bool] = None
    ended = False
    for line in lines(text):
        fields = line.split()
        if fields[:1] == ["array"] and len(fields) == 5 and fields[2] == "bytes" and fields[4] == "threads":
            array, threads = int(fields[1]), int(fields[3])
        elif fields[:1] == ["rate"]:
            if len(fields) != 4 or fields[3] != "GB/s":
                raise ValueError(f"a rate that makes no sense: {line[:80]}")
            rates[fields[1]] = figure(fields[2])
        elif fields[:1] == ["validated"] and len(fields) == 2:
            validated = fields[1] == "yes"
        elif fields == ["end"]:
            ended = True
    if not array:
        raise ValueError("not an output of the triad")
    return Triad(array, threads, rates, validated, ended)
