"""Bandwidth of PCIe, NVLink and HBM: nvbandwidth's JSON (-j) and its text; both always end with status 0.

Sources: NVIDIA nvbandwidth 0.8, and samples of 0.6. Figures are GB/s (decimal), latencies ns. A test case that fails is
appended a second time; its first entry stays at "Running".
"""

from __future__ import annotations

from nhc.core.check import Judged, check, opt
from nhc.core.host import Host
from nhc.core.json_values import list_in, object_in, objects_in, text_in, texts_of
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Action, Outcome, Verdict, crit, skip, unknown, warn
from nhc.node.checks import deep
from nhc.node.checks.gpu import DEVICES, pick
from nhc.node.facts.tool_output import figure, json_object, lines

if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

    from nhc.core.host import Completed
    from nhc.node.facts.accelerator_values import Device, PcieLink

PASSED, WAIVED, FAILED = "passed", "waived", "failed"


WRONG = "Invalid value when checking the pattern"
"""What its kernel prints if the copied bytes are not those that were written (nvbandwidth 0.8, kernels.cu)."""


def wrong_data(text: str) -> str:
    """The first line that reports wrong copied data, "" for none. It may precede or follow JSON."""
    return next((line[line.index(WRONG) :].strip() for line in lines(text) if WRONG in line), "")


class BandwidthCase(NamedTuple):
    """One test case. `matrix` has a row for each source, None if nothing was measured (a device with itself)."""

    name: str
    status: str
    description: str = ""
    matrix: Tuple[Tuple[Optional[float], ...], ...] = ()
    sum: Optional[float] = None


class Bandwidths(NamedTuple):
    """A whole run. `devices` are the lines that name them; `trouble` is its own message if it failed."""

    version: str
    driver: str
    devices: Tuple[str, ...]
    cases: Tuple[BandwidthCase, ...]
    trouble: str = ""


def parse_json(text: str) -> Bandwidths:
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

    A case has passed only with its `SUM name` line, which comes last. In the diagonal of a matrix between devices old
    builds print 0.00 and new ones N/A.
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


class Kind(NamedTuple):
    """What a test measures. `between` says that its matrix is of GPUs with each other; else a column is a GPU.

    `link` says that it copies over the GPU's PCIe link, one way.
    """

    metric: str
    between: bool = False
    link: bool = False


TESTS: Dict[str, Kind] = {
    "host_to_device_memcpy_ce": Kind("pcie_host_to_device", link=True),
    "device_to_host_memcpy_ce": Kind("pcie_device_to_host", link=True),
    "host_to_device_bidirectional_memcpy_ce": Kind("pcie_host_to_device_both"),
    "device_to_host_bidirectional_memcpy_ce": Kind("pcie_device_to_host_both"),
    "device_to_device_memcpy_read_ce": Kind("device_to_device", between=True),
    "device_to_device_memcpy_write_ce": Kind("device_to_device_write", between=True),
    "device_local_copy": Kind("hbm_copy"),
}
DEFAULT = "host_to_device_memcpy_ce,device_to_host_memcpy_ce,device_to_device_memcpy_read_ce,device_local_copy"


def tests(value: str) -> str:
    """Names of tests, separated by commas."""
    strange = [name for name in value.split(",") if name not in TESTS]
    if strange:
        raise ValueError(f"{strange[0]!r} is not one of {', '.join(TESTS)}")
    return value


