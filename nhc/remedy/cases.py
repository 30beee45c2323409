"""An episode as it was read: its row, what its detail says, its attempts; and what can be told of these. Pure, but for
`read_cases`.
"""

from __future__ import annotations

import json
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from sqlalchemy.engine import Connection

from nhc.model import DeviceId
from nhc.ports.repair import Rung, Sighting
from nhc.remedy import detail as details
from nhc.remedy.admit import NodeEpisode
from nhc.remedy.detail import Detail
from nhc.remedy.machine import OUT, REPAIRING, AttemptStatus, EpisodeEvent, EpisodeState
from nhc.remedy.settings import Work
from nhc.remedy.view import EpisodeView, Move, Try
from nhc.store import attempts
from nhc.store.attempts import Attempt
from nhc.store.episodes import Episode


class EpisodeCase(NamedTuple):
    """An episode as it was read: its row, what it remembers, and its attempts."""

    episode: Episode
    detail: Detail
    attempts: Tuple[Attempt, ...] = ()
    work: Optional[Work] = None
    """The step of maintenance that is next or under way."""

    @property
    def done(self) -> int:
        """How many steps of maintenance are done; 0 for a repair."""
        return sum(state_of(one) is AttemptStatus.SUCCEEDED for one in self.attempts) if self.episode.train else 0

    @property
    def at_work(self) -> bool:
        """Whether it counts as under repair: maintenance of several steps does between them, too."""
        return bool(self.attempts) and (self.state in REPAIRING or (self.done > 0 and self.state in OUT))

    @property
    def state(self) -> EpisodeState:
        return EpisodeState(self.episode.state)

    @property
    def rung(self) -> Rung:
        return Rung(self.episode.rung) if self.episode.rung else Rung.ESCALATE

    def tries(self) -> Tuple[Try, ...]:
        """Its attempts as decisions see them."""
        return tuple(
            Try(
                one.number,
                Rung(one.rung),
                one.device,
                state_of(one),
                one.written,
                seen_before(one).kernel_boot,
                one.message,
            )
            for one in self.attempts
        )

    def view(self) -> EpisodeView:
        """What the episode itself says; the rest is put in by who has seen it."""
        return EpisodeView(
            self.episode.id, self.episode.node, self.state, self.rung, self.detail, self.tries(), work=self.work,
            done=self.done, wave=self.episode.wave,
        )  # fmt: skip


class Written(NamedTuple):
    """A move that is in the store: the case after it, and what was decided."""

    case: EpisodeCase
    move: Move
    before: EpisodeState


def state_of(attempt: Attempt) -> AttemptStatus:
    """The state and outcome of an attempt in one word."""
    return AttemptStatus(attempt.outcome or attempt.state)


def seen_before(attempt: Attempt) -> Sighting:
    """What was seen of the machine before an attempt."""
    return sighting_in(attempt.before)


def sighting_in(text: str) -> Sighting:
    """A sighting that was kept as JSON."""
    value: Dict[str, object] = json.loads(text)
    at = value.get("at", 0.0)
    texts = {name: str(value.get(name, "")) for name in ("instance", "boot", "power", "actor", "doing")}
    return Sighting(float(at) if isinstance(at, (int, float)) else 0.0, **texts)


def is_open(attempt: Attempt) -> bool:
    """Whether an attempt is still to be looked after."""
    return state_of(attempt) in (AttemptStatus.WRITTEN, AttemptStatus.SENT, AttemptStatus.AMBIGUOUS)


def standing(rows: Iterable[Episode]) -> Dict[str, NodeEpisode]:
    """Of each node the open episode, or the one that ended last."""
    found: Dict[str, NodeEpisode] = {}
    for row in rows:
        before = found.get(row.node)
        if before is not None and before.ended is None:
            continue
        if before is not None and row.ended is not None and before.ended is not None and row.ended < before.ended:
            continue
        gone = _ended_by(row) == EpisodeEvent.NODE_GONE.value
        found[row.node] = NodeEpisode(row.id, EpisodeState(row.state), row.ended, causes_of(row), gone, about_of(row))
    return found


def causes_of(row: Episode) -> Tuple[str, ...]:
    """What an episode is for, as far as its row can be read."""
    try:
        return (*(one.cause for one in details.read(row.detail).faults), row.cause)
    except details.BadDetail:
        return (row.cause,)


def about_of(row: Episode) -> DeviceId:
    """The one accelerator that an episode is about, as far as its row can be read; unknown where it is the node's."""
    try:
        return details.read(row.detail).about
    except details.BadDetail:
        return DeviceId()


def _ended_by(row: Episode) -> str:
    """The event that ended an episode, "" where it is open or its row does not say it."""
    try:
        return details.read(row.detail).ended_by if row.ended is not None else ""
    except details.BadDetail:
        return ""


def read_cases(connection: Connection, rows: Sequence[Episode]) -> Tuple[List[EpisodeCase], Dict[int, str]]:
    """Open episodes with their attempts; and why those that are left out cannot be read, by their number."""
    by_episode: Dict[int, List[Attempt]] = {}
    for attempt in attempts.attempts_of_open(connection) if rows else ():
        by_episode.setdefault(attempt.episode, []).append(attempt)
    found, broken = [], {}
    for row in rows:
        try:
            EpisodeState(row.state)
            found.append(EpisodeCase(row, details.read(row.detail), tuple(by_episode.get(row.id, ()))))
        except ValueError as error:  # BadDetail is one
            broken[row.id] = str(error)
    return found, broken


def changes(before: Detail, move: Move) -> bool:
    """Whether a move is worth a write. That a fault was seen again, or reads a little otherwise, is not."""
    if move.event is not None or move.detail._replace(faults=()) != before._replace(faults=()):
        return True
    return {one.cause for one in move.detail.faults} != {one.cause for one in before.faults}
