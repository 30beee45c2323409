"""Attempts: one destructive call each, written down before it is sent, and the approvals that persons gave for them.

    written ─► sent ─► ended, with one outcome: succeeded, failed, refused, ambiguous, superseded

A loop that finds an attempt `written` or `sent` after its restart does not know what became of the call: it looks for
the effect. An `ambiguous` attempt gets another outcome once its effect has been found.
"""

from __future__ import annotations

from enum import Enum
from typing import List, Mapping, NamedTuple, Optional, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from nhc.model import printable
from nhc.store import audit
from nhc.store.episodes import MESSAGE_LIMIT, REPAIR, Episode
from nhc.store.errors import Conflict
from nhc.store.schema import approvals, attempts, episodes


class AttemptState(str, Enum):
    """How far an attempt is, as far as we know."""

    WRITTEN = "written"
    SENT = "sent"
    ENDED = "ended"


class AttemptOutcome(str, Enum):
    """What an attempt ended in."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REFUSED = "refused"
    AMBIGUOUS = "ambiguous"
    SUPERSEDED = "superseded"


class Attempt(NamedTuple):
    """One row. `key` is the order's, unique for ever; `before` is what was seen before, as JSON."""

    id: int
    episode: int
    number: int
    node: str
    rung: str
    device: str
    repairer: str
    key: str
    state: str
    outcome: str
    message: str
    request_id: str
    before: str
    written: float
    sent: Optional[float]
    ended: Optional[float]


class Approval(NamedTuple):
    """What one person decided of one attempt. `evidence_digest` names what the person was shown."""

    id: int
    episode: int
    attempt_number: int
    rung: str
    asked: float
    evidence_digest: str
    decided_by: str
    decided: float
    decision: str
    reason: str


def write_attempt(
    connection: Connection,
    episode: Episode,
    *,
    rung: str,
    repairer: str,
    key: str,
    now: float,
    by: str,
    device: str = "",
    before: str = "{}",
) -> Attempt:
    """Write down that a call is about to be sent; commit before sending. Numbers count from 1 within an episode.

    Raises Conflict where the episode has an attempt that has not ended: one at a time.
    """
    standing = sa.select(attempts.c.number, attempts.c.state).where(attempts.c.episode == episode.id)
    rows = connection.execute(standing).all()
    unfinished = [row.number for row in rows if row.state != AttemptState.ENDED.value]
    if unfinished:
        raise Conflict(f"episode {episode.id} of {episode.node}: attempt {unfinished[0]} has not ended")
    number = max((row.number for row in rows), default=0) + 1
    made = sa.insert(attempts).values(
        episode=episode.id, number=number, node=episode.node, rung=rung, device=device, repairer=repairer, key=key,
        state=AttemptState.WRITTEN.value, before=before, written=now,
    )  # fmt: skip
    connection.execute(made)
    recorded = {"number": number, "rung": rung, "device": device, "repairer": repairer, "key": key}
    audit.append(connection, now, by, "attempt.written", node=episode.node, episode=episode.id, detail=recorded)
    return _by_key(connection, key)


def mark_sent(
    connection: Connection, attempt: Attempt, *, now: float, by: str, request_id: str = "", message: str = ""
) -> Attempt:
    """The other side has accepted the call, under this name. Raises Conflict where it was not just `written`."""
    values = {
        "state": AttemptState.SENT.value, "sent": now, "request_id": printable(request_id, MESSAGE_LIMIT),
        "message": printable(message, MESSAGE_LIMIT),
    }  # fmt: skip
    _change(connection, attempt, (AttemptState.WRITTEN,), values)
    recorded = {"number": attempt.number, "request_id": values["request_id"], "message": values["message"]}
    audit.append(connection, now, by, "attempt.sent", node=attempt.node, episode=attempt.episode, detail=recorded)
    return _by_key(connection, attempt.key)


def end_attempt(
    connection: Connection, attempt: Attempt, outcome: AttemptOutcome, *, now: float, by: str, message: str = ""
) -> Attempt:
    """The attempt ended so. One that ended `ambiguous` may be resolved into another outcome, no other may change."""
    if attempt.state == AttemptState.ENDED.value and attempt.outcome != AttemptOutcome.AMBIGUOUS.value:
        raise Conflict(f"attempt {attempt.number} of episode {attempt.episode} ended {attempt.outcome} already")
    values = {
        "state": AttemptState.ENDED.value, "outcome": outcome.value, "ended": now,
        "message": printable(message, MESSAGE_LIMIT),
    }  # fmt: skip
    _change(connection, attempt, (AttemptState(attempt.state),), values)
    recorded = {"number": attempt.number, "rung": attempt.rung, "outcome": outcome.value, "message": values["message"]}
    audit.append(connection, now, by, "attempt.ended", node=attempt.node, episode=attempt.episode, detail=recorded)
    return _by_key(connection, attempt.key)


