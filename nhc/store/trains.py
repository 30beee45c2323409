"""Maintenance trains: their nodes, and the work on each, which the tables let begin once.

Each change is one transaction with its row of the audit log. `version` guards against two who change the same row: the
second gets a Conflict, reads again and decides again.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Union

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from nhc.model import printable
from nhc.store import audit
from nhc.store.episodes import MESSAGE_LIMIT
from nhc.store.errors import Conflict
from nhc.store.maintenance_tables import train_acts, train_approvals, train_nodes, trains

Value = Union[str, float, int, None]


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


class TrainNode(NamedTuple):
    """One node of a train. `step` is the work that it is at, counted from 0; `detail` is JSON of nhc.trains."""

    train: int
    node: str
    wave: int
    state: str
    step: int
    marked: Optional[float]
    updated: float
    ended: Optional[float]
    outcome: str
    detail: str
    version: int


class TrainAct(NamedTuple):
    """One piece of work on one node. `rung` says by whose bounds it is counted; `before` is JSON of a Sighting."""

    train: int
    node: str
    step: int
    what: str
    rung: str
    repairer: str
    key: str
    state: str
    tries: int
    message: str
    request_id: str
    before: str
    written: float
    ended: Optional[float]


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
    """Write a train down with all its nodes. Raises Conflict where the name was used before."""
    if get(connection, name) is not None:
        raise Conflict(f"there is a train {name} already")
    values = {"name": name, "state": state, "by": by, "why": printable(why, MESSAGE_LIMIT), "digest": digest,
              "plan": plan, "made": now, "updated": now}  # fmt: skip
    made = connection.execute(sa.insert(trains).values(values).returning(trains.c.id)).one()
    rows = [
        {"train": made.id, "node": node, "wave": number, "state": node_state, "updated": now}
        for number, wave in enumerate(waves, 1)
        for node in wave
    ]
    if rows:
        connection.execute(sa.insert(train_nodes), rows)
    recorded = {"train": name, "why": values["why"], "nodes": len(rows), "waves": len(waves), "digest": digest}
    audit.append(connection, now, by, "train.created", detail=recorded)
    found = get(connection, name)
    assert found is not None
    return found


def get(connection: Connection, name: str) -> Optional[Train]:
    """A train by its name, None where there is none."""
    row = connection.execute(sa.select(trains).where(trains.c.name == name)).first()
    return Train._make(row) if row else None


def list_trains(connection: Connection, *, is_open: Optional[bool] = None, limit: int = 100) -> List[Train]:
    """Trains, the oldest first; the newest `limit` of them."""
    asked = sa.select(trains)
    if is_open is not None:
        asked = asked.where(trains.c.ended.is_(None) if is_open else trains.c.ended.is_not(None))
    return [Train._make(row) for row in connection.execute(asked.order_by(trains.c.id.desc()).limit(limit))][::-1]


def save_train(
    connection: Connection, train: Train, *, state: str, by: str, why: str, now: float, ended: Optional[float] = None
) -> Train:
    """Change a train's state. Raises Conflict where somebody else changed it since it was read."""
    same = sa.and_(trains.c.id == train.id, trains.c.version == train.version)
    values = {"state": state, "updated": now, "ended": ended, "version": train.version + 1}
    if connection.execute(sa.update(trains).where(same).values(values)).rowcount != 1:
        raise Conflict(f"train {train.name} was changed by another")
    recorded = {"train": train.name, "from": train.state, "to": state, "why": printable(why, MESSAGE_LIMIT)}
    audit.append(connection, now, by, f"train.{state}", detail=recorded)
    return train._replace(state=state, updated=now, ended=ended, version=train.version + 1)


def nodes_of(connection: Connection, train: int) -> List[TrainNode]:
    """The nodes of a train, wave by wave."""
    asked = sa.select(train_nodes).where(train_nodes.c.train == train)
    return [TrainNode._make(row) for row in connection.execute(asked.order_by(train_nodes.c.wave, train_nodes.c.node))]


