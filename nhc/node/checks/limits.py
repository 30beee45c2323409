"""Limits of the kernel and file systems: open files, processes, inodes, entries of tables."""

from __future__ import annotations

from nhc.core.check import Judged, check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Action, Metric, Outcome, crit, ok, skip, unknown, warn
from nhc.core.units import percent, text
from nhc.node.facts import mounts as table
from nhc.node.facts.fstab import LOCAL, UNKNOWN, place
from nhc.node.facts.loadavg import loadavg

if TYPE_CHECKING:
    from typing import List, Optional, Sequence, Tuple

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
        for name, tasks in used.items():
            count, limit = (tasks or "").strip(), (limits[name] or "").strip()
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


WARN = opt("-w --warn", "warn_at", percent, "WARN from this share in use on", 80.0)
CRIT = opt("-c --crit", "crit_at", percent, "CRIT from this share in use on", 95.0)
UNLIMITED = 1 << 62
"""A limit of at least this means no limit: systemd sets fs.file-max to LONG_MAX (2^63 - 1)."""


def _together(outcomes: Sequence[Outcome], things: str) -> Judged:
    """Those that are too full; if none is, the one with the largest share in use. Without a limit there is no share."""

    def share(outcome: Outcome) -> float:
        return outcome.metrics[2].value if len(outcome.metrics) > 2 else 0.0

    most = max(outcomes, key=share)
    bad = [outcome for outcome in outcomes if outcome.reason]
    return bad or ok(f"{len(outcomes)} {things}, fullest: {most.message}", metrics=most.metrics)


def judge_share(
    what: str, reason: str, used: int, limit: int, levels: Tuple[float, float], target: str = ""
) -> Outcome:
    """Judges the share in use: `what` names the metrics, `levels` are percent for WARN and CRIT."""
    things = f"{what.replace('_', ' ')}{' on ' + target if target else ''}"
    if limit >= UNLIMITED:
        return ok(f"{used} {things} in use, without a limit", target=target, metrics=(Metric(f"{what}_used", used),))
    share = used * 100 / limit
    metrics = (
        Metric(f"{what}_used", used),
        Metric(f"{what}_limit", limit),
        Metric(f"{what}_share", share, "%", *(f"{level:g}" for level in levels)),
    )
    message = f"{share:.1f} % of {things} in use ({used} of {limit})"
    if share >= levels[1]:
        return crit(reason, f"{message}, limit {levels[1]:g} %", target=target, metrics=metrics)
    if share >= levels[0]:
        return warn(reason, f"{message}, limit {levels[0]:g} %", target=target, metrics=metrics, action=Action.INSPECT)
    return ok(message, target=target, metrics=metrics)


@check("check_limits_fds", WARN, CRIT)
def check_limits_fds(host: Host, warn_at: float = 80.0, crit_at: float = 95.0) -> Outcome:
    """The node has open-file handles left.

    Reads /proc/sys/fs/file-nr: handles in use, free, and at most (fs.file-max). WARN from 80 %, CRIT from
    95 % in use, GPUd's limits.

    Example: * || check_limits_fds -w 60 -c 90
    """
    numbers = host.read("/proc/sys/fs/file-nr").split()
    if len(numbers) != 3 or not all(number.isascii() and number.isdigit() for number in numbers) or not int(numbers[2]):
        return unknown("BadData", "/proc/sys/fs/file-nr does not hold three numbers", evidence=tuple(numbers))
    return judge_share(
        "file_handles", "FileHandlesLow", int(numbers[0]) - int(numbers[1]), int(numbers[2]), (warn_at, crit_at)
    )


@check("check_limits_pids", WARN, CRIT)
def check_limits_pids(host: Host, warn_at: float = 80.0, crit_at: float = 95.0) -> Outcome:
    """The node has process numbers left.

    Every thread takes one. Reads how many there are from /proc/loadavg, and the smaller limit of
    kernel.pid_max and kernel.threads-max. WARN from 80 %, CRIT from 95 % in use, GPUd's limits.

    Example: * || check_limits_pids
    """
    most = [host.number(f"/proc/sys/kernel/{name}") or 0 for name in ("pid_max", "threads-max")]
    try:
        threads = loadavg(host).entities
    except ValueError:
        threads = 0
    if not threads or not all(most):
        return unknown("BadData", "no numbers in /proc/loadavg, pid_max or threads-max")
    return judge_share("process_ids", "ProcessIdsLow", threads, min(most), (warn_at, crit_at))


@check(
    "check_limits_inodes",
    WARN,
    CRIT,
    opt("-i --ignore", "ignore", text, "mount points to leave out, as a shell pattern; may be repeated", many=True),
)
def check_limits_inodes(host: Host, warn_at: float = 80.0, crit_at: float = 95.0, ignore: Sequence[str] = ()) -> Judged:
    """Every writable local file system has inodes left.

    Asks statvfs of each local file system in /proc/mounts, tmpfs included: /dev/shm and /tmp run out of
    inodes long before space when jobs leave small files. A login's own /run/user is its owner's affair. WARN
    from 80 %, CRIT from 95 % in use, as for file handles. SKIP where no local file system counts inodes.

    Example: * || check_limits_inodes -i '/snap/*'
    """
    from fnmatch import fnmatchcase

    outcomes: List[Outcome] = []
    seen = set()
    for mount in table.mounts(host):
        lies = place(mount)
        ours = lies == LOCAL or (lies == UNKNOWN and mount.source.startswith("/dev/"))
        if not ours or mount.read_only or mount.point.startswith("/run/user/"):
            continue
        if any(fnmatchcase(mount.point, each) for each in ignore):
            continue
        outcome = _inodes(host, mount, (warn_at, crit_at))
        same = (mount.source, outcome.metrics) if outcome and mount.source.startswith("/dev/") else mount.point
        if outcome and same not in seen:  # a bind mount shows the same file system again
            outcomes.append(outcome)
        seen.add(same)
    if not outcomes:
        return skip("NoInodeLimits", "no writable local file system here counts inodes")
    return _together(outcomes, "file systems")


