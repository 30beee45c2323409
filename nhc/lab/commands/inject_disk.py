"""`nhc inject full-disk`: fill a small file system of this node with one file, as a drill; `nhc inject end` removes it.

What is on the node is written down before it is made, in `drill.json` beside the ledger, so that it is found after a
kill and after a reboot. Only a file of our name is ever removed, and only where that record says so.
"""

from __future__ import annotations

import json
import os
import stat

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.system import whole_file
from nhc.core.system.bounded_read import read_text
from nhc.marks.policy.ledger import default_directory
from nhc.node.facts.meminfo import memory
from nhc.node.facts.mounts import at, mounts

if TYPE_CHECKING:
    from typing import List, Sequence

NAME = ".nhc-drill-fill"
KINDS = ("ext2", "ext3", "ext4", "xfs", "tmpfs")
"""Local file systems that take space for a file at once, by fallocate(2). A shared one would fill for every node."""
LARGEST = 16 << 30
"""Bytes of the file at most: the drill is for a small file system."""
MOST = 99.0
"""Per cent: the last of it stays free, so that who writes there is slowed down by a check and not by ENOSPC."""
_RECORD = 64 << 10


class NotFilled(Exception):
    """Why a file system cannot be filled, or a file not be removed: one line for a person."""


def record_path() -> str:
    """Where it is written down what drills have put on this node."""
    return f"{default_directory()}/drill.json"


def filled() -> List[str]:
    """The files that drills have made and not removed. Raises NotFilled."""
    path = record_path()
    try:
        kept = json.loads(read_text(path, _RECORD))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise NotFilled(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    files = kept.get("files") if isinstance(kept, dict) else None
    if not isinstance(files, list) or not all(isinstance(file, str) and _ours(file) for file in files):
        raise NotFilled(f"{path}: not a record of nhc's: expected the files that drills have made")
    return files


def needed(point: str, share: float) -> int:
    """The bytes that fill the file system at `point` to `share` per cent, as df(1) counts them. Raises NotFilled."""
    if not 1 <= share <= MOST:
        raise NotFilled(f"--to {share:g}%: expected 1% to {MOST:g}%")
    try:
        host = Host()
        mount = at(mounts(host), point)
        if mount is None or not point.startswith("/"):
            raise NotFilled(f"{point}: no file system is mounted there")
        if mount.point == "/" or mount.type not in KINDS:
            what = "the root file system" if mount.point == "/" else f"a {mount.type}"
            raise NotFilled(f"{point} is {what}: expected a local one of its own ({', '.join(KINDS)})")
        space = os.statvfs(mount.point)
        free_memory = (memory(host).available or 0) * 1024 if mount.type == "tmpfs" else None
    except (OSError, ValueError) as error:
        raise NotFilled(f"{point}: {getattr(error, 'strerror', None) or error}") from None
    used = (space.f_blocks - space.f_bfree) * space.f_frsize
    whole = used + space.f_bavail * space.f_frsize
    size = int(whole * share / 100) + space.f_frsize - used
    if size <= 0:
        raise NotFilled(f"{point} is {used / whole:.0%} full already")
    if size > LARGEST:
        raise NotFilled(f"{point} needs a file of {size >> 30} GiB: at most {LARGEST >> 30} GiB are written")
    if free_memory is not None and size > free_memory // 2:
        raise NotFilled(f"{point} is in memory, and {size >> 20} MiB are more than half of what is free of it")
    return size


def fill(point: str, share: float) -> str:
    """Fill it; what was done. Raises NotFilled, and leaves nothing then."""
    size = needed(point, share)
    path = f"{point.rstrip('/')}/{NAME}"
    files = filled()
    if path in files or os.path.lexists(path):
        raise NotFilled(f"{path} is there already: nhc inject end")
    _record([*files, path])  # before the file: a kill in between leaves a record of nothing, which is no harm
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.posix_fallocate(fd, 0, size)
        finally:
            os.close(fd)
    except OSError as error:
        _remove([path], files)
        raise NotFilled(f"{path}: {error.strerror}") from None
    return f"{path} takes {size >> 10} KiB: {point} is {share:g}% full"


def empty() -> List[str]:
    """Remove what drills have made; the files that were there. Raises NotFilled where one cannot be removed."""
    files = filled()
    return _remove(files, []) if files else []


def _remove(files: Sequence[str], rest: List[str]) -> List[str]:
    """Remove files, and keep the rest in the record; those that were there. Raises NotFilled, and records all then."""
    removed: List[str] = []
    for path in files:
        try:
            if stat.S_ISREG(os.lstat(path).st_mode):
                os.unlink(path)
                removed.append(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise NotFilled(f"{path}: {error.strerror}") from None
    _record(rest)
    return removed


def _ours(path: str) -> bool:
    return path.startswith("/") and os.path.basename(path) == NAME and ".." not in path.split("/")


def _record(files: List[str]) -> None:
    path = record_path()
    try:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        if files:
            whole_file.write(path, json.dumps({"files": files}).encode() + b"\n", 0o600)
        else:
            os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise NotFilled(f"{path}: {error.strerror}: nothing is done without a record of it") from None
