"""Mounted file systems answer, none has become read-only, and all that /etc/fstab asks for are mounted."""

from __future__ import annotations

import errno

from nhc.core.check import Judged, check, opt, rest
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, skip, warn
from nhc.core.units import seconds, show_number, show_seconds, text
from nhc.node.facts import mounts as table
from nhc.node.facts.fstab import (
    REMOTE,
    FstabEntry,
    fstab,
    holds_data,
    is_users_own,
    may_hang,
    place,
    swap_device,
    swaps_in_use,
)

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Sequence


@check(
    "check_mount_responds",
    opt("-s --slow", "slow", seconds, "WARN where the answer took this long", 2.0),
    opt("-t --type", "types", text, "file system types to probe where no path is given; may be repeated", many=True),
    rest("paths", text, "mount points to probe; none means every network mount"),
    timeout=10,
    on_timeout="crit",
)
def check_mount_responds(host: Host, slow: float = 2.0, types: Sequence[str] = (), paths: Sequence[str] = ()) -> Judged:
    """Mounted file systems answer within the deadline.

    Asks each mount for its figures (statvfs) and for one name in its top directory, which NFS, Lustre,
    GPFS, BeeGFS, Ceph and FUSE answer from their servers. A mount that does not answer is CRIT: the hang is
    the fault. What FUSE mounts is asked too, unless it is known to be local (lxcfs, squashfuse, a desktop's), and
    so is a mount of a type that nhc does not know. The line's `timeout` is the deadline (10 s); the message of a
    timeout names the line, so give each file system that matters a line of its own. A stale handle, an I/O error, a
    disconnected transport or a path where nothing is mounted is CRIT too. Slower than 2 s is WARN. Without a path,
    what a user has mounted for himself (sshfs) is left out. SKIP where no path is given and there is no network
    mount.

    Example: * |timeout 5s| check_mount_responds /scratch
    """
    if not paths:
        asked = [m for m in table.mounts(host) if (m.type in types if types else may_hang(m))]
        points = list(dict.fromkeys(mount.point for mount in asked if not is_users_own(mount)))
        if not points:
            return skip("NoNetworkMount", "no network file system is mounted on this node")
    else:
        points = [path.rstrip("/") or "/" for path in paths]
    outcomes = [_probe(host, point, slow) for point in points]
    bad = [outcome for outcome in outcomes if outcome.reason]
    if bad:
        return bad
    metrics = outcomes[0].metrics if len(outcomes) == 1 else ()
    return ok(f"{', '.join(points)} answer{'s' * (len(points) == 1)}", metrics=metrics)


def _probe(host: Host, point: str, slow: float) -> Outcome:
    begin = host.monotonic()
    try:
        host.statvfs(point)
        _peek(host, point)
    except OSError as error:
        if error.errno == errno.ENOENT:
            return crit("NotMounted", f"{point} does not exist", target=point)
        reason = "MountStale" if error.errno == errno.ESTALE else "MountFails"
        return crit(reason, f"{point}: {error.strerror or error}", target=point, action=Action.REBOOT)
    took = host.monotonic() - begin
    # Only now: the probe has made an automounter mount what it has to.
    if table.at(table.mounts(host), point) is None:
        return crit("NotMounted", f"nothing is mounted at {point}", target=point)
    metrics = (Metric("response_time", took, "s"),)
    if took >= slow:
        return warn("MountSlow", f"{point} took {show_seconds(took)} to answer", target=point, metrics=metrics)
    return ok(target=point, metrics=metrics)


def _peek(host: Host, point: str) -> None:
    try:
        host.peek(point)
    except PermissionError:
        return  # the server has answered: it lets no one in (root_squash)
    except NotADirectoryError:
        return  # a file can be a mount point


_DAMAGED = ("emergency_ro", "shutdown")
"""Options that show that ext4 has stopped working since its mount (fs/ext4/super.c, Linux 6.6 and newer)."""


@check("check_mount_readonly", rest("paths", text, "mount points that must be writable, whatever else is known"))
def check_mount_readonly(host: Host, paths: Sequence[str] = ()) -> Judged:
    """No file system has gone read-only.

    Reads /proc/mounts. A file system is expected to be writable where /etc/fstab does not ask for `ro`,
    where an earlier run of this boot saw it writable, and where it is named here: the kernel remounts an
    ext4 or XFS read-only after errors, and jobs then fail at their first write. Read-only in spite of that
    is CRIT; so is a file system that shows it has shut down. Looks at the table only, so it cannot hang.
    SKIP where nothing says what should be writable.

    Example: * || check_mount_readonly /scratch /tmp
    """
    mounts = table.mounts(host)
    mounted = {mount.point: mount for mount in mounts}  # the last one at a point covers the earlier ones
    if not mounted:
        return skip("NoMounts", "nothing is mounted")
    expected: Dict[str, str] = {}
    for entry in fstab(host):
        if entry.point in mounted and not entry.read_only and entry.type != "swap":
            expected[entry.point] = "/etc/fstab says"
    for point, source in _seen_writable(host, mounted).items():
        if point in mounted and mounted[point].source == source:
            expected.setdefault(point, "an earlier run saw")
    outcomes: List[Outcome] = []
    for path in paths:
        point = path.rstrip("/") or "/"
        if point not in mounted:
            outcomes.append(crit("NotMounted", f"nothing is mounted at {point}", target=point))
        expected[point] = "the configuration says"
    for point, mount in mounted.items():
        outcome = _judge(mount, expected.get(point))
        if outcome:
            outcomes.append(outcome)
    judged = sum(point in mounted for point in expected)
    if not outcomes and not judged:
        return skip("NothingExpected", "nothing says which file systems should be writable")
    return outcomes or ok(f"{show_number(judged, 'file system')} writable")


