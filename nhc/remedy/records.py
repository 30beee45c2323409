"""Writes the loop's moves to the store, each with its attempts and audit rows in one transaction.

A move is stored before it is acted on. If somebody else (a person, another leader) changed the episode since it was
read, the move is dropped: the next round reads again and decides again.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from typing import Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional, Protocol, Sequence, Tuple, Union

from sqlalchemy.engine import Connection

from nhc.marks.ports.repair import LADDER, Sighting
from nhc.remedy import detail as details
from nhc.remedy.admit import Admission
from nhc.remedy.cases import EpisodeCase, Written, read_cases
from nhc.remedy.detail import Detail
from nhc.remedy.final_check import PUT_BACK, REGISTERED_ANEW
from nhc.remedy.ladder import first_rung
from nhc.remedy.machine import ENDS, NOT_BEGUN, EpisodeEvent, EpisodeState, after
from nhc.remedy.view import Consent, Move
from nhc.store import attempts, audit, ended_episodes, episodes
from nhc.store.attempts import ENDED, Approval, Attempt, AttemptStatus
from nhc.store.database import Fence, Store
from nhc.store.episodes import Episode, EpisodeChange, EpisodeStep, OpeningEpisode
from nhc.store.errors import Conflict
from nhc.store.rounds.loop import chunks

ACTOR = "nhc remedy"


class EpisodeShare(Protocol):
    """The owner of these episodes: the repairs of the site, or the nodes of one train."""

    def train(self, connection: Connection) -> Optional[int]:
        """The train's number, None for repairs. Raises Conflict if it is gone."""
        ...

    def rows(self, connection: Connection) -> List[Episode]:
        """The open ones."""
        ...

    def completed(self, case: EpisodeCase) -> EpisodeCase:
        """A case with what is not in its row."""
        ...

    def beside(self, connection: Connection, case: EpisodeCase, move: Move, now: float) -> Detail:
        """The detail to store with a move, after everything else in its transaction was written. Raises Conflict, and
        has then written nothing.
        """
        ...


class OfRepairs:
    """All repairs."""

    @staticmethod
    def train(_connection: Connection) -> Optional[int]:
        """See EpisodeShare."""
        return None

    @staticmethod
    def rows(connection: Connection) -> List[Episode]:
        """See EpisodeShare."""
        return episodes.list_episodes(connection, is_open=True)

    @staticmethod
    def completed(case: EpisodeCase) -> EpisodeCase:
        """See EpisodeShare."""
        return case

    @staticmethod
    def beside(_connection: Connection, _case: EpisodeCase, move: Move, _now: float) -> Detail:
        """See EpisodeShare."""
        return move.detail


