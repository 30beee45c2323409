"""The rounds of a train: passes over its episodes, and its own state between them. A round may end anywhere; the next
one continues from the store.
"""

from __future__ import annotations

import time
from typing import Callable, List, NamedTuple, Optional, Tuple

from nhc.core.units import show_number
from nhc.remedy.actuators import Actuators
from nhc.remedy.cases import Written
from nhc.remedy.passes import PASSES, Passes, Waiting, nothing
from nhc.remedy.settings import RemedySettings
from nhc.remedy.trains import progress
from nhc.remedy.trains.machine import TRAIN_ENDS, TrainState
from nhc.remedy.trains.observer import Reports, TrainObserver
from nhc.remedy.trains.records import TrainRecords
from nhc.remedy.trains.settings import TrainPlan
from nhc.remedy.trains.steps import TrainScene, step
from nhc.remedy.view import EpisodeView, Move, Scene
from nhc.store import trains
from nhc.store.database import Fence, Store
from nhc.store.errors import Conflict
from nhc.store.trains import Train


class TrainRound(NamedTuple):
    """What one round did."""

    train: TrainState
    moved: Tuple[Written, ...]
    waiting: Tuple[Waiting, ...]
    problems: Tuple[str, ...]


class Engine(Passes):
    """One train over one site. `publish` is called with each move once it is in the store."""

    def __init__(
        self, store: Store, site: RemedySettings, plan: TrainPlan, actuators: Actuators, *,
        fence: Optional[Fence] = None, reports: Reports = tuple, clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic, publish: Callable[[Written], None] = nothing,
    ) -> None:  # fmt: skip
        self.site, self.plan = site, plan
        settings = plan.over(site)
        self.trains = TrainRecords(store, plan, fence)
        look = TrainObserver(self.trains, settings, actuators, reports)
        super().__init__(self.trains, settings, actuators, look, clock, monotonic, publish)
        self._scene = TrainScene(plan, TrainState.PLANNED, progress.WaveTurn(0))

    def decide(self, view: EpisodeView, scene: Scene) -> Move:
        return step(view, scene, self._scene)

    def round(self) -> TrainRound:
        """Go over the train once. Raises StoreError (LeadershipLost among them)."""
        now = self.clock()
        jumped = self.mind_the_clock(now, apply=True)
        base = self.observer.begin(now)
        self.performer.begin()
        moved: List[Written] = []
        waiting: List[Waiting] = []
        for number in range(PASSES):
            waiting = []
            state = TrainState(self._as_a_whole().state)
            done = [] if state in TRAIN_ENDS else self.pass_over(base, number == 0, True, waiting, [])
            moved += done
            if not done:
                break
        state = TrainState(self._as_a_whole().state)
        return TrainRound(state, tuple(moved), tuple(waiting), (*jumped, *self.problems()))

    def _as_a_whole(self) -> Train:
        """Let the train begin, stop it, or end it, where that is due; and see which wave's turn it is."""
        now = self.clock()
        with self.store.read() as connection:
            train = self.trains.row(connection)
            rows = trains.nodes_of(connection, train.id)
            agreed = len(trains.approvals_of(connection, train.id))
        state = TrainState(train.state)
        over = progress.ended(rows, state)
        try:
            if state is TrainState.PLANNED and agreed >= needed(self.plan, self.site):
                train = self.trains.change(train, TrainState.RUNNING, f"{show_number(agreed, 'person')} agreed", now)
            elif over is not None and state not in TRAIN_ENDS:
                train = self.trains.change(train, over, "every node is done with", now, ended=now)
            elif state is TrainState.RUNNING:
                why = progress.must_stop(self.plan, rows, train.updated, self._time.read())
                train = self.trains.change(train, TrainState.STOPPED, why, now) if why else train
        except Conflict:
            with self.store.read() as connection:
                train = self.trains.row(connection)
        state = TrainState(train.state)
        self._scene = TrainScene(self.plan, state, progress.turn(self.plan, rows, state, self._time.read()))
        return train


def needed(plan: TrainPlan, settings: RemedySettings) -> int:
    """How many persons must agree: the most that the policy asks for any of the rungs."""
    return max(settings.bounds.approvals.get(work.rung, 0) for work in plan.work)
