"""Collectives within a node: nccl-tests, rccl-tests, and nccom-test of Neuron.

nccl-tests and rccl-tests (text of every version since 2.9), and nccom-test of AWS Neuron.

Sources: NVIDIA nccl-tests 2.19.6 (common.cu, util.cu), rccl-tests with the same rows and footer, samples of AWS, Azure,
OCI and CoreWeave. A row has 12 columns before `root` was printed and 13 since; with -c 0 `#wrong` is N/A, else it may
have an exponent or be NaN. busbw/algbw is 2(n-1)/n for all_reduce and (n-1)/n for all_gather, reduce_scatter and
alltoall, so that the figures themselves tell how many ranks took part (doc/PERFORMANCE.md of nccl-tests).

nccom-test's "GB/s" are GiB/s (aws-neuron-sdk, nccom-test guide): here they are GB/s.
"""

from __future__ import annotations

import sys

from nhc.core.check import Judged, check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple, regex
from nhc.core.model import Action, Metric, Outcome, crit, skip, unknown, warn
from nhc.core.units import one_of, show_kb, size_bytes, text, whole
from nhc.node.checks import deep
from nhc.node.checks.gpu import DEVICES, pick
from nhc.node.facts.tool_output import figure, lines, number

if TYPE_CHECKING:
    from typing import Dict, FrozenSet, List, Optional, Sequence, Tuple

    from nhc.core.host import Completed
    from nhc.node.facts.accelerator_values import Device

_RANK = regex(
    r"^#\s+Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+(\d+)\s+on\s+(\S+)\s+device\s+(\d+)\s+\[([^\]]+)\]\s*(.*)$"
)
_BROKEN = regex(r"Test (?:NCCL|RCCL|CUDA|HIP) failure|Test failure|Test timeout")
_MEMORY = "out of memory"
_FAILURE = regex(r"Test (?:NCCL|RCCL|CUDA|HIP|timeout)[^:]*|Test failure|NCCL WARN|Invalid number of GPUs")


class Rank(NamedTuple):
    """One rank as the header lists it."""

    rank: int
    pid: int
    host: str
    device: int
    bus: str
    model: str


class Timing(NamedTuple):
    """Half a row: time in microseconds, bandwidths in GB/s (decimal), `wrong` values, None if not checked."""

    time: float
    algbw: float
    busbw: float
    wrong: Optional[float]


class Row(NamedTuple):
    """One size. `size` in bytes."""

    size: int
    elements: int
    type: str
    redop: str
    out_of_place: Timing
    in_place: Timing

    @property
    def busbw(self) -> float:
        """The better of both: the hardware can do that much."""
        return max(self.out_of_place.busbw, self.in_place.busbw)


class Collective(NamedTuple):
    """A run. `headers` is how often a header was printed: a binary without MPI prints one a process.

    `bounds` is the count of wrong values in the footer and whether it says OK; `concluded` says that the last line was
    there (the footer's average in versions without one). `reduced` is the size to which memory limited it, in bytes.
    """

    name: str
    version: str
    ranks: Tuple[Rank, ...]
    rows: Tuple[Row, ...]
    headers: int
    bounds: Optional[Tuple[float, bool]]
    average: Optional[float]
    concluded: bool
    reduced: Optional[int] = None
    failures: Tuple[str, ...] = ()

    @property
    def broken(self) -> str:
        """The test's own message on why it stopped, "" if it gave none.

        NCCL and RCCL warn of much that is harmless (NUMA balancing, a missing plugin); memory in use means that another
        program uses the GPU.
        """
        broken = [line for line in self.failures if _BROKEN.search(line)]
        return "" if any(_MEMORY in line for line in broken) else next(iter(broken), "")

    def row(self, size: int) -> Optional[Row]:
        """The row of exactly this size."""
        return next((row for row in self.rows if row.size == size), None)


