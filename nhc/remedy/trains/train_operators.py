"""Persons' actions on a train: begin it, agree to it, hold, resume and abort it. Each is one transaction."""

from __future__ import annotations

from typing import FrozenSet, Mapping, Optional

from nhc.core.units import show_number
from nhc.remedy.machine import EpisodeState
from nhc.remedy.trains.machine import TrainState
from nhc.remedy.trains.settings import TrainPlan
from nhc.remedy.trains.waves import Taken
from nhc.store import trains
from nhc.store.database import Fence, Store
from nhc.store.errors import Conflict, RequestRefused
from nhc.store.trains import Train

FROM: Mapping[TrainState, FrozenSet[TrainState]] = {
    TrainState.HELD: frozenset({TrainState.PLANNED, TrainState.RUNNING, TrainState.STOPPED}),
    TrainState.PLANNED: frozenset({TrainState.HELD, TrainState.STOPPED}),
    TrainState.ABORTING: frozenset({TrainState.PLANNED, TrainState.RUNNING, TrainState.HELD, TrainState.STOPPED}),
}
"""For each state, the states from which a person may move a train into it. A resumed train runs once enough persons
agree.
"""


def begin(
    store: Store, plan: TrainPlan, taken: Taken, *, by: str, now: float, fence: Optional[Fence] = None
) -> Train:  # fmt: skip
    """Store a new train; the person who begins it agrees to it. Raises RequestRefused, StoreError."""
    with store.write(fence) as connection:
        try:
            made = trains.create(
                connection, plan.name, taken.waves, plan=plan.text, digest=plan.digest, state=TrainState.PLANNED.value,
                node_state=EpisodeState.PLANNED.value, by=by, why=plan.why, now=now,
            )  # fmt: skip
        except Conflict as error:
            raise RequestRefused(str(error)) from None
        trains.approve(connection, made, by=by, why="began it", now=now)
    return made


def agree(store: Store, name: str, *, by: str, why: str, now: float) -> str:
    """Agree to a train. Returns the answer for that person. Raises RequestRefused, StoreError."""
    with store.write() as connection:
        train = _open(trains.get(connection, name), name)
        if not trains.approve(connection, train, by=by, why=why, now=now):
            raise RequestRefused(f"{by} has agreed to train {name} before")
        count = len(trains.approvals_of(connection, train.id))
    return f"{by} agrees to train {name}: {show_number(count, 'person')} agreed"


def change(store: Store, name: str, to: TrainState, *, by: str, why: str, now: float) -> Train:
    """Hold, resume or abort a train. Raises RequestRefused, StoreError."""
    with store.write() as connection:
        train = _open(trains.get(connection, name), name)
        if TrainState(train.state) not in FROM[to]:
            raise RequestRefused(f"train {name} is {train.state}: there is nothing to change")
        return trains.save_train(connection, train, state=to.value, by=by, why=why, now=now)


def _open(train: Optional[Train], name: str) -> Train:
    if train is None:
        raise RequestRefused(f"there is no train {name}")
    if train.ended is not None:
        raise RequestRefused(f"train {name} has ended: it is {train.state}")
    return train
