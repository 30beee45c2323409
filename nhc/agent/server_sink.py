"""The agent's sink for nhc's own server: pushes this node's reports over HTTPS, and keeps them on disk while it is
away.

    [sinks.server]
    url = "https://nhc.example.org:20259"
    token-file = "/etc/nhc/server.token"

A report is pushed at once when it says something new, else every `every`: as "unchanged" if the server already has its
contents, and whole once in `whole`, which sends the figures of passing checks. On the disk every report is whole.
Imported only in the sink's own process.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from typing import Callable, List, Mapping, NamedTuple, Optional, Tuple

from nhc.agent.deep_spool import FolderInUse, take_over, take_suite
from nhc.agent.server_push import Hopeless, NotNow, PushAnswer, Pusher, PushSettings, read_push_settings
from nhc.agent.spool import Kept, Spool
from nhc.core.model import NAMELESS, Report, printable
from nhc.core.state.store import State
from nhc.core.system.backoff import Backoff
from nhc.marks import push
from nhc.marks.ports.sinks import Delivery, Standing

BATCH = 50
"""Reports of the spool in one push."""
PENDING = 20
"""Reports held in memory if the disk accepts none."""
BACKOFF = (1.0, 300.0)
"""Seconds between two tries: the first and the longest wait."""
NOTES = 600.0
"""Seconds between two log lines with the server's notes."""
LAST_TRY = 3.0
"""Seconds that the agent waits for a push when it ends."""


def sink(settings: Mapping[str, object], node: str, log: Callable[[str], None]) -> ServerSink:
    """A sink from the table [sinks.server]. Raises AdapterError."""
    return ServerSink(read_push_settings(settings), node, log)


class _Unsent(NamedTuple):
    """A report that waits for a push, and its whole text."""

    pushed: push.Pushed
    text: str


class _Answered(NamedTuple):
    """The contents of the newest whole report, its digest from the server, and until when (monotonic) that is valid."""

    content: object
    digest: str
    until: float


