"""nccom-test of AWS Neuron. Its "GB/s" are GiB/s (aws-neuron-sdk, nccom-test guide): here they are GB/s."""

from __future__ import annotations

from nhc.facts.tools.output import figure, lines
from nhc.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import List, Optional, Tuple

GIB = 2**30 / 1e9


class NccomRow(NamedTuple):
    """One size in bytes, time in microseconds, bandwidths in GB/s (decimal)."""

    size: int
    type: str
    time: float
    algbw: float
    busbw: float


class Nccom(NamedTuple):
    """A run. `average` is in GB/s and the last line of a run that ended; `failures` are its own words."""

    rows: Tuple[NccomRow, ...]
    average: Optional[float]
    failures: Tuple[str, ...]


def parse(text: str) -> Nccom:
    """What nccom-test printed. Raises ValueError where it is no such output or a row makes no sense."""
    rows: List[NccomRow] = []
    failures: List[str] = []
    average: Optional[float] = None
    unit_known = False
    for line in lines(text):
        words = line.split()
        if "errors found" in line or line.startswith("Failure running") or "is not running" in line:
            failures.append(line.strip()[:300])
        elif words[:1] == ["size(B)"]:
            unit_known = "busbw(GB/s)" in words
        elif line.startswith("Avg bus bandwidth:"):
            word = line.partition(":")[2].strip()
            if not word.endswith("GB/s"):
                raise ValueError(f"an average in another unit: {word[:40]}")
            average = figure(word[: -len("GB/s")]) * GIB
        elif words and words[0].isdigit() and len(words) >= 5:
            if len(words) != 6 or not unit_known:
                raise ValueError(f"a row without a known header: {line.strip()[:80]}")
            rows.append(NccomRow(int(words[0]), words[2], figure(words[3]), figure(words[4]) * GIB,
                                 figure(words[5]) * GIB))  # fmt: skip
    if not rows and not failures and not unit_known:
        raise ValueError("not an output of nccom-test")
    return Nccom(tuple(rows), average, tuple(failures))
