"""The rounds of a train: passes over its episodes, and its own state between them. A round may end anywhere; the next
one continues from the store.
"""

from __future__ import annotations

import time
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

from sqlalchemy.engine import Connection

from nhc.core.system.steady_time import SteadyTime
from nhc.core.units import show_number
from nhc.marks.ports.adapter import ConditionReport
from nhc.remedy import counting, health
from nhc.remedy.actuators import Actuators
from nhc.remedy.cases import EpisodeCase, Written, read_cases
from nhc.remedy.detail import Detail
from nhc.remedy.machine import ENDS, EpisodeEvent, EpisodeState, after
from nhc.remedy.observer import Base, Observer
from nhc.remedy.passes import PASSES, Passes, Waiting, nothing
from nhc.remedy.records import Records
from nhc.remedy.settings import RemedySettings
from nhc.remedy.trains import steps
from nhc.remedy.trains.machine import TRAIN_ENDS, TrainState
from nhc.remedy.trains.settings import TrainPlan
from nhc.remedy.trains.steps import TrainScene, step
from nhc.remedy.view import EpisodeView, Move, Scene
from nhc.store import episodes, holds, trains
from nhc.store.database import Fence, Store
from nhc.store.errors import Conflict
from nhc.store.trains import Train

# What a train keeps in the store: its own state, and its episodes, each with a hold that keeps repairs away.


ACTOR = "nhc train"


class TrainRecords(Records):
    """The store as one train uses it."""

    def __init__(self, store: Store, plan: TrainPlan, fence: Optional[Fence] = None) -> None:
        super().__init__(store, fence, ACTOR)
        self.plan = plan

    def row(self, connection: Connection) -> Train:
        """The train as it is now. Raises Conflict where it is gone."""
        train = trains.get(connection, self.plan.name)
        if train is None:
            raise Conflict(f"there is no train {self.plan.name}")
        return train

    def train(self, connection: Connection) -> Optional[int]:
        return self.row(connection).id

    def cases(self, connection: Connection) -> List[EpisodeCase]:
        """The train's nodes that are not done with, each with the work that is next or under way."""
        rows = trains.nodes_of(connection, self.row(connection).id)
        cases, self.broken = read_cases(connection, [row for row in rows if row.ended is None])
        last = len(self.plan.work) - 1
        return [case._replace(work=self.plan.work[min(case.done, last)]) for case in cases]

    def change(self, train: Train, state: TrainState, why: str, now: float, ended: Optional[float] = None) -> Train:
        """Change the train's own state. Raises Conflict, StoreError."""
        with self.store.write(self.fence) as connection:
            return trains.save_train(connection, train, state=state.value, by=self.actor, why=why, now=now, ended=ended)

    def _beside_it(self, connection: Connection, case: EpisodeCase, move: Move, now: float) -> Detail:
        """Set the hold before the mark, and end it with the episode. In the transaction that begins something, a
        person's hold or abort that came first holds, and so does a repair of the node.
        """
        detail, node = move.detail, case.episode.node
        begins = move.event is EpisodeEvent.MARK_ALLOWED
        if begins or move.begins:
            if self.row(connection).state != TrainState.RUNNING.value:
                raise Conflict(f"train {self.plan.name} runs no more")
            if not case.done and episodes.list_episodes(connection, node=node, is_open=True, limit=1):
                raise Conflict(f"{node} has an open episode")
        if begins:
            hold = holds.hold(connection, "node", node, by=self.actor, why=detail.why, now=now)
            detail = detail._replace(hold=hold.id)
        ends = move.event is not None and after(EpisodeState(case.episode.state), move.event) in ENDS
        if ends and detail.hold:
            holds.end(connection, detail.hold, by=self.actor, now=now, why=f"train {self.plan.name}")
            detail = detail._replace(hold=0)
        return detail


# What a train's round sees before it decides: what the loop sees, but for faults and requests.


Reports = Callable[[], Iterable[ConditionReport]]


class TrainObserver(Observer):
    """Reads for one train."""

    def __init__(self, records: Records, settings: RemedySettings, actuators: Actuators, reports: Reports) -> None:
        super().__init__(records.store, settings, actuators, records, reports, None, None)
        self._suites: Dict[str, Tuple[str, float]] = {}

    def begin(self, now: float) -> Base:
        """Read what a round needs. Raises StoreError."""
        self._forget()
        states = self.states(None)
        self.actuators.repairers.learn_machines()
        reported = self.reported()
        with self.store.read() as connection:
            self.fleet = counting.fleet(connection, states or ())
            cases = [case for case in self.records.cases(connection) if case.state is not EpisodeState.PLANNED]
            others = self.records.note_others(connection)
            devices = self.devices(cases, admitting=True)
            counted = self._count(connection, [*cases, *others], states, devices, now)
            repairing = {row.node: row.id for row in episodes.list_episodes(connection, is_open=True)}
            self._suites = health.by_suite(connection, self.fleet.names, self.settings.verify.suite)
        own = health.reported(reported, self.fleet.names, "adapter")
        return Base(now, states, own, (), counted, repairing=repairing)

    def proved(self, case: EpisodeCase, time: SteadyTime) -> Optional[bool]:
        """What the newest verdict of the deep suite says, None where it is older than the work, or could not tell."""
        verdict, at = self._suites.get(case.episode.node, ("", 0.0))
        newer = at > time.moment(case.detail.repaired)
        return {"OK": True, "WARN": True, "CRIT": False}.get(verdict) if newer else None


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
        self._scene = TrainScene(plan, TrainState.PLANNED, steps.WaveTurn(0))

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
        over = steps.ended(rows, state)
        try:
            if state is TrainState.PLANNED and agreed >= needed(self.plan, self.site):
                train = self.trains.change(train, TrainState.RUNNING, f"{show_number(agreed, 'person')} agreed", now)
            elif over is not None and state not in TRAIN_ENDS:
                train = self.trains.change(train, over, "every node is done with", now, ended=now)
            elif state is TrainState.RUNNING:
                why = steps.must_stop(self.plan, rows, train.updated, self._time.read())
                train = self.trains.change(train, TrainState.STOPPED, why, now) if why else train
        except Conflict:
            with self.store.read() as connection:
                train = self.trains.row(connection)
        state = TrainState(train.state)
        self._scene = TrainScene(self.plan, state, steps.turn(self.plan, rows, state, self._time.read()))
        return train


def needed(plan: TrainPlan, settings: RemedySettings) -> int:
    """How many persons must agree: the most that the policy asks for any of the rungs."""
    return max(settings.bounds.approvals.get(work.rung, 0) for work in plan.work)
