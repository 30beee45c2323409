"""Incidents for which notices are sent, and their messages: stored before they are sent, so a restart loses none.

A message is sent at least once: it ends only after its receiver has answered. Messages of one incident to one channel
keep their order. A message that neither succeeds nor is refused within its time is dropped and counted.
"""

from __future__ import annotations

import hashlib
from typing import Dict, List, NamedTuple, Optional, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from nhc.core.model import printable
from nhc.store.schema import batches, incidents, outbox

SENT, REFUSED, DROPPED = "sent", "refused", "dropped"
OWNERS = "@job-owners"
"""No channel: the job loop's messages to the owners of jobs, until a round of the notices gives them to a channel."""
OWNER = "owner"
"""The kind of these messages. The key is the person's: `owner_key`."""
ERROR_LIMIT = 300


class Message(NamedTuple):
    """One message to one channel. `content` is the notice as JSON; it waits until `due`, and is finished once
    `ended`.
    """

    id: int
    key: str
    channel: str
    kind: str
    content: str
    made: float
    due: float
    tries: int
    ended: Optional[float]
    outcome: str
    error: str


class ChannelCount(NamedTuple):
    """The state of a channel. `oldest` is when the oldest waiting message was made, `error` its last error."""

    waiting: int
    sent: int
    lost: int
    oldest: Optional[float]
    error: str


def all_incidents(connection: Connection) -> Dict[str, str]:
    """Every incident's content, by key."""
    return {row.key: row.content for row in connection.execute(sa.select(incidents.c.key, incidents.c.content))}


def save_incidents(connection: Connection, changed: Dict[str, str], gone: Sequence[str], now: float) -> None:
    """Write those that changed; delete those that have ended."""
    for keys in batches([*changed, *gone]):
        connection.execute(sa.delete(incidents).where(incidents.c.key.in_(keys)))
    if changed:
        rows = [{"key": key, "content": content, "seen": now} for key, content in changed.items()]
        connection.execute(sa.insert(incidents), rows)


def add(connection: Connection, key: str, channel: str, kind: str, content: str, now: float) -> None:
    """Add a message."""
    values = {"key": key, "channel": channel, "kind": kind, "content": content, "made": now, "due": now}
    connection.execute(sa.insert(outbox).values(values))


def waiting(connection: Connection, channel: str, limit: int = 1000) -> List[Message]:
    """What is still to be sent to a channel, the oldest first."""
    asked = sa.select(outbox).where(outbox.c.ended.is_(None), outbox.c.channel == channel)
    return [Message._make(row) for row in connection.execute(asked.order_by(outbox.c.id).limit(limit))]


def end(connection: Connection, number: int, outcome: str, error: str, now: float) -> None:
    """Finish a message."""
    values = {"ended": now, "outcome": outcome, "error": printable(error, ERROR_LIMIT), "tries": outbox.c.tries + 1}
    connection.execute(sa.update(outbox).where(outbox.c.id == number, outbox.c.ended.is_(None)).values(values))


def postpone(connection: Connection, message: Message, due: float, error: str, alone: bool = False) -> None:
    """Try a message again later; unless it is `alone`, the messages behind it for the same channel wait as long."""
    mine = sa.update(outbox).where(outbox.c.id == message.id)
    connection.execute(mine.values(due=due, error=printable(error, ERROR_LIMIT), tries=outbox.c.tries + 1))
    if alone:
        return
    rest = sa.update(outbox).where(outbox.c.channel == message.channel, outbox.c.ended.is_(None), outbox.c.due < due)
    connection.execute(rest.values(due=due))


def owner_key(address: str) -> str:
    """The key of a person in the outbox."""
    return f"owner-{hashlib.sha256(address.lower().encode()).hexdigest()[:32]}"


def owners_since(connection: Connection, channel: str, since: float) -> Dict[str, int]:
    """How many messages were given to a channel for each person since a time, by key."""
    mine = sa.and_(outbox.c.channel == channel, outbox.c.kind == OWNER, outbox.c.made > since)
    asked = sa.select(outbox.c.key, sa.func.count()).where(mine).group_by(outbox.c.key)
    return {str(row[0]): int(row[1]) for row in connection.execute(asked)}


def made_since(connection: Connection, since: float) -> int:
    """How many incidents a notice was sent about since a time. Refreshes and mails to owners do not count."""
    counts_not = outbox.c.kind.in_(("refresh", OWNER))
    asked = sa.select(sa.func.count(sa.distinct(outbox.c.key))).where(outbox.c.made > since, ~counts_not)
    return int(connection.scalar(asked) or 0)


def forget(connection: Connection, before: float) -> int:
    """Delete what ended before a time; returns how many."""
    return connection.execute(sa.delete(outbox).where(outbox.c.ended < before)).rowcount


def counts(connection: Connection, channel: str) -> ChannelCount:
    """The state of a channel."""
    here = outbox.c.channel == channel
    asked = sa.select(outbox.c.outcome, sa.func.count()).where(here, outbox.c.ended.is_not(None))
    ended: Dict[str, int] = {row[0]: row[1] for row in connection.execute(asked.group_by(outbox.c.outcome))}
    still = sa.select(sa.func.count(), sa.func.min(outbox.c.made)).where(here, outbox.c.ended.is_(None))
    row = connection.execute(still).one()
    last = sa.select(outbox.c.error).where(here, outbox.c.error != "").order_by(outbox.c.id.desc()).limit(1)
    return ChannelCount(
        row[0], ended.get(SENT, 0), ended.get(REFUSED, 0) + ended.get(DROPPED, 0), row[1],
        str(connection.scalar(last) or ""),
    )  # fmt: skip