class _Reading:
    """What has been read of a text so far."""

    def __init__(self) -> None:
        self.name = self.version = ""
        self.ranks: List[Rank] = []
        self.rows: List[Row] = []
        self.failures: List[str] = []
        self.headers = 0
        self.columns = 0  # of the table, once its header was read
        self.bounds: Optional[Tuple[float, bool]] = None
        self.average: Optional[float] = None
        self.reduced: Optional[int] = None
        self.concluded = self.new = False

    def comment(self, line: str) -> None:
        """A line that begins with #."""
        fields, value = line.split(), line.partition(":")[2].split()
        rank = _RANK.match(line)
        if rank:
            self.ranks.append(Rank(int(rank[1]), int(rank[2]), rank[3], int(rank[4]), rank[5], rank[6].strip()))
        elif "nccl-tests version" in line or "rccl-tests version" in line:
            self.version = fields[3] if len(fields) > 3 else ""
        elif line.startswith("# Collective test starting:"):
            self.name, self.new = " ".join(value), True
        elif line.startswith("# Collective test concluded:"):
            self.concluded = True
        elif line.startswith("# nThread"):
            self.headers += 1
        elif "algbw" in fields and "busbw" in fields:
            self.columns = len(fields) - 1
        elif "(elements)" in fields and (fields.count("(us)"), fields.count("(GB/s)")) != (2, 4):
            raise ValueError(f"a table in other units than us and GB/s: {line.strip()[:80]}")
        else:
            self.footer(line, fields, value)

    def footer(self, line: str, fields: Sequence[str], value: Sequence[str]) -> None:
        if line.startswith("# Out of bounds values") and value[1:2] and value[1] in ("OK", "FAILED"):  # not cut off
            self.bounds = (number(value[0]), value[1] == "OK")
        elif line.startswith("# Avg bus bandwidth") and value:
            self.average = number(value[0])
        elif line.startswith("# Reducing maxBytes to") and len(fields) > 4 and fields[4].isdigit():
            self.reduced = int(fields[4])

    def figures(self, line: str) -> None:
        """A line of the table. A line that is cut off, or that two processes wrote to, has another number of
        columns.
        """
        fields = line.split()
        if not self.columns or not fields or not fields[0].isdigit():
            return
        if len(fields) != self.columns or self.columns not in (12, 13) or not fields[1].isdigit():
            raise ValueError(f"a row of {len(fields)} columns below a header of {self.columns}: {line.strip()[:80]}")
        first = self.columns - 8
        self.rows.append(
            Row(
                int(fields[0]),
                int(fields[1]),
                fields[2],
                fields[3],
                _timing(fields[first:]),
                _timing(fields[first + 4 :]),
            )
        )


def parse_collective(text: str) -> Collective:
    """What a test printed. Raises ValueError if there is neither a header nor a row, or a row makes no sense."""
    test = _Reading()
    for line in lines(text):
        if _FAILURE.search(line):
            test.failures.append(line.strip()[:300])
        elif line.startswith("#"):
            test.comment(line)
        else:
            test.figures(line)
    if not test.headers and not test.rows and not test.ranks and not test.failures:
        raise ValueError("not an output of nccl-tests or rccl-tests")
    ended = test.concluded if test.new else test.average is not None
    return Collective(
        test.name, test.version, tuple(test.ranks), tuple(test.rows), test.headers, test.bounds, test.average,
        ended, test.reduced, tuple(test.failures),
    )  # fmt: skip


def _timing(fields: Sequence[str]) -> Timing:
    wrong = None if fields[3] == "N/A" else number(fields[3])
    return Timing(number(fields[0]), number(fields[1]), number(fields[2]), wrong)


FACTORS = (("all_reduce", 2.0), ("all_gather", 1.0), ("reduce_scatter", 1.0), ("alltoall", 1.0), ("all_to_all", 1.0))
"""The collectives whose busbw/algbw tells the number of ranks n, and what that is times n/(n-1)."""
_HALF = 0.005
UNITS = 0.02
"""Share by which size and time may give another algbw than the one printed: both are rounded."""


def agrees(size: int, timing: Timing) -> bool:
    """Whether algbw is what size and time give, in the units of the header: else a digit, a column or a unit is off."""
    given = size / timing.time / 1000  # bytes a microsecond are 1e6 bytes a second
    return abs(given - timing.algbw) <= UNITS * given + 2 * _HALF


def ranks_by_figures(name: str, algbw: float, busbw: float) -> Optional[float]:
    """How many ranks took part, by busbw/algbw; None if the collective's factor does not tell (or figures are 0)."""
    if algbw <= 0 or busbw <= 0:
        return None
    ratio = busbw / algbw
    most = next((limit for known, limit in FACTORS if name.startswith(known)), 0.0)
    return most / (most - ratio) if ratio < most else None


