"""Episodes: a repair or maintenance of one node, from its mark to its return or escalation. Each node and cause has one
open at most. What lists and counts episodes takes repairs alone, unless it says otherwise.

Each change is one transaction with its row of the audit log. `version` guards against two who change the same
episode: the second gets a Conflict, reads again and decides again.
"""

from __future__ import annotations

from typing import List, Mapping, NamedTuple, Optional, Sequence, Tuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

from nhc.model import printable
from nhc.store import audit
from nhc.store.errors import Conflict
from nhc.store.schema import episodes

MESSAGE_LIMIT = 4000
REPAIR = episodes.c.train.is_(None)
"""What an episode is that is no maintenance."""

PLANNED = "planned"
"""The state of maintenance whose turn has not come."""
AWAITING = "awaiting-approval"
"""The state of an episode that waits for a person (`nhc.remedy.machine.EpisodeState`)."""


class Episode(NamedTuple):
    """One row. `due` is when it has to be looked at next; `detail` is JSON that only the remedy loop reads.

    `train` is None for the repair of a fault; maintenance has its train's number, and the wave that the node is in.
    """

    id: int
    node: str
    cause: str
    action: str
    state: str
    rung: str
    opened: float
    updated: float
    due: Optional[float]
    ended: Optional[float]
    outcome: str
    detail: str
    version: int
    train: Optional[int] = None
    wave: int = 0


class EpisodeStep(NamedTuple):
    """What a change of an episode is called in the audit log, by whom, and why."""

    actor: str
    what: str
    detail: Mapping[str, object] = {}


def open_episode(
    connection: Connection,
    node: str,
    cause: str,
    *,
    action: str,
    state: str,
    now: float,
    by: str,
    rung: str = "",
    due: Optional[float] = None,
    detail: str = "{}",
    because: Optional[Mapping[str, object]] = None,
) -> Tuple[Episode, bool]:
    """The open episode of a node and cause, and whether it was opened now; one that is open stays as it is."""
    cause = printable(cause, MESSAGE_LIMIT)
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    values = {
        "node": node, "cause": cause, "action": action, "state": state, "rung": rung, "opened": now, "updated": now,
        "due": due, "detail": detail,
    }  # fmt: skip
    made = (
        insert(episodes)
        .values(values)
        .on_conflict_do_nothing(index_elements=["node", "cause"], index_where=episodes.c.ended.is_(None))
    )
    row = connection.execute(made.returning(episodes.c.id)).first()
    if row is None:
        standing = sa.and_(episodes.c.node == node, episodes.c.cause == cause, episodes.c.ended.is_(None))
        found = connection.execute(sa.select(episodes).where(standing)).first()
        if found is None:  # it ended in between
            raise Conflict(f"the episode of {node} ended at this moment")
        return Episode._make(found), False
    episode = _required(connection, row.id)
    recorded = {"cause": cause, "action": action, "state": state, **(because or {})}
    audit.append(connection, now, by, "episode.opened", node=node, episode=episode.id, detail=recorded)
    return episode, True


def save_step(
    connection: Connection, episode: Episode, step: EpisodeStep, *, now: float, **changes: Optional[str | float]
) -> Episode:
    """Change an episode (`state`, `rung`, `action`, `due`, `ended`, `outcome`, `detail`) and write the step down.

    Raises Conflict where somebody else changed it since it was read.
    """
    strange = set(changes) - {"state", "rung", "action", "due", "ended", "outcome", "detail"}
    if strange:
        raise TypeError(f"an episode has no {', '.join(sorted(strange))} to change")
    same = sa.and_(episodes.c.id == episode.id, episodes.c.version == episode.version)
    changed = connection.execute(
        sa.update(episodes).where(same).values({**changes, "updated": now, "version": episode.version + 1})
    )
    if changed.rowcount != 1:
        raise Conflict(f"episode {episode.id} of {episode.node} was changed by another")
    after = _required(connection, episode.id)
    recorded = {
        **({"from": episode.state, "to": after.state} if after.state != episode.state else {}),
        **({"rung": after.rung} if after.rung != episode.rung else {}),
        **({"outcome": after.outcome} if after.outcome != episode.outcome else {}),
        **step.detail,
    }
    audit.append(connection, now, step.actor, step.what, node=episode.node, episode=episode.id, detail=recorded)
    return after


