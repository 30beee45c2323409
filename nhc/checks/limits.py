"""Things a kernel or file system has a fixed number of: open files, processes, inodes."""

from __future__ import annotations

from nhc.check import Judged, check, opt
from nhc.facts import mounts as table
from nhc.facts.loadavg import loadavg
from nhc.host import Host
from nhc.light import TYPE_CHECKING
from nhc.model import Action, Metric, Outcome, crit, ok, skip, unknown, warn
from nhc.units import percent, text

if TYPE_CHECKING:
    from typing import List, Optional, Sequence, Tuple

WARN = opt("-w --warn", "warn_at", percent, "WARN from this share in use on", 80.0)
CRIT = opt("-c --crit", "crit_at", percent, "CRIT from this share in use on", 95.0)
UNLIMITED = 1 << 62
"""From here on a limit is none: systemd sets fs.file-max to LONG_MAX (2^63 - 1)."""


def fullest(outcomes: Sequence[Outcome]) -> Outcome:
    """The one with the largest share in use; what has no limit has none."""

    def share(outcome: Outcome) -> float:
        return outcome.metrics[2].value if len(outcome.metrics) > 2 else 0.0

    return max(outcomes, key=share)


def judge_share(
    what: str, reason: str, used: int, limit: int, levels: Tuple[float, float], target: str = ""
) -> Outcome:
    """How a share in use is judged: `what` names the metrics, `levels` are percent for WARN and CRIT."""
    things = f"{what.replace('_', ' ')}{' on ' + target if target else ''}"
    if limit >= UNLIMITED:
        return ok(f"{used} {things} in use, without a limit", target=target, metrics=(Metric(f"{what}_used", used),))
    share = used * 100 / limit
    metrics = (Metric(f"{what}_used", used), Metric(f"{what}_limit", limit), Metric(f"{what}_share", share, "%"))
    message = f"{used} of {limit} {things} in use ({share:.1f} %)"
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
    limits = [host.number(f"/proc/sys/kernel/{name}") or 0 for name in ("pid_max", "threads-max")]
    try:
        threads = loadavg(host).entities
    except ValueError:
        threads = 0
    if not threads or not all(limits):
        return unknown("BadData", "no numbers in /proc/loadavg, pid_max or threads-max")
    return judge_share("process_ids", "ProcessIdsLow", threads, min(limits), (warn_at, crit_at))


_LOCAL = frozenset(("tmpfs", "ext2", "ext3", "ext4", "xfs", "jfs", "f2fs", "ufs", "overlay", "zfs", "bcachefs"))
"""Types on this node's own disks or memory that count inodes. btrfs makes them as needed and shows 0."""


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
        if mount.type not in _LOCAL or mount.read_only or mount.point.startswith("/run/user/"):
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
    bad = [outcome for outcome in outcomes if outcome.reason]
    if bad:
        return bad
    most = fullest(outcomes)
    return ok(f"{len(outcomes)} file systems, fullest: {most.message}", metrics=most.metrics)


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
