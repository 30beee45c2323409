"""nccl-tests and rccl-tests (text of every version since 2.9), and nccom-test of AWS Neuron.

Sources: NVIDIA nccl-tests 2.19.6 (common.cu, util.cu), rccl-tests with the same rows and footer, samples of AWS, Azure,
OCI and CoreWeave. A row has 12 columns before `root` was printed and 13 since; with -c 0 `#wrong` is N/A, else it may
have an exponent or be NaN. busbw/algbw is 2(n-1)/n for all_reduce and (n-1)/n for all_gather, reduce_scatter and
alltoall, so that the figures themselves tell how many ranks took part (doc/PERFORMANCE.md of nccl-tests).

nccom-test's "GB/s" are GiB/s (aws-neuron-sdk, nccom-test guide): here they are GB/s.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING, NamedTuple, regex
from nhc.node.facts.tools.output import figure, lines, number

if TYPE_CHECKING:
    from typing import FrozenSet, List, Optional, Sequence, Tuple

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
    """Half a row: time in microseconds, bandwidths in GB/s (decimal), `wrong` values, None where not checked."""

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
        """How the test itself broke off, "" where it did not say so.

        NCCL and RCCL warn of much that does no harm (NUMA balancing, a plugin that is not there); memory that is taken
        says that somebody else is on the GPU.
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
        """A line of the table. One that is cut off, or that two processes wrote into, has another number of columns."""
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


def parse(text: str) -> Collective:
    """What a test printed. Raises ValueError where there is neither a header nor a row, or a row makes no sense."""
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
    """How many ranks took part, by busbw/algbw; None where the collective's factor does not tell (or figures are 0)."""
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
    """What NCCL_DEBUG=INFO said of how data travels: names of transports.

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
        # Not "NET/Socket : Using": that a network is made ready does not say that it is chosen.
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
