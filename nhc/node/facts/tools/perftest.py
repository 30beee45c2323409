"""perftest (ib_write_bw, ib_read_lat ...), and fi_pingpong of libfabric: the text of their versions.

Source: linux-rdma/perftest (src/perftest_resources.c RESULT_FMT ...). Units are the header's: MB there are 2^20 bytes.
All bandwidths here are Gb/s (decimal), latencies microseconds.

fi_pingpong prints one row a message size. Source: libfabric util/pingpong.c (show_perf). The time of one transfer is in
microseconds.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.node.facts.tools.output import figure, lines

if TYPE_CHECKING:
    from typing import List, Optional, Tuple

GBITS_PER_MIB = 2**20 * 8 / 1e9


class RdmaRow(NamedTuple):
    """One message size: bandwidth in Gb/s, or latency in microseconds; the other is None."""

    size: int
    iterations: int
    average: Optional[float] = None
    latency_typical: Optional[float] = None


class Perftest(NamedTuple):
    """One end of a run. `transport` is IB or EFA, `link` InfiniBand or Ethernet, as it says; `failures` its words."""

    title: str
    device: str
    transport: str
    link: str
    rows: Tuple[RdmaRow, ...]
    failures: Tuple[str, ...] = ()
    validated: Optional[bool] = None


_FAILURES = (
    "Couldn't", "Unable to", "Failed status", "Completion with error", " not found", "Did not detect devices",
    "Error: BW", "Failed to", "state is Down", "VALIDATION: FAILED", "Conflicting CPU frequency",
)  # fmt: skip


def parse(text: str) -> Perftest:
    """What one end printed. Raises ValueError where there is nothing of perftest in it, or more than one test."""
    title = device = transport = link = unit = ""
    rows: List[RdmaRow] = []
    failures: List[str] = []
    validated: Optional[bool] = None
    for line in lines(text):
        fields = line.split()
        if line.strip().endswith(" Test") and ("RDMA" in line or "Send" in line or "Atomic" in line):
            if title:
                raise ValueError("two tests are in one output")
            title = line.strip()
        elif "Device" in fields and ":" in fields:
            device = device or line.rpartition(":")[2].strip()
        if "Transport type" in line:
            transport = line.rpartition(":")[2].strip()
        elif "Link type" in line:
            link = line.rpartition(":")[2].strip()
        elif line.strip().startswith("#bytes"):
            if unit:
                raise ValueError("two tests are in one output")
            unit = _unit(line)
        elif "VALIDATION:" in line:
            validated = "VALIDATION: PASSED" in line
        elif fields and fields[0].isdigit() and unit and len(fields) >= 5:
            rows.append(_row(fields, unit))
        if any(failure in line for failure in _FAILURES):
            failures.append(line.strip()[:300])
    if not title and not failures:
        raise ValueError("not an output of perftest")
    return Perftest(title, device, transport, link, tuple(rows), tuple(failures), validated)


def _unit(header: str) -> str:
    for mark, unit in (("average[Gb/sec]", "Gb/s"), ("average[MB/sec]", "MiB/s"), ("t_typical[usec]", "us")):
        if mark in header:
            return unit
    raise ValueError(f"a header with unknown units: {header.strip()[:100]}")


def _row(fields: List[str], unit: str) -> RdmaRow:
    if not fields[1].isdigit():
        raise ValueError(f"a row that makes no sense: {' '.join(fields)[:80]}")
    size, iterations = int(fields[0]), int(fields[1])
    if unit == "us":
        if len(fields) < 9:
            raise ValueError("a latency row that is cut off")
        return RdmaRow(size, iterations, latency_typical=figure(fields[4]))
    if len(fields) != 5:
        raise ValueError(f"a bandwidth row of {len(fields)} columns")
    factor = 1.0 if unit == "Gb/s" else GBITS_PER_MIB
    return RdmaRow(size, iterations, figure(fields[3]) * factor)


_UNITS = {"k": 1024, "m": 1024**2, "g": 1024**3}


class PingRow(NamedTuple):
    """One message size in bytes; `sent` messages, `acked` of which were answered."""

    size: int
    sent: int
    acked: int
    latency: float


class PingPong(NamedTuple):
    rows: Tuple[PingRow, ...]
    failures: Tuple[str, ...]


def parse_pingpong(text: str) -> PingPong:
    """What one end printed. Raises ValueError."""
    rows: List[PingRow] = []
    failures: List[str] = []
    head: Optional[List[str]] = None
    for line in lines(text):
        fields = line.split()
        if fields[:1] == ["bytes"] and "MB/sec" in fields:
            head = fields
        elif "error" in line.lower() or line.startswith(("fi_", "[error]")):
            failures.append(line.strip()[:300])
        elif head and fields and fields[0][:1].isdigit():
            if len(fields) != len(head):
                raise ValueError(f"a row of {len(fields)} columns: {line.strip()[:80]}")
            cell = dict(zip(head, fields))
            sent = _pingpong_count(cell["#sent"])
            acked = sent if cell["#ack"].startswith("=") else _pingpong_count(cell["#ack"])
            rows.append(PingRow(_pingpong_count(cell["bytes"]), sent, acked, figure(cell["usec/xfer"])))
    if head is None and not failures:
        raise ValueError("not an output of fi_pingpong")
    return PingPong(tuple(rows), tuple(failures))


def _pingpong_count(text: str) -> int:
    unit = _UNITS.get(text[-1:].lower(), 1)
    return int(figure(text[:-1] if unit > 1 else text) * unit)
