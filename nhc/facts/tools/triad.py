"""The result of our own memory bandwidth test (nhc/data/triad.c): a line a kernel, then `validated` and `end`."""

from __future__ import annotations

from nhc.facts.tools.output import figure, lines
from nhc.light import TYPE_CHECKING, NamedTuple

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
        words = line.split()
        if words[:1] == ["array"] and len(words) == 5 and words[2] == "bytes" and words[4] == "threads":
            array, threads = int(words[1]), int(words[3])
        elif words[:1] == ["rate"]:
            if len(words) != 4 or words[3] != "GB/s":
                raise ValueError(f"a rate that makes no sense: {line[:80]}")
            rates[words[1]] = figure(words[2])
        elif words[:1] == ["validated"] and len(words) == 2:
            validated = words[1] == "yes"
        elif words == ["end"]:
            ended = True
    if not array:
        raise ValueError("not an output of the triad")
    return Triad(array, threads, rates, validated, ended)
