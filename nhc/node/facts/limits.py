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


MOST_CGROUPS = 65535
"""Control groups with memory accounting that a kernel can have, removed ones that still hold memory included
(MEM_CGROUP_ID_MAX in include/linux/memcontrol.h): beyond it mkdir gives ENOSPC."""


class GroupTree(NamedTuple):
    """How many control groups there are below one, and how many there may be. `name` is "" for the node's all."""

    name: str
    used: int
    limit: int


def group_trees(host: Host) -> Tuple[GroupTree, ...]:
    """The node's whole tree, and those of the two levels below it that have a limit (cgroup.max.descendants)."""
    trees = []
    whole = _memory_groups(host)
    if whole is not None:
        trees.append(GroupTree("", whole, MOST_CGROUPS))
    for path in (*host.glob(f"{CGROUP}/*/cgroup.max.descendants"), *host.glob(f"{CGROUP}/*/*/cgroup.max.descendants")):
        limit, base = host.read_or(path), path.rpartition("/")[0]
        counted = _descendants(host, base) if limit.isdigit() else None
        if counted is not None and int(limit):
            trees.append(GroupTree(base[len(CGROUP) + 1 :], counted[0], int(limit)))
    return tuple(trees)


def _memory_groups(host: Host) -> Optional[int]:
    """Groups with memory accounting, by /proc/cgroups, which counts removed ones too, else by cgroup.stat."""
    for line in host.read_or("/proc/cgroups").splitlines():
        fields = line.split()
        if len(fields) == 4 and fields[0] == "memory" and fields[2].isdigit():
            return int(fields[2])
    counted = _descendants(host, CGROUP)
    return None if counted is None else sum(counted)


def _descendants(host: Host, base: str) -> Optional[Tuple[int, int]]:
    """The groups below one, and those removed that still hold memory."""
    words = dict(line.split()[:2] for line in host.read_or(f"{base}/cgroup.stat").splitlines() if len(line.split()) > 1)
    alive, dying = words.get("nr_descendants", ""), words.get("nr_dying_descendants", "")
    return (int(alive), int(dying) if dying.isdigit() else 0) if alive.isdigit() else None
