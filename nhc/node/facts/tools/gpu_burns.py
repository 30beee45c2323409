"""Burns of others: gpu-burn and gpu-fryer (NVIDIA), rvs (AMD). Sources: wilicc/gpu-burn, huggingface/gpu-fryer, RVS.

gpu-burn ends with status 0 although a GPU is FAULTY, and compares within one GPU alone: a consistent miscompute and a
NaN pass. gpu-fryer verifies no numbers.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING, NamedTuple, regex
from nhc.node.facts.tools.output import figure, lines

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

_PROGRESS = regex(r"(\d+(?:\.\d+)?)%\s+proc'd:\s+(.*?)\s+errors:\s+([\d\s-]*\d)")
_VERDICT = regex(r"^\s*GPU (\d+): (OK|FAULTY)\s*$")
_FRYER = regex(r"^GPU #(\d+):\s+([\d.]+) Gflops/s \(min: ([\d.]+), max: ([\d.]+), dev: ([\d.]+)\)")
_RVS = regex(r"\[RESULT\s*\].*\[GPU::\s*(\d+)\].*met:\s*(TRUE|FALSE)")
_RVS_FIGURE = regex(r"GFLOPS\s+([\d.]+)")


class GpuBurn(NamedTuple):
    """A run of gpu-burn. `verdicts` by GPU, True for OK, are printed at the end; `progress` is the last percentage.

    `errors` and `gflops` are the last progress line's, one a GPU.
    """

    verdicts: Dict[int, bool]
    tested: Optional[int]
    progress: float
    gflops: Tuple[float, ...]
    errors: Tuple[int, ...]
    failures: Tuple[str, ...]


def parse_gpu_burn(text: str) -> GpuBurn:
    """What gpu_burn printed. Raises ValueError."""
    verdicts: Dict[int, bool] = {}
    failures: List[str] = []
    tested: Optional[int] = None
    progress = 0.0
    gflops: Tuple[float, ...] = ()
    errors: Tuple[int, ...] = ()
    for line in text.replace("\r", "\n").split("\n"):
        progressed = _PROGRESS.search(line)
        verdict = _VERDICT.match(line)
        fields = line.split()
        if progressed:
            progress = float(progressed[1])
            gflops = tuple(figure(part.split()[0]) for part in progressed[2].split("(")[1:])
            errors = tuple(int(part) for part in progressed[3].split(" - "))
        elif fields[:1] == ["Tested"] and len(fields) == 3 and fields[1].isdigit():
            tested = int(fields[1])
        elif verdict and tested is not None:
            verdicts[int(verdict[1])] = verdict[2] == "OK"
        elif "Couldn't init" in line or "No clients are alive" in line or "Failure during compute" in line:
            failures.append(line.strip()[:300])
    if tested is None and not failures and not errors:
        raise ValueError("not an output of gpu_burn, or one that is cut off")
    return GpuBurn(verdicts, tested, progress, gflops, errors, tuple(failures))


class Fryer(NamedTuple):
    """A run of gpu-fryer: GFLOP/s by GPU, its own verdict (None where it did not come to one) and its reasons."""

    gflops: Dict[int, float]
    healthy: Optional[bool]
    reasons: Tuple[str, ...]


def parse_gpu_fryer(text: str) -> Fryer:
    """What gpu-fryer printed. Raises ValueError."""
    gflops: Dict[int, float] = {}
    healthy: Optional[bool] = None
    reasons: List[str] = []
    for line in lines(text):
        row = _FRYER.match(line.strip())
        if row:
            gflops[int(row[1])] = figure(row[2])
        elif "All GPUs seem healthy" in line:
            healthy = True
        elif "Some GPUs are not healthy" in line:
            healthy = False
        elif healthy is False and line.strip().startswith("- "):
            reasons.append(line.strip()[2:][:300])
    if not gflops and healthy is None:
        raise ValueError("not an output of gpu-fryer")
    return Fryer(gflops, healthy, tuple(reasons))


class Rvs(NamedTuple):
    """A run of rvs: by GPU whether every target was met, the best GFLOP/s seen, and lines that tell of a fault."""

    met: Dict[int, bool]
    gflops: Dict[int, float]
    failures: Tuple[str, ...]


_FAULTS = regex(r"\[ERROR\s*\]|RVS-ERROR|pass:\s*FALSE|peqt false|\bFAIL\b")


def parse_rvs(text: str) -> Rvs:
    """What rvs printed. Raises ValueError."""
    met: Dict[int, bool] = {}
    gflops: Dict[int, float] = {}
    failures: List[str] = []
    for line in lines(text):
        row = _RVS.search(line)
        if row:
            gpu = int(row[1])
            met[gpu] = met.get(gpu, True) and row[2] == "TRUE"
            figures = _RVS_FIGURE.search(line)
            if figures:
                gflops[gpu] = max(gflops.get(gpu, 0.0), figure(figures[1]))
        elif _FAULTS.search(line):
            failures.append(line.strip()[:300])
    if not met and not failures:
        raise ValueError("no result of rvs in it")
    return Rvs(met, gflops, tuple(failures))
