"""What a train's round sees before it decides: the cluster, the store, and how far the work under way is."""

from __future__ import annotations

from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from sqlalchemy.engine import Connection

from nhc.matching.node_names import Names
from nhc.model import printable
from nhc.ports.adapter import AdapterError, ConditionReport, NodeState
from nhc.remedy import counting, health
from nhc.remedy.book import Book
from nhc.remedy.breaker import NAME, blind
from nhc.remedy.counting import FleetGroups
from nhc.remedy.effects import Watched
from nhc.remedy.held import StandingHolds, held_now
from nhc.remedy.settings import RemedySettings
from nhc.remedy.view import Health
from nhc.store import deep, episodes, holds, nodes, trains
from nhc.store.trains import Train
from nhc.system.steady_time import SteadyTime
from nhc.trains import progress
from nhc.trains.book import Ride, TrainBook
from nhc.trains.hands import TrainHands
from nhc.trains.machine import STOP_ENDS, Stop, TrainState
from nhc.trains.view import StopView, TrainScene

Reports = Callable[[], Sequence[ConditionReport]]


class ClusterSeen(NamedTuple):
    """What was read of the cluster in a round. `states` is None where it could not be asked; `own` is from reports."""

    states: Optional[List[NodeState]]
    fleet: FleetGroups
    own: Mapping[str, Health]


class TrainLook:
    """Reads for one train."""

    def __init__(self, book: TrainBook, settings: RemedySettings, hands: TrainHands, reports: Reports) -> None:
        self.book, self.settings, self.hands, self.reports = book, settings, hands, reports
        self.plan, self.store = book.plan, book.store
        self.problems: List[str] = []
        self._watched: Dict[str, Watched] = {}
        self._marked = counting.EndedMarks()
        self._fleet = FleetGroups({}, {}, Names((), ()))

    def held(self, connection: Connection, node: str, own: int, now: float) -> str:
        """Why no work may begin on a node at this very moment, "" where it may. `own` is the number of our own hold."""
        return held_now(connection, node, own, now, self._fleet)

    def begin_round(self) -> None:
        """Forget what the round before saw."""
        self.problems, self._watched = [], {}

    def around(self) -> ClusterSeen:
        """Read the cluster, once a round. What cannot be read is in `problems`."""
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
            self._fleet = fleet = counting.fleet(connection, states or ())
        return ClusterSeen(states, fleet, health.reported(reports, fleet.names, "adapter"))

    def states_again(self, names: Sequence[str], seen: ClusterSeen) -> Optional[List[NodeState]]:
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

    def views(
        self, train: Train, seen: ClusterSeen, time: SteadyTime
    ) -> Tuple[TrainScene, Dict[str, StopView], List[Ride]]:
        """What the next steps of all nodes that are not at their end are decided by."""
        now = time.now
        with self.store.read() as connection:
            rides = [ride for ride in self.book.rides(connection, train) if ride.state not in STOP_ENDS]
            every = trains.nodes_of(connection, train.id)
            names = [ride.row.node for ride in rides]
            cases = Book(self.store).cases(connection)
            self.book.note_others(connection, train)
            counted = counting.count(
                connection, seen.fleet, cases, seen.states or (), self.settings.bounds, self.settings.breaker, now,
                self.settings.sources.max_age, self._marked,
            )  # fmt: skip
            standing = holds.in_force(connection, now)
            held, numbers = StandingHolds(standing, seen.fleet), {one.id for one in standing}
            opened = holds.breakers(connection).get(NAME)
            healths = health.together([health.stored(connection, seen.fleet.names, names), seen.own])
            episode = {row.node: row.id for row in episodes.list_episodes(connection, is_open=True)}
            known = nodes.list_nodes(connection, [seen.fleet.names.stored(name) for name in names])
            suites = {one.node: (one.verdict, one.at) for one in deep.last_verdicts(connection)
                      if one.suite == self.plan.proof.suite} if self.plan.proof.suite else {}  # fmt: skip
        self.hands.crew.learn({seen.fleet.names.here(row.node): row for row in known})
        breaker = opened.why if opened is not None and opened.state == "open" else ""
        breaker = breaker or (blind(self.settings.breaker, counted.seen) if seen.states is not None else "")
        turn = progress.turn(self.plan, every, TrainState(train.state), time)
        scene = TrainScene(
            self.plan, self.settings, counted.usage, time, TrainState(train.state), turn.wave, turn.why, breaker,
            self.hands.can,
        )  # fmt: skip
        self._watch([ride for ride in rides if ride.state is Stop.WATCHING and ride.act is not None])
        states = {state.name: state for state in seen.states or ()}
        views = {}
        for ride in rides:
            node, detail = ride.row.node, ride.detail
            watched = self._watched.get(ride.act.key if ride.act is not None else "", Watched(None))
            views[node] = StopView(
                node, ride.row.wave, ride.state, ride.row.step, detail, ride.act,
                states.get(node), seen.states is not None, healths.get(node),
                held.why(node, detail.hold), not detail.hold or detail.hold in numbers, episode.get(node, 0),
                suites.get(seen.fleet.names.stored(node)), progress=watched.progress, unwatched=watched.unseen,
            )  # fmt: skip
        return scene, views, rides

    def _watch(self, rides: Sequence[Ride]) -> None:
        """How far work is: each is asked for once a round."""
        todo = [ride for ride in rides if ride.act is not None and ride.act.key not in self._watched]
        found = self.hands.watch(todo)
        self._watched.update({ride.act.key: found[ride.row.node] for ride in todo if ride.act is not None})
