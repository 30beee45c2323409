"""Space and inodes of mounted file systems. The mounts themselves are judged by `fs_mount`.

Only the file system that a line names is asked (statvfs), never the others: a hung server elsewhere cannot delay this
check. If the one that is asked hangs, that is its fault, and so CRIT.
"""

from __future__ import annotations

import errno

from nhc.core.check import Convert, arg, check
from nhc.core.host import Filesystem, Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Metric, Outcome, crit, ok, skip, unknown
from nhc.core.units import count, percent, show_count, show_kb, show_size, size_kb, text
from nhc.node.facts.mounts import at, mounts, unescape

if TYPE_CHECKING:
    from typing import Callable, Optional, Union

_BROKEN = frozenset(
    {errno.ESTALE, errno.EIO, errno.ENOTCONN, errno.EHOSTDOWN, errno.ESHUTDOWN, errno.ENODEV, errno.ENXIO}
)
"""Errors of statvfs if the server, the disk or the FUSE process of a mount is gone."""


class SpaceLimit(NamedTuple):
    """A limit as written: a share of the whole in per cent, or an amount (kB or inodes)."""

    written: str
    share: Optional[float]
    amount: int


def size_limit(value: str) -> SpaceLimit:
    """`5%` or a size."""
    return _limit(value, size_kb)


def count_limit(value: str) -> SpaceLimit:
    """`5%` or a count."""
    return _limit(value, count)


def _limit(value: str, convert: Convert) -> SpaceLimit:
    if value.endswith("%"):
        return SpaceLimit(value, percent(value), 0)
    return SpaceLimit(value, None, convert(value))


