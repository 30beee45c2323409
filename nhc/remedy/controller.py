"""The loop: rounds of intake, decide, store, act, watch.

A round goes over the open episodes until nothing moves any more. In each pass it reads, decides by `nhc.remedy.steps`,
writes the moves down, and only then does what the states ask for: set marks (MARKING), send repairs (ACTING), clear
marks (RETURNING). An attempt in ACTING that this round did not write was begun by an earlier controller: its effect is
looked for. So a round may end anywhere, and the next one continues.
"""

from __future__ import annotations

import time
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from nhc.ports.adapter import ConditionReport, NodeStep
from nhc.ports.repair import Sighting
from nhc.remedy.acting import Performer
from nhc.remedy.admit import Admission
from nhc.remedy.book import Book, EpisodeCase, Written, changes
from nhc.remedy.bounds import MARK, BegunAction, may_mark
from nhc.remedy.breaker import opens
from nhc.remedy.clock_watch import mind_the_clock, open_breaker
from nhc.remedy.effects import Hands
from nhc.remedy.ladder import Mode
from nhc.remedy.looking import MARKING, Base, CollectsEvidence, Lookout, RunsSuite
from nhc.remedy.machine import CAUSE, ENDS, EpisodeEvent, EpisodeState
from nhc.remedy.neighbours import Asks
from nhc.remedy.settings import RemedySettings
from nhc.remedy.steps import step
from nhc.remedy.view import EpisodeView, Move, Scene
from nhc.store import holds
from nhc.store.clocks import KeptClock
from nhc.store.database import Fence, Store
from nhc.system.steady_time import SteadyTime

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


class RemedyRound(NamedTuple):
    """What one round did. `problems` are what could not be read; `decisions` counts the steps that were decided."""

    at: float
    opened: int
    moved: Tuple[Written, ...]
    waiting: Tuple[Waiting, ...]
    would: Tuple[Would, ...]
    problems: Tuple[str, ...]
    decisions: int
    seconds: float

    def followed_by(self, other: RemedyRound) -> RemedyRound:
        """Both rounds as one, this one the first: all that was done, and what waits in the end."""
        return other._replace(
            at=self.at, opened=self.opened + other.opened, moved=(*self.moved, *other.moved),
            problems=tuple(dict.fromkeys((*self.problems, *other.problems))),
            decisions=self.decisions + other.decisions, seconds=self.seconds + other.seconds,
        )  # fmt: skip

    @property
    def ended(self) -> List[Written]:
        """The episodes that ended in it."""
        return [one for one in self.moved if one.case.state in ENDS]


def _nothing(_written: Written) -> None:
    return


