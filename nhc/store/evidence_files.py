"""The files of evidence: DIRECTORY/ab/abcd…, named by the SHA-256 of their content.

A file is on the disk before its row, and an existing file is not written again. So a file that was just written, or
found again, may be about to get its row: `delete` leaves it alone.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from typing import Iterable, Iterator, List

FRESH = 3600.0
"""Seconds: the least that evidence.keep may be. So the file of an expired row is fresh only where its content was met
again."""
_NAME = re.compile(r"[0-9a-f]{64}(\.\d+\.\d+)?")
"""Of a file of evidence; with a process and a thread while it is written."""


def delete(directory: str, names: Iterable[str], now: float) -> int:
    """Delete files of evidence by their names: of digests that no row names any more, and half-written ones, which
    never got their own name. How many went.

    Only regular files, and only where their name says they are: what is no such name is never part of a path, and no
    symbolic link is followed out of the directory. What cannot be deleted is left.
    """
    gone = 0
    for name in names:
        if _NAME.fullmatch(name):
            with suppress(OSError):
                gone += _delete(f"{directory}/{name[:2]}", name, now)
    return gone


def strays(directory: str, before: float) -> Iterator[str]:
    """The names of files here that nobody has written or met again since `before` (Unix time): those of evidence, and
    half-written ones, that a process left which ended before it could write their rows. In no order.
    """
    for first in _listed(directory):
        if first.is_dir(follow_symlinks=False) and re.fullmatch("[0-9a-f]{2}", first.name):
            for file in _listed(first.path):
                with suppress(OSError):
                    if _NAME.fullmatch(file.name) and file.stat(follow_symlinks=False).st_mtime < before:
                        yield file.name


def _listed(directory: str) -> List[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:
        return []


def _delete(folder: str, name: str, now: float) -> int:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode) or 0 <= now - status.st_mtime < FRESH:
            return 0
        os.unlink(name, dir_fd=fd)
        return 1
    finally:
        os.close(fd)
