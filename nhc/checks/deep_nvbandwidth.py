"""Bandwidth of PCIe, NVLink and HBM: nvbandwidth."""

from __future__ import annotations

from nhc.check import check, opt
from nhc.checks import deep
from nhc.checks.gpu import DEVICES, pick
from nhc.facts.tools import nvbandwidth
from nhc.facts.tools.nvbandwidth import FAILED, WAIVED
from nhc.host import Host
from nhc.light import TYPE_CHECKING, NamedTuple
from nhc.model import Action, Outcome, crit, skip, unknown

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence, Tuple, Union

    from nhc.facts.accelerator_values import Device
    from nhc.facts.tools.nvbandwidth import BandwidthCase, Bandwidths
    from nhc.host import Completed


class Kind(NamedTuple):
    """What a test measures. `between` says that its matrix is of GPUs with each other; else a column is a GPU."""

    metric: str
    between: bool = False


TESTS: Dict[str, Kind] = {
    "host_to_device_memcpy_ce": Kind("pcie_host_to_device"),
    "device_to_host_memcpy_ce": Kind("pcie_device_to_host"),
    "host_to_device_bidirectional_memcpy_ce": Kind("pcie_host_to_device_both"),
    "device_to_host_bidirectional_memcpy_ce": Kind("pcie_device_to_host_both"),
    "device_to_device_memcpy_read_ce": Kind("device_to_device", between=True),
    "device_to_device_memcpy_write_ce": Kind("device_to_device_write", between=True),
    "device_local_copy": Kind("hbm_copy"),
}
DEFAULT = "host_to_device_memcpy_ce,device_to_host_memcpy_ce,device_to_device_memcpy_read_ce,device_local_copy"


def tests(value: str) -> str:
    """Names of tests with commas between them."""
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
) -> Union[Outcome, List[Outcome]]:
    """Copies to, from, between and within GPUs are as fast as they should be.

    Runs nvbandwidth, which ends with status 0 whatever happened: each test must have passed, with a figure for each
    GPU. The slowest way to and from each GPU is judged. A test between GPUs that was waived says that they cannot reach
    each other: SKIP with one GPU, UNKNOWN with several. Data that arrived wrong is CRIT.

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
    if done.status and "nrecogni" in done.stdout + done.stderr:  # a build that knows no -j
        done = deep.attempt(host, [*visible, *(word for word in argv if word != "-j")], 900.0)
        if isinstance(done, Outcome):
            return [*picked.outcomes, done]
    wrong = nvbandwidth.wrong_data(f"{done.stdout}\n{done.stderr}")
    if wrong:
        return [*picked.outcomes, _wrong(wrong, names.split(","), picked.devices, done)]
    try:
        plain = "{" not in done.stdout
        found = nvbandwidth.parse_text(done.stdout) if plain else nvbandwidth.parse(done.stdout)
    except ValueError as error:
        return [*picked.outcomes, deep.unreadable("nvbandwidth", error, done)]
    return [*picked.outcomes, *judge(host, names.split(","), picked.devices, done, found, floor)]


def _wrong(
    line: str, wanted: Sequence[str], devices: Sequence[Device], done: Completed
) -> Outcome:  # fmt: skip
    """Copied data was wrong: by GPU where there is one, else by the tests that did not pass."""
    try:
        cases = (nvbandwidth.parse if "{" in done.stdout else nvbandwidth.parse_text)(done.stdout).cases
        passed = {case.name for case in cases if case.status != FAILED}
    except ValueError:
        passed = set()
    failed = ", ".join(name for name in wanted if name not in passed) or "a test"
    target = devices[0].label if len(devices) == 1 else ""
    message = f"{f'{target}: ' if target else ''}nvbandwidth: {failed}: {line}"
    return crit("DeepWrongResult", message, target=target, action=Action.REPLACE if target else Action.INSPECT,
                evidence=deep.tail(done))  # fmt: skip


def judge(
    host: Host, wanted: Sequence[str], devices: Sequence[Device], done: Completed, found: Bandwidths,
    floor: Optional[float],
) -> List[Outcome]:  # fmt: skip
    """One outcome a GPU and test."""
    trouble = found.trouble or (f"status {done.status}" if done.status else "")
    outcomes: List[Outcome] = []
    if trouble:
        outcomes.append(unknown("DeepToolFailed", f"nvbandwidth: {trouble}", evidence=deep.tail(done)))
    cases = {case.name: case for case in found.cases}
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
    outcomes = []
    for at, device in enumerate(devices):
        values = _slowest(case, kind, at)
        if values is None:
            outcomes.append(
                deep.no_proof("nvbandwidth", f"{case.name}: no figure of {device.label}", done, device.label)
            )
            continue
        measured = deep.Measured(kind.metric, values, "GB/s", device.label, device=device.name)
        outcomes.append(deep.hold(host, measured, floor))
    return outcomes


def _slowest(case: BandwidthCase, kind: Kind, at: int) -> Optional[float]:
    """The figure to judge a GPU by: the slowest to or from any peer; of the ways from the host the nearest one."""
    column: Tuple[Optional[float], ...] = tuple(row[at] for row in case.matrix)
    if kind.between:
        ways = [value for place, value in enumerate((*column, *case.matrix[at]))
                if place not in (at, len(column) + at)]  # fmt: skip
        return None if not ways or any(value is None for value in ways) else min(v for v in ways if v is not None)
    figures = [value for value in column if value is not None]
    return max(figures) if figures else None
