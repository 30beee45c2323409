"""RDMA adapters in loopback: perftest for InfiniBand, RoCE and EFA, fi_pingpong if EFA has no perftest.

Source of perftest's text: linux-rdma/perftest (src/perftest_resources.c RESULT_FMT ...). Units are the header's: MB
there are 2^20 bytes. All bandwidths here are Gb/s (decimal), latencies microseconds.
fi_pingpong prints one row a message size: libfabric util/pingpong.c (show_perf). The time of one transfer is in
microseconds.
"""

from __future__ import annotations

from nhc.core.check import check, flag, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Metric, Outcome, crit, ok, skip, unknown, worst
from nhc.core.units import seconds, size_bytes, whole
from nhc.node.checks import deep
from nhc.node.checks.ib import NAMES, chosen
from nhc.node.facts.infiniband import efa_devices
from nhc.node.facts.tool_output import figure, lines

if TYPE_CHECKING:
    from typing import List, Optional, Sequence, Tuple, Union

    from nhc.core.host import Completed
    from nhc.node.facts.infiniband import Port

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


def parse_perftest(text: str) -> Perftest:
    """What one end printed. Raises ValueError if there is nothing of perftest in it, or more than one test."""
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


FIRST_PORT = 18515 + 20000
"""The TCP port on which the two ends meet: another than perftest's default, one more for each adapter."""
READY = 15.0
"""Seconds given to the listening end."""
LOCAL = "127.0.0.1"
MOST_LATENCY = opt("-F --most-latency", "most", deep.floor_value, "most microseconds; none: measure only")


@check(
    "check_deep_rdma",
    opt("-t --time", "duration", seconds, "how long to measure each port", 5.0),
    opt("-s --size", "size", size_bytes, "the message size that is judged", 65536),
    opt("-x --gid", "gid", whole, "the GID index (RoCE)"),
    flag("-l --latency", "latency", "measure latency as well"),
    MOST_LATENCY,
    deep.FLOOR,
    NAMES,
    timeout=deep.OVERHEAD + 1800,
    tags=("ib",),
)
def check_deep_rdma(
    host: Host,
    duration: float = 5.0,
    size: int = 65536,
    gid: Optional[int] = None,
    latency: bool = False,
    most: Optional[float] = None,
    floor: Optional[float] = None,
    ports: Sequence[str] = (),
) -> List[Outcome]:
    """Each RDMA port writes to itself as fast as its adapter and slot allow.

    Runs both ends of perftest's ib_write_bw on each active port of the node. Loopback proves the adapter and its PCIe
    slot, not the cable or the switch: a pair of nodes does that. Judged is the row of SIZE, in Gb/s of the header's
    unit. UNKNOWN where the other end did not come up or no row was printed.

    Example: * |context deep| check_deep_rdma -l mlx5_0 mlx5_1
    """
    picked, outcomes = chosen(host, list(ports))
    own = {port.name for port in efa_devices(host)}
    active = [port for port in picked if port.name not in own and port.up]
    if not active:
        return [*outcomes, skip("NoRdmaPort", "no active RDMA port to test (EFA has check_deep_efa)")]
    for number, port in enumerate(active):
        common = ["-d", port.device, "-i", str(port.port), "-F", *(["-x", str(gid)] if gid is not None else [])]
        at = FIRST_PORT + 2 * number
        bandwidth = ["ib_write_bw", *common, "-s", str(size), "--report_gbits", "-D", str(max(2, round(duration)))]
        done = _both(host, bandwidth, at, duration + deep.START)
        judged = [done if isinstance(done, Outcome) else _bandwidth(host, port, size, done, floor)]
        if latency and not judged[0].verdict > 1:
            slow = _both(host, ["ib_write_lat", *common, "-s", "2", "-n", "1000"], at + 1, deep.START)
            judged.append(slow if isinstance(slow, Outcome) else _latency(host, port, slow, most))
        outcomes += [outcome._replace(target=outcome.target or port.name) for outcome in judged]
    return deep.among_peers(outcomes, {port.name: str(port.rate_gbps) for port in active}, floor)


