"""nvbandwidth: its JSON (-j) and its text, both of which end with status 0 whatever happened.

Sources: NVIDIA nvbandwidth 0.8, and samples of 0.6. Figures are GB/s (decimal), latencies ns. A test case that breaks
is appended a second time and its first entry stays at "Running".
"""

from __future__ import annotations

from nhc.core.json_values import list_in, object_in, objects_in, text_in, texts_of
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.node.facts.tools.output import figure, json_object, lines

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

PASSED, WAIVED, FAILED = "passed", "waived", "failed"


WRONG = "Invalid value when checking the pattern"
"""What its kernel prints where the copied bytes are not those that were written (nvbandwidth 0.8, kernels.cu)."""


def wrong_data(text: str) -> str:
    """The first line by which it says that copied data was wrong, "" for none. It may precede or follow JSON."""
    return next((line[line.index(WRONG) :].strip() for line in lines(text) if WRONG in line), "")


class BandwidthCase(NamedTuple):
    """One test case. `matrix` has a row for each source, None where nothing was measured (a device with itself)."""

    name: str
    status: str
    description: str = ""
    matrix: Tuple[Tuple[Optional[float], ...], ...] = ()
    sum: Optional[float] = None


class Bandwidths(NamedTuple):
    """A whole run. `devices` are the lines by which it named them; `trouble` its own words where it failed."""

    version: str
    driver: str
    devices: Tuple[str, ...]
    cases: Tuple[BandwidthCase, ...]
    trouble: str = ""


def parse(text: str) -> Bandwidths:
    """What `nvbandwidth -j` printed. Raises ValueError."""
    root = object_in(json_object(text), "nvbandwidth")
    trouble = str(root.get("error", "") or "")
    if not trouble and "testcases" not in root:
        raise ValueError("no testcases in it")
    cases: List[BandwidthCase] = []
    for entry in objects_in(root, "testcases"):
        case = _case(entry)
        before = next((at for at, other in enumerate(cases) if other.name == case.name), -1)
        if before >= 0:  # the second entry of one that broke
            cases[before] = case if case.status == FAILED else cases[before]._replace(status=FAILED)
        else:
            cases.append(case)
    return Bandwidths(
        str(root.get("version", "")),
        str(root.get("Driver Version", "")),
        tuple(texts_of(root.get("GPU Device list"))),
        tuple(cases),
        trouble,
    )


def _case(entry: Dict[str, Any]) -> BandwidthCase:
    name = text_in(entry, "name")
    status = {"Passed": PASSED, "Waived": WAIVED}.get(str(entry.get("status")), FAILED)
    rows = list_in(entry, "bandwidth_matrix")
    if status == PASSED and not rows:
        raise ValueError(f"{name} passed without figures")
    matrix = tuple(tuple(_cell(cell) for cell in list_in({name: row}, name)) for row in rows)
    total = figure(entry["sum"]) if "sum" in entry else None
    return BandwidthCase(name, status, str(entry.get("bandwidth_description", "")), matrix, total)


def _cell(value: object) -> Optional[float]:
    return None if isinstance(value, str) and value.strip() == "N/A" else figure(value)


def parse_text(text: str) -> Bandwidths:
    """What nvbandwidth printed without -j. Raises ValueError.

    A case has passed only with its `SUM name` line, which comes last. Old builds have 0.00 where the diagonal of a
    matrix between devices has N/A now.
    """
    version = driver = trouble = ""
    devices: List[str] = []
    cases: List[BandwidthCase] = []
    rows: List[Tuple[Optional[float], ...]] = []
    waived = False
    for line in lines(text):
        fields = line.split()
        if line.startswith("nvbandwidth Version:"):
            version = line.partition(":")[2].strip()
        elif line.startswith("Driver Version:"):
            driver = line.partition(":")[2].strip()
        elif line.startswith("Device ") and ":" in line:
            devices.append(line.strip())
        elif line.startswith("Running ") and line.rstrip().endswith("."):
            rows = []
            cases.append(BandwidthCase(line.split()[1].rstrip("."), WAIVED if waived else FAILED))
            waived = False
        elif line.startswith("Waived"):
            waived = True
        elif WRONG in line or line.startswith(("[CUDA_", "[NVML_", "ERROR:")):
            trouble = trouble or line.strip()
        elif cases and line.startswith("SUM ") and len(fields) == 3:
            if fields[1] == cases[-1].name and rows:
                cases[-1] = cases[-1]._replace(status=PASSED, matrix=tuple(rows), sum=figure(fields[2]))
        elif cases and "(row)" in line:
            cases[-1] = cases[-1]._replace(description=line.strip())
        elif cases and len(fields) > 1 and fields[0].isdigit() and all("." in w or w == "N/A" for w in fields[1:]):
            rows.append(tuple(_cell(field) for field in fields[1:]))
    if not version and not cases:
        raise ValueError("not an output of nvbandwidth")
    between = [case for case in cases if case.name.startswith("device_to_device")]
    for case in between:  # an old build's diagonal
        matrix = tuple(
            tuple(None if at == row and cell == 0 else cell for at, cell in enumerate(cells))
            for row, cells in enumerate(case.matrix)
        )
        cases[cases.index(case)] = case._replace(matrix=matrix)
    return Bandwidths(version, driver, tuple(devices), tuple(cases), trouble)
