"""Work on nodes as a flow of the loop: episodes of repair, or of a train, that mark a node, do something to it, prove
it and put it back. A `Purpose` says what they are for.
"""

from __future__ import annotations

from typing import AbstractSet, Callable, Dict, List, Optional, Protocol, Sequence, Tuple

from nhc.core.system.steady_time import SteadyTime
from nhc.marks.policy.bounds import MARK, BegunAction, Held
from nhc.marks.policy.door import Bars
from nhc.remedy import reclaim
from nhc.remedy.acting import Performer
from nhc.remedy.actuators import Actuators
from nhc.remedy.cases import EpisodeCase, Written, changes
from nhc.remedy.machine import EpisodeEvent, EpisodeState
from nhc.remedy.observer import Base, Observer
from nhc.remedy.records import Records
from nhc.remedy.view import EpisodeView, Move, Scene
from nhc.store.rounds.loop import FlowLoop, LoopRound, Opened, Waiting, open_breaker


class Purpose(Protocol):
    """What episodes are for: the repair of faults, or a train's work."""

    def begin(self, now: float, apply: bool) -> Tuple[Base, Opened]:
        """Read what holds for the whole round, and open what is new. Raises StoreError."""
        ...

    def before_pass(self, time: SteadyTime) -> bool:
        """Prepare each pass; whether there is one. Raises StoreError."""
        ...

    def step(self, view: EpisodeView, scene: Scene) -> Move:
        """The next step of one episode. Pure."""
        ...

    def end(self, base: Base, moved: Sequence[Written], held: Sequence[Waiting], apply: bool) -> List[Written]:
        """Act once no episode moves any more; returns what was stored by it. Raises StoreError."""
        ...


class EpisodeFlow:
    """Episodes of one purpose over one site."""

    noun = "episode"

    def __init__(
        self, purpose: Purpose, records: Records, actuators: Actuators, observer: Observer, clock: Callable[[], float]
    ) -> None:
        self.purpose, self.records, self.actuators, self.observer = purpose, records, actuators, observer
        self.actor = records.actor
        self.performer = Performer(records, actuators, clock, observer.settings, observer.held)
        self._cases: Dict[int, EpisodeCase] = {}
        self._views: Dict[int, EpisodeView] = {}
        self._base: Optional[Base] = None
        self._scene: Optional[Scene] = None

    @property
    def base(self) -> Base:
        """What holds for the whole round."""
        assert self._base is not None
        return self._base

    @property
    def scene(self) -> Scene:
        """What all episodes share in this pass."""
        assert self._scene is not None
        return self._scene

    @property
    def problems(self) -> List[str]:
        """See Flow."""
        broken = (f"episode {number}: {why}" for number, why in self.records.broken.items())
        return [*self.observer.problems, *broken]

    def stepped(self, why: str, now: float) -> None:
        """See Flow."""
        open_breaker(self.records.store, self.records.fence, self.actor, why, now)

    def begin(self, now: float, apply: bool) -> Opened:
        """See Flow."""
        self.performer.begin()
        self._base, begun = self.purpose.begin(now, apply)
        return begun

    def look(self, time: SteadyTime, first: bool, apply: bool) -> Optional[Tuple[Bars, Dict[int, EpisodeView]]]:
        """See Flow."""
        if not self.purpose.before_pass(time):
            return None
        with self.records.store.read() as connection:
            cases = self.records.cases(connection)
        if not cases:
            return None
        self._cases = {case.episode.id: case for case in cases}
        self._scene, self._views = self.observer.look(cases, self.base, time, first=first, apply=apply)
        scene, views = self._scene, self._views
        held = {view.name: view.held for view in views.values()}
        settings, breaker = scene.settings, next(iter(views.values())).breaker
        bars = Bars(settings.bounds, scene.usage, breaker, lambda node: held.get(node, ""), settings.mode,
                    scene.enabled_at)  # fmt: skip
        return bars, views

    def closer(self, views: Sequence[EpisodeView]) -> Dict[int, EpisodeView]:
        """See Flow."""
        looks = self.observer.machines([self._cases[view.number] for view in views])
        return {
            number: self._views[number]._replace(sighting=looked.sighting, unseen=looked.unseen, claims=looked.claims)
            for number, looked in looks.items()
        }

    def step(self, view: EpisodeView) -> Move:
        """See Flow."""
        if view.state is EpisodeState.ACTING and self.performer.is_fresh(self._cases[view.number]):
            return Move(None, view.detail)
        return _alarmed(self.purpose.step(view, self.scene), self.scene)

    def wait(self, view: EpisodeView, held: Held) -> Move:
        """See Flow."""
        return _alarmed(Move(None, view.detail, held.why, bound=held.bound), self.scene)

    def takes(self, view: EpisodeView, move: Move) -> Optional[BegunAction]:
        """See Flow. All steps on one node are one maintenance, and a node that is already out takes no room in the
        bounds.
        """
        now = self.scene.now
        if move.event is EpisodeEvent.MARK_ALLOWED and view.node is not None and view.node.available:
            return BegunAction(now, view.name, MARK)
        if move.event is EpisodeEvent.CONFIRMED and not view.done:
            return BegunAction(now, view.name, view.rung.value, view.work is not None)
        return None

    @staticmethod
    def changes(view: EpisodeView, move: Move) -> bool:
        """See Flow."""
        return changes(view.detail, move)

    def write(self, moves: Sequence[Tuple[EpisodeView, Move]], now: float) -> List[Written]:
        """See Flow."""
        sightings = {view.number: view.sighting for view, _move in moves if view.sighting is not None}
        return self.records.save([(self._cases[view.number], move) for view, move in moves], now, sightings)

    def act(self, written: Sequence[Written], waits: AbstractSet[int]) -> List[Written]:
        """See Flow."""
        self._keep(written)
        self.performer.wrote(written)
        marked = self.performer.mark([stored.case for stored in written], self._views, waits)
        self._keep(marked)
        return marked

    def _keep(self, written: Sequence[Written]) -> None:
        self._cases.update({stored.case.episode.id: stored.case for stored in written})

    def act_on_all(self, waits: AbstractSet[int]) -> List[Written]:
        """See Flow."""
        return self.performer.act(list(self._cases.values()), self._views, waits)

    def end(self, moved: Sequence[Written], held: Sequence[Waiting], apply: bool) -> List[Written]:
        """See Flow."""
        return self.purpose.end(self.base, moved, held, apply)


def _alarmed(move: Move, scene: Scene) -> Move:
    """The move. A wait that is too long raises one alarm: an event in the audit log, and a metric."""
    since = move.detail.waiting_since or move.detail.entered
    if move.event is not None or move.bound == reclaim.BOUND:
        return move  # whether another machine comes, and when, is the cloud's to say
    if move.detail.alarmed or not since or scene.time.elapsed(since) <= scene.settings.stalled:
        return move
    return move._replace(detail=move.detail._replace(alarmed=scene.now))


EpisodeLoop = FlowLoop[EpisodeView, Move, Written]
EpisodeRound = LoopRound[Written]
