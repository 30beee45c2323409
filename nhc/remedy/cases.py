"""An episode as it was read: its row, its detail, its attempts; what follows from these. Pure, except `read_cases`."""

from __future__ import annotations

import json
from typing import Dict, FrozenSet, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from sqlalchemy.engine import Connection

from nhc.core.model import DeviceId
from nhc.marks.ports.repair import Rung, Sighting
from nhc.remedy import detail as details
from nhc.remedy.admit import NodeEpisode
from nhc.remedy.detail import Detail
from nhc.remedy.ladder import Try, first_rung
from nhc.remedy.machine import OUT, REPAIRING, EpisodeEvent, EpisodeState
from nhc.remedy.settings import Work
from nhc.remedy.view import EpisodeView, Move
from nhc.store import attempts
from nhc.store.attempts import Attempt, AttemptStatus
from nhc.store.episodes import Episode

_STATES = {state.value: state for state in EpisodeState}


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
        if not self.episode.train:
            return 0
        return sum(attempt.status is AttemptStatus.SUCCEEDED for attempt in self.attempts)

    @property
    def at_work(self) -> bool:
        """Whether it counts as under repair: maintenance of several steps does between them, too."""
        return bool(self.attempts) and (self.state in REPAIRING or (self.done > 0 and self.state in OUT))

    @property
    def state(self) -> EpisodeState:
        return _STATES[self.episode.state]

    @property
    def rung(self) -> Rung:
        return Rung(self.episode.rung) if self.episode.rung else Rung.ESCALATE

    def tries(self) -> Tuple[Try, ...]:
        """Its attempts as decisions see them."""
        return tuple(
            Try(Rung(row.rung), row.device, row.status, row.number in self.detail.again, row.number, row.written,
                seen_before(row).kernel_boot, row.message)
            for row in self.attempts
        )  # fmt: skip

    def view(self) -> EpisodeView:
        """What the episode itself says; the caller adds what it has observed."""
        return EpisodeView(
            self.episode.id, self.episode.node, self.state, self.rung, self.detail, self.tries(), work=self.work,
            done=self.done, wave=self.episode.wave,
        )  # fmt: skip


class Written(NamedTuple):
    """A move that is in the store: the case after it, and what was decided."""

    case: EpisodeCase
    move: Move
    before: EpisodeState

    @property
    def is_step(self) -> bool:
        """See nhc.store.rounds.loop.Stored."""
        return self.move.event is not None

    @property
    def is_news(self) -> bool:
        """See nhc.store.rounds.loop.Stored."""
        return self.is_step or self.case.detail.alarmed == self.case.episode.updated


def seen_before(attempt: Attempt) -> Sighting:
    """What was observed of the machine before an attempt."""
    value: Dict[str, object] = json.loads(attempt.before)
    at = value.get("at", 0.0)
    texts = {name: str(value.get(name, "")) for name in ("instance", "boot", "power", "actor", "doing")}
    return Sighting(float(at) if isinstance(at, (int, float)) else 0.0, **texts)


def standing(rows: Iterable[Episode]) -> Dict[str, NodeEpisode]:
    """For each node the open episode, or the one that ended last, with the earlier ones that still count."""
    by_node: Dict[str, List[Episode]] = {}
    for row in rows:
        by_node.setdefault(row.node, []).append(row)
    episodes = {}
    for node, own in by_node.items():
        is_open = [row for row in own if row.ended is None]
        first, *earlier = map(_ended_or_open, is_open[:1] or latest(own))
        episodes[node] = first._replace(earlier=tuple(earlier))
    return episodes


def _ended_or_open(row: Episode) -> NodeEpisode:
    return NodeEpisode(row.id, EpisodeState(row.state), row.ended, causes_of(row), _gone(row), about_of(row))


def latest(rows: Iterable[Episode]) -> List[Episode]:
    """One node's ended episodes that still count, the newest first. An episode about a device counts until another one
    about the device or the node has ended, or the node was deleted.
    """
    episodes: List[Episode] = []
    devices: List[DeviceId] = []
    for row in sorted(rows, key=lambda row: (row.ended or 0.0, row.id), reverse=True):
        about = about_of(row)
        if not any(about.same(device) for device in devices):
            episodes.append(row)
            devices.append(about)
        if not about.known or _gone(row):
            break
    return episodes


def causes_of(row: Episode) -> Tuple[str, ...]:
    """What an episode is for, as far as its row can be read."""
    return (*(fault.cause for fault in details.read_or_empty(row.detail).faults), row.cause)


def standing_cause(row: Episode) -> str:
    """The active fault; if there are several, the one that began first. The fault that opened the episode may be
    repaired while another has joined it. If no fault is left, it is the one that opened the episode.
    """
    faults = details.read_or_empty(row.detail).faults
    if not faults or any(fault.cause == row.cause for fault in faults):
        return row.cause
    return min(faults, key=lambda fault: (fault.began, fault.cause)).cause


def next_repair(row: Episode) -> str:
    """The repair that an episode is at, "" if the ladder has ended and the row names the last repair that was tried."""
    ended = details.read_or_empty(row.detail).ended_by if row.ended is not None else ""
    return "" if ended == EpisodeEvent.LADDER_ENDED.value else row.rung


def boots_of(row: Episode) -> FrozenSet[str]:
    """The boots in which its faults were seen, as far as its row can be read."""
    return frozenset(fault.boot for fault in details.read_or_empty(row.detail).faults if fault.boot)


def is_unrepairable(row: Episode) -> bool:
    """Whether an episode left its node to a person because no repair is known for any of its faults."""
    kept = details.read_or_empty(row.detail)
    ended = row.state == EpisodeState.ESCALATED.value and kept.ended_by == EpisodeEvent.LADDER_ENDED.value
    return ended and bool(kept.faults) and first_rung(kept.faults) is Rung.ESCALATE


def about_of(row: Episode) -> DeviceId:
    """The one accelerator that an episode is about, as far as its row can be read; unknown where it is the node's."""
    return details.read_or_empty(row.detail).about


def _gone(row: Episode) -> bool:
    """Whether an episode has ended since its node was deleted, as far as its row can be read."""
    return row.ended is not None and details.read_or_empty(row.detail).ended_by == EpisodeEvent.NODE_GONE.value


def read_cases(connection: Connection, rows: Sequence[Episode]) -> Tuple[List[EpisodeCase], Dict[int, str]]:
    """Open episodes with their attempts; and by number, why the others cannot be read."""
    by_episode = attempts.attempts_of_open(connection) if rows else {}
    cases, broken = [], {}
    for row in rows:
        try:
            EpisodeState(row.state)
            cases.append(EpisodeCase(row, details.read(row.detail), tuple(by_episode.get(row.id, ()))))
        except ValueError as error:  # BadDetail is one
            broken[row.id] = str(error)
    return cases, broken


def changes(before: Detail, move: Move) -> bool:
    """Whether a move is worth a write. A fault that was seen again, or whose text changed a little, is not."""
    if move.event is not None or move.detail._replace(faults=()) != before._replace(faults=()):
        return True
    return {fault.cause for fault in move.detail.faults} != {fault.cause for fault in before.faults}
