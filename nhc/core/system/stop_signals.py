"""The signals that end a service between two rounds: what is under way is finished first."""

from __future__ import annotations

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