def attempts_of(connection: Connection, episode: int) -> List[Attempt]:
    """The attempts of an episode, in their order."""
    asked = sa.select(attempts).where(attempts.c.episode == episode).order_by(attempts.c.number)
    return [Attempt._make(row) for row in connection.execute(asked)]


def attempts_since(
    connection: Connection, since: float, nodes: Optional[Sequence[str]] = None, maintenance: bool = False
) -> List[Attempt]:  # fmt: skip
    """The repairs written since then, of these nodes or of all: what rates and windows are counted from.

    `maintenance` takes its work as well.
    """
    asked = sa.select(attempts).where(attempts.c.written >= since)
    if not maintenance:
        asked = asked.join(episodes, episodes.c.id == attempts.c.episode).where(REPAIR)
    if nodes is not None:
        asked = asked.where(attempts.c.node.in_(nodes))
    # Asked for their order, SQLite reads all that ever were, rather than sort these.
    return sorted((Attempt._make(row) for row in connection.execute(asked)), key=lambda one: one.id)


def attempts_of_open(connection: Connection) -> List[Attempt]:
    """The attempts of all open episodes, in the order in which they were written.

    By their episode, never by their time: a clock that was set back has written attempts "before" their episode began.
    """
    standing = sa.select(episodes.c.id).where(episodes.c.ended.is_(None))
    found = connection.execute(sa.select(attempts).where(attempts.c.episode.in_(standing)))
    return sorted((Attempt._make(row) for row in found), key=lambda one: one.id)


def unfinished(connection: Connection) -> List[Attempt]:
    """Every attempt that has not ended: what a restart has to look after first."""
    asked = sa.select(attempts).where(attempts.c.state != AttemptState.ENDED.value).order_by(attempts.c.id)
    return [Attempt._make(row) for row in connection.execute(asked)]


def decide(
    connection: Connection,
    episode: Episode,
    number: int,
    *,
    rung: str,
    asked: float,
    evidence_digest: str,
    by: str,
    decision: str,
    now: float,
    reason: str = "",
) -> Approval:
    """Write down what a person decided of an attempt: `approved` or `refused`, once for each time that it is asked.

    What the same person decided of an earlier question stays in the audit log alone. Raises Conflict where the question
    was answered by this person before.
    """
    same = sa.and_(
        approvals.c.episode == episode.id, approvals.c.attempt_number == number, approvals.c.decided_by == by
    )
    before = connection.execute(sa.select(approvals.c.asked, approvals.c.rung).where(same)).first()
    if before is not None and (before.asked, before.rung) == (asked, rung):
        raise Conflict(f"{by} has decided on attempt {number} of episode {episode.id} before: it takes another person")
    values = {
        "episode": episode.id, "attempt_number": number, "rung": rung, "asked": asked,
        "evidence_digest": evidence_digest, "decided_by": by, "decided": now, "decision": decision,
        "reason": printable(reason, MESSAGE_LIMIT),
    }  # fmt: skip
    if before is not None:
        connection.execute(sa.delete(approvals).where(same))
    connection.execute(sa.insert(approvals).values(values))
    recorded = {"number": number, "rung": rung, "evidence": evidence_digest, "reason": values["reason"]}
    audit.append(connection, now, by, f"approval.{decision}", node=episode.node, episode=episode.id, detail=recorded)
    return Approval._make(connection.execute(sa.select(approvals).where(same)).one())


def decisions(connection: Connection, episode: int, number: Optional[int] = None) -> List[Approval]:
    """What persons decided of an episode, or of one of its attempts, in their order."""
    asked = sa.select(approvals).where(approvals.c.episode == episode)
    if number is not None:
        asked = asked.where(approvals.c.attempt_number == number)
    return [Approval._make(row) for row in connection.execute(asked.order_by(approvals.c.id))]


def _change(
    connection: Connection, attempt: Attempt, states: Sequence[AttemptState], values: Mapping[str, object]
) -> None:
    same = sa.and_(
        attempts.c.id == attempt.id,
        attempts.c.state.in_([state.value for state in states]),
        attempts.c.outcome == attempt.outcome,
    )
    if connection.execute(sa.update(attempts).where(same).values(values)).rowcount != 1:
        raise Conflict(f"attempt {attempt.number} of episode {attempt.episode} was changed by another")


def _by_key(connection: Connection, key: str) -> Attempt:
    return Attempt._make(connection.execute(sa.select(attempts).where(attempts.c.key == key)).one())