class SpaceUsage(NamedTuple):
    """Space in kB, or inodes, as df(1) counts them: `percent` is of what users may have, rounded up."""

    total: int
    used: int
    free: int

    @property
    def percent(self) -> int:
        return -(-self.used * 100 // (self.used + self.free)) if self.used + self.free else 0


_MOUNT = arg("mountpoint", text, "where the file system is mounted, or the device or export that is", required=True)


@check(
    "check_fs_size",
    _MOUNT,
    arg("min", size_kb, "least size (kB where no unit is given)"),
    arg("max", size_kb, "greatest size"),
    timeout=5,
    on_timeout="crit",
)
def check_fs_size(host: Host, mountpoint: str, min: Optional[int] = None, max: Optional[int] = None) -> Outcome:
    """A file system is mounted and as large as it should be.

    Compares the total size that statvfs reports with a minimum and a maximum; either may be left empty.
    A path at which nothing is mounted is CRIT.

    Example: * || check_fs_size /tmp 512m 4g
    """
    usage = _space(host, mountpoint)
    if isinstance(usage, Outcome):
        return usage
    metric = Metric("fs_size", usage.total * 1024, "B")
    return _sized(mountpoint, f"size {show_kb(usage.total)}", usage.total, min, max, show_kb, metric)


@check(
    "check_fs_free",
    _MOUNT,
    arg("min", size_limit, "least free space: a percentage, or a size (kB where no unit is given)", required=True),
    timeout=5,
    on_timeout="crit",
)
def check_fs_free(host: Host, mountpoint: str, min: SpaceLimit) -> Outcome:
    """A file system has room left.

    Judges the space that users may still take (df's Avail, which leaves out what is kept for root). The
    percentage is df's Use% taken from 100.

    Example: * || check_fs_free /tmp 5%
    """
    usage = _space(host, mountpoint)
    if isinstance(usage, Outcome):
        return usage
    share, free = 100 - usage.percent, show_kb(usage.free)
    message = ""
    if min.share is not None and share < min.share:
        message = f"{mountpoint} has only {share}% free ({free}), minimum is {min.written}"
    elif min.share is None and usage.free < min.amount:
        message = f"{mountpoint} has only {free} free, minimum is {show_kb(min.amount)}"
    return _judged(
        message, f"{show_size(usage.free)} free ({share}%)", "FilesystemFull", mountpoint, "fs", usage, 1024, min
    )


@check(
    "check_fs_used",
    _MOUNT,
    arg("max", size_limit, "use at which it fails: a percentage, or a size (kB where no unit is given)", required=True),
    timeout=5,
    on_timeout="crit",
)
def check_fs_used(host: Host, mountpoint: str, max: SpaceLimit) -> Outcome:
    """A file system is not too full.

    Fails when the use reaches the limit. The percentage is df's Use%.

    Example: * || check_fs_used / 98%
    """
    usage = _space(host, mountpoint)
    if isinstance(usage, Outcome):
        return usage
    used = show_kb(usage.used)
    message = ""
    if max.share is not None and usage.percent >= max.share:
        message = f"{mountpoint} is {usage.percent}% full ({used}), threshold is {max.written}"
    elif max.share is None and usage.used >= max.amount:
        message = f"{mountpoint} has {used} used, threshold is {show_kb(max.amount)}"
    return _judged(
        message,
        f"{show_size(usage.used)} used ({usage.percent}%)",
        "FilesystemFull",
        mountpoint,
        "fs",
        usage,
        1024,
        most=max,
    )


@check(
    "check_fs_inodes",
    _MOUNT,
    arg("min", count, "least number of inodes (k is 1000)"),
    arg("max", count, "greatest number of inodes"),
    timeout=5,
    on_timeout="crit",
)
def check_fs_inodes(host: Host, mountpoint: str, min: Optional[int] = None, max: Optional[int] = None) -> Outcome:
    """A file system was made with as many inodes as it should have.

    SKIP on a file system that has no fixed number of inodes, such as btrfs.

    Example: * || check_fs_inodes /tmp 1k
    """
    usage = _inodes(host, mountpoint)
    if isinstance(usage, Outcome):
        return usage
    metric = Metric("fs_inodes", usage.total)
    return _sized(mountpoint, f"inodes {usage.total}", usage.total, min, max, show_count, metric)


@check(
    "check_fs_ifree",
    _MOUNT,
    arg("min", count_limit, "least number of free inodes: a percentage, or a count (k is 1000)", required=True),
    timeout=5,
    on_timeout="crit",
)
def check_fs_ifree(host: Host, mountpoint: str, min: SpaceLimit) -> Outcome:
    """A file system has inodes left: files can still be made.

    SKIP on a file system that has no fixed number of inodes, such as btrfs.

    Example: * || check_fs_ifree /local 100
    """
    usage = _inodes(host, mountpoint)
    if isinstance(usage, Outcome):
        return usage
    share = 100 - usage.percent
    message = ""
    if min.share is not None and share < min.share:
        message = f"{mountpoint} has only {share}% of inodes free ({usage.free}), minimum is {min.written}"
    elif min.share is None and usage.free < min.amount:
        message = f"{mountpoint} has only {usage.free} inodes free, minimum is {show_count(min.amount)}"
    return _judged(
        message, f"{usage.free} inodes free ({share}%)", "InodesExhausted", mountpoint, "fs_inodes", usage, least=min
    )


@check(
    "check_fs_iused",
    _MOUNT,
    arg("max", count_limit, "number of used inodes at which it fails: a percentage, or a count", required=True),
    timeout=5,
    on_timeout="crit",
)
def check_fs_iused(host: Host, mountpoint: str, max: SpaceLimit) -> Outcome:
    """A file system does not hold too many files.

    Fails when the use reaches the limit. SKIP on a file system that has no fixed number of inodes.

    Example: * || check_fs_iused /tmp 1M
    """
    usage = _inodes(host, mountpoint)
    if isinstance(usage, Outcome):
        return usage
    message = ""
    if max.share is not None and usage.percent >= max.share:
        message = f"{mountpoint} has {usage.percent}% of inodes used ({usage.used}), threshold is {max.written}"
    elif max.share is None and usage.used >= max.amount:
        message = f"{mountpoint} has {usage.used} inodes used, threshold is {show_count(max.amount)}"
    passed = f"{usage.used} inodes used ({usage.percent}%)"
    return _judged(message, passed, "InodesExhausted", mountpoint, "fs_inodes", usage, most=max)


def _sized(
    mountpoint: str,
    text: str,
    total: int,
    least: Optional[int],
    most: Optional[int],
    show: Callable[[int], str],
    metric: Metric,
) -> Outcome:
    text = f"{mountpoint} {text}"
    if least is not None and least > total:
        message = f"{text} less than minimum of {show(least)}"
        return crit("FilesystemTooSmall", message, target=mountpoint, metrics=(metric,))
    if most is not None and most < total:
        message = f"{text} exceeds maximum of {show(most)}"
        return crit("FilesystemTooLarge", message, target=mountpoint, metrics=(metric,))
    return ok(text, target=mountpoint, metrics=(metric,))


def _judged(
    message: str,
    passed: str,
    reason: str,
    mountpoint: str,
    prefix: str,
    usage: SpaceUsage,
    unit: int = 1,
    least: Optional[SpaceLimit] = None,
    most: Optional[SpaceLimit] = None,
) -> Outcome:
    symbol = "B" if unit > 1 else ""
    used, free, share = (str(most.amount * unit) if most else ""), (f"{least.amount * unit}:" if least else ""), ""
    if most and most.share is not None:
        used, share = "", f"{most.share:g}"
    if least and least.share is not None:
        free, share = "", f"{100 - least.share:g}"
    metrics = (
        Metric(f"{prefix}_used", usage.used * unit, symbol, crit=used),
        Metric(f"{prefix}_free", usage.free * unit, symbol, crit=free),
        Metric(f"{prefix}_used_percent", usage.percent, "%", crit=share),
    )
    if message:
        return crit(reason, message, target=mountpoint, metrics=metrics)
    return ok(f"{mountpoint} {passed}", target=mountpoint, metrics=metrics)


def _space(host: Host, mountpoint: str) -> Union[SpaceUsage, Outcome]:
    system = _ask(host, mountpoint)
    if isinstance(system, Outcome):
        return system
    if system.size <= 0:
        # LBNL NHC accepts it. A real file system gives this answer if its server or disk is gone.
        message = f"{mountpoint} reports no size: a pseudo file system, or its storage is away"
        return unknown("FilesystemNoSize", message, target=mountpoint)
    total, used, free = (_kb(size) for size in (system.size, system.size - system.free, system.available))
    return SpaceUsage(total, used, free)


def _inodes(host: Host, mountpoint: str) -> Union[SpaceUsage, Outcome]:
    system = _ask(host, mountpoint)
    if isinstance(system, Outcome):
        return system
    if system.inodes <= 0:
        return skip("NoInodeLimit", f"{mountpoint} has no fixed number of inodes", target=mountpoint)
    return SpaceUsage(system.inodes, max(system.inodes - system.inodes_free, 0), system.inodes_free)


def _ask(host: Host, mountpoint: str) -> Union[Filesystem, Outcome]:
    """The file system at `mountpoint`, or why there is nothing to judge.

    `/` needs no line in /proc/mounts: in a chroot or some containers it has none. A mounted device means its file
    system; LBNL NHC, which knows only mount points, accepts any line with a device.
    """
    path = unescape(mountpoint).rstrip("/") or "/"
    mounted = host.fact(mounts) if path != "/" else ()
    if path != "/" and at(mounted, path) is None:
        path = next((mount.point for mount in mounted if mount.source == unescape(mountpoint)), "")
    if not path:
        return crit("FilesystemNotMounted", f"{mountpoint} not mounted", target=mountpoint)
    try:
        return host.statvfs(path)
    except OSError as error:
        verdict = crit if error.errno in _BROKEN else unknown
        message = f"{mountpoint} does not tell its size: {error.strerror}"
        return verdict("FilesystemUnusable", message, target=mountpoint)


def _kb(size: int) -> int:
    return -(-size // 1024)
