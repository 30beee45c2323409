"""What was collected before a repair: rows about files, which are named by the SHA-256 of their content."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from typing import Iterable, Iterator, List, NamedTuple, Optional, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from nhc.core.model import printable
from nhc.store.database import Store
from nhc.store.episodes import MESSAGE_LIMIT, Episode
from nhc.store.schema import BATCH, batches, evidence

# The files of evidence: DIRECTORY/ab/abcd…, named by the SHA-256 of their content.
#
# A file is on the disk before its row, and an existing file is not written again. So a file that was just written, or
# found again, may be about to get its row: `delete` leaves it alone.


FRESH = 3600.0
"""Seconds: the least that evidence.keep may be. So the file of an expired row is fresh only if its content was found
again."""
_NAME = re.compile(r"[0-9a-f]{64}(\.\d+\.\d+)?")
"""Of a file of evidence; with a process and a thread while it is written."""


def delete(directory: str, names: Iterable[str], now: float) -> int:
    """Delete files of evidence by their names: of digests that no row names any more, and half-written ones, which
    never got their own name. Returns how many were deleted.

    It deletes only regular files, and only in the place that their name gives: any other text is never part of a path,
    and no symbolic link is followed out of the directory. A file that cannot be deleted stays.
    """
    gone = 0
    for name in names:
        if _NAME.fullmatch(name):
            with suppress(OSError):
                gone += _delete(f"{directory}/{name[:2]}", name, now)
    return gone


def strays(directory: str, before: float) -> Iterator[str]:
    """The names of files here that were not written or found again since `before` (Unix time): files of evidence, and
    half-written ones from a process that ended before it could write their rows. In no order.
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


class StoredEvidence(NamedTuple):
    """One row. `sha256` is "" for what could not be collected; `message` then says why. `cut`: there was more."""

    id: int
    episode: int
    node: str
    name: str
    kind: str
    sha256: str
    size: int
    cut: bool
    collected: float
    expires: Optional[float]
    message: str


class Forgotten(NamedTuple):
    """How many rows were deleted, and the digests that no row names any more: their files may be deleted."""

    rows: int
    files: List[str]


def add(
    connection: Connection,
    episode: Episode,
    name: str,
    *,
    now: float,
    kind: str = "",
    sha256: str = "",
    size: int = 0,
    cut: bool = False,
    expires: Optional[float] = None,
    message: str = "",
) -> None:
    """Write down one piece, or that it could not be collected. The file is on the disk before its row."""
    values = {
        "episode": episode.id, "node": episode.node, "name": printable(name, 255), "kind": printable(kind, 255),
        "sha256": sha256, "size": size, "cut": cut, "collected": now, "expires": expires,
        "message": printable(message, MESSAGE_LIMIT),
    }  # fmt: skip
    connection.execute(sa.insert(evidence).values(values))


def of_episode(connection: Connection, episode: int) -> List[StoredEvidence]:
    """What an episode has, in the order in which it was collected."""
    asked = sa.select(evidence).where(evidence.c.episode == episode).order_by(evidence.c.id)
    return [StoredEvidence._make(row) for row in connection.execute(asked)]


def expired(connection: Connection, now: float, limit: int = 0) -> List[StoredEvidence]:
    """The expired rows, the oldest first; at most `limit`, 0 for all."""
    asked = sa.select(evidence).where(evidence.c.expires <= now).order_by(evidence.c.id)
    return [StoredEvidence._make(row) for row in connection.execute(asked.limit(limit) if limit else asked)]


def forget_expired(store: Store, now: float) -> Forgotten:
    """Delete all expired rows, some in each transaction, even if this was not done for a long time. Raises
    StoreError.
    """
    count, files = 0, []
    while True:
        with store.write() as connection:
            over = expired(connection, now, BATCH)
            files += forget(connection, over) if over else []
        count += len(over)
        if len(over) < BATCH:
            return Forgotten(count, files)


def unnamed(connection: Connection, digests: Sequence[str]) -> List[str]:
    """Those of these digests that no row names, in order."""
    named = set()
    for batch in batches(digests):
        asked = sa.select(evidence.c.sha256).where(evidence.c.sha256.in_(batch)).distinct()
        named |= {str(row.sha256) for row in connection.execute(asked)}
    return sorted(set(digests) - named)


def forget(connection: Connection, rows: List[StoredEvidence]) -> List[str]:
    """Delete rows; returns the digests that no row names any more. Their files may be deleted after the commit."""
    connection.execute(sa.delete(evidence).where(evidence.c.id.in_([row.id for row in rows])))
    gone = {row.sha256 for row in rows if row.sha256}
    still = connection.execute(sa.select(evidence.c.sha256).where(evidence.c.sha256.in_(gone)).distinct())
    return sorted(gone - {row.sha256 for row in still})