def _both(host: Host, argv: Sequence[str], at: int, timeout: float) -> Union[Completed, Outcome]:
    """Run the two ends of a test on this node; returns how the client ended."""
    command = [*argv, "-p", str(at)]
    return deep.both_ends(
        host, command, [*command, LOCAL], f"{argv[0]}-{at}.log", timeout, READY,
        lambda done: "Couldn't connect" in done.output,
    )  # fmt: skip


def _read(tool: str, done: Completed) -> Union[Perftest, Outcome]:
    try:
        result = parse_perftest(done.output)
    except ValueError as error:
        return deep.unreadable(tool, error, done)
    hard = [line for line in result.failures if "Conflicting CPU frequency" not in line]
    if result.validated is False:
        return crit("DeepWrongData", f"{tool}: the data that arrived is not what was sent", evidence=deep.tail(done))
    if hard or done.status:
        why = hard[0] if hard else f"status {done.status}"
        bad = any("Failed status" in line or "Completion with error" in line for line in hard)
        judge = crit if bad else unknown
        reason = "DeepLinkErrors" if bad else "DeepToolFailed"
        return judge(reason, f"{tool}: {why}", evidence=deep.tail(done))
    return result


def _bandwidth(host: Host, port: Port, size: int, done: Completed, floor: Optional[float]) -> Outcome:
    result = _read("ib_write_bw", done)
    if isinstance(result, Outcome):
        return result
    row = next((row for row in result.rows if row.size == size and row.average is not None), None)
    if row is None or row.iterations <= 0 or not row.average or row.average <= 0:
        return deep.no_proof("ib_write_bw", f"no row of {size} bytes", done)
    if result.device and result.device != port.device:
        return deep.no_proof("ib_write_bw", f"it ran on {result.device}", done)
    return deep.hold(host, deep.Measured("rdma_write", row.average, "Gb/s", port.name, size), floor)


def _latency(host: Host, port: Port, done: Completed, most: Optional[float]) -> Outcome:
    result = _read("ib_write_lat", done)
    if isinstance(result, Outcome):
        return result
    row = next((row for row in result.rows if row.latency_typical is not None), None)
    if row is None or not row.latency_typical or row.latency_typical <= 0:
        return deep.no_proof("ib_write_lat", "no row", done)
    measured = deep.Measured("rdma_write_latency", row.latency_typical, "us", port.name, at_least=False)
    return deep.hold(host, measured, most)


@check(
    "check_deep_efa",
    deep.FLOOR,
    MOST_LATENCY,
    timeout=deep.OVERHEAD + 1800,
    tags=("ib", "efa"),
)
def check_deep_efa(host: Host, floor: Optional[float] = None, most: Optional[float] = None) -> List[Outcome]:
    """Each Elastic Fabric Adapter writes to itself as fast as it should.

    Runs both ends of perftest (ib_write_bw, then ib_write_lat, over SRD, all message sizes) on each adapter, or
    fi_pingpong with the efa provider where perftest is not installed. Judged is the best bandwidth over the sizes, as
    HyperPod's loopback check does, which also tells the average and the latencies.

    Example: * |context deep| check_deep_efa -f 20
    """
    devices = efa_devices(host)
    if not devices:
        return [skip("NoRdmaPort", "no Elastic Fabric Adapter on this node")]
    outcomes: List[Outcome] = []
    for number, port in enumerate(devices):
        at = FIRST_PORT + 1000 + 2 * number
        if host.which("ib_write_bw") is None and host.which("fi_pingpong") is not None:
            outcomes.append(_pingpong(host, port, at))
            continue
        common = ["-d", port.device, "-c", "SRD", "-x", "0", "-F", "-a"]
        done = _both(host, ["ib_write_bw", *common, "--report_gbits"], at, 300.0)
        lat = done if isinstance(done, Outcome) else _both(host, ["ib_write_lat", *common], at + 1, 300.0)
        outcomes.append(_efa(host, port, done, lat, floor, most))
    return [outcome._replace(target=outcome.target or port.device) for outcome, port in zip(outcomes, devices)]