def could_be_ranks(name: str, algbw: float, busbw: float, ranks: int) -> bool:
    """Whether the figures may be those of so many ranks; where the collective's factor does not tell, they may.

    They are printed with two decimals (%6.2f). With hundreds of ranks the factor is so near to its limit that this
    alone covers many counts.
    """
    most = next((limit for known, limit in FACTORS if name.startswith(known)), None)
    if most is None:
        return True
    slack = max(0.5, ranks * 0.05)
    least_seen = (busbw - _HALF) / (algbw + _HALF)
    most_seen = (busbw + _HALF) / (algbw - _HALF) if algbw > _HALF else float("inf")
    return most * (1 - 1 / (ranks + slack)) >= least_seen and most * (1 - 1 / (ranks - slack)) <= most_seen


class DataPath(NamedTuple):
    """The transports that NCCL_DEBUG=INFO reported, by name.

    `fell_back`: a rank has chosen TCP, whatever the others have.
    """

    names: FrozenSet[str]
    fell_back: bool = False


def transport(text: str) -> DataPath:
    """The transports that NCCL or RCCL reported (NCCL_DEBUG=INFO, subsystems INIT and NET): `IB`, `Socket`, `efa` ...

    `P2P`, `SHM` and `NVLS` are those within a node.
    """
    names: List[str] = []
    fell_back = False
    for line in lines(text):
        if "NCCL INFO" not in line:
            continue
        if "NET/IB : Using" in line:
            names.append("IB")
        if "NET/Socket : Using" in line or "Using network Socket" in line:
            names.append("Socket")
        if "Selected Provider is efa" in line or "Selected provider is efa" in line:
            names.append("efa")
        if "NET/gIB" in line or "Using network gIB" in line:
            names.append("gIB")
        if " via P2P" in line:
            names.append("P2P")
        if " via SHM" in line:
            names.append("SHM")
        if "Connected NVLS" in line:
            names.append("NVLS")
        # Not "NET/Socket : Using": a network that is made ready need not be chosen.
        fell_back = fell_back or "Using network Socket" in line or "via NET/Socket" in line
    return DataPath(frozenset(names), fell_back)


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


def parse_nccom(text: str) -> Nccom:
    """What nccom-test printed. Raises ValueError if it is no such output or a row makes no sense."""
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


LAYERS: Dict[str, Tuple[str, ...]] = {
    "all": (),
    "nvlink": ("NCCL_P2P_LEVEL=NVL",),
    "nic": ("NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1"),
}
"""The transports that NCCL may use: any, NVLink alone, the network adapters alone."""

USUAL = 8 << 30
"""The size whose figure has the metric's plain name, and that most published figures are of."""

NETWORKS = frozenset(["IB", "efa", "gIB"])
NAMES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "reduce", "sendrecv")
DEADLINE = 900.0
"""Seconds: one size of 20 iterations takes one or two minutes with the start (OCI allows 2, CHS 10 minutes)."""


@check(
    "check_deep_collective",
    DEVICES,
    opt("-c --collective", "name", one_of(NAMES), "all_reduce, all_gather, reduce_scatter, alltoall ...", "all_reduce"),
    opt("-s --size", "size", size_bytes, "the size whose row is judged", USUAL),
    opt(
        "-i --isolate", "only", one_of(LAYERS), "all, nvlink (NVLink alone) or nic (the network adapters alone)", "all"
    ),
    opt("-n --iterations", "iterations", whole, "iterations", 20),
    opt("-b --binary", "binary", text, "the test (default: COLLECTIVE_perf)", ""),
    deep.FLOOR,
    timeout=deep.OVERHEAD + DEADLINE,
    tags=("gpu", "nvidia", "amd"),
)
def check_deep_collective(
    host: Host,
    name: str = "all_reduce",
    size: int = USUAL,
    only: str = "all",
    iterations: int = 20,
    binary: str = "",
    floor: Optional[float] = None,
    devices: str = "",
) -> Judged:
    """All GPUs of the node together are as fast as they should be, and give right sums.

    Runs nccl-tests (NVIDIA) or rccl-tests (AMD) over all GPUs of the node in one process. Judged is the bus bandwidth
    of the row of SIZE, never the average, which small sizes drag down. Before that the test must have run: as many
    ranks as GPUs, by the header and by the figures, every value checked, and its last line there. A wrong value is
    CRIT. How the data travelled is proved first: through shared memory or TCP it is a configuration fault, UNKNOWN.

    Example: * |context deep| check_deep_collective -s 8G -f 460
    """
    picked = pick(host, devices)
    gpus = [device for device in picked.devices if device.vendor in ("nvidia", "amd")]
    if len(gpus) < 2:
        if gpus:
            return [*picked.outcomes, skip("NotSupported", "a collective takes two GPUs, there is one")]
        return list(picked.outcomes)
    size = min(size, room(gpus))
    variable = "CUDA_VISIBLE_DEVICES" if gpus[0].vendor == "nvidia" else "HIP_VISIBLE_DEVICES"
    chosen = ",".join(str(device.number) for device in gpus)
    argv = ["env", "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH,P2P", f"{variable}={chosen}", *LAYERS[only],
            binary or f"{name}_perf", "-b", str(size), "-e", str(size), "-g", str(len(gpus)), "-n", str(iterations),
            "-c", "1"]  # fmt: skip
    ran = deep.measure(host, argv, DEADLINE, name, lambda done: parse_collective(done.output))
    if isinstance(ran, Outcome):
        return [*picked.outcomes, ran]
    done, result = ran
    travelled = transport(done.output)
    return [*picked.outcomes, judge(host, name, size, len(gpus), only, done, result, travelled, floor)]


