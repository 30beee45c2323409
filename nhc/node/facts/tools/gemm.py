"""Burns of matrix products: our own and those of others.

The result of our own burns (nhc/core/data/gemm_burn.py, nhc/core/data/gemm_cpu.c): one JSON object a line, the
last its end.

{"kind": "begin", "engine": "torch", "version": "2.5.1", "size": 8192, "dtype": "bf16", "seconds": 60}
{"kind": "device", "device": 0, "name": "...", "rounds": 812, "seconds": 60.0, "tflops": 712.4, "slowest": 690.1,
"hash": "91c1...", "changed": 0, "wrong": 0, "nan": 0}
{"kind": "end", "devices": 8}

Those of others: gpu-burn and gpu-fryer (NVIDIA), rvs (AMD). Sources: wilicc/gpu-burn, huggingface/gpu-fryer, RVS.

gpu-burn ends with status 0 although a GPU is FAULTY, and compares within one GPU alone: a consistent miscompute and a
NaN pass. gpu-fryer verifies no numbers.
"""

from __future__ import annotations

from nhc.core.json_values import parse_object, text_in, whole_in
from nhc.core.light import TYPE_CHECKING, NamedTuple, regex
from nhc.node.facts.tools.output import figure, lines

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple


class Burned(NamedTuple):
    """One device or processor. Rounds that gave other bits than its own first are `changed`; values that a row or
    column sum proves wrong are `wrong`; `hash` is of the first product's bytes. `tflops` 0 where not measured.
    """

    device: int
    name: str
    rounds: int
    seconds: float
    tflops: float
    slowest: float
    hash: str
    changed: int
    wrong: int
    nan: int


class Burn(NamedTuple):
    """A whole burn. `ended` says that its last line is there and counts what is listed; `trouble` is its own word."""

    engine: str
    version: str
    size: int
    dtype: str
    seconds: float
    devices: Tuple[Burned, ...]
    ended: bool
    trouble: str = ""


def parse(text: str) -> Burn:
    """What a burn printed. Raises ValueError."""
    burn = Burn("", "", 0, "", 0.0, (), False)
    devices: List[Burned] = []
    begun = False
    for line in text.splitlines():
        if not line.startswith("{"):
            continue
        try:
            value = parse_object(line)
        except ValueError:
            raise ValueError(f"a line that is cut off or mixed with another: {line[:80]}") from None
        kind = value.get("kind")
        if kind == "begin":
            begun = True
            burn = burn._replace(engine=str(value.get("engine", "")), version=str(value.get("version", "")),
                                   size=int(figure(value.get("size", 0))), dtype=str(value.get("dtype", "")),
                                   seconds=figure(value.get("seconds", 0)))  # fmt: skip
        elif kind == "device":
            devices.append(_device(value))
        elif kind == "trouble":
            burn = burn._replace(trouble=str(value.get("message", "it failed"))[:300])
        elif kind == "end":
            burn = burn._replace(ended=value.get("devices") == len(devices))
    if not begun and not burn.trouble:
        raise ValueError("no burn has begun")
    if len({device.device for device in devices}) != len(devices):
        raise ValueError("a device is there twice")
    return burn._replace(devices=tuple(devices))


def _device(value: Dict[str, Any]) -> Burned:
    return Burned(
        whole_in(value, "device"), str(value.get("name", "")), whole_in(value, "rounds"), figure(value.get("seconds")),
        figure(value.get("tflops")), figure(value.get("slowest", 0)), text_in(value, "hash"),
        whole_in(value, "changed"), whole_in(value, "wrong"), whole_in(value, "nan", 0),
    )  # fmt: skip


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