def _efa(
    host: Host, port: Port, done: Union[Completed, Outcome], lat: Union[Completed, Outcome], floor: Optional[float],
    most: Optional[float],
) -> Outcome:  # fmt: skip
    if isinstance(done, Outcome):
        return done
    bandwidth = _read("ib_write_bw", done)
    latency = lat if isinstance(lat, Outcome) else _read("ib_write_lat", lat)
    if isinstance(bandwidth, Outcome):
        return bandwidth
    if isinstance(latency, Outcome):
        return latency
    rates = [row.average for row in bandwidth.rows if row.average]
    times = [row.latency_typical for row in latency.rows if row.latency_typical]
    largest = max((row.size for row in bandwidth.rows), default=0)
    if len(rates) < 8 or largest < 65536 or not times:  # -a goes from 2 bytes to 8 MiB, on EFA to its largest message
        return deep.no_proof("ib_write_bw", f"{len(rates)} sizes up to {largest} bytes, {len(times)} latencies", done)
    judged = [deep.hold(host, deep.Measured("efa_write", max(rates), "Gb/s", port.device, largest), floor)]
    judged.append(deep.hold(host, deep.Measured("efa_latency", min(times), "us", port.device, at_least=False), most))
    extra = (Metric("efa_write_average", sum(rates) / len(rates), "Gb/s"), Metric("efa_latency_max", max(times), "us"),
             Metric("efa_latency_average", sum(times) / len(times), "us"))  # fmt: skip
    metrics = (metric for outcome in judged for metric in outcome.metrics)
    return worst(tuple(judged))._replace(metrics=(*metrics, *extra))


def _pingpong(host: Host, port: Port, at: int) -> Outcome:
    """fi_pingpong over the efa provider. One message is under way at a time: its rate is no measure of bandwidth."""
    command = ["fi_pingpong", "-p", "efa", "-e", "rdm", "-d", f"{port.device}-rdm", "-c", "-I", "100"]
    done = ping(host, command, at)
    return done if isinstance(done, Outcome) else judge_pingpong(done, port.device)


def ping(host: Host, command: Sequence[str], at: int) -> Union[Completed, Outcome]:
    """Run the two ends of fi_pingpong; returns how the client ended."""
    return deep.both_ends(
        host, [*command, "-B", str(at)], [*command, "-P", str(at), LOCAL], f"fi_pingpong-{at}.log", 120.0, READY,
        lambda done: bool(done.status) and "refused" in (done.output).lower(),
    )  # fmt: skip


def judge_pingpong(done: Completed, device: str) -> Outcome:
    """Judge a run of fi_pingpong: whether data arrives whole, and how long a message takes."""
    try:
        result = parse_pingpong(done.output)
    except ValueError as error:
        return deep.unreadable("fi_pingpong", error, done)
    if result.failures or done.status:
        why = result.failures[0] if result.failures else f"status {done.status}"
        return unknown("DeepToolFailed", f"fi_pingpong: {why}", target=device, evidence=deep.tail(done))
    lost = [row for row in result.rows if row.acked < row.sent]
    if lost:
        message = f"{device}: messages were not answered ({lost[0].sent - lost[0].acked} of {lost[0].sent})"
        return crit("DeepLinkErrors", message, target=device, evidence=deep.tail(done))
    if len(result.rows) < 5 or any(row.sent <= 0 for row in result.rows):
        return deep.no_proof("fi_pingpong", f"{len(result.rows)} sizes", done, device)
    best = min(row.latency for row in result.rows)
    metrics = (Metric("efa_latency", best, "us"),)
    message = f"{device}: messages of {len(result.rows)} sizes were answered, {deep.show(best)} us at best"
    return ok(f"{message}; bandwidth is not measured without perftest", target=device, metrics=metrics)
