"""The rounds of a train: read, decide, store, act. A round may end anywhere; the next one continues from the store."""

from __future__ import annotations

import time
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from nhc.ports.repair import Sighting
from nhc.remedy.bounds import MARK, BegunAction, Usage
from nhc.remedy.clock_watch import mind_the_clock
from nhc.remedy.effects import Hands
from nhc.remedy.settings import RemedySettings
from nhc.store import trains
from nhc.store.clocks import KeptClock
from nhc.store.database import Fence, Store
from nhc.store.errors import Conflict
from nhc.store.trains import Train
from nhc.trains import progress
from nhc.trains.acting import TrainWork
from nhc.trains.book import Ride, RideWritten, TrainBook
from nhc.trains.hands import TrainHands
from nhc.trains.looking import ClusterSeen, Reports, TrainLook
from nhc.trains.machine import TRAIN_ENDS, Stop, TrainState
from nhc.trains.settings import TrainPlan
from nhc.trains.steps import step
from nhc.trains.view import StopMove, StopView, TrainScene
from nhc.units import show_number

PASSES = 20
"""Passes of one round."""


class TrainWait(NamedTuple):
    """A node that goes no further now, and why."""

    node: str
    state: str
    why: str


class TrainRound(NamedTuple):
    """What one round did. `would` are the nodes that a dry run would take out now."""

    train: TrainState
    moved: Tuple[RideWritten, ...]
    waiting: Tuple[TrainWait, ...]
    problems: Tuple[str, ...]


class Engine:
    """One train over one site. `publish` gets each move once it is in the store."""

    def __init__(
        self, store: Store, settings: RemedySettings, plan: TrainPlan, hands: Hands, *, fence: Optional[Fence] = None,
        reports: Reports = tuple, clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        publish: Callable[[RideWritten], None] = lambda _one: None,
    ) -> None:  # fmt: skip
        self.store, self.settings, self.plan, self.clock, self.publish = store, settings, plan, clock, publish
        self.hands = TrainHands(hands, plan)
        self.book = TrainBook(store, plan, fence)
        self._look = TrainLook(self.book, settings, self.hands, reports)
        self._work = TrainWork(self.book, self.hands, clock, settings, self._look.held)
        self._time = KeptClock(store, self.book.actor, fence, clock, monotonic)
        self._unseen: Set[str] = set()

    def round(self) -> TrainRound:
        """Go over the train once. Raises StoreError (LeadershipLost among them), BadStop."""
        self._look.begin_round()
        self._look.problems += mind_the_clock(
            self._time, self.store, self.book.fence, self.book.actor, self.clock(), apply=True
        )
        self._work.begin_round()
        self._unseen = set()
        seen = self._look.around()
        moved: List[RideWritten] = []
        waiting: List[TrainWait] = []
        state = TrainState.RUNNING
        for _ in range(PASSES):
            waiting = []
            train = self._as_a_whole()
            state = TrainState(train.state)
            done = [] if state in TRAIN_ENDS else self._pass(train, seen, waiting)
            moved += done
            if not done:
                break
            seen = seen._replace(states=self._look.states_again(sorted({one.ride.row.node for one in moved}), seen))
        train = self._as_a_whole()
        return TrainRound(
            TrainState(train.state), tuple(moved), tuple(waiting), tuple(dict.fromkeys(self._look.problems))
        )

    def _as_a_whole(self) -> Train:
        """Let the train begin, stop it, or end it, where that is due."""
        now = self.clock()
        with self.store.read() as connection:
            train = self.book.train(connection)
            rows = trains.nodes_of(connection, train.id)
            agreed = len(trains.approvals_of(connection, train.id))
        state = TrainState(train.state)
        try:
            if state is TrainState.PLANNED and agreed >= needed(self.plan, self.settings):
                return self.book.change(train, TrainState.RUNNING, f"{show_number(agreed, 'person')} agreed", now)
            why = ""
            if state is TrainState.RUNNING:
                why = progress.must_stop(self.plan, rows, train.updated, self._time.read())
            over = progress.ended(rows, state)
            if why and over is None:
                return self.book.change(train, TrainState.STOPPED, why, now)
            if over is not None and state not in TRAIN_ENDS:
                return self.book.change(train, over, "every node is done with", now, ended=now)
        except Conflict:
            with self.store.read() as connection:
                return self.book.train(connection)
        return train

    def _pass(self, train: Train, seen: ClusterSeen, waiting: List[TrainWait]) -> List[RideWritten]:
        time = self._time.read()
        now = time.now
        scene, views, rides = self._look.views(train, seen, time)
        decided, sightings = self._decide(rides, views, scene)
        moves: List[Tuple[Ride, StopMove]] = []
        repairers: Dict[str, str] = {}
        for ride in rides:
            node, move = ride.row.node, decided[ride.row.node]
            if move.to is None and move.bound:
                waiting.append(TrainWait(node, ride.row.state, move.because))
            if move.to is not None or move.detail != ride.detail:
                moves.append((ride, move))
            if move.begins:
                hand, _ability = self.hands.choose(node, self.plan.work[ride.row.step])
                repairers[node] = hand.name if hand is not None else ""
        written = self.book.save(train, moves, now, sightings, repairers)
        self._work.note_begun(written)
        current = {ride.row.node: ride for ride in rides}
        current.update({one.ride.row.node: one.ride for one in written})
        waits = {node for node, move in decided.items() if move.bound}
        done = self._work.perform(train, list(current.values()), views, waits)
        found = [*(one for one in written if one.move.to is not None), *done]
        for one in found:
            self.publish(one)
        return found

    def _decide(
        self, rides: Sequence[Ride], views: Dict[str, StopView], scene: TrainScene
    ) -> Tuple[Dict[str, StopMove], Dict[str, Sighting]]:
        """The next step of each node. A machine is looked at only where nothing else holds its work."""
        decided = {ride.row.node: self._step(ride, views[ride.row.node], scene) for ride in rides}
        near = [node for node, move in decided.items() if move.bound == "unseen" and node not in self._unseen]
        sightings: Dict[str, Sighting] = {}
        looks = self.hands.look([(node, self.plan.work[views[node].step]) for node in near])
        for node, looked in looks.items():
            views[node] = views[node]._replace(sighting=looked.sighting, unseen=looked.unseen, claims=looked.claims)
            if looked.sighting is not None:
                sightings[node] = looked.sighting
            else:
                self._unseen.add(node)
        for ride in rides:
            if ride.row.node in looks:
                decided[ride.row.node] = self._step(ride, views[ride.row.node], scene)
        return decided, sightings

    def _step(self, ride: Ride, view: StopView, scene: TrainScene) -> StopMove:
        if ride.state is Stop.ACTING and self._work.is_fresh(ride):
            return StopMove(None, ride.detail)
        move = step(view, scene)
        _spend(scene.usage, view, move, scene)
        return move


def needed(plan: TrainPlan, settings: RemedySettings) -> int:
    """How many persons must agree: the most that the policy asks for any of the rungs."""
    return max(settings.bounds.approvals.get(work.rung, 0) for work in plan.work)


def _spend(usage: Usage, view: StopView, move: StopMove, scene: TrainScene) -> None:
    """What was decided in this pass is spent for the nodes that are decided after it."""
    if move.to is Stop.MARKING:
        usage.count_out(view.node)
        usage.begin(BegunAction(scene.now, view.node, MARK), planned=True)
    if move.begins and not view.step:  # the steps of one node are one piece of maintenance
        usage.count_repairing(view.node)
        usage.begin(BegunAction(scene.now, view.node, scene.plan.work[view.step].rung.value), planned=True)