class Records:
    """The store as one flow of episodes uses it."""

    def __init__(
        self, store: Store, fence: Optional[Fence] = None, actor: str = ACTOR, share: Optional[EpisodeShare] = None
    ) -> None:
        self.store, self.fence, self.actor = store, fence, actor
        self.share: EpisodeShare = share or OfRepairs()
        self._others: FrozenSet[Tuple[int, bool]] = frozenset()
        self.broken: Dict[int, str] = {}
        """Episodes whose detail cannot be read, and why: nothing is done with them."""

    # Reading.

    def note_others(self, connection: Connection) -> List[EpisodeCase]:
        """The nodes that other processes have taken out: for the loop those of all trains, for a train those of the
        loop and of other trains.

        The loop and each train are separate processes that share the same bounds. Each counts in its own read and
        writes later, so two of them could both take the last place. `save` compares: if anything has begun since, it
        writes nothing that uses the bounds. Call this before the bounds are counted.
        """
        cases, _broken = self._beside(connection)
        self._others = _taken(cases)
        return cases

    def _beside(self, connection: Connection) -> Tuple[List[EpisodeCase], Dict[int, str]]:
        before = [state.value for state in NOT_BEGUN]
        return read_cases(connection, episodes.out_beside(connection, self.share.train(connection), before))

    def _has_grown(self, connection: Connection) -> bool:
        """Whether others have begun anything since they were noted. They cannot begin anything until this transaction
        ends.
        """
        audit.lock(connection)
        noted = self._others | {(number, False) for number, at_work in self._others if at_work}
        return not _taken(self._beside(connection)[0]) <= noted

    def cases(self, connection: Connection) -> List[EpisodeCase]:
        """The open episodes. An episode whose detail makes no sense is left out and named in `broken`."""
        cases, self.broken = read_cases(connection, self.share.rows(connection))
        return [self.share.completed(case) for case in cases]

    @staticmethod
    def consents(connection: Connection, cases: Sequence[EpisodeCase]) -> Dict[int, Consent]:
        """Persons' decisions on the attempts that would be next, as they are requested now; by episode."""
        decided = attempts.decisions_of(connection, [case.episode.id for case in cases])
        return {case.episode.id: _consent(case, decided.get(case.episode.id, [])) for case in cases}

    # Writing.

    def ask_lead(self) -> None:
        """Check the lead right before an action that writes nothing here: this process may have been paused since it
        decided. Raises LeadershipLost, StoreError.
        """
        with self.store.write(self.fence):
            pass

    def admit(self, admissions: Iterable[Admission], now: float) -> List[Episode]:
        """Open episodes, and let faults join open ones. Returns the episodes that were opened.

        The worst are opened first, and so they are the first to be marked: those that need the hardest repair, then
        those with the most faults.
        """
        opened: List[Episode] = []
        todo = [admission for admission in admissions if not admission.refused and admission.faults]
        for chunk in chunks(sorted(todo, key=_worst_first)):
            with self.store.write(self.fence) as connection, audit.together(connection):
                for admission in chunk:
                    self._join(connection, admission, now)
                new = [self._opening(admission, now) for admission in chunk if admission.joins is None]
                opened += episodes.open_episodes(connection, new, now=now, by=self.actor)
        return opened

    def _join(self, connection: Connection, admission: Admission, now: float) -> None:
        row = episodes.get(connection, admission.joins) if admission.joins is not None else None
        if row is None or row.ended is not None:
            return
        try:
            after_it = details.read(row.detail).joined(admission.faults)
        except details.BadDetail:
            return  # nothing is done with it, and `cases` names it; other nodes do not wait for it
        faults = {"faults": [fault.cause for fault in admission.faults]}
        episodes.save_step(
            connection, row, EpisodeStep(self.actor, "episode.joined", faults), now=now, detail=after_it.text()
        )

    @staticmethod
    def _opening(admission: Admission, now: float) -> OpeningEpisode:
        first = admission.faults[0]
        detail = Detail(entered=now, about=admission.about).joined(admission.faults)
        return OpeningEpisode(
            admission.node, first.cause, first_rung(admission.faults).value, EpisodeState.DETECTED.value,
            detail.text(), {"message": first.message, "seen": first.seen, "source": first.source,
             **({"device": str(admission.about)} if admission.about.known else {})},
        )  # fmt: skip

    def left_out(self) -> List[Episode]:
        """The last episodes of nodes that were left to a person, if they left the whole node out of service."""
        with self.store.read() as connection:
            return [row for row in ended_episodes.left_to_operators(connection) if _left_out(row)]

    def put_back(self, rows: Sequence[Episode], now: float, uids: Mapping[str, str]) -> List[Written]:
        """End the episodes that were left to persons, if they have put the nodes back into service. Returns the stored
        moves. `uids` are the nodes' current registrations: a node that was deleted and registered again was not put
        back by anybody.

        An ended episode stays as it is: a new one for the lost mark follows it, as with `nhc release remedy`.
        """
        written: List[Written] = []
        detail = Detail(entered=now)
        lost = Move(EpisodeEvent.MARK_LOST, detail, PUT_BACK)
        gone = Move(EpisodeEvent.NODE_GONE, detail, REGISTERED_ANEW)
        anew = {row.node for row in rows if details.read_or_empty(row.detail).marked_another(uids[row.node])}
        for chunk in chunks(rows):
            opening = [
                OpeningEpisode(row.node, row.cause, row.action, EpisodeState.MARKED.value, because={"after": row.id})
                for row in chunk
            ]
            with self.store.write(self.fence) as connection, audit.together(connection):
                opened = episodes.open_episodes(connection, opening, now=now, by=self.actor)
                moves = [(EpisodeCase(row, detail), gone if row.node in anew else lost) for row in opened]
                written += self._save(connection, moves, now)
        return written

    def prove_again(self, rows: Sequence[Episode], now: float) -> None:
        """Begin the proof of nodes that were left to persons and whose faults have ended since."""
        because = {"recovered": "its faults have ended, and nothing was done about them"}
        for chunk in chunks(rows):
            with self.store.write(self.fence) as connection, audit.together(connection):
                for row in chunk:
                    begin_proof(connection, row, by=self.actor, now=now, because=because)

    def save(
        self, moves: Sequence[Tuple[EpisodeCase, Move]], now: float, sightings: Mapping[int, Sighting] = {}
    ) -> List[Written]:
        """Store moves. Returns those that are in the store afterwards. `sightings` are for the moves that begin an
        attempt.

        If others have used the bounds since they were counted, no move that uses the bounds is written.
        """
        return [written for chunk in chunks(moves) for written in self._save_chunk(chunk, now, sightings)]

    def _save_chunk(
        self, moves: Sequence[Tuple[EpisodeCase, Move]], now: float, sightings: Mapping[int, Sighting]
    ) -> List[Written]:
        with self.store.write(self.fence) as connection:
            taking = any(_takes_room(move) for _case, move in moves)
            late = taking and self._has_grown(connection)
            todo = [(case, move) for case, move in moves if not (late and _takes_room(move))]
            return self._save(connection, todo, now, sightings)

    def _save(
        self, connection: Connection, moves: Sequence[Tuple[EpisodeCase, Move]], now: float,
        sightings: Mapping[int, Sighting] = {},
    ) -> List[Written]:  # fmt: skip
        """Write moves of different episodes with one statement per table. A move is dropped if its episode was changed
        before.
        """
        changed = [case.episode.id for case, move in moves if move.begins or move.ends is not None]
        standing = attempts.standing(connection, changed)
        as_read = episodes.lock_as_read(connection, [case.episode for case, _move in moves])
        steps, written = [], []
        with audit.together(connection):
            for case, move in moves:
                if case.episode.id in as_read and _attempts_as_read(case, move, standing.get(case.episode.id, [])):
                    with contextlib.suppress(Conflict):
                        steps.append(
                            _step(case, move, self.share.beside(connection, case, move, now), now, self.actor)
                        )  # fmt: skip
            rows = episodes.change_all(connection, [step.change for step in steps], now)
            attempts.update_all(connection, [step.ended for step in steps if step.ended is not None])
            begun = {attempt.episode: attempt for attempt in attempts.insert_all(connection, [
                _begun(step, row, sightings.get(row.id) or Sighting(now), now)
                for step, row in zip(steps, rows) if step.move.begins
            ])}  # fmt: skip
            for step, row in zip(steps, rows):
                tries = list(step.case.attempts)
                if step.ended is not None:
                    tries[-1] = step.ended
                    attempts.record_ended(connection, step.ended, now, self.actor)
                episodes.record(connection, step.change, row, now)
                if row.id in begun:
                    tries.append(begun[row.id])
                    attempts.record_written(connection, begun[row.id], now, self.actor)
                after_it = step.case._replace(episode=row, detail=step.detail, attempts=tuple(tries))
                written.append(Written(after_it, step.move, step.case.state))
        return written

    def accepted(self, case: EpisodeCase, move: Move, message: str, request: str, now: float) -> Optional[EpisodeCase]:
        """Store that the other side accepted the attempt, with the move that follows; None if a person was first."""
        with self.store.write(self.fence) as connection:
            attempt = case.attempts[-1]
            try:
                with connection.begin_nested(), audit.together(connection):
                    sent = attempts.mark_sent(
                        connection, attempt, now=now, by=self.actor, request_id=request, message=message
                    )
                    written = self._save(connection, [(case, move)], now)
                    if not written:
                        raise Conflict(f"episode {case.episode.id} was changed by another")
                    return written[0].case._replace(attempts=(*case.attempts[:-1], sent))
            except Conflict:
                recorded = {"number": attempt.number, "message": message, "request_id": request}
                audit.append(connection, now, self.actor, "attempt.late-answer", node=attempt.node,
                             episode=attempt.episode, detail=recorded)  # fmt: skip
                return None


