"""fio --output-format=json. Source: fio HOWTO (JSON output) and runs of 3.33. Notes may stand before the object."""

from __future__ import annotations

from nhc.core.json_values import object_in, object_of, objects_in, whole_in
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.node.facts.tools.output import figure, json_object

if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Tuple

VERIFY, NO_SPACE, IO = 84, 28, 5
"""What `error` of a job holds: EILSEQ is a block that does not verify, ENOSPC a full file system, EIO the device."""


class Direction(NamedTuple):
    """Reads or writes of a job: bytes moved, bytes a second, the 99th percentile of completion
    latency in seconds (None where none was measured) and the time in seconds.
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


def parse(text: str) -> Fio:
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
