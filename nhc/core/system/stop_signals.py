"""What a service does to its own process: signals end it between two rounds, and garbage is looked for seldom."""

from __future__ import annotations

import gc
import os
import select
import signal
import time

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopSignals:
    """SIGTERM, SIGINT and SIGHUP of this process from here on. Made in the main thread, one a process.

    A pipe wakes all who wait, each in a thread. A threading.Event would not do: its lock is no reentrant one, so
    `set` in a handler that interrupts `wait` at the wrong place waits for ever.
    """

    def __init__(self) -> None:
        self._come = False
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        for number in ENDING:
            signal.signal(number, self._note)

    def _note(self, _number: int, _frame: object) -> None:
        self.end()

    def end(self) -> None:
        """As if one had come. From any thread."""
        self._come = True
        try:
            os.write(self._write, b"\0")
        except BlockingIOError:
            pass  # it is full of those that came before

    @property
    def come(self) -> bool:
        """Whether one has come."""
        return self._come

    def wait(self, seconds: float) -> bool:
        """Wait so long at most; whether one has come. What has come wakes every later wait as well."""
        until = time.monotonic() + seconds
        while not self._come:
            left = until - time.monotonic()
            if left <= 0 or select.select([self._read], [], [], left)[0]:
                break
        return self._come


YOUNG_VALUES = 20_000
"""Values made, less those dropped, before Python looks for cycles among them: some 2 MB. With its own 700 a round over
1,000 episodes spent four tenths of its CPU on looking."""


def collect_garbage_seldom() -> None:
    """Look for cycles among so many values: a service makes many at a time and keeps few of them."""
    gc.set_threshold(YOUNG_VALUES, 10, 10)
