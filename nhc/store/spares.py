"""Spare nodes that are in use, or on their way: a separate kind of work, written down before anything is done.

A node has at most one spare: the table's index ensures it. A spare that waits has no open row.
"""

from __future__ import annotations

import json
from typing import Dict, List, NamedTuple, Optional, Set

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from nhc.core.json_values import parse_object
from nhc.core.model import printable
from nhc.store.episodes import MESSAGE_LIMIT, Episode, OpeningEpisode, open_work
from nhc.store.schema import OF_SPARES, SPARE, episodes

ENTERING, IN_SERVICE, LEAVING = "entering", "in-service", "leaving"
WAITING, REFUSED, KEPT, DELETED, LOST = "waiting", "refused", "kept", "deleted", "lost"
"""The ends: it waits again; no node was added; the added node is kept, deleted; it is not known whether one was
added."""
SWAP_IN, KIND = "swap-in", SPARE


class SpareInUse(NamedTuple):
    """One row. `stands_for` is the node that is out, `episode` its episode, `since` when the spare was chosen.

    `token` is the provider's own id of a node that was added for it, "" for a spare that had waited.
    """

    node: str
    pool: str
    state: str
    stands_for: str
    episode: Optional[int]
    since: float
    updated: float
    why: str
    version: int
    token: str = ""


def of_row(row: Episode) -> SpareInUse:
    """A row of work as a spare. Raises ValueError if its detail is invalid."""
    detail = parse_object(row.detail)
    number = int(detail.get("episode") or 0) or None
    return SpareInUse(
        row.node, str(detail.get("pool", "")), row.state, row.cause, number, row.opened, row.updated,
        str(detail.get("why", "")), row.version, str(detail.get("token", "")),
    )  # fmt: skip


def opening(node: str, pool: str, stands_for: str, *, episode: int, why: str) -> OpeningEpisode:
    """A spare that is about to stand in."""
    because: Dict[str, object] = {"pool": pool, "stands_for": stands_for, "why": printable(why, MESSAGE_LIMIT)}
    return OpeningEpisode(
        node, stands_for, SWAP_IN, ENTERING, detail_of(pool, episode, why), {**because, "for": episode}, kind=SPARE
    )


def detail_of(pool: str, episode: Optional[int], why: str, token: str = "") -> str:
    """What a spare's row stores besides its columns."""
    kept = {"pool": pool, "episode": episode or 0, "why": printable(why, MESSAGE_LIMIT), "token": token}
    return json.dumps({name: value for name, value in kept.items() if value}, sort_keys=True)


def in_use(connection: Connection) -> List[SpareInUse]:
    """All that are in use or on their way, by node."""
    return sorted(map(of_row, open_work(connection, SPARE)))


def of_node(connection: Connection, node: str) -> List[SpareInUse]:
    """The work of the node as a spare, and the spare that replaces the node."""
    return [row for row in in_use(connection) if node in (row.node, row.stands_for)]


def had_one_added(connection: Connection) -> Set[int]:
    """The episodes for which a node was added at any time, or may have been."""
    rows = [Episode._make(row) for row in connection.execute(sa.select(episodes).where(OF_SPARES))]
    return {
        spare.episode for spare in map(of_row, rows) if spare.episode and (spare.token or spare.state == LOST)
    }  # fmt: skip
