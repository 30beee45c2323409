"""New files and directories that belong to the owner of the directory they are made in.

A service keeps its state in a directory of its own user. What root makes there by hand must be the service's as well:
the service could not open a file that is root's alone.
"""

from __future__ import annotations

import os
import stat


def open_or_make(path: str, flags: int, mode: int) -> int:
    """Open a file, which is made where there is none. Raises OSError."""
    try:
        return os.open(path, (flags & ~os.O_CREAT) | os.O_CLOEXEC)
    except FileNotFoundError:
        pass
    try:
        return make_file(path, flags, mode)
    except FileExistsError:  # another made it at this moment
        return os.open(path, (flags & ~os.O_CREAT) | os.O_CLOEXEC)


def make_file(path: str, flags: int, mode: int) -> int:
    """Make a file that is not there, and open it; no symbolic link is followed. Raises OSError."""
    fd = os.open(path, flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        _give(fd, os.path.dirname(path) or ".")
    except OSError:
        os.close(fd)
        os.unlink(path)
        raise
    return fd


def make_directories(path: str, mode: int) -> None:
    """Make a directory, and with the usual mode those above it, where they are not there. Raises OSError."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(path.rstrip("/")) or "."
    if not os.path.isdir(above):
        make_directories(above, 0o777)
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        return
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _give(fd, above)
    finally:
        os.close(fd)


def _give(fd: int, directory: str) -> None:
    """Give what was just made to the directory's owner: only root can, and only what is still root's."""
    made, owner = os.fstat(fd), os.stat(directory)
    if os.geteuid() == 0 and made.st_uid == 0 and owner.st_uid != 0 and stat.S_ISDIR(owner.st_mode):
        os.fchown(fd, owner.st_uid, owner.st_gid)
