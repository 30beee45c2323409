"""What others have taken of the bounds: the loop and each train are processes of their own, and spend from the same.

Each counts in a read of its own and writes later, so two of them could both take the last room. Who begins something
looks in the transaction that writes it down, after those of the others: where anything has begun since it counted, it
writes nothing and counts anew.
"""

from __future__ import annotations

from typing import FrozenSet, Tuple

from sqlalchemy.engine import Connection

from nhc.remedy.machine import OUT, REPAIRING
from nhc.store import audit, episodes, trains

Room = Tuple[str, bool]
"""A node that somebody has out of service: whose and which, and whether it is under repair."""

LOOP = 0
"""Stands for the loop where a train's number is asked for: trains count from 1."""

TRAIN_AT_WORK = frozenset({"acting", "watching", "verifying"})
"""States of a train's node (nhc.trains.machine) in which it counts as under repair."""

_OUT = frozenset(state.value for state in OUT)
_REPAIRING = frozenset(state.value for state in REPAIRING)


def of_others(connection: Connection, own: int) -> FrozenSet[Room]:
    """What the others have out now: for the loop (`own` is LOOP) all trains, for a train the loop and other trains."""
    found = {
        (f"train {one.train} {one.node}", one.state in TRAIN_AT_WORK or one.step > 0)
        for one in trains.open_nodes(connection)
        if one.train != own
    }
    if own != LOOP:
        states = episodes.open_states(connection)
        found |= {(f"episode {number}", state in _REPAIRING) for number, state in states.items() if state in _OUT}
    return frozenset(found)


def has_grown(connection: Connection, seen: FrozenSet[Room], own: int) -> bool:
    """Whether others have begun anything since `seen`. Nobody else begins anything until this transaction ends."""
    audit.lock(connection)
    return not of_others(connection, own) <= seen | {(name, False) for name, at_work in seen if at_work}