class RemedyController:
    """One site's loop over one store. One at a time leads; `fence` is its number, and a lost lead ends a round.

    `publish` is called with each move once it is in the store.
    """

    def __init__(
        self,
        store: Store,
        settings: RemedySettings,
        hands: Hands,
        *,
        fence: Optional[Fence] = None,
        evidence: Optional[CollectsEvidence] = None,
        suite: Optional[RunsSuite] = None,
        asks: Optional[Asks] = None,
        reports: Callable[[], Iterable[ConditionReport]] = tuple,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        publish: Callable[[Written], None] = _nothing,
    ) -> None:
        self.store, self.settings, self.hands = store, settings, hands
        self.clock, self.monotonic, self.publish = clock, monotonic, publish
        self.book = Book(store, fence)
        self.lookout = Lookout(store, settings, hands, self.book, reports, evidence, suite, asks)
        self.performer = Performer(self.book, hands, clock, settings, self.lookout.held)
        self._time = KeptClock(store, self.book.actor, fence, clock, monotonic)
        self._decisions = 0
        self._waits: Dict[int, Tuple[str, str]] = {}
        """What each episode was shown to wait for."""

    def round(self, apply: bool = True) -> RemedyRound:
        """Go over everything once. Raises StoreError (LeadershipLost among them): then nothing more was done."""
        ticks, now = self.monotonic(), self.clock()
        self._decisions = 0
        jumped = mind_the_clock(self._time, self.store, self.book.fence, self.book.actor, now, apply)
        marking = self.settings.mode(MARK)
        if apply and marking is Mode.ON:
            with self.store.write(self.book.fence) as connection:
                holds.saw_settings(connection, MARKING, "on", now, self.book.actor)
        base = self.lookout.begin(now)
        self.performer.begin()
        if apply and base.requests.answered:
            with self.store.write(self.book.fence):
                pass  # who does not lead any more writes nothing on nodes either
            self.lookout.problems += self.hands.answer(base.requests.answered)
        would: List[Would] = []
        opened = 0
        if apply and marking is Mode.ON:
            opened = len(self.book.admit(base.admissions, now))
        elif marking is not Mode.OFF:
            would = self._would_mark(base)
        self._breaker(base, apply, opened)
        waiting = [Waiting(one.node, 0, "", one.refused) for one in base.admissions if one.refused]
        moved, held = self._passes(base, apply, would)
        if apply and marking is Mode.ON and base.states is not None:
            self._tidy()  # after the episodes have seen that their mark was undone
        if apply:
            self.lookout.problems += self.hands.show(self._steps(moved, held, now))
        problems = (*jumped, *dict.fromkeys(self.lookout.problems),
                    *(f"episode {number}: {why}" for number, why in self.book.broken.items()))  # fmt: skip
        return RemedyRound(
            now, opened, tuple(moved), (*waiting, *held), tuple(would), problems, self._decisions,
            self.monotonic() - ticks,
        )  # fmt: skip

    def _steps(self, moved: Sequence[Written], held: Sequence[Waiting], now: float) -> List[NodeStep]:
        """What the nodes themselves are to show of this round: each move, and what an episode waits for from now on."""
        found = []
        for one in moved:
            row, state = one.case.episode, one.case.state
            alarm = state is EpisodeState.ESCALATED
            why = one.move.because or (CAUSE[one.move.event] if one.move.event is not None else "")
            found.append(NodeStep(row.node, row.id, row.state, why, now, False, state in ENDS, alarm))
        for wait in held:
            key = (wait.state, wait.why.partition(":")[0])
            if wait.episode and self._waits.get(wait.episode) != key:
                found.append(NodeStep(wait.node, wait.episode, wait.state, wait.why, now, True))
        self._waits = {wait.episode: (wait.state, wait.why.partition(":")[0]) for wait in held}
        return found

    def _tidy(self) -> None:
        """Take off what is left of our marks where persons put nodes back: whoever does not lead any more does not."""
        with self.store.write(self.book.fence):
            pass
        self.lookout.problems += self.hands.tidy()

    def _passes(self, base: Base, apply: bool, would: List[Would]) -> Tuple[List[Written], List[Waiting]]:
        moved: List[Written] = []
        held: List[Waiting] = []
        for number in range(PASSES if apply else 1):
            held = []
            done = self._pass(base, number == 0, apply, held, would)
            moved += done
            if not done:
                break
        return moved, held

    def _pass(self, base: Base, first: bool, apply: bool, held: List[Waiting], would: List[Would]) -> List[Written]:
        time = self._time.read()
        now = time.now
        with self.store.read() as connection:
            cases = self.book.cases(connection)
        if not cases:
            return []
        scene, views = self.lookout.look(cases, base, time, first=first, apply=apply)
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
        written = self.book.save(moves, now, sightings)
        self.performer.wrote(written)
        current = {case.episode.id: case for case in cases}
        current.update({one.case.episode.id: one.case for one in written})
        for one in written:
            self._tell(one)
        waits = {number for number, move in decided.items() if move.bound}
        done = self.performer.act(list(current.values()), views, waits)
        for one in done:
            self._tell(one)
        return [*(one for one in written if one.move.event is not None), *done]

    def _tell(self, one: Written) -> None:
        if one.move.event is not None or one.case.detail.alarmed != one.move.detail.alarmed:
            self.publish(one)

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
            for number, looked in self.lookout.machines(some).items():
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
        move = step(view, scene)
        if move.event is EpisodeEvent.MARK_ALLOWED and view.node is not None and view.node.available:
            scene.usage.count_out(view.name)
            scene.usage.begin(BegunAction(scene.now, view.name, MARK))
        elif move.event is EpisodeEvent.CONFIRMED:
            scene.usage.count_repairing(view.name)
            scene.usage.begin(BegunAction(scene.now, view.name, view.rung.value))
        return move

    def _alarm(self, move: Move, time: SteadyTime) -> Move:
        """A wait that is too long alarms once: an event in the audit log, and a metric."""
        since = move.detail.waiting_since or move.detail.entered
        if move.detail.alarmed or not since or time.elapsed(since) <= self.settings.stalled:
            return move
        return move._replace(detail=move.detail._replace(alarmed=time.now))

    def _breaker(self, base: Base, apply: bool, opened: int) -> None:
        """Open the breaker where too much is wrong at once, the episodes that were opened now among it."""
        if base.states is None:
            return  # without the nodes nobody knows how many there are
        seen = base.counted.seen
        why = opens(self.settings.breaker, seen._replace(sick=seen.sick + opened))
        if why and apply:
            open_breaker(self.store, self.book.fence, self.book.actor, why, base.now)

    def _would_mark(self, base: Base) -> List[Would]:
        """What a dry run would mark, within the bounds."""
        with self.store.read() as connection:
            enabled = holds.first_seen(connection, MARKING)
        return [self._would(one, base, enabled) for one in base.admissions if not one.refused and one.joins is None]

    def _would(self, one: Admission, base: Base, enabled: Optional[float]) -> Would:
        held = may_mark(self.settings.bounds, base.counted.usage, one.node, base.now, enabled)
        if held is not None:
            return Would(one.node, "not mark", f"{held.bound}: {held.why}")
        base.counted.usage.count_out(one.node)
        base.counted.usage.begin(BegunAction(base.now, one.node, MARK))
        return Would(one.node, "mark", one.faults[0].message)
