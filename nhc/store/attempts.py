"""Attempts: one destructive call each, written down before it is sent, and the approvals that persons gave for them.

    written ─► sent ─► ended, with one outcome: succeeded, failed, refused, ambiguous, superseded

A loop that finds an attempt `written` or `sent` after its restart does not know the result of the call: it looks for
the effect. An `ambiguous` attempt gets a different outcome once its effect has been found.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from nhc.core.model import printable
from nhc.store import audit
from nhc.store.episodes import MESSAGE_LIMIT, Episode
from nhc.store.errors import Conflict
from nhc.store.schema import approvals, attempts, batches, episodes

ENDED = "ended"
"""The state of a row that has an outcome."""


class AttemptStatus(str, Enum):
    """The known state of one attempt: the state of its row, or its outcome once it has ended.

    AMBIGUOUS is not final: nhc looks for the effect, and changes the attempt to another outcome.
    """

    WRITTEN = "written"
    SENT = "sent"
    AMBIGUOUS = "ambiguous"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REFUSED = "refused"
    SUPERSEDED = "superseded"


class Attempt(NamedTuple):
    """One row. `key` is the order's, unique for ever; `before` is what was seen before it, as JSON."""

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

    @property
    def status(self) -> AttemptStatus:
        """Its outcome; its state while it has none."""
        return AttemptStatus(self.outcome or self.state)

    @property
    def is_open(self) -> bool:
        """Whether nhc still has to watch it."""
        return self.status in (AttemptStatus.WRITTEN, AttemptStatus.SENT, AttemptStatus.AMBIGUOUS)


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


def next_attempt(
    episode: Episode, earlier: Sequence[Attempt], *, rung: str, repairer: str, key: str, now: float, device: str,
    before: str,
) -> Attempt:  # fmt: skip
    """The attempt that follows an episode's `earlier` ones, numbered from 1; `insert_all` gives it its id."""
    number = max((attempt.number for attempt in earlier), default=0) + 1
    return Attempt(
        0, episode.id, number, episode.node, rung, device, repairer, key, AttemptStatus.WRITTEN.value, "", "", "",
        before, now, None, None,
    )  # fmt: skip


def insert_all(connection: Connection, new: Sequence[Attempt]) -> List[Attempt]:
    """Write down that calls are about to be sent, with one statement; commit before sending. `record_written` must
    follow for each, in the same transaction.
    """
    if not new:
        return []
    values = [{name: value for name, value in attempt._asdict().items() if name != "id"} for attempt in new]
    rows = connection.execute(_INSERT, values)
    numbers = {row.key: row.id for row in rows}
    return [attempt._replace(id=numbers[attempt.key]) for attempt in new]


def record_written(connection: Connection, attempt: Attempt, now: float, by: str) -> None:
    """Write down in the audit log that a call is about to be sent."""
    recorded = {"number": attempt.number, "rung": attempt.rung, "device": attempt.device, "repairer": attempt.repairer,
                "key": attempt.key}  # fmt: skip
    audit.append(connection, now, by, "attempt.written", node=attempt.node, episode=attempt.episode, detail=recorded)


def mark_sent(
    connection: Connection, attempt: Attempt, *, now: float, by: str, request_id: str = "", message: str = ""
) -> Attempt:
    """The other side has accepted the call, under this name. Raises Conflict if its state was not `written`."""
    if attempt.state != AttemptStatus.WRITTEN.value:
        raise _changed(attempt)
    after = attempt._replace(
        state=AttemptStatus.SENT.value, sent=now, request_id=printable(request_id, MESSAGE_LIMIT),
        message=printable(message, MESSAGE_LIMIT),
    )  # fmt: skip
    _change(connection, attempt, after)
    recorded = {"number": attempt.number, "request_id": after.request_id, "message": after.message}
    audit.append(connection, now, by, "attempt.sent", node=attempt.node, episode=attempt.episode, detail=recorded)
    return after


def end_attempt(
    connection: Connection, attempt: Attempt, outcome: AttemptStatus, *, now: float, by: str, message: str = ""
) -> Attempt:
    """Write how the attempt ended. Only an attempt that ended `ambiguous` may get another outcome later."""
    after = ended(attempt, outcome, now, message)
    _change(connection, attempt, after)
    record_ended(connection, after, now, by)
    return after


def ended(attempt: Attempt, outcome: AttemptStatus, now: float, message: str) -> Attempt:
    """An attempt as it is once it has ended. Raises Conflict if it has ended already, other than ambiguously."""
    if not attempt.is_open:
        raise Conflict(f"attempt {attempt.number} of episode {attempt.episode} ended {attempt.outcome} already")
    return attempt._replace(state=ENDED, outcome=outcome.value, ended=now, message=printable(message, MESSAGE_LIMIT))


def update_all(connection: Connection, changed: Sequence[Attempt]) -> None:
    """Write attempts as they are now, with one statement; the caller has locked them (`standing`)."""
    if changed:
        connection.execute(_UPDATE, [
            {"at": attempt.id, **{f"new_{name}": getattr(attempt, name) for name in _CHANGED}} for attempt in changed
        ])  # fmt: skip


