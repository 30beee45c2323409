"""The repairs that are under way, and what a person decides about them: read from the store, written into it."""

from __future__ import annotations

import time
from typing import List, NamedTuple

from nhc.marks.ports.marks import cause_in_words
from nhc.remedy import detail as details
from nhc.remedy import persons
from nhc.remedy.cases import standing_cause
from nhc.store import episodes, holds
from nhc.store.database import Store
from nhc.store.errors import RequestRefused

ROWS = 200


class RepairLine(NamedTuple):
    """An open episode of the remedy loop. `cause` is in words: the check, the reason, the target where there is one."""

    number: int
    node: str
    state: str
    rung: str
    cause: str
    waiting: str
    updated: float

    @property
    def asks(self) -> bool:
        """Whether it waits for a person."""
        return self.state == episodes.AWAITING


def open_repairs(store: Store) -> List[RepairLine]:
    """The open episodes, those that wait for a person first, the longest of them at the top. Raises StoreError."""
    with store.read() as connection:
        rows = episodes.by_need(connection, is_open=True, limit=ROWS)
    lines = []
    for row in rows:
        try:
            waiting = details.read(row.detail).waiting
        except details.BadDetail as error:
            waiting = str(error)
        lines.append(
            RepairLine(row.id, row.node, row.state, row.rung, cause_in_words(standing_cause(row)), waiting, row.updated)
        )
    return lines


def decide(store: Store, by: str, line: RepairLine, agree: bool, why: str) -> str:
    """Agree to a repair or refuse it; what to tell the person. Raises RequestRefused, StoreError."""
    if not agree and not why.strip():
        raise RequestRefused("say why it is refused")
    return persons.decide(store, line.number, by=by, agree=agree, why=why, now=time.time())


def hold(store: Store, by: str, node: str, why: str) -> str:
    """Have nothing done to a node; what to tell the person. Raises RequestRefused, StoreError."""
    if not why.strip():
        raise RequestRefused("say why it is held")
    with store.write() as connection:
        holds.hold(connection, "node", node, by=by, why=why, now=time.time())
    return f"{node} is held by {by}"


def release(store: Store, by: str, node: str, why: str) -> str:
    """End what holds a node; what to tell the person. Raises RequestRefused, StoreError."""
    with store.write() as connection:
        ended = holds.release(connection, "node", node, by=by, now=time.time(), why=why)
    if not ended:
        raise RequestRefused(f"nothing holds {node}")
    return f"{node} is released by {by}"