def begin_proof(
    connection: Connection, last: Episode, *, by: str, now: float, because: Mapping[str, object]
) -> Tuple[Episode, bool]:
    """Open the episode that proves a node (or its device) that the last episode left to a person, and puts it back;
    False if another episode is open.
    """
    before = details.read_or_empty(last.detail)
    about = before.about if before.about.known else before.widened  # which carries our mark still
    return episodes.open_episode(
        connection, last.node, last.cause, action=last.action, state=EpisodeState.VERIFYING.value, now=now, by=by,
        detail=Detail(entered=now, marked=now, about=about).text(), because={**because, "after": last.id},
    )  # fmt: skip


def _left_out(row: Episode) -> bool:
    """Whether an episode that was left to a person has left the whole node out of service."""
    kept = details.read_or_empty(row.detail)
    return bool(kept.marked) and not kept.about.known


def _consent(case: EpisodeCase, decided: Sequence[Approval]) -> Consent:
    """Persons' decision on the current request. An approval of the reset of another device, or of a plan that a
    recovery has ended since, does not count. An approval of an attempt that was never begun counts for the next one.
    """
    question = (case.episode.rung, case.detail.asked)
    numbers = {len(case.attempts) + 1, *case.detail.unsent}
    own = [row for row in decided if row.attempt_number in numbers and (row.rung, row.asked) == question]
    refused = next((row.decided_by for row in own if row.decision != "approved"), "")
    agreed = dict.fromkeys(row.decided_by for row in own if row.decision == "approved")
    return Consent(tuple(agreed), refused)


