"""Mails to the owners of jobs, which the job loop left in the outbox: given to a channel, within bounds, or dropped."""

from __future__ import annotations

import json

from sqlalchemy.engine import Connection

from nhc.console.notices import notice
from nhc.console.notices.job_faults import CHECK, JobNoticeSettings
from nhc.core.model import printable
from nhc.store import outbox

HOUR = 3600.0
LATE = 24 * HOUR
"""Seconds after which nobody is written to any more: the notices were off."""


def hand_over(connection: Connection, settings: JobNoticeSettings, cluster: str, now: float) -> int:
    """Give each mail that waits to the channel of owners; how many. The others are dropped, and say why."""
    waiting = outbox.waiting(connection, outbox.OWNERS)
    sent = outbox.owners_since(connection, settings.owners, now - HOUR) if waiting and settings.owners else {}
    given = 0
    for message in waiting:
        why = _refused(message, settings, sent, now)
        if not why:
            try:
                text = notice.dump(_notice(message, cluster))
            except (ValueError, TypeError, KeyError) as error:
                why = f"no mail to an owner: {error}"
        if why:
            outbox.end(connection, message.id, outbox.DROPPED, why, now)
            continue
        outbox.add(connection, message.key, settings.owners, outbox.OWNER, text, now)
        outbox.end(connection, message.id, outbox.SENT, "", now)
        sent[message.key] = sent.get(message.key, 0) + 1
        given += 1
    return given


def _refused(message: outbox.Message, settings: JobNoticeSettings, sent: dict[str, int], now: float) -> str:
    if not settings.owners:
        return "the notices have no channel for owners"
    if now - message.made > LATE:
        return "it is too old"
    if sent.get(message.key, 0) >= settings.per_owner:
        return "this owner got as many within an hour as the settings allow"
    return "owners got as many within an hour as the settings allow" if sum(sent.values()) >= settings.per_hour else ""


def _notice(message: outbox.Message, cluster: str) -> notice.Notice:
    mail = json.loads(message.content)
    lines = [printable(str(line), 1000) for line in mail["lines"]]
    return notice.Notice(
        notice.OPEN, f"{message.key}.{message.id}", 1, cluster, CHECK, "JobEnded", "", "WARN", "", "\n".join(lines),
        "", 0, float(mail["ended"]), message.made, to=str(mail["to"]),
    )  # fmt: skip
