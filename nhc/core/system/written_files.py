"""Files that nhc writes: replaced whole, where a user names one, and as their directory's owner.

Who reads a file that is replaced whole, also after a crash, sees the old content or the new one.

A service keeps its state in a directory of its own user. What root makes there by hand must be the service's as well:
the service could not open a file that is root's alone.
"""

from __future__ import annotations

import errno
import os
import stat

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Callable, TextIO


def write_whole(path: str, content: bytes, mode: int = 0o666, *, durable: bool = False) -> None:
    """Replace a file. `durable`: it is on the disk, under its name, before this returns.

    One thread of a process writes one path. Raises OSError, and leaves nothing beside the file then.
    """
    temporary = f"{path}.{os.getpid()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        try:
            fd = os.open(temporary, flags, mode)
        except FileExistsError:  # of a killed run that had our pid
            os.unlink(temporary)
            fd = os.open(temporary, flags, mode)
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(fd, view) :]
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, path)
    except OSError:
        try:
            os.unlink(temporary)
        except OSError:
            pass
        raise
    if durable:
        _sync_directory(os.path.dirname(path) or ".")


def _sync_directory(path: str) -> None:
    """The file's name must outlast the power, too."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that has no such thing (fsync(2)), as some of FUSE's
            raise
    finally:
        os.close(fd)


MOST_LINKS = 40
"""Links to links, as in the kernel (path_resolution(7))."""


def replace_output(path: str, write: Callable[[TextIO], object]) -> None:
    """Have `write` fill a file that a user names for a report. Raises OSError that names the path as it was given.

    What is no regular file, as /dev/stderr or a FIFO, is written to and stays what it is: a device replaced by a file
    would be a machine broken. A symbolic link is followed, as the user who made it wants, but not one of another user
    (root's excepted): as root, that would write to wherever they please. The kernel's own rule for such links
    (proc_sys_fs(5), protected_symlinks) holds in sticky directories only, and only where it is switched on.
    """
    temporary = ""
    try:
        real = resolve_output(path)
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


def resolve_output(path: str) -> str:
    """Where the path leads, links followed that may be. Raises OSError."""
    at = os.path.abspath(path)
    if _of_the_kernel(at):
        return at  # /dev/stdout is a link into /proc, which only the kernel writes
    for _ in range(MOST_LINKS):
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
        _give_to_owner(fd, os.path.dirname(path) or ".")
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
        _give_to_owner(fd, above)
    finally:
        os.close(fd)


def _give_to_owner(fd: int, directory: str) -> None:
    """Give what was just made to the directory's owner: only root can, and only what is still root's."""
    made, owner = os.fstat(fd), os.stat(directory)
    if os.geteuid() == 0 and made.st_uid == 0 and owner.st_uid != 0 and stat.S_ISDIR(owner.st_mode):
        os.fchown(fd, owner.st_uid, owner.st_gid)
