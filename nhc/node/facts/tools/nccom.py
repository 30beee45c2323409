"""nccom-test of AWS Neuron. Its "GB/s" are GiB/s (aws-neuron-sdk, nccom-test guide): here they are GB/s."""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.node.facts.tools.output import figure, lines

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
        fields = line.split()
        if "errors found" in line or line.startswith("Failure running") or "is not running" in line:
            failures.append(line.strip()[:300])
        elif fields[:1] == ["size(B)"]:
            unit_known = "busbw(GB/s)" in fields
        elif line.startswith("Avg bus bandwidth:"):
            average_text = line.partition(":")[2].strip()
            if not average_text.endswith("GB/s"):
                raise ValueError(f"an average in another unit: {average_text[:40]}")
            average = figure(average_text[: -len("GB/s")]) * GIB
        elif fields and fields[0].isdigit() and len(fields) >= 5:
            if len(fields) != 6 or not unit_known:
                raise ValueError(f"a row without a known header: {line.strip()[:80]}")
            rows.append(NccomRow(int(fields[0]), fields[2], figure(fields[3]), figure(fields[4]) * GIB,
                                 figure(fields[5]) * GIB))  # fmt: skip
    if not rows and not failures and not unit_known:
        raise ValueError("not an output of nccom-test")
    return Nccom(tuple(rows), average, tuple(failures))
