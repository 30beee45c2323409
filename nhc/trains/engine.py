"""A train's rounds: read, decide, write down, do. A round may be cut off anywhere, and the next one goes on."""

from __future__ import annotations

import time
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from nhc.marks import clears_later
from nhc.model import printable
from nhc.ports import AdapterError, Applied, ConditionReport, Effect, NodeState
from nhc.remedy import counting, health
from nhc.remedy.book import Book
from nhc.remedy.bounds import MARK, BegunAction, Usage
from nhc.remedy.breaker import NAME, blind
from nhc.remedy.counting import FleetGroups
from nhc.remedy.effects import Hands, Watched
from nhc.remedy.looking import held_by
from nhc.remedy.settings import RemedySettings
from nhc.remedy.view import Health
from nhc.repair import Answer, Sent, Sighting, Stage
from nhc.store import deep, episodes, holds, nodes, trains
from nhc.store.database import Fence, Store
from nhc.store.errors import Conflict
from nhc.store.trains import Train
from nhc.trains import progress
from nhc.trains.book import Ride, RideWritten, TrainBook
from nhc.trains.hands import TrainHands
from nhc.trains.machine import STOP_ENDS, TRAIN_ENDS, Stop, TrainState
from nhc.trains.settings import TrainPlan
from nhc.trains.steps import TRIES, step
from nhc.trains.view import StopMove, StopView, TrainScene
from nhc.units import show_number

PASSES = 20
"""Passes of one round."""
Reports = Callable[[], Sequence[ConditionReport]]


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


class _Around(NamedTuple):
    states: Optional[List[NodeState]]
    fleet: FleetGroups
    own: Mapping[str, Health]