def room(gpus: Sequence[Device]) -> int:
    """The largest power of two that nccl-tests takes on the smallest of these GPUs, in bytes.

    With its check on it allots three buffers, of the memory less a sixteenth (4 GiB at most) and 1 GiB (common.cu).
    """
    least = min((gpu.memory_total for gpu in gpus if gpu.memory_total), default=0)
    if not least:
        return sys.maxsize
    limit = (least - min(-(-least // (16 << 30)), 4) * (1 << 30) - (1 << 30)) // 3
    return 1 << max(limit.bit_length() - 1, 20)


def judge(
    host: Host, name: str, size: int, ranks: int, only: str, done: Completed, result: Collective, travelled: DataPath,
    floor: Optional[float],
) -> Outcome:  # fmt: skip
    """Judge one run. Wrong values come first: they need no further proof."""
    row = result.row(size)
    wrong = wrong_values(result)
    if wrong:
        return crit("DeepWrongResult", f"{name}: {wrong}", action=Action.INSPECT, evidence=deep.tail(done))
    why = unproven(name, size, ranks, result, row)
    if why:
        reason = "DeepToolFailed" if result.failures else "DeepNoProof"
        message = result.failures[0] if result.failures else f"{name} gave no proof that its test ran: {why}"
        return unknown(reason, message, evidence=deep.tail(done))
    if done.status:
        return unknown("DeepToolFailed", f"{name} ended with status {done.status}", evidence=deep.tail(done))
    wrong_way = _wrong_way(only, travelled)
    if wrong_way:
        return unknown("DeepWrongTransport", f"{name}: {wrong_way}", evidence=deep.tail(done))
    assert row is not None
    metric = f"collective_{name}" if only == "all" else f"collective_{name}_{only}"
    usual = "" if size == USUAL else f"{metric}_{show_kb(size // 1024)}"
    judged = deep.hold(host, deep.Measured(metric, row.busbw, "GB/s", size=size, name=usual), floor)
    if name == "all_reduce" and "NVLS" not in travelled.names:
        judged = _without_nvls(judged)
    algbw = Metric(f"{usual or metric}_algbw", max(row.out_of_place.algbw, row.in_place.algbw), "GB/s")
    message = f"{judged.message}, {ranks} ranks at {show_kb(size // 1024)}"
    return judged._replace(message=message, metrics=(*judged.metrics, algbw))


NVLS = 0.75
"""Share of what is expected with NVLS that rings reach: 370 of 480 GB/s on eight H100, 368 of 482 on H200, 682 of 846
on B200."""


def _without_nvls(judged: Outcome) -> Outcome:
    """NVLS (sums in the switches) that is switched off is a setting, not a weak GPU: the figure is then that of
    rings.
    """
    figures = {metric.name: metric.value for metric in judged.metrics}
    threshold = next((value for key, value in figures.items() if key.endswith("_threshold")), 0.0)
    if judged.reason != deep.SLOW or judged.metrics[0].value < NVLS * threshold:
        return judged
    message = f"{judged.message}; NVLS was not used, as with NCCL_NVLS_ENABLE=0 or without the fabric manager"
    return warn("DeepNvlsOff", message, metrics=judged.metrics)


def wrong_values(result: Collective) -> str:
    """What says that values were wrong, "" if nothing does. NaN is not right."""
    for row in result.rows:
        for timing in (row.out_of_place, row.in_place):
            if timing.wrong is not None and timing.wrong != 0:
                return f"{timing.wrong:g} wrong values at {show_kb(row.size // 1024)}"
    if result.bounds is not None and (result.bounds[0] != 0 or not result.bounds[1]):
        return f"{result.bounds[0]:g} values out of bounds"
    return ""


def unproven(name: str, size: int, ranks: int, result: Collective, row: Optional[Row]) -> str:
    """What is missing of the proof that the test ran, "" if it is whole."""
    if result.headers != 1:
        return f"{result.headers} headers: the binary ran as separate tests" if result.headers else "no header"
    if row is None:
        limit = f", memory limited it to {show_kb(result.reduced // 1024)}" if result.reduced else ""
        return f"no row of {show_kb(size // 1024)}{limit}"
    if not result.concluded or result.bounds is None:
        return "its last lines are missing"
    seen = len({(rank.host, rank.rank) for rank in result.ranks})
    if len(result.ranks) != ranks or seen != ranks:
        return f"{seen} of {ranks} ranks"
    if row.out_of_place.wrong is None or row.in_place.wrong is None:
        return "the values were not checked"
    for timing in (row.out_of_place, row.in_place):
        figures = (timing.time, timing.algbw, timing.busbw)
        if not all(0 < figure < float("inf") for figure in figures):  # NaN is not between them
            return "a figure that is 0, or none"
        if not agrees(row.size, timing):
            return f"its figures contradict one another: {timing.time:g} us and {timing.algbw:g} GB/s"
        if not could_be_ranks(name, timing.algbw, timing.busbw, ranks):
            implied = ranks_by_figures(name, timing.algbw, timing.busbw)
            return f"its figures are those of {f'{implied:.0f}' if implied else 'no number of'} ranks, not {ranks}"
    return ""


def _wrong_way(only: str, travelled: DataPath) -> str:
    """What is wrong with the transport used, "" for nothing."""
    if not travelled.names:
        return "nothing says how the data travelled (no NCCL INFO lines)"
    if only == "nic":
        if travelled.names & NETWORKS and not travelled.fell_back:
            return ""
        return f"the data travelled by {', '.join(sorted(travelled.names))}, not by the network adapters"
    if travelled.names & {"P2P", "NVLS"}:
        return "" if "SHM" not in travelled.names else "some of the data travelled through shared memory, not P2P"
    return f"the data travelled by {', '.join(sorted(travelled.names))}, not from GPU to GPU"


@check(
    "check_deep_nccom",
    opt("-r --ranks", "ranks", whole, "NeuronCores that take part", 2),
    opt("-s --size", "size", size_bytes, "the size whose row is judged", 32 << 20),
    opt("-c --collective", "name", text, "allr, allg, redsct, alltoall ...", "allr"),
    deep.FLOOR,
    timeout=deep.OVERHEAD + DEADLINE,
    tags=("gpu", "neuron"),
)
def check_deep_nccom(
    host: Host, ranks: int = 2, size: int = 32 << 20, name: str = "allr", floor: Optional[float] = None
) -> Judged:
    """Neuron devices of the node together are as fast as they should be, and give right sums.

    Runs nccom-test within the node, with its checks on. Judged is the bus bandwidth of the row of SIZE. Its GB/s are
    GiB/s; here they are GB/s.

    Example: * |context deep| check_deep_nccom -r 32 -s 1G
    """
    picked = pick(host, "", "neuron")
    if not picked.devices:
        return list(picked.outcomes)
    argv = ["nccom-test", "-r", str(ranks), name, "-b", str(size), "-e", str(size), "-f", "2", "-c",
            "--non-interactive"]  # fmt: skip
    ran = deep.measure(host, argv, DEADLINE, "nccom-test", lambda done: parse_nccom(done.output))
    return [*picked.outcomes, ran if isinstance(ran, Outcome) else judge_nccom(host, name, size, *ran, floor)]


def judge_nccom(host: Host, name: str, size: int, done: Completed, result: Nccom, floor: Optional[float]) -> Outcome:
    """Judge one run of nccom-test."""
    wrong = [line for line in result.failures if "errors found" in line and not line.startswith("0 ")]
    if wrong:
        return crit("DeepWrongResult", f"nccom-test: {wrong[0]}", evidence=deep.tail(done))
    row = next((row for row in result.rows if row.size == size), None)
    if result.failures or done.status:
        why = (result.failures or (f"status {done.status}",))[0]
        return unknown("DeepToolFailed", f"nccom-test: {why}", evidence=deep.tail(done))
    if row is None or result.average is None or row.time <= 0 or row.busbw <= 0:
        why = "its last line is missing" if row else f"no row of {show_kb(size // 1024)}"
        return deep.no_proof("nccom-test", why, done)
    return deep.hold(host, deep.Measured(f"nccom_{name}", row.busbw, "GB/s", size=size), floor)
