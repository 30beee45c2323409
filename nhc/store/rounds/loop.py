"""The loop that every flow of work goes through: read, step, ask the bars, write down, act, read again.

A flow is one kind of work: repairs, a maintenance train, spares. It knows its states, its settings and its terms, and
its step is pure. The loop does what is common to all: it watches the clock, it asks the bars (holds, the breaker,
hours, bounds) before anything begins, it counts what begins, it writes a move before it acts on it, and one item that
fails does not delay another. So a round may end at any point, and the next one continues.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import (
    AbstractSet,
    Callable,
    Dict,
    Generic,
    Iterable,
    List,
    NamedTuple,
    Optional,
    Protocol,
    Sequence,
    Tuple,
    TypeVar,
)

from nhc.core.system.service_log import failure
from nhc.core.system.steady_time import FAR, SteadyTime
from nhc.marks.policy.bounds import BegunAction, Held
from nhc.marks.policy.breaker import NAME
from nhc.marks.policy.door import Bars
from nhc.store import holds
from nhc.store.database import Fence, Store
from nhc.store.rounds.loop_clock import KeptClock

PASSES = 20
"""Passes of one round: an episode takes about ten from its mark to its repair."""
CHUNK = 200
"""Moves in one transaction: others write too, and SQLite has one writer at a time. A storm is marked in such chunks."""
LOOKS = 8
"""Items that are inspected at one time: so many machines are queried together."""
UNSEEN = "unseen"
"""The bound of an item that nothing else blocks and that was not inspected yet."""
UNDECIDED = "undecided"
"""The bound of an item whose step has failed."""

T = TypeVar("T")


class Waiting(NamedTuple):
    """A node whose work waits now, and why. `episode` is the number of its work, 0 if none was opened."""

    node: str
    episode: int
    state: str
    why: str


class Would(NamedTuple):
    """What a dry run would do next to a node."""

    node: str
    action: str
    why: str


class ItemView(Protocol):
    """One item of work and all that its next step depends on."""

    @property
    def number(self) -> int:
        """Its key, unique in a pass."""
        ...

    @property
    def name(self) -> str:
        """The node, or another subject."""
        ...

    @property
    def stage(self) -> str:
        """Its state."""
        ...


class FlowMove(Protocol):
    """What a step returns: the item's next state, or what blocks it."""

    @property
    def leads(self) -> str:
        """The next state, "" if the item waits."""
        ...

    @property
    def because(self) -> str:
        """One line for the audit log."""
        ...

    @property
    def waits_for(self) -> str:
        """What an item that waits is waiting for."""
        ...

    @property
    def bound(self) -> str:
        """The stable name of what blocks the item."""
        ...


class Stored(Protocol):
    """What is in the store after a move."""

    @property
    def is_step(self) -> bool:
        """Whether the item has left its state."""
        ...

    @property
    def is_news(self) -> bool:
        """Whether it is published: it is a step, or a wait that has become too long."""
        ...


V = TypeVar("V", bound=ItemView)
M = TypeVar("M", bound=FlowMove)
W = TypeVar("W", bound=Stored)


class Opened(NamedTuple):
    """What a flow did at the beginning of a round: how much it opened, what it may not open, and what it would open."""

    opened: int = 0
    waiting: Sequence[Waiting] = ()
    would: Sequence[Would] = ()


class Flow(Protocol[V, M, W]):
    """One kind of work. `actor` is its name in the audit log and of its clock; `noun` what an item is called.

    `problems` are what could not be read or done in this round, for a person.
    """

    actor: str
    noun: str

    @property
    def problems(self) -> Sequence[str]:
        """See above."""
        ...

    def stepped(self, why: str, now: float) -> None:
        """The clock was set so far that rates cannot be counted. Raises StoreError."""
        ...

    def begin(self, now: float, apply: bool) -> Opened:
        """Read what applies to the whole round, and open what is new. Raises StoreError."""
        ...

    def look(self, time: SteadyTime, first: bool, apply: bool) -> Optional[Tuple[Bars, Dict[int, V]]]:
        """The unfinished items, by their numbers, and what may prevent them from beginning anything. None if there is
        nothing to do.
        """
        ...

    def closer(self, views: Sequence[V]) -> Dict[int, V]:
        """Inspect items that nothing else blocks, for example the machine that is about to be repaired."""
        ...

    def step(self, view: V) -> M:
        """The next step. Pure, except for what `look` has put in its scene."""
        ...

    def takes(self, view: V, move: M) -> Optional[BegunAction]:
        """The action that a move begins: the bars are asked about it, and it is counted. None for nothing."""
        ...

    def wait(self, view: V, held: Held) -> M:
        """The move of an item that is blocked."""
        ...

    def changes(self, view: V, move: M) -> bool:
        """Whether a move is worth a write."""
        ...

    def write(self, moves: Sequence[Tuple[V, M]], now: float) -> List[W]:
        """Write moves down, each with its row of the audit log, in one transaction; returns those that are in the
        store.
        """
        ...

    def act(self, written: Sequence[W], waits: AbstractSet[int]) -> List[W]:
        """Do what was written down; returns what was stored afterwards."""
        ...

    def act_on_all(self, waits: AbstractSet[int]) -> List[W]:
        """Do what else the states of all items require, at the end of a pass."""
        ...

    def end(self, moved: Sequence[W], held: Sequence[Waiting], apply: bool) -> List[W]:
        """Do what follows once nothing moves any more; returns what was stored by it."""
        ...


