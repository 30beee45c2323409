"""Clean up after a job, as root, in places where the user could be waiting for us to slip.

A process is signalled only while it is the one that was found (its start time says so), a tree is removed
without following a link in it and without leaving its file system.
"""

from __future__ import annotations

import errno
import os
import signal
import stat
import time

from nhc.core.host import Host
from nhc.core.language.setting_words import GPU, PROCESSES
from nhc.core.light import TYPE_CHECKING
from nhc.core.system.process_identity import parse_stat
from nhc.hooks.leftovers import Leftover

if TYPE_CHECKING:
    from typing import Callable, Iterable, List, Set

GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL, and as many to see that a killed process is gone."""
TREE_TIMEOUT = 15.0
"""Seconds for one tree: what takes longer (millions of files, a user who goes on making them) stays, and is logged."""


def clean(host: Host, leftovers: Iterable[Leftover], grace: float = GRACE) -> List[Leftover]:
    """Remove these; what is still there afterwards."""
    todo = list(leftovers)
    running = [left for left in todo if left.kind == PROCESSES]
    rest: List[Leftover] = end_processes(host, running, grace) if running else []
    for left in todo:
        if left.kind == PROCESSES:
            continue
        try:
            if left.kind == GPU:
                gone = host.run(("nvidia-smi", "--gpu-reset", "-i", left.name), timeout=20.0).status == 0
            elif left.name.startswith("sysv:"):
                gone = host.run(("ipcrm", "-m", left.name[5:]), timeout=5.0).status == 0
            else:
                gone = remove(host.path(left.name), left.mark)
        except OSError:
            gone = False
        if not gone:
            rest.append(left)
    return rest


def end_processes(
    host: Host, running: List[Leftover], grace: float, send: Callable[[int, int], None] = os.kill
) -> List[Leftover]:
    """SIGTERM, a grace, SIGKILL; the processes that neither ended."""
    left = running
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in left:
            if _alive(host, process):
                try:
                    send(int(process.name), number)
                except OSError:
                    pass  # it has just ended
        deadline = time.monotonic() + grace
        while True:
            left = [process for process in left if _alive(host, process)]
            if not left or time.monotonic() >= deadline:
                break
            time.sleep(0.02)
        if not left:
            break
    return left


def _alive(host: Host, left: Leftover) -> bool:
    try:
        stat = parse_stat(host.read(f"/proc/{left.name}/stat"))
    except (OSError, ValueError):
        return False
    return str(stat.started) == left.mark and stat.state not in "ZX"


def remove(path: str, mark: str) -> bool:
    """Remove a file or a tree that is still the one found (`device:inode`); False where it was not all removed."""
    directory, name = os.path.split(path)
    parent = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        seen = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if f"{seen.st_dev}:{seen.st_ino}" != mark:
            return False
        return _remove_at(parent, name, seen.st_dev)
    except FileNotFoundError:
        return True
    finally:
        os.close(parent)


def _remove_at(parent: int, name: str, device: int) -> bool:
    """Remove one entry of an open directory. O_NOFOLLOW at every step: a directory swapped for a link is refused.

    Directories are taken apart one level at a time, what is in them moved up: however deep a user nests them, neither
    the stack nor the descriptors run out.
    """
    seen = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if seen.st_dev != device:
        return False  # a mount point: not the job's file system
    if not stat.S_ISDIR(seen.st_mode):
        os.unlink(name, dir_fd=parent)
        return True
    ends = time.monotonic() + TREE_TIMEOUT
    staying: Set[str] = set()
    top = _enter(parent, name, seen)
    try:
        while time.monotonic() < ends:
            names = [entry for entry in os.listdir(top) if entry not in staying]
            if not names:
                break
            staying.update(entry for entry in names if not _dissolve(top, entry, device, ends))
    finally:
        os.close(top)
    if not staying:
        os.rmdir(name, dir_fd=parent)
    return not staying


def _dissolve(top: int, name: str, device: int, ends: float) -> bool:
    """Remove an entry of `top`; the directories in it come to lie in `top`. False where it stays."""
    try:
        seen = os.stat(name, dir_fd=top, follow_symlinks=False)
        if seen.st_dev != device or time.monotonic() > ends:
            return False
        if not stat.S_ISDIR(seen.st_mode):
            os.unlink(name, dir_fd=top)
            return True
        opened = _enter(top, name, seen)
        try:
            for entry in os.listdir(opened):
                inner = os.stat(entry, dir_fd=opened, follow_symlinks=False)
                if inner.st_dev != device:
                    return False
                if stat.S_ISDIR(inner.st_mode):
                    os.rename(entry, f".nhc-{os.urandom(8).hex()}", src_dir_fd=opened, dst_dir_fd=top)
                else:
                    os.unlink(entry, dir_fd=opened)
        finally:
            os.close(opened)
        os.rmdir(name, dir_fd=top)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _enter(parent: int, name: str, seen: os.stat_result) -> int:
    """Open the directory that was seen, and no other. Raises OSError."""
    opened = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    if os.fstat(opened).st_ino != seen.st_ino:
        os.close(opened)
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), name)
    return opened