class ServerSink:
    """`nhc.marks.ports.sinks.BufferedSink`: accepts reports at once and pushes them in a thread of its own."""

    def __init__(
        self,
        settings: PushSettings,
        node: str,
        log: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings, self._node, self._log, self._clock = settings, node, log, clock
        self._pusher = Pusher(settings)
        self._changed = threading.Condition()
        self._pending: List[_Unsent] = []
        self._answered: Optional[_Answered] = None
        self._last: Optional[Tuple[object, float]] = None
        self._state, self._suite = State(), b""
        self._ending = False
        self._problem = ""
        self._until = 0.0
        """When, on the monotonic clock, the next push may go."""
        self._spool: Optional[Spool] = None
        self._lost = self._seq = 0
        self._seq_lock = threading.Lock()
        self._boot = ""
        self._note_after = 0.0
        self._open_spool()
        self._thread = threading.Thread(target=self._run, name="push", daemon=True)
        self._thread.start()

    def standing(self) -> List[Standing]:
        """The server knows no problem that the agent does not know: returns none."""
        return []

    def deliver(self, delivery: Delivery) -> None:
        """Accept a report, unless one with the same contents was accepted a moment ago."""
        now = self._clock()
        gist = (_gist(delivery.report), delivery.complete)
        if self._last is not None and self._last[0] == gist and 0 <= now - self._last[1] < self._settings.every * 0.95:
            return
        self._last = (gist, now)
        self._boot = delivery.report.boot_id
        pushed = push.Pushed(delivery.report, delivery.complete, now, seq=self._next_seq())
        unsent = _Unsent(pushed, push.to_text(pushed))
        with self._changed:
            self._take_over_deep()
            self._pending.append(unsent)
            if len(self._pending) > 1 or self._left():  # the one before has not gone yet
                self._store_pending(now)
            self._changed.notify()

    def problem(self) -> str:
        """Why the newest report has not been pushed, "" if it has."""
        return self._problem

    def close(self) -> None:
        """Push the waiting reports if that is possible at once, else leave them on the disk."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        self._thread.join(LAST_TRY)
        with self._changed:
            self._store_pending(self._clock())
        if not self._thread.is_alive():
            self._pusher.close()

    # In the thread.

    def _run(self) -> None:
        backoff = Backoff(*BACKOFF, spread=True)
        while True:
            with self._changed:
                left = self._left()
                while left or not (self._pending or self._spool):
                    if self._ending:
                        return
                    self._changed.wait(left or None)
                    left = self._left()
            try:
                self._push_some()
            except NotNow as error:
                self._trouble(str(error))
                with self._changed:
                    self._until = time.monotonic() + max(error.after, 0.0) + backoff.next()
                    self._store_pending(self._clock())
            else:
                backoff.reset()
                self._trouble("")

    def _left(self) -> float:
        """Seconds until the next push may go."""
        return max(0.0, self._until - time.monotonic())

    def _push_some(self, count: int = BATCH) -> None:
        """One push: the spool first, which is older. If the server refuses a push, its reports go one by one."""
        with self._changed:
            spool = self._spool
            if spool is not None:
                spool.trim(self._clock())
            files, texts = self._oldest(spool, count)
            held = self._pending[: count - len(texts)] if not spool or len(spool) == len(files) else []
            short = "" if texts else self._unchanged(held)
            texts = [short] if short else texts + [unsent.text for unsent in held]
            lost = (spool.lost if spool is not None else 0) + self._lost
        if not texts:
            return
        hopeless = False
        answer = PushAnswer([], [])
        try:
            answer = self._pusher.push(push.pack(self._node, texts, lost, self._boot, self._next_seq()))
        except Hopeless as error:
            if short:  # another server accepted the last one, and this server does not know the form
                self._answered = None
                self._push_some(count)
                return
            if len(texts) > 1:
                for _ in range(len(texts)):
                    self._push_some(1)
                return
            hopeless = True
            self._log(f"the server does not take a report: {error}")
        if not short:
            self._answered = self._answered_now(held, answer.digest)
        elif answer.whole:
            self._answered = None
            self._push_some(count)
            return
        for line in answer.refused[:3]:
            self._log(f"the server refused a report: {printable(line, 300)}")
        self._note(answer.notes)
        with self._changed:
            if spool is not None:
                spool.remove(files)
            if hopeless:
                self._lost += 1
            elif lost:
                reported = min(lost, spool.lost) if spool is not None else 0
                self._lost = max(0, self._lost - (lost - reported))
                if spool is not None:
                    spool.forget_lost(reported)
            # Some may be in the spool by now: they are sent once more, which changes nothing at the server.
            self._pending = [unsent for unsent in self._pending if not any(unsent is sent for sent in held)]

    def _oldest(self, spool: Optional[Spool], count: int) -> Tuple[List[Kept], List[str]]:
        try:
            return spool.oldest(count) if spool is not None else ([], [])
        except OSError as error:
            raise NotNow(f"{self._settings.spool}: {error.strerror}") from None

    def _unchanged(self, held: List[_Unsent]) -> str:
        """The short form of a report, if the server has all of it but the figures; "" if it must be sent whole."""
        last = self._answered
        if last is None or len(held) != 1 or time.monotonic() >= last.until:
            return ""
        pushed = held[0].pushed
        if pushed.report.boot_id != self._boot or _content(pushed) != last.content:
            return ""
        return push.to_unchanged_text(pushed, last.digest)

    def _answered_now(self, held: List[_Unsent], digest: str) -> Optional[_Answered]:
        if not held or not digest:
            return None
        pushed = held[-1].pushed
        # Up to a quarter sooner, at random: nodes that began together do not send whole reports together for ever.
        until = time.monotonic() + self._settings.whole * random.uniform(0.75, 1.0)  # noqa: S311
        return _Answered(_content(pushed), digest, until)

    def _note(self, notes: List[str]) -> None:
        """Log the server's notes, now and then: it notes a wrong clock with each push."""
        now = time.monotonic()
        if notes and now >= self._note_after:
            self._note_after = now + NOTES
            for line in notes[:3]:
                self._log(f"the server notes: {printable(line, 300)}")

    def _next_seq(self) -> int:
        """Milliseconds of this boot, each value only once: the number goes on over restarts of the agent."""
        with self._seq_lock:
            self._seq = max(self._seq + 1, time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000)
            return self._seq

    def _store_pending(self, now: float) -> None:
        """Write the reports in memory to the disk; if it accepts none, keep the newest."""
        if self._spool is None:
            self._open_spool()
        try:
            while self._pending and self._spool is not None:
                self._spool.add(self._pending[0].text, now)
                del self._pending[0]
        except OSError as error:
            self._log(f"{self._settings.spool}: {error.strerror or error}: reports wait in memory")
        if len(self._pending) > PENDING:
            self._lost += len(self._pending) - PENDING
            del self._pending[:-PENDING]

    def _take_over_deep(self) -> None:
        """Send what a run of deep checks could not send, and the report of a suite before a job.

        While another process uses the folder, the next report tries again.
        """
        try:
            if self._spool is not None:
                self._suite = take_suite(self._spool, self._state, self._node, self._suite, self._clock())
                take_over(self._spool)
        except FolderInUse:
            pass
        except OSError as error:
            self._log(f"{error.filename or self._settings.spool}: {error.strerror}: results of deep checks wait there")

    def _open_spool(self) -> None:
        try:
            self._spool = Spool(self._settings.spool, self._settings.spool_size, self._settings.spool_age)
        except OSError as error:
            self._log(f"{self._settings.spool}: {error.strerror or error}: no report outlasts a restart")

    def _trouble(self, problem: str) -> None:
        with contextlib.suppress(ValueError):
            self._problem = printable(problem, 400)


def _gist(report: Report) -> object:
    """A report's contents without its figures."""
    return report.boot_id, frozenset(
        (
            result.check, result.outcome.target, result.outcome.reason, result.verdict, result.outcome.action,
            result.outcome.scope, result.outcome.device, result.source if result.check == NAMELESS else "",
        )
        for result in report.results
    )  # fmt: skip


def _content(pushed: push.Pushed) -> object:
    """What must be the same in two reports if the second is sent as unchanged."""
    report = pushed.report
    about = report.version, report.notes, report.not_run, frozenset(report.labels.items())
    return _gist(report), about, pushed.complete
