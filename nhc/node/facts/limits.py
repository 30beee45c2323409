"""What the kernel has a fixed number of, and how much of it is used."""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Optional, Tuple

CGROUP = "/sys/fs/cgroup"


class TaskGroup(NamedTuple):
    """A control group with a limit of processes (Documentation/admin-guide/cgroup-v2.rst, pids)."""

    name: str
    used: int
    limit: int


def parse_neighbours(text: str) -> Optional[int]:
    """The entries of a neighbour table: the first column of /proc/net/stat/*_cache, hexadecimal, alike on all CPUs."""
    lines = text.splitlines()
    if len(lines) < 2 or lines[0].split()[:1] != ["entries"]:
        return None
    try:
        return int(lines[1].split()[0], 16)
    except (IndexError, ValueError):
        return None


def task_groups(host: Host) -> Tuple[TaskGroup, ...]:
    """The limited groups at the top and in system.slice; none without cgroup v2."""
    groups = []
    for parent, prefix in ((CGROUP, ""), (f"{CGROUP}/system.slice", "system.slice/")):
        names = [name for name in host.names(parent) if "." in name and host.isdir(f"{parent}/{name}")]
        limits = host.read_each(parent, names, "pids.max")
        used = host.read_each(parent, [name for name in names if (limits.get(name) or "").strip().isdigit()],
                              "pids.current")  # fmt: skip
        for name, text in used.items():
            count, limit = (text or "").strip(), (limits[name] or "").strip()
            if count.isdigit() and int(limit):
                groups.append(TaskGroup(prefix + name, int(count), int(limit)))
    return tuple(groups)