def save_node(
    connection: Connection, train: Train, row: TrainNode, what: str, recorded: Mapping[str, object], *, by: str,
    now: float, **changes: Value,
) -> TrainNode:  # fmt: skip
    """Change a node's row (`state`, `step`, `marked`, `ended`, `outcome`, `detail`) and write it down.

    Raises Conflict where somebody else changed it since it was read.
    """
    strange = set(changes) - {"state", "step", "marked", "ended", "outcome", "detail"}
    if strange:
        raise TypeError(f"a train's node has no {', '.join(sorted(strange))} to change")
    same = sa.and_(
        train_nodes.c.train == row.train, train_nodes.c.node == row.node, train_nodes.c.version == row.version
    )
    values: Dict[str, Value] = {**changes, "updated": now, "version": row.version + 1}
    if connection.execute(sa.update(train_nodes).where(same).values(values)).rowcount != 1:
        raise Conflict(f"{row.node} of train {train.name} was changed by another")
    after = row._replace(**values)  # type: ignore[arg-type]
    whole = {
        "train": train.name,
        **({"from": row.state, "to": after.state} if after.state != row.state else {}),
        **recorded,
    }
    audit.append(connection, now, by, what, node=row.node, detail=whole)
    return after


def acts_of(connection: Connection, train: int) -> List[TrainAct]:
    """The work of a train, in the order in which it was written down."""
    asked = sa.select(train_acts).where(train_acts.c.train == train)
    return [TrainAct._make(row) for row in connection.execute(asked.order_by(train_acts.c.written, train_acts.c.step))]


def write_act(connection: Connection, act: TrainAct, *, by: str, now: float) -> TrainAct:
    """Write down that work is about to begin; commit before it does. Raises Conflict where it was begun before.

    A row that says that nothing was begun (`refused`) is used again, with the same key.
    """
    same = sa.and_(
        train_acts.c.train == act.train, train_acts.c.node == act.node, train_acts.c.step == act.step
    )  # fmt: skip
    standing = connection.execute(sa.select(train_acts).where(same)).first()
    if standing is None:
        connection.execute(sa.insert(train_acts).values(act._asdict()))
        written = act
    elif standing.state == "refused":
        written = TrainAct._make(standing)._replace(
            state=act.state, tries=standing.tries + 1, written=now, ended=None, before=act.before, message=""
        )
        connection.execute(sa.update(train_acts).where(same).values(written._asdict()))
    else:
        raise Conflict(f"step {act.step + 1} was begun on {act.node} before")
    recorded = {"step": act.step + 1, "what": act.what, "rung": act.rung, "repairer": act.repairer, "key": written.key,
            "try": written.tries}  # fmt: skip
    audit.append(connection, now, by, "train.act-written", node=act.node, detail=recorded)
    return written


def save_act(connection: Connection, act: TrainAct, *, by: str, now: float, **changes: Value) -> TrainAct:
    """Write down what became of work (`state`, `message`, `request_id`, `ended`)."""
    same = sa.and_(
        train_acts.c.train == act.train, train_acts.c.node == act.node, train_acts.c.step == act.step
    )  # fmt: skip
    clean = {name: printable(value, MESSAGE_LIMIT) if isinstance(value, str) else value
             for name, value in changes.items()}  # fmt: skip
    connection.execute(sa.update(train_acts).where(same).values(clean))
    after = act._replace(**clean)  # type: ignore[arg-type]
    recorded = {"step": act.step + 1, "what": act.what, "message": after.message, "key": act.key}
    audit.append(connection, now, by, f"train.act-{after.state}", node=act.node, detail=recorded)
    return after


def approve(connection: Connection, train: Train, *, by: str, why: str, now: float) -> bool:
    """Write down that a person agrees; whether it is new."""
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


# What bounds are counted from: nodes of all trains.


def open_nodes(connection: Connection) -> List[TrainNode]:
    """Nodes of all trains that are not waiting for their turn and have not ended."""
    asked = sa.select(train_nodes).where(train_nodes.c.ended.is_(None), train_nodes.c.state != "waiting")
    return [TrainNode._make(row) for row in connection.execute(asked)]


def marked_since(connection: Connection, since: float) -> List[TrainNode]:
    """Nodes of all trains that were marked since then."""
    return [TrainNode._make(row) for row in connection.execute(
        sa.select(train_nodes).where(train_nodes.c.marked > since)
    )]  # fmt: skip


def acts_since(connection: Connection, since: float) -> List[TrainAct]:
    """The work of all trains that was begun since then."""
    return [TrainAct._make(row) for row in connection.execute(
        sa.select(train_acts).where(train_acts.c.written > since).order_by(train_acts.c.written)
    )]  # fmt: skip
