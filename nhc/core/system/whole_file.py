"""Files that are replaced whole: who reads one, also after a crash, sees the old content or the new one."""

from __future__ import annotations

import errno
import os


def write(path: str, content: bytes, mode: int = 0o666, *, durable: bool = False) -> None:
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
