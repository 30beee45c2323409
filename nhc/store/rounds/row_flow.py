"""A flow whose items are rows of the table of work: the loop writes each move with its row of the audit log.

A `Trade` defines the work: what opens a row, the next step, and what is done in a state.
"""

from __future__ import annotations

from typing import AbstractSet, Dict, List, NamedTuple, Optional, Protocol, Sequence, Set, Tuple

from nhc.core.system.steady_time import SteadyTime
from nhc.marks.policy.bounds import BegunAction, Held
from nhc.marks.policy.door import Bars
from nhc.store import episodes
from nhc.store.database import Fence, Store
from nhc.store.episodes import Episode, EpisodeStep, OpeningEpisode
from nhc.store.errors import Conflict
from nhc.store.rounds.loop import Opened, Waiting, Would, open_breaker
from nhc.store.rounds.service import one_item


class RowMove(NamedTuple):
    """The next step of a row: the state that it goes to, or "" to wait, with `bound` naming what blocks it.

    `takes` names the action that begins with it, which the bars are asked about; "" for none. `detail` is the text to
    store, None for no change. `ends`: the work has ended. `noted` is the name of a change without a new state.
    """

    state: str = ""
    because: str = ""
    bound: str = ""
    takes: str = ""
    detail: Optional[str] = None
    ends: bool = False
    noted: str = "noted"

    @property
    def leads(self) -> str:
        """See FlowMove."""
        return self.state

    @property
    def waits_for(self) -> str:
        """See FlowMove."""
        return f"{self.bound}: {self.because}" if self.bound else self.because


class RowView(NamedTuple):
    """A row as an item of the loop."""

    row: Episode

    @property
    def number(self) -> int:
        """See ItemView."""
        return self.row.id

    @property
    def name(self) -> str:
        """See ItemView."""
        return self.row.node

    @property
    def stage(self) -> str:
        """See ItemView."""
        return self.row.state


class RowWritten(NamedTuple):
    """A move that is in the store, with the row after it."""

    row: Episode
    move: RowMove

    @property
    def is_step(self) -> bool:
        """See Stored."""
        return bool(self.move.state)

    @property
    def is_news(self) -> bool:
        """See Stored."""
        return self.is_step


class Trade(Protocol):
    """One kind of work. `kind` is that of its rows and their noun in the audit log, `actor` the part that writes them.

    `problems` are what could not be read or done in this round.
    """

    kind: str
    actor: str
    problems: List[str]

    def look(self, now: float, apply: bool, rows: Sequence[Episode]) -> Bars:
        """Read what a round needs. Raises StoreError."""
        ...

    def new(self, now: float) -> Tuple[Sequence[OpeningEpisode], Sequence[Waiting]]:
        """The rows to be opened, and what waits without one. The bars are asked about each, as for its kind."""
        ...

    def step(self, row: Episode, time: SteadyTime) -> RowMove:
        """The next step. Pure, except for what `look` has seen."""
        ...

    def act(self, row: Episode) -> Optional[RowMove]:
        """Do what the row's state requires, and return the result; None if it requires nothing.

        Called once a round for each row, after the move that led to the state was written: a process that ended may
        have sent the same already.
        """
        ...


