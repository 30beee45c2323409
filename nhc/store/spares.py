"""Spare nodes that are in use, or on their way: a row each, written down before anything is done to the node.

A node has at most one spare that stands in for it: the table's index says so. A spare that waits has no row.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from nhc.core.model import printable
from nhc.store import audit
from nhc.store.episodes import MESSAGE_LIMIT
from nhc.store.errors import Conflict
from nhc.store.schema import spares

ENTERING, IN_SERVICE, LEAVING = "entering", "in-service", "leaving"
ADDED, LOST = "spare.added", "spare.lost"
"""Of the audit log: a node was added, and it is not known whether one was."""


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


_COLUMNS = [spares.c[name] for name in SpareInUse._fields]


def in_use(connection: Connection) -> List[SpareInUse]:
    """All rows, by node."""
    return [SpareInUse._make(row) for row in connection.execute(sa.select(*_COLUMNS).order_by(spares.c.node))]


def of_node(connection: Connection, node: str) -> List[SpareInUse]:
    """The node as a spare, and the spare that stands for it."""
    asked = sa.select(*_COLUMNS).where(sa.or_(spares.c.node == node, spares.c.stands_for == node))
    return [SpareInUse._make(row) for row in connection.execute(asked.order_by(spares.c.node))]


def begin(
    connection: Connection, node: str, pool: str, stands_for: str, *, episode: int, by: str, why: str, now: float
) -> SpareInUse:
    """Write down that a spare is about to stand in. Raises Conflict where the spare, or the node, has one already."""
    taken = sa.or_(spares.c.node == node, spares.c.stands_for == stands_for)
    if connection.execute(sa.select(spares.c.node).where(taken)).first() is not None:
        raise Conflict(f"{node} stands in already, or {stands_for} has a spare")
    row = SpareInUse(node, pool, ENTERING, stands_for, episode, now, now, printable(why, MESSAGE_LIMIT), 1)
    connection.execute(sa.insert(spares).values(**row._asdict()))
    recorded = {"pool": pool, "stands_for": stands_for, "why": row.why}
    audit.append(connection, now, by, "spare.entering", node=node, episode=episode, detail=recorded)
    return row


def save(connection: Connection, row: SpareInUse, state: str, *, by: str, why: str, now: float) -> SpareInUse:
    """Change a spare's state. Raises Conflict where somebody else changed it since it was read."""
    after = row._replace(state=state, why=printable(why, MESSAGE_LIMIT))
    return _update(connection, row, after, f"spare.{state}", {"why": after.why}, by, now)


def added(connection: Connection, row: SpareInUse, token: str, *, by: str, now: float) -> SpareInUse:
    """Write down the id of the node that was added. Raises Conflict."""
    return _update(connection, row, row._replace(token=token), ADDED, {"id": token}, by, now)


def _update(
    connection: Connection, row: SpareInUse, after: SpareInUse, what: str, detail: Dict[str, str], by: str, now: float
) -> SpareInUse:
    after = after._replace(updated=now, version=row.version + 1)
    same = sa.and_(spares.c.node == row.node, spares.c.version == row.version)
    if connection.execute(sa.update(spares).where(same).values(after._asdict())).rowcount != 1:
        raise Conflict(f"spare {row.node} was changed by another")
    audit.append(connection, now, by, what, node=row.node, episode=row.episode or 0,
                 detail={"pool": row.pool, "stands_for": row.stands_for, **detail})  # fmt: skip
    return after


def end(connection: Connection, row: SpareInUse, *, by: str, why: str, now: float, what: str = "spare.waiting") -> None:
    """A spare waits again, or is no spare any more (`what`): its row goes. Raises Conflict."""
    same = sa.and_(spares.c.node == row.node, spares.c.version == row.version)
    if connection.execute(sa.delete(spares).where(same)).rowcount != 1:
        raise Conflict(f"spare {row.node} was changed by another")
    audit.append(connection, now, by, what, node=row.node, episode=row.episode or 0,
                 detail={"pool": row.pool, "stood_for": row.stands_for, "why": printable(why, 300)})  # fmt: skip


def was_added(connection: Connection, episode: int) -> bool:
    """Whether a node was added for this episode at any time, or may have been."""
    return any(audit.entries(connection, episode=episode, what=what, limit=1) for what in (ADDED, LOST))
