"""Drills on real nodes: one row each, stored before anything is done and deleted when all is undone.

A drill first undoes what an earlier one left.
"""

from __future__ import annotations

from typing import List, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from nhc.store import audit
from nhc.store.errors import Conflict
from nhc.store.schema import drills


class OpenDrill(NamedTuple):
    """One row. `injected` is what was injected on the node, as JSON ("{}": nothing); `began` is in Unix seconds."""

    node: str
    scenario: str
    injected: str
    by: str
    began: float


_COLUMNS = [drills.c[name] for name in OpenDrill._fields]


def open_drills(connection: Connection) -> List[OpenDrill]:
    """All that are to be undone, by node."""
    return [OpenDrill._make(row) for row in connection.execute(sa.select(*_COLUMNS).order_by(drills.c.node))]


def begin(connection: Connection, drill: OpenDrill) -> None:
    """Write down that a drill begins. Raises Conflict if the node has one already."""
    if connection.execute(sa.select(drills.c.node).where(drills.c.node == drill.node)).first() is not None:
        raise Conflict(f"{drill.node} has a drill already")
    connection.execute(sa.insert(drills).values(**drill._asdict()))
    detail = {"scenario": drill.scenario, "injected": drill.injected}
    audit.append(connection, drill.began, drill.by, "drill.began", node=drill.node, detail=detail)


def end(connection: Connection, node: str, *, by: str, now: float) -> bool:
    """A drill is undone completely: delete its row. Returns whether there was one."""
    if connection.execute(sa.delete(drills).where(drills.c.node == node)).rowcount != 1:
        return False
    audit.append(connection, now, by, "drill.undone", node=node)
    return True
