"""What the kernel counts of a job's memory in its control group, for as long as that is there.

Slurm's steps of a job lie below one group, `job_ID` (src/plugins/cgroup/v2/cgroup_v2.c): its `memory.events` counts
over all of them on this node (Documentation/admin-guide/cgroup-v2.rst). The group goes with the job's last step. cgroup
v1 has no such file: the kernel log is all there is.
"""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Iterator, Optional

CGROUP = "/sys/fs/cgroup"
SLURM = f"{CGROUP}/system.slice"


class MemoryEvents(NamedTuple):
    """Counts since the group was made: `at_limit`, how often it was at its limit; `killed`, processes killed for it."""

    path: str
    at_limit: int
    killed: int


def of_job(host: Host, job: str) -> Optional[MemoryEvents]:
    """The counts of a job of Slurm on this node, None where its group is not there."""
    for path in _groups(host, job) if job.isascii() and job.isdigit() else ():
        text = host.read_or(f"{path}/memory.events")
        events = parse_events(path, text) if text else None
        if events is not None:
            return events
    return None


def parse_events(path: str, text: str) -> Optional[MemoryEvents]:
    """The counts of a `memory.events`, None where it has none."""
    counts = {}
    for line in text.splitlines():
        name, _, number = line.partition(" ")
        if number.isascii() and number.isdigit():
            counts[name] = int(number)
    if "oom_kill" not in counts:
        return None
    return MemoryEvents(path, counts.get("max", 0), counts["oom_kill"])


def _groups(host: Host, job: str) -> Iterator[str]:
    """Where the job's group may lie: where this process is in the job, else below slurmd's scope, of each slurmd."""
    own = next((line[3:] for line in host.read_or("/proc/self/cgroup").splitlines() if line.startswith("0::")), "")
    before, within, _ = f"{own}/".partition(f"/job_{job}/")
    if within:
        yield f"{CGROUP}{before}/job_{job}"
    yield from (f"{SLURM}/{name}/job_{job}" for name in host.names(SLURM) if name.endswith("slurmstepd.scope"))