def record_ended(connection: Connection, attempt: Attempt, now: float, by: str) -> None:
    """Write down in the audit log how an attempt ended."""
    recorded = {"number": attempt.number, "rung": attempt.rung, "outcome": attempt.outcome, "message": attempt.message}
    audit.append(connection, now, by, "attempt.ended", node=attempt.node, episode=attempt.episode, detail=recorded)


def standing(connection: Connection, episodes: Sequence[int]) -> Dict[int, List[Attempt]]:
    """The attempts of episodes, in their order; they stay so until this transaction ends."""
    return by_episode(connection.execute(_STANDING, {"episodes": list(episodes)}) if episodes else ())


def by_episode(rows: Iterable[sa.Row[Any]]) -> Dict[int, List[Attempt]]:
    """The attempts of each episode, in the order of their rows."""
    attempts_of_each: Dict[int, List[Attempt]] = {}
    for row in rows:
        attempts_of_each.setdefault(row.episode, []).append(Attempt._make(row))
    return attempts_of_each


def attempts_of(connection: Connection, episode: int) -> List[Attempt]:
    """The attempts of an episode, in their order."""
    asked = sa.select(attempts).where(attempts.c.episode == episode).order_by(attempts.c.number)
    return [Attempt._make(row) for row in connection.execute(asked)]


def attempts_since(connection: Connection, since: float, maintenance: bool = False) -> List[Attempt]:
    """The repairs written since then: what rates and windows are counted from. `maintenance` includes its work as
    well.
    """
    asked = sa.select(attempts).where(attempts.c.written >= since)
    if not maintenance:
        # An outer join, on the column that may be empty: PostgreSQL begins with the attempts of that time, never with
        # all episodes.
        asked = asked.outerjoin(episodes, episodes.c.id == attempts.c.episode).where(episodes.c.train.is_(None))
    # With ORDER BY, SQLite reads all attempts ever made instead of sorting these.
    return sorted((Attempt._make(row) for row in connection.execute(asked)), key=lambda attempt: attempt.id)


def attempts_of_open(connection: Connection) -> Dict[int, List[Attempt]]:
    """The attempts of all open episodes, by episode and in the order in which they were written.

    They are found by their episode, never by their time: if the clock was set back, an attempt's time may be "before"
    its episode began.
    """
    standing = sa.select(episodes.c.id).where(episodes.c.ended.is_(None))
    rows = connection.execute(sa.select(attempts).where(attempts.c.episode.in_(standing)))
    return by_episode(sorted(rows, key=lambda row: int(row.id)))


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
) -> None:
    """Write down what a person decided of an attempt: `approved` or `refused`, once for each time that the person is
    asked.

    The same person's decision on an earlier question stays only in the audit log. Raises Conflict if this person has
    already answered the question.
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


def decisions(connection: Connection, episode: int) -> List[Approval]:
    """What persons decided of an episode, in their order."""
    return decisions_of(connection, [episode]).get(episode, [])


def decisions_of(connection: Connection, episodes: Sequence[int]) -> Dict[int, List[Approval]]:
    """The same of several episodes, by their numbers."""
    decided: Dict[int, List[Approval]] = {}
    for numbers in batches(episodes):
        for row in connection.execute(_DECISIONS, {"episodes": numbers}):
            decided.setdefault(row.episode, []).append(Approval._make(row))
    return decided


def _change(connection: Connection, attempt: Attempt, after: Attempt) -> None:
    """Raises Conflict if another process has changed the attempt since it was read."""
    rows = standing(connection, [attempt.episode]).get(attempt.episode, [])
    if not any(is_as_read(attempt, row) for row in rows):
        raise _changed(attempt)
    update_all(connection, [after])


def is_as_read(attempt: Attempt, row: Attempt) -> bool:
    """Whether an attempt's row still says what was read."""
    return (attempt.id, attempt.state, attempt.outcome) == (row.id, row.state, row.outcome)


def _changed(attempt: Attempt) -> Conflict:
    return Conflict(f"attempt {attempt.number} of episode {attempt.episode} was changed by another")


_CHANGED = ("state", "outcome", "message", "request_id", "sent", "ended")
_INSERT = sa.insert(attempts).returning(attempts.c.id, attempts.c.key)
_UPDATE = (
    sa.update(attempts).where(attempts.c.id == sa.bindparam("at"))
    .values({name: sa.bindparam(f"new_{name}") for name in _CHANGED})
)  # fmt: skip
_STANDING = (
    sa.select(attempts).where(attempts.c.episode.in_(sa.bindparam("episodes", expanding=True)))
    .order_by(attempts.c.episode, attempts.c.number).with_for_update()
)  # fmt: skip
_DECISIONS = (
    sa.select(approvals).where(approvals.c.episode.in_(sa.bindparam("episodes", expanding=True)))
    .order_by(approvals.c.id)
)  # fmt: skip