class _MoveRows(NamedTuple):
    """What a move writes: the episode's change, its detail after it, and the attempt that it ends."""

    case: EpisodeCase
    move: Move
    change: EpisodeChange
    detail: Detail
    ended: Optional[Attempt]


def _step(case: EpisodeCase, move: Move, detail: Detail, now: float, actor: str) -> _MoveRows:
    changed: Dict[str, Union[str, float, None]] = {}
    what = "episode.stalled" if detail.alarmed and not case.detail.alarmed else "episode.waits"
    if move.event is not None:
        following = after(case.state, move.event)
        what = f"episode.{following.value}"
        detail = detail._replace(entered=now)
        changed["state"] = following.value
        if following in ENDS:
            detail = detail._replace(because=move.because, ended_by=move.event.value)
            changed["ended"], changed["outcome"] = now, move.because
    if move.rung is not None:
        changed["rung"] = move.rung.value
    changed["detail"] = detail.text()
    recorded = {"event": move.event.value if move.event else "", "because": move.because, **move.recorded}
    outcome = _outcome(case, move)
    ended = attempts.ended(case.attempts[-1], outcome, now, move.because) if outcome is not None else None
    return _MoveRows(
        case, move, EpisodeChange(case.episode, EpisodeStep(actor, what, recorded), changed), detail, ended
    )


def _outcome(case: EpisodeCase, move: Move) -> Optional[AttemptStatus]:
    """How a move ends the attempt that is under way, None if it does not, or if none is."""
    return move.ends if case.attempts and case.attempts[-1].is_open else None


def _attempts_as_read(case: EpisodeCase, move: Move, rows: Sequence[Attempt]) -> bool:
    """Whether the last attempt is unchanged if the move ends it, and no attempt is open if the move begins one."""
    ends = _outcome(case, move) is not None
    if ends and not any(attempts.is_as_read(case.attempts[-1], row) for row in rows):
        return False
    unfinished = [row for row in rows if row.state != ENDED]
    return not move.begins or all(ends and row.id == case.attempts[-1].id for row in unfinished)


def _begun(step: _MoveRows, row: Episode, sighting: Sighting, now: float) -> Attempt:
    before = json.dumps(sighting._asdict(), sort_keys=True)
    return attempts.next_attempt(
        row, step.case.attempts, rung=row.rung, device=step.detail.device, repairer=step.detail.repairer,
        key=str(uuid.uuid4()), now=now, before=before,
    )  # fmt: skip


def _worst_first(admission: Admission) -> Tuple[int, int, str]:
    return (-LADDER.index(first_rung(admission.faults)), -len(admission.faults), admission.node)


def _taken(cases: Iterable[EpisodeCase]) -> FrozenSet[Tuple[int, bool]]:
    """Episodes that use the bounds, and whether they count as under repair."""
    return frozenset((case.episode.id, case.at_work) for case in cases)


def _takes_room(move: Move) -> bool:
    return move.begins or move.event is EpisodeEvent.MARK_ALLOWED