@check(
    "check_deep_nvbandwidth",
    DEVICES,
    opt("-t --tests", "names", tests, "tests of nvbandwidth, with commas", DEFAULT),
    deep.FLOOR,
    timeout=deep.OVERHEAD + 900,
    tags=("gpu", "nvidia"),
)
def check_deep_nvbandwidth(
    host: Host, names: str = DEFAULT, floor: Optional[float] = None, devices: str = ""
) -> Judged:
    """Copies to, from, between and within GPUs are as fast as they should be.

    Runs nvbandwidth, which ends with status 0 whatever happened: each test must have passed, with a figure for each
    GPU. Copies by PCIe are held to what the link carries at its width and generation, others to the GPU's peers and to
    tables. Between GPUs the one that is slow with most of the others is named, else the two ends of a slow way. A test
    between GPUs that was waived says that they cannot reach each other: SKIP with one GPU, UNKNOWN with several. Data
    that arrived wrong is CRIT.

    Example: * |context deep| check_deep_nvbandwidth -t host_to_device_memcpy_ce -f 52
    """
    picked = pick(host, devices, "nvidia")
    if not picked.devices:
        return list(picked.outcomes)
    visible = ["env", f"CUDA_VISIBLE_DEVICES={','.join(device.id for device in picked.devices)}"]
    argv = ["nvbandwidth", "-j", "-t", *names.split(",")]
    done = deep.attempt(host, [*visible, *argv], 900.0)
    if isinstance(done, Outcome):
        return [*picked.outcomes, done]
    if done.status and "nrecogni" in done.output:  # a build that knows no -j
        done = deep.attempt(host, [*visible, *(argument for argument in argv if argument != "-j")], 900.0)
        if isinstance(done, Outcome):
            return [*picked.outcomes, done]
    wrong = wrong_data(done.output)
    if wrong:
        return [*picked.outcomes, _wrong(wrong, names.split(","), picked.devices, done)]
    try:
        plain = "{" not in done.stdout
        bandwidths = parse_text(done.stdout) if plain else parse_json(done.stdout)
    except ValueError as error:
        return [*picked.outcomes, deep.unreadable("nvbandwidth", error, done)]
    return [*picked.outcomes, *judge(host, names.split(","), picked.devices, done, bandwidths, floor)]


def _wrong(
    line: str, wanted: Sequence[str], devices: Sequence[Device], done: Completed
) -> Outcome:  # fmt: skip
    """Copied data was wrong: by GPU if there is one, else by the tests that did not pass."""
    try:
        cases = (parse_json if "{" in done.stdout else parse_text)(done.stdout).cases
        passed = {case.name for case in cases if case.status != FAILED}
    except ValueError:
        passed = set()
    failed = ", ".join(name for name in wanted if name not in passed) or "a test"
    target = devices[0].label if len(devices) == 1 else ""
    message = f"{f'{target}: ' if target else ''}nvbandwidth: {failed}: {line}"
    return crit("DeepWrongResult", message, target=target, action=Action.REPLACE if target else Action.INSPECT,
                evidence=deep.tail(done))  # fmt: skip


def judge(
    host: Host, wanted: Sequence[str], devices: Sequence[Device], done: Completed, bandwidths: Bandwidths,
    floor: Optional[float],
) -> List[Outcome]:  # fmt: skip
    """One outcome a GPU and test."""
    trouble = bandwidths.trouble or (f"status {done.status}" if done.status else "")
    outcomes: List[Outcome] = []
    if trouble:
        outcomes.append(unknown("DeepToolFailed", f"nvbandwidth: {trouble}", evidence=deep.tail(done)))
    cases = {case.name: case for case in bandwidths.cases}
    for name in wanted:
        case = cases.get(name)
        if case is None or case.status == FAILED:
            why = "there is no result of it" if case is None else "it did not pass"
            outcomes.append(deep.no_proof("nvbandwidth", f"{name}: {why}", done))
        elif case.status == WAIVED and TESTS[name].between and len(devices) < 2:
            outcomes.append(skip("NotSupported", f"{name}: there is one GPU"))
        elif case.status == WAIVED:
            outcomes.append(unknown("DeepNotTested", f"nvbandwidth waived {name}: it cannot be measured here"))
        elif trouble == "":
            outcomes += _figures(host, case, TESTS[name], devices, done, floor)
    return outcomes


def _figures(
    host: Host, case: BandwidthCase, kind: Kind, devices: Sequence[Device], done: Completed, floor: Optional[float]
) -> List[Outcome]:
    columns = max((len(row) for row in case.matrix), default=0)
    rows = len(case.matrix)
    if columns != len(devices) or any(len(row) != columns for row in case.matrix) or (kind.between and rows != columns):
        return [deep.no_proof("nvbandwidth", f"{case.name}: {rows} x {columns} figures of {len(devices)} GPUs", done)]
    if kind.between:
        return between(host, case, kind, devices, done, floor)
    outcomes = []
    for at, device in enumerate(devices):
        column = [row[at] for row in case.matrix]
        value = max((figure for figure in column if figure is not None), default=None)  # the nearest processor's
        if value is None:
            outcomes.append(_no_figure(case, device, done))
            continue
        wire = _wire(device.pcie) if kind.link else 0.0
        measured = deep.Measured(kind.metric, value, "GB/s", device.label, device=device.name, wire=wire)
        outcomes.append(deep.hold(host, measured, floor))
    return deep.among_peers(outcomes, {device.label: device.name for device in devices}, floor)