def _judge(mount: table.Mount, why: Optional[str]) -> Optional[Outcome]:
    options = mount.options.split(",")
    evidence = (f"{mount.source} {mount.point} {mount.type} {mount.options}",)
    damage = next((option for option in _DAMAGED if option in options), None) if holds_data(mount) else None
    if damage:
        message = f"{mount.point} ({mount.source}) has shut itself down ({damage})"
        return crit("FilesystemShutdown", message, target=mount.point, action=Action.REBOOT, evidence=evidence)
    if why and mount.read_only:
        message = f"{mount.point} ({mount.source}) is read-only, {why} writable"
        return crit("FilesystemReadOnly", message, target=mount.point, action=Action.REBOOT, evidence=evidence)
    return None


def _seen_writable(host: Host, mounted: Dict[str, table.Mount]) -> Dict[str, str]:
    """Mount point -> source of what was writable earlier in this boot, after adding what is now."""
    boot = host.boot_id()

    def change(stored: Dict[str, Any]) -> None:
        if stored.get("boot") != boot or not isinstance(stored.get("writable"), dict):
            stored.clear()
            stored.update(boot=boot, writable={})
        writable = {str(k): str(v) for k, v in stored["writable"].items() if k in mounted}
        writable.update({p: m.source for p, m in mounted.items() if holds_data(m) and not m.read_only})
        stored["writable"] = writable

    seen = host.memory.update("mounts_writable", change)["writable"]
    return {str(k): str(v) for k, v in seen.items()}


@check(
    "check_mount_fstab",
    opt("-i --ignore", "ignore", text, "mount points to leave out, as a shell pattern; may be repeated", many=True),
    timeout=5,
    settles=("NotMounted",),
)
def check_mount_fstab(host: Host, ignore: Sequence[str] = ()) -> Judged:
    """Every file system and swap of /etc/fstab is in use.

    Compares /etc/fstab with /proc/mounts and /proc/swaps. A line with `noauto` is left out; one whose mount systemd
    makes on first use (`x-systemd.automount`) is met by the automounter's own mount. What is not mounted is CRIT,
    and WARN where the line says `nofail`: the node may start without it. A network file system that was mounted
    from another place than the line names is WARN. So is swap that is not used: jobs run without it, until memory
    is short. Looks at the tables only, so that a server which hangs does not hang it. SKIP where fstab names
    nothing.

    Example: * || check_mount_fstab -i '/mnt/*'
    """
    from fnmatch import fnmatchcase

    entries = [entry for entry in fstab(host) if "noauto" not in entry.options]
    swap = [entry for entry in entries if entry.type == "swap"]
    wanted = [
        entry
        for entry in entries
        if entry.point.startswith("/")
        and entry.type not in ("swap", "ignore")
        and not any(fnmatchcase(entry.point, pattern) for pattern in ignore)
    ]
    if not wanted and not swap:
        return skip("NothingExpected", "/etc/fstab names nothing to mount")
    mounted = table.mounts(host)
    outcomes = [outcome for outcome in (_judge_entry(host, entry, mounted) for entry in wanted) if outcome]
    used = swaps_in_use(host) if swap else frozenset()
    for entry in swap:
        device = swap_device(entry.source)
        if device not in used and host.realpath(device) not in used:
            message = f"{entry.source} is swap in /etc/fstab and not in use"
            outcomes.append(warn("SwapMissing", message, target=entry.source, action=Action.INSPECT))
    return outcomes or ok(f"{show_number(len(wanted), 'file system')} of /etc/fstab mounted"
                          + (f", {len(swap)} swap in use" if swap else ""))  # fmt: skip


def _judge_entry(host: Host, entry: FstabEntry, mounted: Sequence[table.Mount]) -> Optional[Outcome]:
    """What is wrong with one line, None if nothing is."""
    # /proc/mounts has the place without symbolic links.
    mount = table.at(mounted, entry.point) or table.at(mounted, host.realpath(entry.point))
    evidence = (f"{entry.source} {entry.point} {entry.type} {','.join(entry.options)}",)
    if mount is None:
        say, optional = (warn, ", though it may be missing (nofail)") if "nofail" in entry.options else (crit, "")
        message = f"{entry.point} ({entry.source}) is in /etc/fstab and not mounted{optional}"
        return say("NotMounted", message, target=entry.point, action=Action.INSPECT, evidence=evidence)
    # A FUSE program calls its source what it likes, and a device may be named by its label.
    labels = ("/dev/", "UUID=", "LABEL=", "PARTUUID=", "PARTLABEL=")
    other = mount.type.startswith("fuse") or entry.source.startswith(labels)
    if place(mount) != REMOTE or other or "bind" in entry.options:
        return None
    if mount.source.rstrip("/") != entry.source.rstrip("/"):
        message = f"{entry.point} is mounted from {mount.source}, /etc/fstab says {entry.source}"
        return warn("MountedElsewhere", message, target=entry.point, action=Action.INSPECT, evidence=evidence)
    return None
