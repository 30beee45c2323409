"""A pass over the open episodes: look, decide, write the moves down, and only then do what the states ask for.

The loop and each train go over their own episodes in this way, until nothing moves any more.
"""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Sequence, Tuple

from nhc.core.system.service_log import failure
from nhc.core.system.steady_time import FAR, SteadyTime
from nhc.marks.policy.bounds import MARK, BegunAction
from nhc.marks.policy.breaker import NAME
from nhc.marks.ports.repair import Sighting
from nhc.remedy import reclaim, steps
from nhc.remedy.acting import Performer
from nhc.remedy.actuators import Actuators
from nhc.remedy.cases import EpisodeCase, Written, changes
from nhc.remedy.machine import EpisodeEvent, EpisodeState
from nhc.remedy.observer import Base, Observer
from nhc.remedy.records import Records, chunks
from nhc.remedy.settings import RemedySettings
from nhc.remedy.view import EpisodeView, Move, Scene
from nhc.store import holds
from nhc.store.rounds.loop_clock import KeptClock

PASSES = 20
"""Passes of one round: an episode takes about ten from its mark to its repair."""
LOOKS = 8
"""Machines that are looked at before their repairs are decided: as many as are asked at one time."""


class Waiting(NamedTuple):
    """An episode, or a fault that opened none, that goes no further now, and why. `episode` is 0 for none."""

    node: str
    episode: int
    state: str
    why: str


class Would(NamedTuple):
    """What a dry run would do next to a node."""

    node: str
    action: str
    why: str


def nothing(_written: Written) -> None:
    """Publish no move."""


