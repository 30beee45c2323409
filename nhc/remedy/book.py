"""Writes the loop's moves to the store, each with its attempts and audit rows in one transaction.

A move is written before anything that follows from it is done. Where somebody else (a person with `nhc remedy`, another
leader) changed the episode since it was read, the move is dropped: the next round reads again and decides again.
"""

from __future__ import annotations

import json
import uuid
from typing import Dict, FrozenSet, Iterable, List, NamedTuple, Optional, Sequence, Tuple, TypeVar, Union

from sqlalchemy.engine import Connection

from nhc.ports.repair import Rung, Sighting
from nhc.remedy import detail as details
from nhc.remedy.admit import Admission, NodeEpisode, opening
from nhc.remedy.detail import Detail
from nhc.remedy.ladder import first_rung
from nhc.remedy.machine import ENDS, NOT_BEGUN, OUT, REPAIRING, AttemptStatus, EpisodeEvent, EpisodeState, after
from nhc.remedy.settings import Work
from nhc.remedy.view import Consent, EpisodeView, Move, Try
from nhc.store import attempts, audit, episodes
from nhc.store.attempts import Attempt, AttemptOutcome
from nhc.store.database import Fence, Store
from nhc.store.episodes import Episode, EpisodeStep
from nhc.store.errors import Conflict

T = TypeVar("T")
ACTOR = "nhc remedy"
CHUNK = 200
"""Moves in one transaction: others write too, and SQLite has one writer at a time."""

ENDINGS = {
    AttemptStatus.SUCCEEDED: AttemptOutcome.SUCCEEDED, AttemptStatus.FAILED: AttemptOutcome.FAILED,
    AttemptStatus.REFUSED: AttemptOutcome.REFUSED, AttemptStatus.AMBIGUOUS: AttemptOutcome.AMBIGUOUS,
    AttemptStatus.SUPERSEDED: AttemptOutcome.SUPERSEDED,
}  # fmt: skip


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