class RowFlow:
    """The rows of one trade in one store."""

    def __init__(self, store: Store, trade: Trade, fence: Optional[Fence] = None) -> None:
        self.store, self.trade, self.fence = store, trade, fence
        self.actor, self.noun = trade.actor, trade.kind
        self._bars: Optional[Bars] = None
        self._time = SteadyTime(0.0)
        self._rows: Dict[int, Episode] = {}
        self._done: Set[int] = set()

    @property
    def problems(self) -> Sequence[str]:
        """See Flow."""
        return self.trade.problems

    def stepped(self, why: str, now: float) -> None:
        """See Flow."""
        open_breaker(self.store, self.fence, self.actor, why, now)

    def begin(self, now: float, apply: bool) -> Opened:
        """See Flow."""
        self._done.clear()
        self._bars = self.trade.look(now, apply, self._open())
        waiting: List[Waiting] = []
        new: List[OpeningEpisode] = []
        opening, waits = self.trade.new(now)
        for row in opening:
            held = self._bars.against(row.node, row.action, now)
            if held is not None:
                waiting.append(Waiting(row.node, 0, "", f"{held.bound}: {held.why}"))
                continue
            self._bars.begin(BegunAction(now, row.node, row.action))
            new.append(row)
        if not apply:
            would = [Would(row.node, row.action, str(row.because.get("why", ""))) for row in new]
            return Opened(0, [*waits, *waiting], would)
        opened: List[Episode] = []
        if new:
            with self.store.write(self.fence) as connection:
                opened = episodes.open_episodes(connection, new, now=now, by=self.actor)
        return Opened(len(opened), [*waits, *waiting])

    def _open(self) -> List[Episode]:
        with self.store.read() as connection:
            return episodes.open_work(connection, self.trade.kind)

    def look(self, time: SteadyTime, first: bool, apply: bool) -> Optional[Tuple[Bars, Dict[int, RowView]]]:
        """See Flow."""
        del first, apply
        self._time = time
        self._rows = {row.id: row for row in self._open()}
        if self._bars is None or not self._rows:
            return None
        return self._bars, {number: RowView(row) for number, row in self._rows.items()}

    @staticmethod
    def closer(_views: Sequence[RowView]) -> Dict[int, RowView]:
        """See Flow."""
        return {}

    def step(self, view: RowView) -> RowMove:
        """See Flow."""
        return self.trade.step(view.row, self._time)

    def takes(self, view: RowView, move: RowMove) -> Optional[BegunAction]:
        """See Flow."""
        return BegunAction(self._time.now, view.name, move.takes) if move.takes else None

    @staticmethod
    def wait(_view: RowView, held: Held) -> RowMove:
        """See Flow."""
        return RowMove(because=held.why, bound=held.bound)

    @staticmethod
    def changes(view: RowView, move: RowMove) -> bool:
        """See Flow."""
        return bool(move.state) or move.detail not in (None, view.row.detail)

    def write(self, moves: Sequence[Tuple[RowView, RowMove]], now: float) -> List[RowWritten]:
        """See Flow. A row that another process changed first is left out."""
        written = [self._save(view.row, move, now) for view, move in moves]
        return [stored for stored in written if stored is not None]

    def _save(self, row: Episode, move: RowMove, now: float) -> Optional[RowWritten]:
        changed: Dict[str, Optional[str | float]] = {}
        if move.state:
            changed["state"] = move.state
        if move.detail is not None:
            changed["detail"] = move.detail
        if move.ends:
            changed.update(ended=now, outcome=move.because)
        step = EpisodeStep(self.actor, f"{self.noun}.{move.state or move.noted}", {"because": move.because})
        try:
            with self.store.write(self.fence) as connection:
                after = episodes.save_step(connection, row, step, now=now, **changed)
        except Conflict:
            return None
        self._rows[row.id] = after
        return RowWritten(after, move)

    def act(self, _written: Sequence[RowWritten], _waits: AbstractSet[int]) -> List[RowWritten]:
        """See Flow."""
        return []

    def act_on_all(self, waits: AbstractSet[int]) -> List[RowWritten]:
        """See Flow."""
        saved = []
        for number, row in list(self._rows.items()):
            if number in self._done or number in waits or row.ended is not None:
                continue
            self._done.add(number)
            with self.store.write(self.fence):
                pass  # this process may have been stopped since it decided
            move = None
            with one_item(f"{self.noun} {row.node}", self.trade.problems):
                move = self.trade.act(row)
            if move is not None and self.changes(RowView(row), move):
                stored = self._save(row, move, self._time.now)
                saved += [stored] if stored is not None else []
        return saved

    @staticmethod
    def end(_moved: Sequence[RowWritten], _held: Sequence[Waiting], _apply: bool) -> List[RowWritten]:
        """See Flow."""
        return []
