"""A train in the loop: its nodes are episodes, and the train's own state changes between the passes over them."""

from __future__ import annotations

import time
from typing import Callable, Dict, Iterable, List, Optional, Sequence, Tuple

from sqlalchemy.engine import Connection

from nhc.core.system.steady_time import SteadyTime
from nhc.core.units import show_number
from nhc.marks.ports.adapter import ConditionReport
from nhc.remedy import health
from nhc.remedy.actuators import Actuators
from nhc.remedy.cases import EpisodeCase, Written
from nhc.remedy.detail import Detail
from nhc.remedy.episode_flow import EpisodeFlow, EpisodeLoop
from nhc.remedy.machine import ENDS, EpisodeEvent, EpisodeState, after
from nhc.remedy.observer import Base, Observer
from nhc.remedy.records import Records
from nhc.remedy.settings import RemedySettings
from nhc.remedy.trains import steps
from nhc.remedy.trains.machine import TRAIN_ENDS, TrainState
from nhc.remedy.trains.settings import TrainPlan
from nhc.remedy.trains.steps import TrainScene, step
from nhc.remedy.view import EpisodeView, Move, Scene
from nhc.store import episodes, holds, trains
from nhc.store.database import Fence, Store
from nhc.store.episodes import Episode
from nhc.store.errors import Conflict
from nhc.store.rounds.loop import FlowLoop, Opened, Waiting
from nhc.store.trains import Train

ACTOR = "nhc train"

Reports = Callable[[], Iterable[ConditionReport]]


class OfTrain:
    """The nodes of one train: an EpisodeShare. Each has a hold that keeps repairs away."""

    def __init__(self, plan: TrainPlan) -> None:
        self.plan = plan

    def row(self, connection: Connection) -> Train:
        """The current train. Raises Conflict if it is gone."""
        train = trains.get(connection, self.plan.name)
        if train is None:
            raise Conflict(f"there is no train {self.plan.name}")
        return train

    def train(self, connection: Connection) -> Optional[int]:
        """See EpisodeShare."""
        return self.row(connection).id

    def rows(self, connection: Connection) -> List[Episode]:
        """See EpisodeShare."""
        return [row for row in trains.nodes_of(connection, self.row(connection).id) if row.ended is None]

    def completed(self, case: EpisodeCase) -> EpisodeCase:
        """See EpisodeShare: the work that is next or under way."""
        return case._replace(work=self.plan.work[min(case.done, len(self.plan.work) - 1)])

    def beside(self, connection: Connection, case: EpisodeCase, move: Move, now: float) -> Detail:
        """Set the hold before the mark, and end it with the episode. In the transaction that begins something, a
        person's earlier hold or abort wins, and so does a repair of the node.
        """
        detail, node = move.detail, case.episode.node
        begins = move.event is EpisodeEvent.MARK_ALLOWED
        if begins or move.begins:
            if self.row(connection).state != TrainState.RUNNING.value:
                raise Conflict(f"train {self.plan.name} runs no more")
            if not case.done and episodes.list_episodes(connection, node=node, is_open=True, limit=1):
                raise Conflict(f"{node} has an open episode")
        if begins:
            hold = holds.hold(connection, "node", node, by=ACTOR, why=detail.why, now=now)
            detail = detail._replace(hold=hold.id)
        ends = move.event is not None and after(EpisodeState(case.episode.state), move.event) in ENDS
        if ends and detail.hold:
            holds.end(connection, detail.hold, by=ACTOR, now=now, why=f"train {self.plan.name}")
            detail = detail._replace(hold=0)
        return detail