class Passes:
    """The episodes of the loop, or of one train. `publish` is called with each move once it is in the store."""

    def __init__(
        self, records: Records, settings: RemedySettings, actuators: Actuators, observer: Observer,
        clock: Callable[[], float], monotonic: Callable[[], float], publish: Callable[[Written], None],
    ) -> None:  # fmt: skip
        self.store, self.records, self.settings = records.store, records, settings
        self.actuators, self.observer = actuators, observer
        self.clock, self.monotonic, self.publish = clock, monotonic, publish
        self.performer = Performer(records, actuators, clock, settings, observer.held)
        self._time = KeptClock(records.store, records.actor, records.fence, clock, monotonic)
        self._decisions = 0

    def mind_the_clock(self, now: float, apply: bool) -> List[str]:
        """Begin a round. Where the clock was set, waits begin anew, and far off rates can no longer be counted: the
        breaker opens. Returns the lines to log about it. Raises StoreError, LeadershipLost.
        """
        step = self._time.begin_round(apply)
        if not step:
            return []
        why = f"the clock jumped by {step:.0f} s"
        if abs(step) > FAR and apply:
            self.open_breaker(f"{why}: rates cannot be counted", now)
        return [f"{why}: waits begin anew"]

    def open_breaker(self, why: str, now: float) -> None:
        """Open the breaker; a person closes it. Raises StoreError, LeadershipLost."""
        with self.store.write(self.records.fence) as connection:
            holds.set_breaker(connection, NAME, "open", by=self.records.actor, why=why, now=now)

    def problems(self) -> Tuple[str, ...]:
        """What could not be read in this round."""
        broken = (f"episode {number}: {why}" for number, why in self.records.broken.items())
        return (*dict.fromkeys(self.observer.problems), *broken)

    def decide(self, view: EpisodeView, scene: Scene) -> Move:
        """The next step of one episode."""
        return steps.step(view, scene)

    def pass_over(self, base: Base, first: bool, apply: bool, held: List[Waiting], would: List[Would]) -> List[Written]:
        time = self._time.read()
        now = time.now
        with self.store.read() as connection:
            cases = self.records.cases(connection)
        if not cases:
            return []
        scene, views = self.observer.look(cases, base, time, first=first, apply=apply)
        decided, sightings = self._decide(cases, views, scene)
        moves: List[Tuple[EpisodeCase, Move]] = []
        for case in cases:
            number, node = case.episode.id, case.episode.node
            move = decided[number]
            if move.event is None:
                held.append(Waiting(node, number, case.episode.state, move.because or move.detail.waiting))
                move = self._alarm(move, time)
            elif not apply:
                would.append(Would(node, f"episode {number}: {move.event.value}", move.because))
            if changes(views[number].detail, move):
                moves.append((case, move))
        if not apply:
            return []
        current = {case.episode.id: case for case in cases}
        waits = {number for number, move in decided.items() if move.bound}
        stored_moves: List[Written] = []
        for chunk in chunks(moves):  # in a storm the first nodes are marked before the steps of the last are written
            written = self.records.save(chunk, now, sightings)
            self.performer.wrote(written)
            marked = self.performer.mark([stored.case for stored in written], views, waits)
            current.update({stored.case.episode.id: stored.case for stored in (*written, *marked)})
            stored_moves += self._tell([*written, *marked])
        return [*stored_moves, *self._tell(self.performer.act(list(current.values()), views, waits))]

    def _tell(self, written: Sequence[Written]) -> List[Written]:
        """Publish moves, and return those that are steps."""
        for stored in written:
            if stored.move.event is not None or stored.case.detail.alarmed != stored.move.detail.alarmed:
                self.publish(stored)
        return [stored for stored in written if stored.move.event is not None]

    def _decide(
        self, cases: Sequence[EpisodeCase], views: Dict[int, EpisodeView], scene: Scene
    ) -> Tuple[Dict[int, Move], Dict[int, Sighting]]:
        """The next step of each episode. A machine is looked at only where nothing else holds its repair."""
        decided = {case.episode.id: self._step(case, views[case.episode.id], scene) for case in cases}
        near = [case for case in cases if decided[case.episode.id].bound == "unseen"]
        sightings: Dict[int, Sighting] = {}
        for at in range(0, len(near), LOOKS):
            # What the last ones were allowed is spent: without room left, no machine is looked at for nothing.
            again = near[at : at + LOOKS]
            decided.update({case.episode.id: self._step(case, views[case.episode.id], scene) for case in again if at})
            some = [case for case in again if decided[case.episode.id].bound == "unseen"]
            for number, looked in self.observer.machines(some).items():
                views[number] = views[number]._replace(
                    sighting=looked.sighting, unseen=looked.unseen, claims=looked.claims
                )
                if looked.sighting is not None:
                    sightings[number] = looked.sighting
            decided.update({case.episode.id: self._step(case, views[case.episode.id], scene) for case in some})
        return decided, sightings

    def _step(self, case: EpisodeCase, view: EpisodeView, scene: Scene) -> Move:
        self._decisions += 1
        if case.state is EpisodeState.ACTING and self.performer.is_fresh(case):
            return Move(None, case.detail)
        try:
            move = self.decide(view, scene)
        except Exception as error:  # one episode that nobody foresaw must not hold up the others
            return Move(None, case.detail, f"cannot be decided: {failure(error)}", bound="undecided")
        if move.event is EpisodeEvent.MARK_ALLOWED and view.node is not None and view.node.available:
            scene.usage.count_out(view.name)
            scene.usage.begin(BegunAction(scene.now, view.name, MARK))
        elif move.event is EpisodeEvent.CONFIRMED and not view.done:  # a node's steps are one piece of maintenance
            scene.usage.count_repairing(view.name)
            scene.usage.begin(BegunAction(scene.now, view.name, view.rung.value, view.work is not None))
        return move

    def _alarm(self, move: Move, time: SteadyTime) -> Move:
        """A wait that is too long alarms once: an event in the audit log, and a metric."""
        since = move.detail.waiting_since or move.detail.entered
        if move.bound == reclaim.BOUND:
            return move  # whether another machine comes, and when, is the cloud's to say
        if move.detail.alarmed or not since or time.elapsed(since) <= self.settings.stalled:
            return move
        return move._replace(detail=move.detail._replace(alarmed=time.now))
