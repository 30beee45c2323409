"""One round: look at the problems, put what is due into the outbox, and send what waits there.

The outbox is written before anything is sent, and a message leaves it only after its receiver has answered. A
process that is killed in between sends that message again; none is lost.
"""

from __future__ import annotations

import random
import time
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Set, Tuple

from nhc.notices import incidents, job_faults, notice
from nhc.notices.incidents import StandingFault
from nhc.notices.notice import OPEN, REFRESH, RESOLVED
from nhc.notices.sender import SendLater, SendRefused
from nhc.notices.settings import NoticeChannel, NoticesSettings
from nhc.store import nodes, outbox, problems
from nhc.store.database import Fence, Store
from nhc.store.problem_groups import RANK

DELAYS = (5.0, 30.0, 120.0, 600.0, 1800.0, 3600.0)
"""Seconds until the next try; the last goes on until `give-up`."""
MOST = 1000
"""Messages that wait for one channel, beyond which only what opens and resolves is added."""
SENDS = 50
"""Messages to one channel a round: what waits then, waits for the next."""


class ChannelRound(NamedTuple):
    """What a round sent to one channel, and what it lost there: refused, or given up. `problem` is "" or a line."""

    sent: int
    lost: int
    problem: str


class NoticeRound(NamedTuple):
    """What a round came to. `problems` are lines for the log: no secret is in them."""

    queued: int
    withheld: int
    channels: Dict[str, ChannelRound]

    @property
    def sent(self) -> int:
        """Messages that a receiver has taken."""
        return sum(one.sent for one in self.channels.values())

    @property
    def problems(self) -> List[str]:
        """A line for each channel that has one."""
        return [f"{name}: {one.problem}" for name, one in self.channels.items() if one.problem]


class NoticeService:
    """Over one store and its settings."""

    def __init__(
        self, store: Store, settings: NoticesSettings, clock: Callable[[], float] = time.time,
        jitter: Callable[[], float] = random.random,
    ) -> None:  # fmt: skip
        self.store, self.settings, self.clock, self.jitter = store, settings, clock, jitter

    def round(self, fence: Optional[Fence] = None) -> NoticeRound:
        """Raises StoreError, LeadershipLost."""
        queued, withheld = self._look(fence)
        channels = self.settings.channels.values()
        return NoticeRound(queued, withheld, {channel.name: self._send(channel, fence) for channel in channels})

    def _look(self, fence: Optional[Fence]) -> Tuple[int, int]:
        now, settings = self.clock(), self.settings
        with self.store.write(fence) as connection:
            groups = {row.node: row.groups for row in nodes.list_nodes(connection)}
            faults = [
                StandingFault(
                    row.node, row.check, row.reason, row.verdict, row.action, row.message, row.began,
                    _place(settings.group_by, groups.get(row.node, {})),
                )
                for row in problems.list_problems(connection)
            ]  # fmt: skip
            kept = {key: incidents.load(text) for key, text in outbox.all_incidents(connection).items()}
            recent = outbox.made_since(connection, now - 60.0)
            faults = [fault for fault in faults if RANK.get(fault.verdict, 0) >= settings.least]
            faults += job_faults.read(connection, settings.jobs, now)
            done = incidents.step(
                kept, faults, settings.pace, now, cluster=settings.cluster, recent=recent, link=settings.link
            )
            outbox.save_incidents(
                connection, {key: incidents.dump(one) for key, one in done.changed.items()}, done.forgotten, now
            )
            queued = 0
            for channel in settings.channels.values():
                waiting = outbox.waiting(connection, channel.name, MOST + 1)
                busy = {message.key for message in waiting}
                for one in done.notices:
                    if _wanted(channel, one, busy, len(waiting) > MOST):
                        outbox.add(connection, one.key, channel.name, one.kind, notice.dump(one), now)
                        queued += 1
            outbox.forget(connection, now - settings.keep)
        return queued, done.withheld

    def _send(self, channel: NoticeChannel, fence: Optional[Fence]) -> ChannelRound:
        with self.store.read() as connection:
            waiting = outbox.waiting(connection, channel.name)
        sent, lost, problem = 0, 0, ""
        held: Set[str] = set()
        for message in waiting[:MOST]:
            now = self.clock()
            if message.key in held or message.due > now:
                held.add(message.key)  # what follows of the same incident keeps its place
                continue
            if sent >= SENDS:
                break
            try:
                channel.way.deliver(notice.load(message.content))
            except (SendRefused, ValueError) as error:
                problem = f"refused: {error}"
                self._end(message.id, outbox.REFUSED, str(error), fence)
                lost += 1
                continue
            except SendLater as error:
                problem = str(error)
                lost += self._later(message, error, fence)
                break  # the channel is away or has had enough: the others wait as well
            self._end(message.id, outbox.SENT, "", fence)
            sent += 1
        return ChannelRound(sent, lost, problem)

    def _end(self, number: int, outcome: str, why: str, fence: Optional[Fence]) -> None:
        with self.store.write(fence) as connection:
            outbox.end(connection, number, outcome, why, self.clock())

    def _later(self, message: outbox.Message, error: SendLater, fence: Optional[Fence]) -> int:
        """Put a message off, or give it up; how many are given up."""
        now = self.clock()
        if now - message.made >= self.settings.give_up:
            self._end(message.id, outbox.DROPPED, str(error), fence)
            return 1
        delay = DELAYS[min(message.tries, len(DELAYS) - 1)] * (0.8 + 0.4 * self.jitter())
        with self.store.write(fence) as connection:
            outbox.postpone_channel(connection, message, now + max(delay, error.after), str(error))
        return 0


def _place(fact: str, groups: Mapping[str, str]) -> str:
    value = groups.get(fact, "") if fact else ""
    return f"{fact} {value}" if value else ""


def _wanted(channel: NoticeChannel, one: notice.Notice, busy: Set[str], full: bool) -> bool:
    if one.kind == REFRESH:
        return channel.refreshes and one.key not in busy
    return one.kind in (OPEN, RESOLVED) or not full


def trial(settings: NoticesSettings, now: float) -> notice.Notice:
    """What `nhc notices test` sends."""
    key = incidents.key_of(settings.cluster, "nhc", "Test", str(now))
    text = "This is a test of this channel. Nothing is wrong and nothing is to be done."
    return notice.Notice(
        notice.TEST, key, 1, settings.cluster, "nhc notices test", "Test", "", "CRIT", "", text, "no node", 0, now, now,
        link=settings.link,
    )  # fmt: skip


def status(store: Store, settings: NoticesSettings) -> Dict[str, outbox.ChannelCount]:
    """How each channel does. Raises StoreError."""
    with store.read() as connection:
        return {name: outbox.counts(connection, name) for name in settings.channels}