@dataclass(frozen=True)
class LoopRound(Generic[W]):
    """What one round did. `problems` are what could not be read; `decisions` counts the steps that were decided."""

    at: float
    opened: int
    moved: Tuple[W, ...]
    waiting: Tuple[Waiting, ...]
    would: Tuple[Would, ...]
    problems: Tuple[str, ...]
    decisions: int
    seconds: float

    def followed_by(self, other: LoopRound[W]) -> LoopRound[W]:
        """Both rounds as one, this one first: all that was done, and what waits at the end."""
        return replace(
            other, at=self.at, opened=self.opened + other.opened, moved=(*self.moved, *other.moved),
            problems=tuple(dict.fromkeys((*self.problems, *other.problems))),
            decisions=self.decisions + other.decisions, seconds=self.seconds + other.seconds,
        )  # fmt: skip


def open_breaker(store: Store, fence: Optional[Fence], actor: str, why: str, now: float) -> None:
    """Open the breaker; a person closes it. Raises StoreError, LeadershipLost."""
    with store.write(fence) as connection:
        holds.set_breaker(connection, NAME, "open", by=actor, why=why, now=now)


def chunks(items: Sequence[T]) -> Iterable[Sequence[T]]:
    """The items in chunks that one transaction can write."""
    return (items[at : at + CHUNK] for at in range(0, len(items), CHUNK))


class FlowLoop(Generic[V, M, W]):
    """One flow over one store. One process at a time leads it; `fence` is its number, and losing the lead ends a round.

    `publish` is called with each move once it is in the store.
    """

    def __init__(
        self, store: Store, flow: Flow[V, M, W], *, fence: Optional[Fence] = None,
        clock: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic,
        publish: Callable[[W], None] = lambda _stored: None,
    ) -> None:  # fmt: skip
        self.flow, self.clock, self.monotonic, self.publish = flow, clock, monotonic, publish
        self._time = KeptClock(store, flow.actor, fence, clock, monotonic)
        self._decisions = 0

    def round(self, apply: bool = True) -> LoopRound[W]:
        """Process everything once. Raises StoreError (LeadershipLost included): then nothing more was done."""
        ticks, now = self.monotonic(), self.clock()
        self._decisions = 0
        jumped = self._mind_the_clock(now, apply)
        begun = self.flow.begin(now, apply)
        moved: List[W] = []
        held: List[Waiting] = []
        would = list(begun.would)
        for number in range(PASSES if apply else 1):
            held = []
            done = self._pass_over(number == 0, apply, held, would)
            moved += done
            if not done:
                break
        moved += self._tell(self.flow.end(moved, held, apply))
        problems = dict.fromkeys((*jumped, *self.flow.problems))
        return LoopRound(
            now, begun.opened, tuple(moved), (*begun.waiting, *held), tuple(would), tuple(problems), self._decisions,
            self.monotonic() - ticks,
        )  # fmt: skip

    def _mind_the_clock(self, now: float, apply: bool) -> List[str]:
        """If the clock was set, waits begin again. Returns the lines to log about it."""
        step = self._time.begin_round(apply)
        if not step:
            return []
        why = f"the clock jumped by {step:.0f} s"
        if abs(step) > FAR and apply:
            self.flow.stepped(f"{why}: rates cannot be counted", now)
        return [f"{why}: waits begin anew"]

    def _pass_over(self, first: bool, apply: bool, held: List[Waiting], would: List[Would]) -> List[W]:
        """Process each item once; returns the steps."""
        flow, time = self.flow, self._time.read()
        looked = flow.look(time, first, apply)
        if looked is None:
            return []
        bars, views = looked
        decided = self._decide(views, bars, time)
        moves: List[Tuple[V, M]] = []
        for number, view in views.items():
            move = decided[number]
            if not move.leads:
                held.append(Waiting(view.name, number, view.stage, move.waits_for))
            elif not apply:
                would.append(Would(view.name, f"{flow.noun} {number}: {move.leads}", move.because))
            if flow.changes(view, move):
                moves.append((view, move))
        if not apply:
            return []
        waits = {number for number, move in decided.items() if move.bound}
        steps: List[W] = []
        for chunk in chunks(moves):  # in a storm the first nodes are marked before the steps of the last are written
            written = flow.write(chunk, time.now)
            steps += self._tell([*written, *flow.act(written, waits)])
        return steps + self._tell(flow.act_on_all(waits))

    def _tell(self, written: Sequence[W]) -> List[W]:
        """Publish moves, and return those that are steps."""
        for stored in written:
            if stored.is_news:
                self.publish(stored)
        return [stored for stored in written if stored.is_step]

    def _decide(self, views: Dict[int, V], bars: Bars, time: SteadyTime) -> Dict[int, M]:
        """The next step of each item. An item is inspected only if nothing else blocks it."""
        decided = {number: self._step(view, bars, time) for number, view in views.items()}
        near = [number for number, move in decided.items() if move.bound == UNSEEN]
        for at in range(0, len(near), LOOKS):
            # The last items have used up their permits: without room left, no further item is inspected.
            again = near[at : at + LOOKS]
            decided.update({number: self._step(views[number], bars, time) for number in again if at})
            some = [number for number in again if decided[number].bound == UNSEEN]
            views.update(self.flow.closer([views[number] for number in some]))
            decided.update({number: self._step(views[number], bars, time) for number in some})
        return decided

    def _step(self, view: V, bars: Bars, time: SteadyTime) -> M:
        self._decisions += 1
        try:
            move = self.flow.step(view)
        except Exception as error:  # an unexpected error of one item must not delay the others
            return self.flow.wait(view, Held(UNDECIDED, f"cannot be decided: {failure(error)}"))
        taken = self.flow.takes(view, move)
        if taken is None:
            return move
        held = bars.against(view.name, taken.action, time.now)
        if held is not None:
            return self.flow.wait(view, held)
        bars.begin(taken)
        return move