class Engine:
    """One train over one site. `tell` hears of each move once it is in the store."""

    def __init__(
        self, store: Store, settings: RemedySettings, plan: TrainPlan, hands: Hands, *, fence: Optional[Fence] = None,
        reports: Reports = tuple, clock: Callable[[], float] = time.time,
        tell: Callable[[RideWritten], None] = lambda _one: None,
    ) -> None:  # fmt: skip
        self.store, self.settings, self.plan, self.clock, self.tell = store, settings, plan, clock, tell
        self.hands, self.reports = TrainHands(hands, plan), reports
        self.book = TrainBook(store, plan, fence)
        self.problems: List[str] = []
        self._begun = clock()
        self._fresh: Set[str] = set()
        self._tried: Set[str] = set()
        self._unseen: Set[str] = set()
        self._watched: Dict[str, Watched] = {}

    # One round.

    def round(self) -> TrainRound:
        """Go over the train once. Raises StoreError (LeadershipLost among them), BadStop."""
        self.problems, self._watched = [], {}
        self._tried, self._unseen = set(), set()
        seen = self._look_around()
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
            seen = seen._replace(states=self._states(sorted({one.ride.row.node for one in moved}), seen))
        train = self._as_a_whole()
        return TrainRound(TrainState(train.state), tuple(moved), tuple(waiting), tuple(dict.fromkeys(self.problems)))

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
            why = progress.must_stop(self.plan, rows, train.updated) if state is TrainState.RUNNING else ""
            over = progress.ended(rows, state)
            if why and over is None:
                return self.book.change(train, TrainState.STOPPED, why, now)
            if over is not None and state not in TRAIN_ENDS:
                return self.book.change(train, over, "every node is done with", now, ended=now)
        except Conflict:
            with self.store.read() as connection:
                return self.book.train(connection)
        return train

    def _look_around(self) -> _Around:
        try:
            states: Optional[List[NodeState]] = self.hands.hands.states()
        except AdapterError as error:
            self.problems.append(f"nodes cannot be read: {printable(str(error))}")
            states = None
        try:
            reports = list(self.reports())
        except AdapterError as error:
            self.problems.append(f"reports cannot be read: {printable(str(error))}")
            reports = []
        with self.store.read() as connection:
            fleet = counting.fleet(connection, states or ())
        return _Around(states, fleet, health.reported(reports, fleet.names, "adapter"))

    def _states(self, names: Sequence[str], seen: _Around) -> Optional[List[NodeState]]:
        """The states of nodes that were moved, read again; the others' as they were read in this round."""
        if seen.states is None:
            return None
        try:
            again = {state.name: state for state in self.hands.hands.states(names)}
        except AdapterError as error:
            self.problems.append(f"nodes cannot be read: {printable(str(error))}")
            return None
        kept = [state for state in seen.states if state.name not in names]
        return sorted([*kept, *again.values()], key=lambda state: state.name)

    def _pass(self, train: Train, seen: _Around, waiting: List[TrainWait]) -> List[RideWritten]:
        now = self.clock()
        scene, views, rides = self._views(train, seen, now)
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
                hand, _why = self.hands.choose(node, self.plan.work[ride.row.step])
                repairers[node] = hand.name if hand is not None else ""
        written = self.book.save(train, moves, now, sightings, repairers)
        self._fresh |= {one.ride.act.key for one in written if one.move.begins and one.ride.act is not None}
        current = {ride.row.node: ride for ride in rides}
        current.update({one.ride.row.node: one.ride for one in written})
        done = self._perform(train, list(current.values()), views)
        found = [*(one for one in written if one.move.to is not None), *done]
        for one in found:
            self.tell(one)
        return found

    # Reading.

    def _views(self, train: Train, seen: _Around, now: float) -> Tuple[TrainScene, Dict[str, StopView], List[Ride]]:
        with self.store.read() as connection:
            rides = [ride for ride in self.book.rides(connection, train) if ride.state not in STOP_ENDS]
            every = trains.nodes_of(connection, train.id)
            names = [ride.row.node for ride in rides]
            cases = Book(self.store).cases(connection)
            counted = counting.count(
                connection, seen.fleet, cases, seen.states or (), self.settings.bounds, self.settings.breaker, now,
                self.settings.sources.max_age,
            )  # fmt: skip
            standing = holds.in_force(connection, now)
            opened = holds.breakers(connection).get(NAME)
            healths = health.together([health.stored(connection, seen.fleet.names, names), seen.own])
            episode = {row.node: row.id for row in episodes.list_episodes(connection, is_open=True)}
            known = nodes.list_nodes(connection, [seen.fleet.names.stored(name) for name in names])
            suites = {one.node: (one.verdict, one.at) for one in deep.last_verdicts(connection)
                      if one.suite == self.plan.proof.suite} if self.plan.proof.suite else {}  # fmt: skip
        self.hands.crew.learn({seen.fleet.names.here(row.node): row for row in known})
        breaker = opened.why if opened is not None and opened.state == "open" else ""
        breaker = breaker or (blind(self.settings.breaker, counted.seen) if seen.states is not None else "")
        turn = progress.turn(self.plan, every, TrainState(train.state), now)
        scene = TrainScene(
            self.plan, self.settings, counted.usage, now, TrainState(train.state), turn.wave, turn.why, breaker,
            self.hands.can,
        )  # fmt: skip
        self._watch([ride for ride in rides if ride.state is Stop.WATCHING and ride.act is not None])
        states = {state.name: state for state in seen.states or ()}
        views = {}
        for ride in rides:
            node, detail = ride.row.node, ride.detail
            since = min(max(detail.entered, self._begun), now) if detail.entered else 0.0
            watched = self._watched.get(ride.act.key if ride.act is not None else "", Watched(None))
            views[node] = StopView(
                node, ride.row.wave, ride.state, ride.row.step, detail._replace(entered=since), ride.act,
                states.get(node), seen.states is not None, healths.get(node),
                held_by([one for one in standing if one.id != detail.hold], node, seen.fleet),
                not detail.hold or any(one.id == detail.hold for one in standing), episode.get(node, 0),
                suites.get(seen.fleet.names.stored(node)), progress=watched.progress, unwatched=watched.unseen,
            )  # fmt: skip
        return scene, views, rides

    def _watch(self, rides: Sequence[Ride]) -> None:
        """How far work is: each is asked for once a round."""
        todo = [ride for ride in rides if ride.act is not None and ride.act.key not in self._watched]
        found = self.hands.watch(todo)
        self._watched.update({ride.act.key: found[ride.row.node] for ride in todo if ride.act is not None})

    # Deciding.

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
        if ride.state is Stop.ACTING and ride.act is not None and ride.act.key in self._fresh:
            return StopMove(None, ride.detail)
        move = step(view, scene)
        _spend(scene.usage, view, move, scene)
        if move.detail._replace(entered=ride.detail.entered) == ride.detail:
            move = move._replace(detail=ride.detail)  # deadlines that began anew are nothing to write down
        return move

    # Doing.

    def _perform(self, train: Train, rides: Sequence[Ride], views: Mapping[str, StopView]) -> List[RideWritten]:
        todo = [ride for ride in rides if ride.row.node not in self._tried]
        found = self._marks(train, [ride for ride in todo if ride.state is Stop.MARKING and _ours(views, ride)])
        back = [ride for ride in todo if ride.state is Stop.RETURNING and _ours(views, ride)]
        found += self._clears(train, [ride for ride in back if not clears_later(views[ride.row.node].seen)])
        busy = [ride.row.node for ride in todo if ride.state is Stop.DRAINING and _busy(views, ride)]
        if self.plan.drain.evict and busy:
            self._tried |= set(busy)
            self.hands.hands.evict(busy)
        found += self._sends(train, [ride for ride in rides if ride.state is Stop.ACTING and self._is_fresh(ride)])
        for ride in todo:
            view = views[ride.row.node]
            if ride.state is Stop.WATCHING and view.progress is not None and view.progress.stage is Stage.HALFWAY:
                self._follow(train, ride)
        return found

    def _is_fresh(self, ride: Ride) -> bool:
        return ride.act is not None and ride.act.key in self._fresh

    def _marks(self, train: Train, rides: Sequence[Ride]) -> List[RideWritten]:
        now = self.clock()
        self._tried |= {ride.row.node for ride in rides}
        applied = self.hands.mark([ride.row.node for ride in rides], now)
        return self._applied(train, rides, applied, Stop.DRAINING, "mark", now)

    def _clears(self, train: Train, rides: Sequence[Ride]) -> List[RideWritten]:
        now, found = self.clock(), []
        self._tried |= {ride.row.node for ride in rides}
        applied = self.hands.clear([ride.row.node for ride in rides])
        for ride in rides:
            found += self._applied(train, [ride], applied, Stop(ride.detail.ends or Stop.DONE.value), "clear", now)
        return found

    def _applied(
        self, train: Train, rides: Sequence[Ride], applied: Mapping[str, Applied], then: Stop, what: str, now: float
    ) -> List[RideWritten]:
        moves: List[Tuple[Ride, StopMove]] = []
        for ride in rides:
            one, detail = applied[ride.row.node], ride.detail._replace(waiting="", waiting_since=0.0)
            said = one.message or ride.detail.because
            if one.effect in (Effect.CHANGED, Effect.UNCHANGED):
                told = ride.detail.because if then in STOP_ENDS else said
                moves.append((ride, StopMove(then, detail, told)))
            elif one.effect is Effect.REFUSED:
                moves.append((ride, StopMove(Stop.LEFT, detail, said)))
            elif ride.detail.waiting != f"{what}: {said}":
                since = ride.detail.waiting_since or now
                moves.append((ride, StopMove(None, detail._replace(waiting=f"{what}: {said}", waiting_since=since))))
        return [one for one in self.book.save(train, moves, now, {}, {}) if one.move.to is not None]

    def _sends(self, train: Train, rides: Sequence[Ride]) -> List[RideWritten]:
        """Begin what was written down, and write each answer down as soon as it is there."""
        if not rides:
            return []
        with self.store.write(self.book.fence) as connection:  # under the fence: only the leader begins
            now_there = {row.node: row.version for row in trains.nodes_of(connection, train.id)}
        todo = [ride for ride in rides if now_there.get(ride.row.node) == ride.row.version]
        for ride in rides:
            if ride.act is not None:
                self._fresh.discard(ride.act.key)  # whatever comes of it, it is not begun again
        found = []
        for ride, sent in zip(todo, self.hands.hands.each(self.hands.send, todo)):
            written = self.book.answered(train, ride, self._answer(ride, sent), sent.request_id, self.clock())
            found += [written] if written is not None else []
        return found

    def _answer(self, ride: Ride, sent: Sent) -> StopMove:
        detail = ride.detail._replace(waiting="", waiting_since=0.0)
        if sent.answer is not Answer.REFUSED:
            act = "sent" if sent.answer is Answer.ACCEPTED else "ambiguous"
            return StopMove(Stop.WATCHING, detail, sent.message, act=act)
        tries = ride.act.tries if ride.act is not None else TRIES
        if sent.retry_after > 0 and tries < TRIES:
            detail = detail._replace(ask_after=self.clock() + sent.retry_after)
            return StopMove(Stop.DRAINING, detail, sent.message, act="refused")
        to = Stop.FAILED if ride.row.step else Stop.RETURNING
        ends = "" if ride.row.step else Stop.SKIPPED.value
        detail = detail._replace(ends=ends, because=sent.message)
        return StopMove(to, detail, sent.message, act="refused")

    def _follow(self, train: Train, ride: Ride) -> None:
        """The call that follows the first: written down before. It changes nothing where it took effect already."""
        self._tried.add(ride.row.node)
        told = "the call that follows is sent"
        for one in self.book.save(train, [(ride, StopMove(None, ride.detail, told))], self.clock(), {}, {}):
            sent = self.hands.complete(one.ride)
            if sent.answer is Answer.ACCEPTED:
                detail = one.ride.detail._replace(follow_id=sent.request_id, follow_message=sent.message or "accepted")
                self.book.save(train, [(one.ride, StopMove(None, detail, sent.message))], self.clock(), {}, {})


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


def _ours(views: Mapping[str, StopView], ride: Ride) -> bool:
    return views[ride.row.node].known and not views[ride.row.node].held


def _busy(views: Mapping[str, StopView], ride: Ride) -> bool:
    seen = views[ride.row.node].seen
    return seen is not None and seen.busy
