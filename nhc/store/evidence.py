"""What was collected before a repair: rows about files, which are named by the SHA-256 of their content."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from nhc.core.model import printable
from nhc.store.database import Store
from nhc.store.episodes import MESSAGE_LIMIT, Episode
from nhc.store.schema import BATCH, batches, evidence


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
    """How many rows were deleted, and the digests that no row names any more: their files may go."""

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
    """Write down one piece, or that it could not be had. The file is on the disk before."""
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
    """The rows whose time is over, the oldest first; at most `limit`, 0 for all."""
    asked = sa.select(evidence).where(evidence.c.expires <= now).order_by(evidence.c.id)
    return [StoredEvidence._make(row) for row in connection.execute(asked.limit(limit) if limit else asked)]


def forget_expired(store: Store, now: float) -> Forgotten:
    """Delete all rows whose time is over, some in each transaction: however long nobody did. Raises StoreError."""
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
    """Delete rows; the digests that no row names any more, whose files may be deleted after the commit."""
    connection.execute(sa.delete(evidence).where(evidence.c.id.in_([row.id for row in rows])))
    gone = {row.sha256 for row in rows if row.sha256}
    still = connection.execute(sa.select(evidence.c.sha256).where(evidence.c.sha256.in_(gone)).distinct())
    return sorted(gone - {row.sha256 for row in still})