def _inodes(host: Host, mount: table.Mount, levels: Tuple[float, float]) -> Optional[Outcome]:
    try:
        system = host.statvfs(mount.point)
    except PermissionError:
        return None  # another user's private mount
    except OSError as error:
        return unknown("Unreadable", f"{mount.point}: {error.strerror or error}", target=mount.point)
    if not system.inodes:
        return None
    return judge_share("inodes", "InodesLow", system.inodes - system.inodes_free, system.inodes, levels, mount.point)


@check("check_limits_conntrack", WARN, CRIT)
def check_limits_conntrack(host: Host, warn_at: float = 80.0, crit_at: float = 95.0) -> Outcome:
    """The kernel's table of tracked connections has room.

    Reads nf_conntrack_count and nf_conntrack_max in /proc/sys/net/netfilter. A full table drops the packets of new
    connections (`nf_conntrack: table full, dropping packet`), which looks like a flaky network. WARN from 80 %,
    CRIT from 95 % in use, as for file handles (GPUd); node-problem-detector's conntrack conditions warn at a full
    table alone. SKIP where connections are not tracked.

    Example: * || check_limits_conntrack
    """
    base = "/proc/sys/net/netfilter"
    if not host.exists(f"{base}/nf_conntrack_max"):
        return skip("NoConntrack", "this node's kernel does not track connections")
    used, limit = (host.number(f"{base}/nf_conntrack_{name}") for name in ("count", "max"))
    if used is None or limit is None:
        return unknown("BadData", f"no numbers in {base}/nf_conntrack_count and nf_conntrack_max")
    if limit == 0:
        return ok("tracked connections are not limited")
    return judge_share("tracked_connections", "ConntrackLow", used, limit, (warn_at, crit_at))


@check("check_limits_neighbours", WARN, CRIT)
def check_limits_neighbours(host: Host, warn_at: float = 80.0, crit_at: float = 95.0) -> Judged:
    """The tables of neighbours (ARP, and IPv6's) have room.

    Compares the entries that /proc/net/stat/arp_cache and ndisc_cache count with gc_thresh3, the most that the
    kernel keeps (1024 by default, too few for a large flat network): with a full table new peers cannot be reached
    (`neighbor table overflow!`). WARN from 80 %, CRIT from 95 % in use. SKIP where the kernel tells of no such
    table, as in containers.

    Example: * || check_limits_neighbours
    """
    outcomes: List[Outcome] = []
    for family, cache in (("ipv4", "arp"), ("ipv6", "ndisc")):
        statistics = host.read_or(f"/proc/net/stat/{cache}_cache")
        path = f"/proc/sys/net/{family}/neigh/default/gc_thresh3"
        if not statistics or not host.exists(path):
            continue
        used, limit = parse_neighbours(statistics), host.number(path)
        if used is None or not limit:
            outcomes.append(unknown("BadData", f"/proc/net/stat/{cache}_cache or {path} has no number", target=family))
            continue
        outcomes.append(judge_share("neighbours", "NeighboursLow", used, limit, (warn_at, crit_at), family))
    if not outcomes:
        return skip("NoNeighbourTable", "this kernel does not tell how many neighbours it knows")
    return [each for each in outcomes if each.reason] or outcomes[0]


@check(
    "check_limits_tasks",
    WARN,
    CRIT,
    opt("-i --ignore", "ignore", text, "control groups to leave out, as a shell pattern; may be repeated", many=True),
)
def check_limits_tasks(host: Host, warn_at: float = 80.0, crit_at: float = 95.0, ignore: Sequence[str] = ()) -> Judged:
    """Services and slices can start more processes and threads.

    Reads pids.current and pids.max of the top control groups and of those in system.slice (systemd's TasksMax=): a
    service at its limit cannot fork, though the node has processes to spare (`fork rejected by pids controller`).
    The groups of jobs, pods and users below them are their owners' affair. WARN from 80 %, CRIT from 95 % in use.
    SKIP where no group has a limit, or there is no cgroup v2.

    Example: * || check_limits_tasks -i 'system.slice/docker-*'
    """
    from fnmatch import fnmatchcase

    groups = [each for each in task_groups(host) if not any(fnmatchcase(each.name, i) for i in ignore)]
    if not groups:
        return skip("NoTaskLimits", "no control group of services here has a limit of processes")
    outcomes = [
        judge_share("tasks", "TasksLow", each.used, each.limit, (warn_at, crit_at), each.name) for each in groups
    ]
    return _together(outcomes, "control groups")


@check("check_limits_cgroups", WARN, CRIT)
def check_limits_cgroups(host: Host, warn_at: float = 80.0, crit_at: float = 95.0) -> Judged:
    """More control groups can be made.

    Every job, pod, service and login has some. A kernel can have 65535 with memory accounting, and one that was removed
    counts until its last page is given back: beyond that no job starts (`cannot create cgroup: No space left on
    device`). Reads /proc/cgroups, else cgroup.stat, and cgroup.max.descendants of the two topmost levels, where a
    tree has a limit of its own. WARN from 80 %, CRIT from 95 % in use, as for other tables. SKIP without any.

    Example: * || check_limits_cgroups
    """
    trees = group_trees(host)
    if not trees:
        return skip("NoCgroups", "no control groups on this node")
    return _together(
        [judge_share("control_groups", "CgroupsLow", t.used, t.limit, (warn_at, crit_at), t.name) for t in trees],
        "control group trees",
    )