def get(connection: Connection, number: int) -> Optional[Episode]:
    """One episode, None where there is none of that number."""
    row = connection.execute(sa.select(episodes).where(episodes.c.id == number)).first()
    return Episode._make(row) if row else None


def out_beside(connection: Connection, train: Optional[int], before: Sequence[str]) -> List[Episode]:
    """The open episodes that are not a train's (None: not repairs), but for those in one of the states `before`."""
    other: sa.ColumnElement[bool] = episodes.c.train.is_not(None)
    if train is not None:
        other = sa.or_(episodes.c.train.is_(None), episodes.c.train != train)
    asked = sa.select(episodes).where(episodes.c.ended.is_(None), other, episodes.c.state.not_in(before))
    return [Episode._make(row) for row in connection.execute(asked)]


def list_episodes(
    connection: Connection,
    *,
    node: str = "",
    is_open: Optional[bool] = None,
    due_by: Optional[float] = None,
    ended_since: Optional[float] = None,
    limit: int = 0,
) -> List[Episode]:
    """Episodes, the oldest first: of a node, open or ended ones, those due, those that ended since. `limit` 0 is all.

    With a limit it is the newest ones that are kept.
    """
    asked = sa.select(episodes).where(REPAIR)
    if node:
        asked = asked.where(episodes.c.node == node)
    if is_open is not None:
        asked = asked.where(episodes.c.ended.is_(None) if is_open else episodes.c.ended.is_not(None))
    if due_by is not None:
        asked = asked.where(sa.or_(episodes.c.due.is_(None), episodes.c.due <= due_by))
    if ended_since is not None:
        asked = asked.where(episodes.c.ended >= ended_since)
    if limit:
        asked = asked.order_by(episodes.c.id.desc()).limit(limit)
        return [Episode._make(row) for row in connection.execute(asked)][::-1]
    if ended_since is not None:  # asked for their order, SQLite reads all that ever were, rather than sort these
        return sorted((Episode._make(row) for row in connection.execute(asked)), key=lambda one: one.id)
    return [Episode._make(row) for row in connection.execute(asked.order_by(episodes.c.id))]


def by_need(connection: Connection, *, is_open: Optional[bool] = None, limit: int, offset: int = 0) -> List[Episode]:
    """So many episodes for a person to look at: those that wait for one first, the longest-waiting before the others;
    then the open ones and then the ended ones, the newest first. `offset` skips what was shown before.
    """
    waits = sa.and_(episodes.c.ended.is_(None), episodes.c.state == AWAITING)
    asked = (
        sa.select(episodes)
        .where(REPAIR)
        .order_by(
            sa.case((waits, 0), (episodes.c.ended.is_(None), 1), else_=2),
            sa.case((waits, episodes.c.id), else_=-episodes.c.id),
        )
    )
    if is_open is not None:
        asked = asked.where(episodes.c.ended.is_(None) if is_open else episodes.c.ended.is_not(None))
    return [Episode._make(row) for row in connection.execute(asked.limit(limit).offset(offset))]


def count(connection: Connection, is_open: Optional[bool] = None) -> int:
    """How many episodes there are: open ones, ended ones, or all."""
    asked = sa.select(sa.func.count()).select_from(episodes).where(REPAIR)
    if is_open is not None:
        asked = asked.where(episodes.c.ended.is_(None) if is_open else episodes.c.ended.is_not(None))
    return int(connection.scalar(asked) or 0)


def _required(connection: Connection, number: int) -> Episode:
    return Episode._make(connection.execute(sa.select(episodes).where(episodes.c.id == number)).one())
