"""Episodes: a repair or maintenance of one node, from its mark to its return or escalation. Each node and cause has one
open at most. Functions that list and count episodes use repairs alone, unless they say otherwise.

Each change is one transaction with its row of the audit log. `version` guards against two writers of the same episode:
the second gets a Conflict, reads again and decides again.
"""

from __future__ import annotations

from typing import List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from nhc.core.model import printable
from nhc.store import audit, schema
from nhc.store.errors import Conflict
from nhc.store.schema import batches, episodes, insert_into, with_end

MESSAGE_LIMIT = 4000
REPAIR_KIND, MAINTENANCE = "repair", "maintenance"
REPAIR = episodes.c.kind == REPAIR_KIND
"""The kind of an episode that is no maintenance."""
KINDS_ON_NODES = (REPAIR_KIND, MAINTENANCE)
ON_NODES = episodes.c.kind.in_(KINDS_ON_NODES)
"""Repairs and maintenance: they take their nodes out of service, and count for the same bounds."""

PLANNED = "planned"
"""The state of maintenance whose turn has not come."""
AWAITING = "awaiting-approval"
"""The state of an episode that waits for a person (`nhc.remedy.machine.EpisodeState`)."""


class Episode(NamedTuple):
    """One row. `detail` is JSON that only `nhc.remedy.detail` reads.

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
    ended: Optional[float]
    outcome: str
    detail: str
    version: int
    train: Optional[int] = None
    wave: int = 0
    kind: str = REPAIR_KIND


class EpisodeStep(NamedTuple):
    """The name of an episode's change in the audit log, who made it, and why."""

    actor: str
    what: str
    detail: Mapping[str, object] = {}


class OpeningEpisode(NamedTuple):
    """An episode to be opened. `because` goes to the audit log."""

    node: str
    cause: str
    action: str
    state: str
    detail: str = "{}"
    because: Mapping[str, object] = {}
    rung: str = ""
    kind: str = REPAIR_KIND

    @property
    def what(self) -> str:
        """The name of its opening in the audit log."""
        return "episode.opened" if self.kind in KINDS_ON_NODES else f"{self.kind}.{self.state}"


class EpisodeChange(NamedTuple):
    """A change of an episode as it was read, and the change's name in the audit log."""

    episode: Episode
    step: EpisodeStep
    changes: Mapping[str, Optional[str | float]]


def open_episodes(connection: Connection, opening: Sequence[OpeningEpisode], *, now: float, by: str) -> List[Episode]:
    """Open episodes with one statement; returns those that were opened now. An open one stays as it is."""
    values = [
        {"node": new.node, "cause": printable(new.cause, MESSAGE_LIMIT), "action": new.action, "state": new.state,
         "rung": new.rung, "opened": now, "updated": now, "detail": new.detail, "kind": new.kind}
        for new in opening
    ]  # fmt: skip
    if not values:
        return []
    unless_open = insert_into(connection, episodes).on_conflict_do_nothing(
        index_elements=["kind", "node", "cause"], index_where=episodes.c.ended.is_(None)
    )
    rows = connection.execute(unless_open.returning(episodes), values)
    inserted = {(row.kind, row.node, row.cause): Episode._make(row) for row in rows}
    opened = []
    with audit.together(connection):
        for new, value in zip(opening, values):
            row = inserted.pop((new.kind, new.node, str(value["cause"])), None)
            if row is not None:
                recorded = {"cause": row.cause, "action": row.action, "state": row.state, **new.because}
                audit.append(connection, now, by, new.what, node=row.node, episode=_number(row), detail=recorded)
                opened.append(row)
    return opened


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
    detail: str = "{}",
    because: Mapping[str, object] = {},
) -> Tuple[Episode, bool]:
    """The open episode of a node and cause, and whether it was opened now; one that is open stays as it is."""
    opening = OpeningEpisode(node, cause, action, state, detail, because, rung)
    opened = open_episodes(connection, [opening], now=now, by=by)
    if opened:
        return opened[0], True
    same = sa.and_(REPAIR, episodes.c.node == node, episodes.c.cause == printable(cause, MESSAGE_LIMIT))
    row = connection.execute(sa.select(episodes).where(same, episodes.c.ended.is_(None))).first()
    if row is None:  # it ended in between
        raise Conflict(f"the episode of {node} ended at this moment")
    return Episode._make(row), False


def _number(row: Episode) -> int:
    """The number by which the audit log names it; operators see only those of repairs and of maintenance."""
    return row.id if row.kind in KINDS_ON_NODES else 0


def save_step(
    connection: Connection, episode: Episode, step: EpisodeStep, *, now: float, **changes: Optional[str | float]
) -> Episode:
    """Change an episode (`state`, `rung`, `action`, `ended`, `outcome`, `detail`) and write the step down.

    Raises Conflict if another writer changed it since it was read.
    """
    change = EpisodeChange(episode, step, changes)
    if not lock_as_read(connection, [episode]):
        raise Conflict(f"episode {episode.id} of {episode.node} was changed by another")
    (after,) = change_all(connection, [change], now)
    record(connection, change, after, now)
    return after


def lock_as_read(connection: Connection, rows: Sequence[Episode]) -> Set[int]:
    """The numbers of those that were not changed since they were read. They stay so until this transaction ends."""
    current = connection.execute(_VERSIONS, {"numbers": [row.id for row in rows]})
    versions = {int(row.id): int(row.version) for row in current}
    return {row.id for row in rows if versions.get(row.id) == row.version}


