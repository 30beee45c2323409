"""Disks: fio, which reads back what it wrote.

Source: fio HOWTO (JSON output) and runs of 3.33. Notes may stand before the object.
"""

from __future__ import annotations

from nhc.core.check import Judged, check, flag, opt
from nhc.core.host import Host
from nhc.core.json_values import object_in, object_of, objects_in, whole_in
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Action, Outcome, crit, known, unknown, worst
from nhc.core.units import show_kb, size_bytes, text
from nhc.node.checks import deep
from nhc.node.facts.mounts import mounts, under
from nhc.node.facts.tool_output import figure, json_object

if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Tuple

    from nhc.core.host import Completed

VERIFY, NO_SPACE, IO = 84, 28, 5
"""What `error` of a job holds: EILSEQ is a block that does not verify, ENOSPC a full file system, EIO the device."""


class Direction(NamedTuple):
    """Reads or writes of a job: bytes moved, bytes a second, the 99th percentile of completion
    latency in seconds (None if none was measured) and the time in seconds.
    """

    moved: int
    rate: float
    p99: Optional[float]
    seconds: float


class FioJob(NamedTuple):
    """One job. `error` is an errno, 0 for none."""

    name: str
    error: int
    read: Direction
    write: Direction


class Fio(NamedTuple):
    version: str
    jobs: Tuple[FioJob, ...]


def parse_fio(text: str) -> Fio:
    """What fio printed. Raises ValueError."""
    root = json_object(text)
    if "jobs" not in root or "fio version" not in root:
        raise ValueError("no jobs of fio in it")
    return Fio(str(root["fio version"]), tuple(map(_job, objects_in(root, "jobs"))))


def _job(job: Dict[str, Any]) -> FioJob:
    error = whole_in(job, "error")
    return FioJob(str(job.get("jobname", "")), error, _direction(job, "read"), _direction(job, "write"))


def _direction(job: Dict[str, Any], name: str) -> Direction:
    values = object_in(job, name)
    bandwidth = values.get("bw_bytes")
    rate = figure(bandwidth) if bandwidth is not None else figure(values.get("bw")) * 1024  # before fio 3.0: KiB/s
    moved = whole_in(values, "io_bytes")
    p99 = object_of(object_of(values.get("clat_ns")).get("percentile")).get("99.000000")
    runtime = figure(values.get("runtime", 0)) / 1000
    return Direction(moved, rate, None if p99 is None else figure(p99) / 1e9, runtime)


SLOWEST = 20e6
"""Bytes a second at which writing and reading back still end in time: a slow hard disk is five times as fast."""
SPARE = 1.1
"""How many times the test's size must be free, so that the test does not fill the file system for others."""


@check(
    "check_deep_disk",
    opt("-d --directory", "directory", text, "where to test (default: the run's own scratch folder)", ""),
    opt("-s --size", "size", size_bytes, "how much to write and read back", 1 << 30),
    flag("-b --buffered", "buffered", "through the page cache: for file systems without direct I/O"),
    opt("-w --write", "write", deep.floor_value, "least GB/s of writing; none: measure only"),
    opt("-r --read", "read", deep.floor_value, "least GB/s of reading; none: measure only"),
    timeout=deep.OVERHEAD + 3600,
    tags=("fs",),
)
def check_deep_disk(
    host: Host,
    directory: str = "",
    size: int = 1 << 30,
    buffered: bool = False,
    write: Optional[float] = None,
    read: Optional[float] = None,
) -> Judged:
    """A disk gives back what was written to it.

    fio writes SIZE with a checksum in every block and reads all of it back, in a file of its own that is removed; never
    a raw device. A block that does not verify and an I/O error are CRIT; a full file system is UNKNOWN. Speed is judged
    where a floor is known.

    Example: * |context deep| check_deep_disk -d /scratch -s 8G -w 1.5 -r 3
    """
    where = directory or deep.scratch(host)
    if not where:
        return deep.NOT_ALONE
    try:
        free = host.statvfs(where).available
    except OSError as error:
        return unknown("Unreadable", f"{where}: {error.strerror}")
    if free < size * SPARE:
        message = f"{where}: {show_kb(free // 1024)} free, the test needs {show_kb(int(size * SPARE) // 1024)}"
        return unknown("DeepNoRoom", message)
    direct = "0" if buffered or _in_memory(host, where) else "1"
    argv = ["fio", "--name=nhc-deep-check", f"--directory={where}", f"--size={size}", "--rw=write", "--bs=1M",
            "--ioengine=psync", f"--direct={direct}", "--end_fsync=1", "--verify=crc32c", "--do_verify=1",
            "--verify_fatal=1", "--verify_state_save=0", "--unlink=1", "--output-format=json"]  # fmt: skip
    limit = min(3600.0, deep.START + 2 * size / SLOWEST)
    ran = deep.measure(host, argv, limit, "fio", lambda done: parse_fio(done.stdout))
    return ran if isinstance(ran, Outcome) else judge(host, where, size, *ran, write, read)


def _in_memory(host: Host, path: str) -> bool:
    """Whether a directory lies in tmpfs, which takes direct I/O since Linux 6.6 only."""
    mount = under(mounts(host), host.realpath(path))
    return mount is not None and mount.type in ("tmpfs", "ramfs")


def judge(
    host: Host, where: str, size: int, done: Completed, result: Fio, write: Optional[float], read: Optional[float]
) -> Judged:
    """Judge a disk by a run of fio."""
    errors = [job.error for job in result.jobs if job.error]
    if NO_SPACE in errors:
        return unknown("DeepNoRoom", f"{where}: it filled up during the test", evidence=deep.tail(done))
    if VERIFY in errors:
        message = f"{where}: a block does not hold what was written to it"
        return crit("DeepWrongData", message, target=where, action=Action.REPLACE, evidence=deep.tail(done))
    if IO in errors:
        return crit("DeepDiskErrors", f"{where}: I/O error", target=where, evidence=deep.tail(done))
    if errors or done.status:
        why = f"error {errors[0]}" if errors else f"status {done.status}"
        return unknown("DeepToolFailed", f"{where}: fio did not run to its end ({why})", evidence=deep.tail(done))
    written = sum(job.write.moved for job in result.jobs)
    verified = sum(job.read.moved for job in result.jobs)
    if written < size or verified < size:
        why = f"{show_kb(written // 1024)} written, {show_kb(verified // 1024)} read back, of {show_kb(size // 1024)}"
        return deep.no_proof("fio", why, done)
    judged = [
        deep.hold(host, deep.Measured(metric, rate / 1e9, "GB/s", where), floor)
        for metric, rate, floor in (
            ("disk_write", result.jobs[0].write.rate, write), ("disk_read", result.jobs[0].read.rate, read),
        )
    ]  # fmt: skip
    speeds = "; ".join(outcome.message[len(where) + 2 :] for outcome in judged)
    metrics = (metric for outcome in judged for metric in outcome.metrics)
    return worst(tuple(judged))._replace(
        message=f"{where}: {show_kb(size // 1024)} read back as written: {speeds}",
        metrics=(*metrics, *known("s", disk_write_p99=result.jobs[0].write.p99)),
    )
