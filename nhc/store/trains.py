"""Maintenance trains and who has agreed to them. Their nodes are episodes that have the train's number.

Each change is one transaction with its row of the audit log. `version` guards against two writers of the same row: the
second gets a Conflict, reads again and decides again.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from nhc.core.model import printable
from nhc.store import audit
from nhc.store.attempts import Attempt, by_episode
from nhc.store.episodes import MAINTENANCE, MESSAGE_LIMIT, Episode
from nhc.store.errors import Conflict
from nhc.store.schema import attempts, episodes, train_approvals, trains


class Train(NamedTuple):
    """One row. `plan` is the text of its file; `ended` is None while it may still do something."""

    id: int
    name: str
    state: str
    by: str
    why: str
    digest: str
    plan: str
    made: float
    updated: float
    ended: Optional[float]
    version: int


class TrainApproval(NamedTuple):
    """A person who agreed."""

    train: int
    by: str
    at: float
    why: str


def create(
    connection: Connection, name: str, waves: Sequence[Sequence[str]], *, plan: str, digest: str, state: str,
    node_state: str, by: str, why: str, now: float,
) -> Train:  # fmt: skip
    """Write a train down with all its nodes. Raises Conflict if the name was used before."""
    if get(connection, name) is not None:
        raise Conflict(f"there is a train {name} already")
    values = {"name": name, "state": state, "by": by, "why": printable(why, MESSAGE_LIMIT), "digest": digest,
              "plan": plan, "made": now, "updated": now}  # fmt: skip
    made = Train._make(connection.execute(sa.insert(trains).values(values).returning(trains)).one())
    rows = [
        {"kind": MAINTENANCE, "train": made.id, "node": node, "wave": number, "state": node_state,
         "cause": f"train|{name}|", "action": "maintenance", "opened": now, "updated": now}
        for number, wave in enumerate(waves, 1)
        for node in wave
    ]  # fmt: skip
    if rows:
        connection.execute(sa.insert(episodes), rows)
    recorded = {"train": name, "why": values["why"], "nodes": len(rows), "waves": len(waves), "digest": digest}
    audit.append(connection, now, by, "train.created", detail=recorded)
    return made


def get(connection: Connection, name: str) -> Optional[Train]:
    """A train by its name, None if there is none."""
    row = connection.execute(sa.select(trains).where(trains.c.name == name)).first()
    return Train._make(row) if row else None


def list_trains(connection: Connection) -> List[Train]:
    """Trains, the oldest first; the newest hundred of them."""
    newest = sa.select(trains).order_by(trains.c.id.desc()).limit(100)
    return [Train._make(row) for row in connection.execute(newest)][::-1]


def progress(connection: Connection) -> Dict[int, Dict[str, int]]:
    """How many nodes of each train are in which state."""
    count: Dict[int, Dict[str, int]] = {}
    asked = sa.select(episodes.c.train, episodes.c.state, sa.func.count()).where(episodes.c.train.is_not(None))
    for row in connection.execute(asked.group_by(episodes.c.train, episodes.c.state)):
        count.setdefault(int(row[0] or 0), {})[str(row[1])] = int(row[2])
    return count


def save_train(
    connection: Connection, train: Train, *, state: str, by: str, why: str, now: float, ended: Optional[float] = None
) -> Train:
    """Change a train's state. Raises Conflict if another writer changed it since it was read."""
    same = sa.and_(trains.c.id == train.id, trains.c.version == train.version)
    values = {"state": state, "updated": now, "ended": ended, "version": train.version + 1}
    if connection.execute(sa.update(trains).where(same).values(values)).rowcount != 1:
        raise Conflict(f"train {train.name} was changed by another")
    recorded = {"train": train.name, "from": train.state, "to": state, "why": printable(why, MESSAGE_LIMIT)}
    audit.append(connection, now, by, f"train.{state}", detail=recorded)
    return train._replace(state=state, updated=now, ended=ended, version=train.version + 1)


def nodes_of(connection: Connection, train: int) -> List[Episode]:
    """The nodes of a train, wave by wave."""
    asked = sa.select(episodes).where(episodes.c.train == train).order_by(episodes.c.wave, episodes.c.node)
    return [Episode._make(row) for row in connection.execute(asked)]


def attempts_of(connection: Connection, train: int) -> Dict[int, List[Attempt]]:
    """The work of a train, by episode and in the order in which it was written down."""
    mine = sa.select(episodes.c.id).where(episodes.c.train == train)
    return by_episode(
        connection.execute(sa.select(attempts).where(attempts.c.episode.in_(mine)).order_by(attempts.c.id))
    )


def approve(connection: Connection, train: Train, *, by: str, why: str, now: float) -> bool:
    """Write down that a person agrees; returns whether that is new."""
    same = sa.and_(train_approvals.c.train == train.id, train_approvals.c.by == by)
    if connection.execute(sa.select(train_approvals).where(same)).first() is not None:
        return False
    values = {"train": train.id, "by": by, "at": now, "why": printable(why, MESSAGE_LIMIT)}
    connection.execute(sa.insert(train_approvals).values(values))
    audit.append(connection, now, by, "train.approved", detail={"train": train.name, "why": values["why"]})
    return True


def approvals_of(connection: Connection, train: int) -> List[TrainApproval]:
    """Who has agreed to a train, the first first."""
    asked = sa.select(train_approvals).where(train_approvals.c.train == train).order_by(train_approvals.c.at)
    return [TrainApproval._make(row) for row in connection.execute(asked)]
