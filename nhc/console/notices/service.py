"""One round: look at the problems, put what is due into the outbox, and send what waits there.

The outbox is written before anything is sent, and a message leaves it only after its receiver has answered. A process
that is killed in between sends that message again; none is lost. Each channel has its own thread: a slow receiver
delays only its own messages.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple
from typing import Counter as CounterOf

from sqlalchemy.engine import Connection

from nhc.console.notices import incidents, job_faults, notice
from nhc.console.notices.incidents import ActiveFault
from nhc.console.notices.job_faults import JobNoticeSettings
from nhc.console.notices.notice import OPEN, REFRESH, RESOLVED, Incident
from nhc.console.notices.sender import DEADLINE, SendLater, SendRefused
from nhc.console.notices.settings import NoticeChannel, NoticesSettings
from nhc.core.model import printable
from nhc.core.prometheus_family import Family, gauge
from nhc.core.system.exchange import Exchange
from nhc.core.system.service_log import failure
from nhc.store import nodes, outbox, problems
from nhc.store.database import Fence, Store
from nhc.store.errors import StoreError
from nhc.store.problems import RANK
from nhc.store.rounds.service import RoundEnd

# Mails to the owners of jobs, which the job loop left in the outbox: given to a channel, within bounds, or dropped.


HOUR = 3600.0
LATE = 24 * HOUR
"""Seconds after which a mail is no longer sent: the notices were off."""
LONGEST = 5
"""So many silences after its first run an owner's mail is sent, even if more runs end all the time."""
SHOWN = 20
"""Further runs that a mail names."""


def queue_owner_mails(
    connection: Connection, settings: JobNoticeSettings, cluster: str, silence: float, now: float
) -> int:  # fmt: skip
    """Give the waiting mails to the channel of owners; returns how many. The others are dropped, with the reason.

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
        given += _queue_mails(connection, burst, settings, cluster, sent, now)
    return given


def _queue_mails(
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
    """What the job loop stored about one run."""

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


DELAYS = (5.0, 30.0, 120.0, 600.0, 1800.0, 3600.0)
"""Seconds until the next try; the last goes on until `give-up`."""
SENDS = 50
"""Messages to one channel in a turn: what waits then, waits for the next."""


# A thread for each channel: it sends what waits in the outbox for that channel, and no other channel waits for it.


class ChannelRound(NamedTuple):
    """What a turn sent to its channel, and what was lost: refused, or given up. `problem` is "" or a line."""

    sent: int = 0
    lost: int = 0
    problem: str = ""


class ChannelThread:
    """The turns of one channel, one at a time. `give_up`: seconds after which a message is dropped."""

    def __init__(
        self, store: Store, channel: NoticeChannel, give_up: float, clock: Callable[[], float],
        jitter: Callable[[], float],
    ) -> None:  # fmt: skip
        self.store, self.channel, self.give_up, self.clock, self.jitter = store, channel, give_up, clock, jitter
        self._thread: Optional[threading.Thread] = None
        self._done = ChannelRound()
        self._raised: Optional[BaseException] = None
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._exchange: Optional[Exchange] = None

    def begin(self, fence: Optional[Fence]) -> None:
        """Begin a turn, unless one is under way. A process that ends waits for none: it is a daemon thread."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, args=(fence,), name=f"nhc-notices-{self.channel.name}", daemon=True
            )
            self._thread.start()

    def ended(self, until: Optional[float]) -> ChannelRound:
        """The result of a turn that ends by this time (of time.monotonic(); None: at any time), otherwise nothing.

        Raises what the turn raised: StoreError, LeadershipLost.
        """
        if self._thread is None or not self.join(until):
            return ChannelRound()
        self._thread = None
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised
        return self._done

    def stop(self) -> None:
        """No further message."""
        self._stopped.set()

    def join(self, until: Optional[float]) -> bool:
        """Wait for the turn's end; whether it has ended. A stopped channel is interrupted at that time."""
        if self._thread is None:
            return True
        self._thread.join(None if until is None else max(0.0, until - time.monotonic()))
        if self._stopped.is_set() and self._thread.is_alive():
            with self._lock:
                if self._exchange is not None:
                    self._exchange.cancel()
            self._thread.join(1.0)
        return not self._thread.is_alive()

    def _run(self, fence: Optional[Fence]) -> None:
        try:
            self._done = self._turn(fence)
        except BaseException as error:  # raised again where the turn is waited for
            self._raised = error

    def _turn(self, fence: Optional[Fence]) -> ChannelRound:
        with self.store.read() as connection:
            waiting = outbox.waiting(connection, self.channel.name)
        sent, lost, problem = 0, 0, ""
        held: Set[str] = set()
        for message in waiting:
            now = self.clock()
            if message.key in held or message.due > now:
                held.add(message.key)  # what follows of the same incident keeps its place
                continue
            if sent + lost >= SENDS or self._stopped.is_set():
                break
            try:
                self._deliver(message)
            except (SendRefused, ValueError) as error:
                problem = f"refused: {error}"
                self._end(message.id, outbox.REFUSED, str(error), fence)
                lost += 1
                continue
            except SendLater as error:
                if self._stopped.is_set():
                    break  # we broke it off: that is no failure of the channel
                problem = str(error)
                lost += self._later(message, error, fence)
                break  # the channel is away or has had enough: the others wait as well
            except Exception as error:  # an unexpected one: this message waits, the others continue
                problem = failure(error)
                held.add(message.key)
                lost += self._later(message, SendLater(problem), fence, alone=True)
                continue
            self._end(message.id, outbox.SENT, "", fence)
            sent += 1
        return ChannelRound(sent, lost, problem)

    def _deliver(self, message: outbox.Message) -> None:
        with Exchange(DEADLINE) as exchange:
            with self._lock:
                self._exchange = exchange
            try:
                self.channel.way.deliver(notice.load(message.content), exchange)
            finally:
                with self._lock:
                    self._exchange = None

    def _end(self, number: int, outcome: str, why: str, fence: Optional[Fence]) -> None:
        with self.store.write(fence) as connection:
            outbox.end(connection, number, outcome, why, self.clock())

    def _later(
        self, message: outbox.Message, error: SendLater, fence: Optional[Fence], alone: bool = False
    ) -> int:  # fmt: skip
        """Put a message off, with what waits behind it unless `alone`, or give it up; how many are given up."""
        now = self.clock()
        if now - message.made >= self.give_up:
            self._end(message.id, outbox.DROPPED, str(error), fence)
            return 1
        delay = DELAYS[min(message.tries, len(DELAYS) - 1)] * (0.8 + 0.4 * self.jitter())
        with self.store.write(fence) as connection:
            outbox.postpone(connection, message, now + max(delay, error.after), str(error), alone)
        return 0