class TrainWork:
    """The purpose of a train's episodes."""

    def __init__(
        self, store: Store, site: RemedySettings, plan: TrainPlan, actuators: Actuators, *,
        fence: Optional[Fence] = None, reports: Reports = tuple,
    ) -> None:  # fmt: skip
        self.site, self.plan, self.actuators = site, plan, actuators
        self.share = OfTrain(plan)
        self.records = Records(store, fence, ACTOR, self.share)
        self.observer = Observer(
            store, plan.over(site), actuators, self.records, reports, None, None, proved=self._proved
        )  # fmt: skip
        self._suites: Dict[str, Tuple[str, float]] = {}
        self._time = SteadyTime(0.0)
        self._scene = TrainScene(plan, TrainState.PLANNED, steps.WaveTurn(0))

    def loop(
        self, *, clock: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic,
        publish: Callable[[Written], None] = lambda _written: None,
    ) -> EpisodeLoop:  # fmt: skip
        """The loop over this train."""
        flow = EpisodeFlow(self, self.records, self.actuators, self.observer, clock)
        return FlowLoop(self.records.store, flow, fence=self.records.fence, clock=clock, monotonic=monotonic,
                    publish=publish)  # fmt: skip

    def begin(self, now: float, apply: bool) -> Tuple[Base, Opened]:
        """See Purpose: what the loop reads for repairs, without faults and requests."""
        del apply
        observer = self.observer
        observer.forget()
        states = observer.states(None)
        self.actuators.repairers.learn_machines()
        reported = observer.reported()
        with self.records.store.read() as connection:
            observer.know_fleet(connection, states or ())
            cases = [case for case in self.records.cases(connection) if case.state is not EpisodeState.PLANNED]
            others = self.records.note_others(connection)
            devices = observer.devices(cases, admitting=True)
            counted = observer.count(connection, [*cases, *others], states, devices, now)
            repairing = {row.node: row.id for row in episodes.list_episodes(connection, is_open=True)}
            self._suites = health.by_suite(connection, observer.fleet.names, self.plan.proof.suite)
        own = health.reported(reported, observer.fleet.names, "adapter")
        return Base(now, states, own, (), counted, repairing=repairing), Opened()

    def _proved(self, case: EpisodeCase, time: SteadyTime) -> Optional[bool]:
        """The newest verdict of the deep suite, None if it is older than the work or could not tell."""
        verdict, at = self._suites.get(case.episode.node, ("", 0.0))
        newer = at > time.moment(case.detail.repaired)
        return {"OK": True, "WARN": True, "CRIT": False}.get(verdict) if newer else None

    def step(self, view: EpisodeView, scene: Scene) -> Move:
        """See Purpose."""
        return step(view, scene, self._scene)

    def before_pass(self, time: SteadyTime) -> bool:
        """Let the train begin, stop it, or end it, if that is due; and find the current wave."""
        self._time = time
        with self.records.store.read() as connection:
            train = self.share.row(connection)
            rows = trains.nodes_of(connection, train.id)
            agreed = len(trains.approvals_of(connection, train.id))
        state = TrainState(train.state)
        over = steps.ended(rows, state)
        try:
            if state is TrainState.PLANNED and agreed >= needed(self.plan, self.site):
                train = self._change(train, TrainState.RUNNING, f"{show_number(agreed, 'person')} agreed", time.now)
            elif over is not None and state not in TRAIN_ENDS:
                train = self._change(train, over, "every node is done with", time.now, ended=time.now)
            elif state is TrainState.RUNNING:
                why = steps.must_stop(self.plan, rows, train.updated, time)
                train = self._change(train, TrainState.STOPPED, why, time.now) if why else train
        except Conflict:
            with self.records.store.read() as connection:
                train = self.share.row(connection)
        state = TrainState(train.state)
        self._scene = TrainScene(self.plan, state, steps.turn(self.plan, rows, state, time))
        return state not in TRAIN_ENDS

    def _change(self, train: Train, state: TrainState, why: str, now: float, ended: Optional[float] = None) -> Train:
        """Change the train's own state. Raises Conflict, StoreError."""
        with self.records.store.write(self.records.fence) as connection:
            return trains.save_train(connection, train, state=state.value, by=ACTOR, why=why, now=now, ended=ended)

    @property
    def state(self) -> TrainState:
        """The train's, as it was read last."""
        return self._scene.state

    def end(self, base: Base, moved: Sequence[Written], held: Sequence[Waiting], apply: bool) -> List[Written]:
        """See Purpose."""
        del base, moved, held, apply
        self.before_pass(self._time)
        return []


def needed(plan: TrainPlan, settings: RemedySettings) -> int:
    """How many persons must agree: the most that the policy asks for any of the rungs."""
    return max(settings.bounds.approvals.get(work.rung, 0) for work in plan.work)
