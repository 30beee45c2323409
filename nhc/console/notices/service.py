"""One round: look at the problems, put what is due into the outbox, and send what waits there.

The outbox is written before anything is sent, and a message leaves it only after its receiver has answered. A
process that is killed in between sends that message again; none is lost. Each channel has a thread of its own
(`nhc.console.notices.channel_thread`): a slow receiver holds up its own messages alone.
"""

from __future__ import annotations

import random
import time
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Set, Tuple

from nhc.console.notices import channel_thread, incidents, job_faults, notice
from nhc.console.notices.channel_thread import ChannelRound, ChannelThread
from nhc.console.notices.incidents import StandingFault
from nhc.console.notices.notice import OPEN, REFRESH, RESOLVED, Incident
from nhc.console.notices.settings import NoticeChannel, NoticesSettings
from nhc.core.model import printable
from nhc.core.system.service_log import failure
from nhc.store import nodes, outbox, problems
from nhc.store.database import Fence, Store
from nhc.store.errors import StoreError
from nhc.store.problems import RANK

MOST = 1000
"""Messages that wait for one channel, beyond which only what opens and resolves is added."""
PATIENCE = 2.0
"""Seconds that a service's round waits for its channels. A longer turn counts in the round that sees its end."""
GRACE = 5.0
"""Seconds in which a channel may end its message once the service is to end."""


class NoticeRound(NamedTuple):
    """What a round came to. `problems` are lines for the log: no secret is in them."""

    queued: int
    withheld: int
    channels: Dict[str, ChannelRound]
    unread: Tuple[str, ...] = ()
    """The incidents whose row could not be read, and why: each began anew."""

    @property
    def sent(self) -> int:
        """Messages that a receiver has taken."""
        return sum(channel.sent for channel in self.channels.values())

    @property
    def problems(self) -> List[str]:
        """A line for each channel that has one, and for each incident that began anew."""
        channels = [f"{name}: {channel.problem}" for name, channel in self.channels.items() if channel.problem]
        return [*channels, *self.unread]


class NoticeService:
    """Over one store and its settings."""

    def __init__(
        self, store: Store, settings: NoticesSettings, clock: Callable[[], float] = time.time,
        jitter: Callable[[], float] = random.random,
    ) -> None:  # fmt: skip
        self.store, self.settings, self.clock = store, settings, clock
        self._threads = {
            name: ChannelThread(store, channel, settings.give_up, clock, jitter)
            for name, channel in settings.channels.items()
        }

    def round(self, fence: Optional[Fence] = None, patience: Optional[float] = None) -> NoticeRound:
        """Look, have each channel send, and wait `patience` seconds for them; None: until each has done its turn.

        A channel whose turn goes on has sent nothing yet. Raises StoreError, LeadershipLost.
        """
        queued, withheld, unread = self._look(fence)
        for thread in self._threads.values():
            thread.begin(fence)
        until = None if patience is None else time.monotonic() + patience
        return NoticeRound(queued, withheld, {name: self._ended(name, until) for name in self._threads}, unread)

    def _ended(self, name: str, until: Optional[float]) -> ChannelRound:
        """What a channel's turn came to; one that nobody foresaw is its problem alone."""
        try:
            return self._threads[name].ended(until)
        except StoreError:
            raise
        except Exception as error:
            return ChannelRound(problem=failure(error))

    def close(self) -> None:
        """Let the channels end what they send, for a short time, and then break it off: it is sent again one day."""
        until = time.monotonic() + GRACE
        for thread in self._threads.values():
            thread.stop()
        for thread in self._threads.values():
            thread.join(until)

    def _look(self, fence: Optional[Fence]) -> Tuple[int, int, Tuple[str, ...]]:
        now, settings = self.clock(), self.settings
        kept: Dict[str, Incident] = {}
        unread: Dict[str, str] = {}
        with self.store.write(fence) as connection:
            groups = {row.node: row.groups for row in nodes.list_nodes(connection)}
            faults = [
                StandingFault(
                    row.node, row.check, row.reason, row.verdict, row.action, row.message, row.began,
                    _place(settings.group_by, groups.get(row.node, {})),
                )
                for row in problems.list_problems(connection)
            ]  # fmt: skip
            for key, text in outbox.all_incidents(connection).items():
                try:
                    kept[key] = incidents.load(text)
                except ValueError as error:  # another version's, or damaged: the others are told of all the same
                    unread[key] = f"incident {key} begins anew, its row cannot be read: {printable(str(error), 200)}"
            recent = outbox.made_since(connection, now - 60.0)
            faults = [fault for fault in faults if RANK.get(fault.verdict, 0) >= settings.least]
            faults += job_faults.read(connection, settings.jobs, now)
            done = incidents.step(
                kept, faults, settings.pace, now, cluster=settings.cluster, recent=recent, link=settings.link
            )
            changed = {key: incidents.dump(incident) for key, incident in done.changed.items()}
            outbox.save_incidents(connection, changed, [*done.forgotten, *(unread.keys() - changed.keys())], now)
            queued = 0
            for channel in settings.channels.values():
                waiting = outbox.waiting(connection, channel.name, MOST + 1)
                busy = {message.key for message in waiting}
                for due in done.notices:
                    if _wanted(channel, due, busy, len(waiting) > MOST):
                        outbox.add(connection, due.key, channel.name, due.kind, notice.dump(due), now)
                        queued += 1
            queued += channel_thread.hand_over(connection, settings.jobs, settings.cluster, settings.pace.silence, now)
            outbox.forget(connection, now - settings.keep)
        return queued, done.withheld, tuple(unread.values())


def _place(fact: str, groups: Mapping[str, str]) -> str:
    value = groups.get(fact, "") if fact else ""
    return f"{fact} {value}" if value else ""


def _wanted(channel: NoticeChannel, due: notice.Notice, busy: Set[str], full: bool) -> bool:
    if due.kind == REFRESH:
        return channel.refreshes and due.key not in busy
    return due.kind in (OPEN, RESOLVED) or not full


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
