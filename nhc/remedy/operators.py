"""What persons may do to the loop: approve, refuse, abort, hold, release. Each is one transaction with its audit row.

The loop reads these before its next step. If the loop changes an episode at the same moment, one of the two writes
fails and that side reads again. A repair that was already sent cannot be taken back; the answer says so.
"""

from __future__ import annotations

import hashlib
from typing import Callable, NamedTuple

from sqlalchemy.engine import Connection

from nhc.marks.policy.breaker import NAME
from nhc.remedy import detail as details
from nhc.remedy.cases import EpisodeCase, latest
from nhc.remedy.machine import ENDS, EpisodeEvent, EpisodeState, after
from nhc.remedy.records import begin_proof
from nhc.store import attempts, episodes, evidence, holds
from nhc.store.attempts import AttemptStatus
from nhc.store.database import Store
from nhc.store.episodes import EpisodeStep
from nhc.store.errors import RequestRefused

Check = Callable[[Connection, EpisodeCase], None]
"""A further condition on an episode, checked within the transaction; raises an error that says why it is not met."""


def _anybody(_connection: Connection, _case: EpisodeCase) -> None:
    """No further condition: a user who may write to the store may decide."""


def case_of(connection: Connection, number: int) -> EpisodeCase:
    """An episode by its number. Raises RequestRefused."""
    row = episodes.get(connection, number)
    if row is None:
        raise RequestRefused(f"there is no episode {number}")
    return EpisodeCase(row, details.read_or_empty(row.detail), tuple(attempts.attempts_of(connection, number)))


def evidence_digest(connection: Connection, number: int) -> str:
    """A name for all the evidence of an episode: what the person who agreed has seen."""
    pieces = [f"{piece.name} {piece.sha256}" for piece in evidence.of_episode(connection, number)]
    return hashlib.sha256("\n".join(sorted(pieces)).encode()).hexdigest() if pieces else ""


def decide(
    store: Store, number: int, *, by: str, agree: bool, why: str, now: float, check: Check = _anybody
) -> str:  # fmt: skip
    """Agree to an episode's next repair, or refuse it. Returns the answer for that person.

    Raises RequestRefused, StoreError, and what `check` raises.
    """
    with store.write() as connection:
        case = case_of(connection, number)
        check(connection, case)
        if case.state is not EpisodeState.AWAITING_APPROVAL:
            raise RequestRefused(f"episode {number} is {case.state.value}: it waits for nobody's approval")
        attempts.decide(
            connection, case.episode, len(case.attempts) + 1, rung=case.episode.rung, asked=case.detail.asked,
            evidence_digest=evidence_digest(connection, number), by=by,
            decision="approved" if agree else "refused", now=now, reason=why,
        )  # fmt: skip
    what = "agreed to" if agree else "refused"
    return f"{by} {what} {case.episode.rung} of {case.episode.node} (episode {number})"


def abort(store: Store, number: int, *, by: str, why: str, now: float, check: Check = _anybody) -> str:
    """End an episode. Returns the answer for the person. Raises RequestRefused, StoreError, and what `check` raises."""
    with store.write() as connection:
        case = case_of(connection, number)
        check(connection, case)
        if case.episode.train is not None:
            raise RequestRefused(f"episode {number} is maintenance: nhc abort train ends it")
        if case.state in ENDS:
            raise RequestRefused(f"episode {number} has ended already: {case.state.value}")
        answer = f"episode {number} of {case.episode.node} is aborted"
        if case.attempts and case.attempts[-1].is_open:
            last = case.attempts[-1]
            attempts.end_attempt(connection, last, AttemptStatus.SUPERSEDED, now=now, by=by, message=f"aborted: {why}")
            answer += f"; {last.rung} may have been sent and is not taken back"
        detail = case.detail._replace(entered=now, waiting="", because=why)
        following = after(case.state, EpisodeEvent.ABORT)
        episodes.save_step(
            connection,
            case.episode,
            EpisodeStep(by, "episode.aborted", {"because": why}),
            now=now,
            state=following.value,
            ended=now,
            outcome=why,
            detail=detail.text(),
        )
    marked = case.state is not EpisodeState.DETECTED
    return f"{answer}; the node stays out: nhc release remedy {case.episode.node}" if marked else answer


class Released(NamedTuple):
    """What a release did: holds ended, and the episode that was begun to prove the node, 0 for none."""

    holds: int
    episode: int


def release(store: Store, node: str, *, by: str, why: str, now: float) -> Released:
    """End the holds on a node. If its last episode, or the last one of a device, left it to a person, prove the node or
    device and bring it back.

    The new episode begins with the proof: a healthy node is put back if the mark is ours, a faulty one goes through the
    ladder again, within the bounds. Raises StoreError.
    """
    with store.write() as connection:
        ended = holds.release(connection, "node", node, by=by, now=now, why=why)
        rows = episodes.list_episodes(connection, node=node, limit=5)
        if any(row.ended is None for row in rows):
            return Released(len(ended), 0)
        last = next((row for row in latest(rows) if row.state != EpisodeState.RETURNED.value), None)
        if last is None:
            return Released(len(ended), 0)
        row, _new = begin_proof(connection, last, by=by, now=now, because={"released": why})
        return Released(len(ended), row.id)


def close_breaker(store: Store, *, by: str, why: str, now: float) -> bool:
    """Close the breaker; whether it was open. Raises StoreError."""
    with store.write() as connection:
        if not holds.breaker_of(connection, NAME).is_open:
            return False
        holds.set_breaker(connection, NAME, "closed", by=by, why=why, now=now)
    return True


def hold_scope(name: str) -> str:
    """The target of a hold's name: the fleet, a group (`rack=r12`) or a node."""
    return "fleet" if name == "fleet" else "group" if "=" in name else "node"