def change_all(connection: Connection, changes: Sequence[EpisodeChange], now: float) -> List[Episode]:
    """Change episodes with one statement; returns them as they are afterwards. `lock_as_read` has locked them, and
    `record` must follow for each in the same transaction.
    """
    changed = []
    for change in changes:
        strange = set(change.changes) - {"state", "rung", "action", "ended", "outcome", "detail"}
        if strange:
            raise TypeError(f"an episode has no {', '.join(sorted(strange))} to change")
        before = change.episode
        changed.append(before._replace(**change.changes, updated=now, version=before.version + 1))  # type: ignore[arg-type]
    if changed:
        connection.execute(_UPDATE, [
            {"number": after.id, **{f"new_{name}": getattr(after, name) for name in _CHANGED}} for after in changed
        ])  # fmt: skip
    return changed


def record(connection: Connection, change: EpisodeChange, after: Episode, now: float) -> None:
    """Write a change down in the audit log."""
    before, step = change.episode, change.step
    recorded = {
        **({"from": before.state, "to": after.state} if after.state != before.state else {}),
        **({"rung": after.rung} if after.rung != before.rung else {}),
        **({"outcome": after.outcome} if after.outcome != before.outcome else {}),
        **step.detail,
    }
    audit.append(connection, now, step.actor, step.what, node=before.node, episode=_number(before), detail=recorded)


_CHANGED = ("action", "state", "rung", "updated", "ended", "outcome", "detail", "version")
_UPDATE = (
    sa.update(episodes).where(episodes.c.id == sa.bindparam("number"))
    .values({name: sa.bindparam(f"new_{name}") for name in _CHANGED})
)  # fmt: skip
_VERSIONS = (
    sa.select(episodes.c.id, episodes.c.version).where(episodes.c.id.in_(sa.bindparam("numbers", expanding=True)))
    .order_by(episodes.c.id).with_for_update()
)  # fmt: skip


def get(connection: Connection, number: int) -> Optional[Episode]:
    """One episode of repair or maintenance, None if there is none with that number."""
    row = connection.execute(sa.select(episodes).where(episodes.c.id == number, ON_NODES)).first()
    return Episode._make(row) if row else None


def out_beside(connection: Connection, train: Optional[int], before: Sequence[str]) -> List[Episode]:
    """The open episodes that are not a train's (None: not repairs), except those in one of the states `before`."""
    other: sa.ColumnElement[bool] = episodes.c.kind == MAINTENANCE
    if train is not None:
        other = sa.and_(ON_NODES, sa.or_(episodes.c.train.is_(None), episodes.c.train != train))
    asked = sa.select(episodes).where(episodes.c.ended.is_(None), other, episodes.c.state.not_in(before))
    return [Episode._make(row) for row in connection.execute(asked)]


def open_work(connection: Connection, kind: str) -> List[Episode]:
    """The unfinished work of a kind, the oldest first."""
    asked = sa.select(episodes).where(episodes.c.kind == kind, episodes.c.ended.is_(None)).order_by(episodes.c.id)
    return [Episode._make(row) for row in connection.execute(asked)]


def list_episodes(
    connection: Connection,
    *,
    node: str = "",
    is_open: Optional[bool] = None,
    ended_since: Optional[float] = None,
    limit: int = 0,
) -> List[Episode]:
    """Episodes, the oldest first: of a node, open or ended ones, those that ended since. `limit` 0 is all.

    With a limit, it returns the newest ones.
    """
    asked = sa.select(episodes).where(REPAIR, with_end(episodes, is_open))
    if node:
        asked = asked.where(episodes.c.node == node)
    if ended_since is not None:
        asked = asked.where(episodes.c.ended >= ended_since)
    if limit:
        asked = asked.order_by(episodes.c.id.desc()).limit(limit)
        return [Episode._make(row) for row in connection.execute(asked)][::-1]
    if ended_since is not None:  # with ORDER BY, SQLite reads all episodes ever written instead of sorting these
        return sorted((Episode._make(row) for row in connection.execute(asked)), key=lambda episode: episode.id)
    return [Episode._make(row) for row in connection.execute(asked.order_by(episodes.c.id))]


def newest_of(connection: Connection, nodes: Sequence[str], limit: int) -> List[Episode]:
    """The newest so many episodes of each of these nodes, the oldest first."""
    place = sa.func.row_number().over(partition_by=episodes.c.node, order_by=episodes.c.id.desc()).label("place")
    newest: List[Episode] = []
    for names in batches(nodes):
        placed = sa.select(episodes, place).where(REPAIR, episodes.c.node.in_(names)).subquery()
        asked = sa.select(*(placed.c[name] for name in Episode._fields)).where(placed.c.place <= limit)
        newest += [Episode._make(row) for row in connection.execute(asked.order_by(placed.c.id))]
    return newest


def by_need(connection: Connection, *, is_open: Optional[bool] = None, limit: int, offset: int = 0) -> List[Episode]:
    """So many episodes for a person to look at: first those that wait for a person, the longest-waiting before the
    others; then the open ones and then the ended ones, the newest first. `offset` skips what was already shown.
    """
    waits = sa.and_(episodes.c.ended.is_(None), episodes.c.state == AWAITING)
    asked = (
        sa.select(episodes)
        .where(REPAIR, with_end(episodes, is_open))
        .order_by(
            sa.case((waits, 0), (episodes.c.ended.is_(None), 1), else_=2),
            sa.case((waits, episodes.c.id), else_=-episodes.c.id),
        )
    )
    return [Episode._make(row) for row in connection.execute(asked.limit(limit).offset(offset))]


def count(connection: Connection, is_open: Optional[bool] = None) -> int:
    """How many episodes there are: open ones, ended ones, or all."""
    return schema.count(connection, episodes, REPAIR, with_end(episodes, is_open))