def _no_figure(case: BandwidthCase, device: Device, done: Completed) -> Outcome:
    return deep.no_proof("nvbandwidth", f"{case.name}: no figure of {device.label}", done, device.label)


LANE = {1: 0.25, 2: 0.5, 3: 8 * 128 / 130 / 8, 4: 16 * 128 / 130 / 8, 5: 32 * 128 / 130 / 8, 6: 64 * 242 / 256 / 8}
"""GB/s of one lane and one way by generation, with the encoding: 8b/10b to the second, 128b/130b to the fifth, flits of
242 data bytes in 256 from the sixth on (PCI Express base specification)."""


def _wire(link: PcieLink) -> float:
    """GB/s that a GPU's link carries at the best width and generation of its two ends, 0 if they are not known.

    The best, not the current ones: the figure must show a lost lane or generation.
    """
    return LANE.get(link.max_generation or 0, 0.0) * (link.max_width or 0)


def between(
    host: Host, case: BandwidthCase, kind: Kind, devices: Sequence[Device], done: Completed, floor: Optional[float]
) -> List[Outcome]:  # fmt: skip
    """Copies between GPUs: a GPU that is slow with most of the others is to blame, not its partners.

    A GPU is judged by its slower direction: by the median of its paths, without the slowest one. A single slow path is
    named by its two ends.
    """
    size = range(len(devices))
    ways = {(row, column): case.matrix[row][column] for row in size for column in size if row != column}
    outcomes: List[Outcome] = []
    for at, device in enumerate(devices):
        own = [sorted(value for pair, value in ways.items() if pair[side] == at and value is not None)
               for side in (0, 1)]  # fmt: skip
        if any(len(known) < len(devices) - 1 for known in own):
            outcomes.append(_no_figure(case, device, done))
            continue
        if len(devices) > 1:
            # Of three GPUs each has the slow one in half of its paths.
            value = min(deep.median(known[1:] or known) for known in own)
            measured = deep.Measured(kind.metric, value, "GB/s", device.label, device=device.name)
            outcomes.append(deep.hold(host, measured, floor))
    outcomes = deep.among_peers(outcomes, {device.label: device.name for device in devices}, floor)
    return [*outcomes, *_slow_ways(host, kind, devices, ways, outcomes, floor)]


def _slow_ways(
    host: Host, kind: Kind, devices: Sequence[Device], ways: Mapping[Tuple[int, int], Optional[float]],
    outcomes: Sequence[Outcome], floor: Optional[float],
) -> List[Outcome]:  # fmt: skip
    """Paths that are slow although neither end is, each pair once; the figure is that of the slower direction."""
    slow = {outcome.target for outcome in outcomes if outcome.verdict > Verdict.OK}
    fair = {
        pair: value for pair, value in ways.items()
        if value is not None and not slow.intersection(devices[at].label for at in pair)
    }  # fmt: skip
    pairs = {(a, b): min(value, fair.get((b, a), value)) for (a, b), value in fair.items() if a < b}
    judged = []
    for (a, b), value in sorted(pairs.items()):
        target = f"{devices[a].label}-{devices[b].label}"
        measured = deep.Measured(kind.metric, value, "GB/s", target, device=devices[a].name)
        one_way = deep.hold(host, measured, floor)
        if one_way.verdict is Verdict.OK and value < FAR * deep.median(sorted(pairs.values())) and floor != deep.NONE:
            one_way = warn(deep.SLOW, f"{one_way.message}; most pairs give more than twice as much", target=target,
                           metrics=one_way.metrics)  # fmt: skip
        judged.append(one_way)
    return [outcome for outcome in judged if outcome.verdict > Verdict.OK]


FAR = 0.5
"""Share of the median of all pairs below which one of them is remarkable: pairs across processors are slower than those
of one PCIe switch."""
