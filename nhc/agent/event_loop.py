"""One thread that waits for everything at once: descriptors, timers, signals, ended children.

The agent forks a process for every round of checks, and a process with several threads must not fork. So
nothing here or above blocks: what can block (a check, a disk, a server) runs in a process of its own.
Timers run on the monotonic clock, which no clock step moves.
"""

from __future__ import annotations

import heapq
import os
import select
import signal
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

Callback = Callable[[], None]
READ = select.POLLIN
WRITE = select.POLLOUT


class Timer:
    """A call at a certain time. `cancel` drops it."""

    def __init__(self, when: float, callback: Callback, cancelled: Callback) -> None:
        self.when = when
        self.callback: Optional[Callback] = callback
        self._cancelled = cancelled

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self._cancelled()


class Loop:
    """Waits and calls. `complain` gets the text of an exception in a callback; an exception never ends the loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, complain: Callable[[str], None] = print) -> None:
        self.clock = clock
        self.complain = complain
        self.failures = 0
        self._poll = select.poll()
        self._readers: Dict[int, Callable[[int], object]] = {}
        self._timers: List[Tuple[float, int, Timer]] = []
        self._idle_timers = 0
        """Most cancelled timers that may still be in `_timers`."""
        self._serial = 0
        self._running = False
        self._children: Dict[int, Callable[[int], None]] = {}
        self._signals: Dict[int, Callable[[], object]] = {}
        self._pending: List[int] = []
        self._wake = -1

    # Descriptors.

    def watch(self, fd: int, callback: Callable[[int], object], events: int = READ) -> None:
        """Call `callback(events)` when `fd` is ready; a second call for a descriptor replaces the first."""
        self._readers[fd] = callback
        self._poll.register(fd, events)

    def forget(self, fd: int) -> None:
        if self._readers.pop(fd, None) is not None:
            self._poll.unregister(fd)

    # Time.

    def at(self, when: float, callback: Callback) -> Timer:
        timer = Timer(when, callback, self._timer_cancelled)
        self._serial += 1
        heapq.heappush(self._timers, (when, self._serial, timer))
        return timer

    def after(self, seconds: float, callback: Callback) -> Timer:
        return self.at(self.clock() + seconds, callback)

    def _timer_cancelled(self) -> None:
        """Drop cancelled timers when they are the majority: a thousand connections a second set one each, for 10 s."""
        self._idle_timers += 1
        if self._idle_timers > 64 and self._idle_timers * 2 > len(self._timers):
            self._timers = [entry for entry in self._timers if entry[2].callback is not None]
            heapq.heapify(self._timers)
            self._idle_timers = 0

    # Signals and children.

    def signals(self, handlers: Mapping[int, Callable[[], object]]) -> None:
        """Call these from the loop when the signals come."""
        reading, writing = os.pipe()
        for fd in (reading, writing):
            os.set_blocking(fd, False)
        self._wake = reading
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        self._signals = dict(handlers)
        for number in (*handlers, signal.SIGCHLD):
            signal.signal(number, self._note)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        self.watch(reading, lambda _events: self._woken())

    def _note(self, number: int, _frame: object) -> None:
        self._pending.append(number)

    def _woken(self) -> None:
        try:
            os.read(self._wake, 4096)
        except BlockingIOError:
            pass

    def child(self, pid: int, ended: Callable[[int], None]) -> None:
        """Call `ended(status)` with the wait status when this child has ended."""
        self._children[pid] = ended

    def reap(self) -> None:
        """Reap every ended child, also orphans that became ours because we are process 1 of a container."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            ended = self._children.pop(pid, None)
            if ended:
                self._call(ended, status)

    # The loop itself.

    def run(self) -> None:
        """Run until `stop`."""
        self._running = True
        while self._running:
            self.once()

    def stop(self) -> None:
        self._running = False

    def once(self, limit: float = 60.0) -> None:
        """Wait for the next event, for at most `limit` seconds, and handle it."""
        wait = limit
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        if self._timers:
            wait = min(wait, self._timers[0][0] - self.clock())
        if self._pending:
            wait = 0.0
        for fd, events in self._poll.poll(max(0, int(wait * 1000 + 0.999))):
            callback = self._readers.get(fd)
            if callback:
                self._call(callback, events)
        while self._pending:
            number = self._pending.pop(0)
            if number == signal.SIGCHLD:
                self.reap()
            elif number in self._signals:
                self._call(self._signals[number])
        now = self.clock()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            due, timer.callback = timer.callback, None  # done: cancelling it later does nothing
            if due:
                self._call(due)

    def _call(self, callback: Callable[..., object], *arguments: Any) -> None:
        try:
            callback(*arguments)
        except Exception as error:
            import traceback

            self.failures += 1
            where = traceback.extract_tb(error.__traceback__)[-1]
            self.complain(f"a bug: {type(error).__name__}: {error} ({where.filename}:{where.lineno})")