class Book:
    """The store as the loop uses it."""

    def __init__(self, store: Store, fence: Optional[Fence] = None, actor: str = ACTOR) -> None:
        self.store, self.fence, self.actor = store, fence, actor
        self._others: FrozenSet[Tuple[int, bool]] = frozenset()
        self.broken: Dict[int, str] = {}
        """Episodes whose detail cannot be read, and why: nothing is done with them."""

    # Reading.

    def train(self, connection: Connection) -> Optional[int]:
        """The train whose episodes these are, None for repairs."""
        del connection
        return None

    def note_others(self, connection: Connection) -> List[EpisodeCase]:
        """The nodes that other processes have out: for the loop all trains', for a train the loop's and other trains'.

        The loop and each train are processes of their own, and spend from the same bounds. Each counts in a read of its
        own and writes later, so two of them could both take the last place. `save` compares: where anything has begun
        since, it writes nothing that takes of the bounds. Call this before those are counted.
        """
        found, _broken = self._beside(connection)
        self._others = _taken(found)
        return found

    def _beside(self, connection: Connection) -> Tuple[List[EpisodeCase], Dict[int, str]]:
        before = [state.value for state in NOT_BEGUN]
        return read_cases(connection, episodes.out_beside(connection, self.train(connection), before))

    def _has_grown(self, connection: Connection) -> bool:
        """Whether others have begun anything since they were noted; nobody does until this transaction ends."""
        audit.lock(connection)
        noted = self._others | {(number, False) for number, at_work in self._others if at_work}
        return not _taken(self._beside(connection)[0]) <= noted

    def cases(self, connection: Connection) -> List[EpisodeCase]:
        """The open episodes. One whose detail makes no sense is left out and named in `broken`."""
        found, self.broken = read_cases(connection, episodes.list_episodes(connection, is_open=True))
        return found

    def case(self, connection: Connection, number: int) -> Optional[EpisodeCase]:
        """One episode, open or ended. Raises BadDetail."""
        row = episodes.get(connection, number)
        if row is None:
            return None
        return EpisodeCase(row, details.read(row.detail), tuple(attempts.attempts_of(connection, number)))

    @staticmethod
    def consent(connection: Connection, case: EpisodeCase) -> Consent:
        """What persons decided of the attempt that would be next, as it is asked for now: who agreed to a reset of one
        device, or to a plan of yesterday that a recovery has ended, has not agreed to this one. Who agreed to an
        attempt that was never begun has agreed to the next.
        """
        question = (case.episode.rung, case.detail.asked)
        numbers = [len(case.attempts) + 1]
        numbers += [one.number for one in case.attempts if one.number in case.detail.unsent]
        found = [one for number in numbers for one in attempts.decisions(connection, case.episode.id, number)
                 if (one.rung, one.asked) == question]  # fmt: skip
        refused = next((one.decided_by for one in found if one.decision != "approved"), "")
        agreed = dict.fromkeys(one.decided_by for one in found if one.decision == "approved")
        return Consent(tuple(agreed), refused)

    # Writing.

    def admit(self, admissions: Iterable[Admission], now: float) -> List[Episode]:
        """Open episodes, and let faults join open ones; the episodes that were opened."""
        found: List[Episode] = []
        todo = [one for one in admissions if not one.refused and one.faults]
        for chunk in _chunks(todo):
            with self.store.write(self.fence) as connection:
                for one in chunk:
                    found += self._admit(connection, one, now)
        return found

    def _admit(self, connection: Connection, one: Admission, now: float) -> List[Episode]:
        if one.joins is not None:
            row = episodes.get(connection, one.joins)
            if row is not None and row.ended is None:
                try:
                    after_it = details.read(row.detail).joined(one.faults)
                except details.BadDetail:
                    return []  # nothing is done with it, and `cases` names it; the other nodes do not wait for it
                faults = {"faults": [fault.cause for fault in one.faults]}
                episodes.save_step(
                    connection, row, EpisodeStep(self.actor, "episode.joined", faults), now=now, detail=after_it.text()
                )
            return []
        first = one.faults[0]
        with connection.begin_nested():
            row, new = episodes.open_episode(
                connection,
                one.node,
                first.cause,
                action=first_rung(one.faults).value,
                state=EpisodeState.DETECTED.value,
                now=now,
                by=self.actor,
                detail=opening(one.faults, now).text(),
                because={"message": first.message, "seen": first.seen, "source": first.source},
            )
        return [row] if new else []

    def save(
        self, moves: Sequence[Tuple[EpisodeCase, Move]], now: float, sightings: Dict[int, Sighting]
    ) -> List[Written]:
        """Write moves down; those that are in the store afterwards. `sightings` are of those that begin an attempt.

        Where others have taken of the bounds since they were counted, nothing that takes of them is written.
        """
        found: List[Written] = []
        for chunk in _chunks(moves):
            with self.store.write(self.fence) as connection:
                taking = any(_takes_room(move) for _case, move in chunk)
                late = taking and self._has_grown(connection)
                for case, move in chunk:
                    if late and _takes_room(move):
                        continue
                    try:
                        with connection.begin_nested():
                            after_it = self._save(connection, case, move, now, sightings.get(case.episode.id))
                    except Conflict:
                        continue
                    found.append(Written(after_it, move, case.state))
        return found

    def _save(
        self, connection: Connection, case: EpisodeCase, move: Move, now: float, sighting: Optional[Sighting]
    ) -> EpisodeCase:
        tries = list(case.attempts)
        if move.ends is not None and tries and is_open(tries[-1]):
            tries[-1] = attempts.end_attempt(
                connection, tries[-1], ENDINGS[move.ends], now=now, by=self.actor, message=move.because
            )
        detail = self._beside_it(connection, case, move, now)
        changes: Dict[str, Union[str, float, None]] = {}
        what = "episode.waits"
        if detail.alarmed and not case.detail.alarmed:
            what = "episode.stalled"
        if move.event is not None:
            following = after(case.state, move.event)
            what = f"episode.{following.value}"
            detail = detail._replace(entered=now)
            changes["state"] = following.value
            if following in ENDS:
                detail = detail._replace(because=move.because, ended_by=move.event.value)
                changes["ended"], changes["outcome"] = now, move.because
        if move.rung is not None:
            changes["rung"] = move.rung.value
        recorded = {"event": move.event.value if move.event else "", "because": move.because, **move.recorded}
        row = episodes.save_step(
            connection, case.episode, EpisodeStep(self.actor, what, recorded), now=now, detail=detail.text(), **changes
        )
        if move.begins:
            before = json.dumps((sighting or Sighting(now))._asdict(), sort_keys=True)
            tries.append(attempts.write_attempt(
                connection, row, rung=row.rung, device=detail.device, repairer=detail.repairer, key=str(uuid.uuid4()),
                now=now, by=self.actor, before=before,
            ))  # fmt: skip
        return case._replace(episode=row, detail=detail, attempts=tuple(tries))

    def _beside_it(self, connection: Connection, case: EpisodeCase, move: Move, now: float) -> Detail:
        """The detail to keep with a move, after what else belongs into its transaction. Raises Conflict."""
        del connection, case, now
        return move.detail

    def accepted(self, case: EpisodeCase, move: Move, message: str, request: str, now: float) -> Optional[EpisodeCase]:
        """Write down that the other side took the attempt, with the move that follows; None if a person was first."""
        with self.store.write(self.fence) as connection:
            attempt = case.attempts[-1]
            try:
                with connection.begin_nested():
                    sent = attempts.mark_sent(
                        connection, attempt, now=now, by=self.actor, request_id=request, message=message
                    )
                    after_it = self._save(connection, case, move, now, None)
                    return after_it._replace(attempts=(*case.attempts[:-1], sent))
            except Conflict:
                recorded = {"number": attempt.number, "message": message, "request_id": request}
                audit.append(connection, now, self.actor, "attempt.late-answer", node=attempt.node,
                             episode=attempt.episode, detail=recorded)  # fmt: skip
                return None


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
        found[row.node] = NodeEpisode(row.id, EpisodeState(row.state), row.ended, causes_of(row), gone)
    return found


def causes_of(row: Episode) -> Tuple[str, ...]:
    """What an episode is for, as far as its row can be read."""
    try:
        return (*(one.cause for one in details.read(row.detail).faults), row.cause)
    except details.BadDetail:
        return (row.cause,)


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


def _taken(cases: Iterable[EpisodeCase]) -> FrozenSet[Tuple[int, bool]]:
    """Episodes that take of the bounds, and whether they count as under repair."""
    return frozenset((case.episode.id, case.at_work) for case in cases)


def _takes_room(move: Move) -> bool:
    return move.begins or move.event is EpisodeEvent.MARK_ALLOWED


def changes(before: Detail, move: Move) -> bool:
    """Whether a move is worth a write. That a fault was seen again, or reads a little otherwise, is not."""
    if move.event is not None or move.detail._replace(faults=()) != before._replace(faults=()):
        return True
    return {one.cause for one in move.detail.faults} != {one.cause for one in before.faults}


def _chunks(found: Sequence[T]) -> Iterable[Sequence[T]]:
    return (found[at : at + CHUNK] for at in range(0, len(found), CHUNK))