MOST = 1000
"""Messages that wait for one channel, beyond which only what opens and resolves is added."""
PATIENCE = 2.0
"""Seconds that a service's round waits for its channels. A longer turn counts in the round that sees its end."""
GRACE = 5.0
"""Seconds in which a channel may end its message once the service is to end."""


class NoticeRound(NamedTuple):
    """The result of a round. `problems` are lines for the log, without secrets."""

    queued: int
    withheld: int
    channels: Dict[str, ChannelRound]
    unread: Tuple[str, ...] = ()
    """The incidents whose row could not be read, and why: each began again."""

    @property
    def sent(self) -> int:
        """Messages that a receiver has accepted."""
        return sum(channel.sent for channel in self.channels.values())

    @property
    def problems(self) -> List[str]:
        """A line for each channel with a problem, and for each incident that began again."""
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
        """Read the problems, let each channel send, and wait `patience` seconds for them; None: until each has ended
        its turn.

        A channel whose turn goes on has sent nothing yet. Raises StoreError, LeadershipLost.
        """
        queued, withheld, unread = self._look(fence)
        for thread in self._threads.values():
            thread.begin(fence)
        until = None if patience is None else time.monotonic() + patience
        return NoticeRound(queued, withheld, {name: self._ended(name, until) for name in self._threads}, unread)

    def _ended(self, name: str, until: Optional[float]) -> ChannelRound:
        """The result of a channel's turn; an unexpected error is only this channel's problem."""
        try:
            return self._threads[name].ended(until)
        except StoreError:
            raise
        except Exception as error:
            return ChannelRound(problem=failure(error))

    def close(self) -> None:
        """Let the channels finish sending, for a short time, then interrupt them: the message is sent again later."""
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
                ActiveFault(
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
            queued += queue_owner_mails(connection, settings.jobs, settings.cluster, settings.pace.silence, now)
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
    """The state of each channel. Raises StoreError."""
    with store.read() as connection:
        return {name: outbox.counts(connection, name) for name in settings.channels}


class NoticeRounds:
    """`once`: a round waits until every channel has answered.

    /healthz is about this process and its store: `nhc_notices_channel_up` shows a channel that is not reachable, since
    restarting nhc does not bring it back.
    """

    prefix = "nhc_notices"

    def __init__(self, settings: NoticesSettings, store: Store, once: bool) -> None:
        self.patience = None if once else PATIENCE
        self.settings, self.store = settings, store
        self.service = NoticeService(store, settings)
        self.fence: Optional[Fence] = None
        self.sent: CounterOf[str] = Counter()
        self.lost: CounterOf[str] = Counter()
        self.down: Set[str] = set()
        self.withheld = 0

    def lead(self, fence: Optional[Fence]) -> None:
        """See RoundWork."""
        self.fence = fence

    def round(self) -> RoundEnd:
        """See RoundWork."""
        done = self.service.round(self.fence, self.patience)
        self.withheld = done.withheld
        for name, channel in done.channels.items():
            self.sent[name] += channel.sent
            self.lost[name] += channel.lost
            if channel.problem:
                self.down.add(name)
            elif channel.sent:
                self.down.discard(name)  # a round that had nothing due says nothing about the channel
        return RoundEnd(tuple(done.problems))

    def page(self) -> str:
        """See RoundWork."""
        waiting = Family("nhc_notices_waiting", "gauge", "Messages that wait for a channel.")
        oldest = Family(
            "nhc_notices_oldest_waiting_seconds", "gauge", "Age of the oldest message that waits; 0 for none."
        )
        up = Family(
            "nhc_notices_channel_up",
            "gauge",
            "0 from a message that a channel refused or did not answer to the next it takes.",
        )
        sent = Family("nhc_notices_sent_total", "counter", "Messages that a channel has taken, since the start.")
        lost = Family("nhc_notices_lost_total", "counter", "Messages that were refused or given up, since the start.")
        for name, count in status(self.store, self.settings).items():
            waiting.add(float(count.waiting), channel=name)
            oldest.add(max(0.0, time.time() - count.oldest) if count.oldest is not None else 0.0, channel=name)
            up.add(0.0 if name in self.down else 1.0, channel=name)
            sent.add(float(self.sent[name]), channel=name)
            lost.add(float(self.lost[name]), channel=name)
        withheld = gauge("nhc_notices_withheld", "Incidents that the last round held back.", float(self.withheld))
        return "".join(family.render() for family in (waiting, oldest, up, sent, lost, withheld))
