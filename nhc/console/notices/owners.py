"""Mails to the owners of jobs, which the job loop left in the outbox: given to a channel, within bounds, or dropped."""

from __future__ import annotations

import json
from typing import Dict, List, NamedTuple, Sequence, Tuple

from sqlalchemy.engine import Connection

from nhc.console.notices import notice
from nhc.console.notices.job_faults import JobNoticeSettings
from nhc.core.model import printable
from nhc.store import outbox

HOUR = 3600.0
LATE = 24 * HOUR
"""Seconds after which nobody is written to any more: the notices were off."""
LONGEST = 5
"""So many silences after its first run an owner's mail is sent, even if more runs end all the time."""
SHOWN = 20
"""Further runs that a mail names."""


def hand_over(
    connection: Connection, settings: JobNoticeSettings, cluster: str, silence: float, now: float
) -> int:  # fmt: skip
    """Give the mails that wait to the channel of owners; how many. The others are dropped, and say why.

    Runs of one owner that end without `silence` seconds between them are one mail: an array of jobs dies together.
    """
    waiting = outbox.waiting(connection, outbox.OWNERS)
    sent = outbox.owners_since(connection, settings.owners, now - HOUR) if waiting and settings.owners else {}
    people: Dict[str, List[outbox.Message]] = {}
    for message in waiting:
        people.setdefault(message.key, []).append(message)
    given = 0
    for burst in people.values():
        more_may_come = now - burst[-1].made < silence and now - burst[0].made < LONGEST * silence
        if settings.owners and more_may_come:
            continue
        given += _hand_over(connection, burst, settings, cluster, sent, now)
    return given


def _hand_over(
    connection: Connection, burst: Sequence[outbox.Message], settings: JobNoticeSettings, cluster: str,
    sent: Dict[str, int], now: float,
) -> int:  # fmt: skip
    """One owner's mail, or why none is sent."""
    mails = []
    for message in burst:
        why = _refused(message, settings, sent, now)
        if not why:
            try:
                mails.append((message, _mail(message)))
                continue
            except (ValueError, TypeError, KeyError) as error:
                why = f"no mail to an owner: {error}"
        outbox.end(connection, message.id, outbox.DROPPED, why, now)
    if not mails:
        return 0
    first = mails[0][0]
    text = notice.dump(_notice(first, [mail for _message, mail in mails], cluster))
    outbox.add(connection, first.key, settings.owners, outbox.OWNER, text, now)
    for message, _mail_of_it in mails:
        outbox.end(connection, message.id, outbox.SENT, "", now)
    sent[first.key] = sent.get(first.key, 0) + 1
    return 1


class _Mail(NamedTuple):
    """What the job loop left of one run."""

    to: str
    lines: Tuple[str, ...]
    ended: float


def _mail(message: outbox.Message) -> _Mail:
    """Raises ValueError, TypeError, KeyError."""
    mail = json.loads(message.content)
    return _Mail(str(mail["to"]), tuple(printable(str(line), 1000) for line in mail["lines"]), float(mail["ended"]))


def _refused(message: outbox.Message, settings: JobNoticeSettings, sent: dict[str, int], now: float) -> str:
    if not settings.owners:
        return "the notices have no channel for owners"
    if now - message.made > LATE:
        return "it is too old"
    if sent.get(message.key, 0) >= settings.per_owner:
        return "this owner got as many within an hour as the settings allow"
    return "owners got as many within an hour as the settings allow" if sum(sent.values()) >= settings.per_hour else ""


def _notice(message: outbox.Message, mails: Sequence[_Mail], cluster: str) -> notice.Notice:
    first, others = mails[0], mails[1:]
    lines = list(first.lines)
    if others:
        count = "1 more run" if len(others) == 1 else f"{len(others)} more runs"
        lines += ["", f"{count} ended within minutes:", *(mail.lines[0] for mail in others[:SHOWN] if mail.lines)]
        lines += [f"and {len(others) - SHOWN} more"] if len(others) > SHOWN else []
    return notice.Notice(
        notice.OPEN, f"{message.key}.{message.id}", 1, cluster, notice.JOB, "JobEnded", "", "WARN", "",
        "\n".join(lines), "", 0, first.ended, message.made, to=first.to,
    )  # fmt: skip
