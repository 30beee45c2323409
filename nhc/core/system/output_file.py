"""Files that a user names for a report: replaced whole, so that a reader sees the old content or the new one.

What is no regular file, as /dev/stderr or a FIFO, is written to and stays what it is: a device replaced by a file would
be a machine broken. A symbolic link is followed, as the user who made it wants, but not one of another user (root's
excepted): as root, that would write to wherever they please. The kernel's own rule for such links (proc_sys_fs(5),
protected_symlinks) holds in sticky directories only, and only where it is switched on.
"""

from __future__ import annotations

import errno
import os
import stat

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Callable, TextIO

LONGEST = 40
"""Links to links, as in the kernel (path_resolution(7))."""


def replace(path: str, write: Callable[[TextIO], object]) -> None:
    """Have `write` fill the file. Raises OSError that names the path as it was given."""
    temporary = ""
    try:
        real = resolve(path)
        if _of_the_kernel(real) or (os.path.lexists(real) and not os.path.isfile(real)):
            with open(real, "a", encoding="utf-8", errors="backslashreplace") as file:
                write(file)
            return
        temporary = f"{real}.{os.getpid()}.tmp"
        with open(temporary, "x", encoding="utf-8", errors="backslashreplace") as file:
            write(file)
        os.replace(temporary, real)
    except BaseException as error:
        if temporary:
            try:
                os.unlink(temporary)
            except OSError:
                pass
        if isinstance(error, OSError):
            error.filename = path
        raise


def _of_the_kernel(path: str) -> bool:
    """Whether a path is a device's or a process's. /dev/shm holds files as any directory does: shm_overview(7)."""
    return path.startswith(("/dev/", "/proc/")) and not path.startswith("/dev/shm/")  # noqa: S108 (a name to tell apart, no file of ours)


def resolve(path: str) -> str:
    """Where the path leads, links followed that may be. Raises OSError."""
    at = os.path.abspath(path)
    if _of_the_kernel(at):
        return at  # /dev/stdout is a link into /proc, which only the kernel writes
    for _ in range(LONGEST):
        directory = os.path.realpath(os.path.dirname(at))
        at = f"{directory.rstrip('/')}/{os.path.basename(at)}"
        try:
            link = os.lstat(at)
        except FileNotFoundError:
            return at
        if not stat.S_ISLNK(link.st_mode):
            return at
        if link.st_uid not in (0, os.geteuid()):
            raise OSError(errno.ELOOP, f"a symbolic link of another user ({link.st_uid}): not followed")
        at = os.path.join(directory, os.readlink(at))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
