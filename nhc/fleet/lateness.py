"""How late this process is by its own doing, where the client is busy: time that no host may be blamed for.

A thread asks to wake every tick, and notes by how much it did not: it waited for a processor, or for Python's lock, as
the threads beside it did.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time

TICK = 0.05
"""Seconds. Less than a tick more is the system's ordinary jitter, and counts as none."""


class Lateness:
    """`seconds` grow by what this process was late; `now` is a clock that stands still meanwhile."""

    def __init__(self) -> None:
        self._noted = 0.0, float("inf")  # the lateness so far, when the tick began: who reads has both or neither
        self._asked = 0

    def start(self) -> None:
        """Begin to notice, in a thread of its own, unless that is so. Without a thread this process is never late."""
        if self._asked != os.getpid():  # a thread does not come along into a forked process
            self._asked, self._noted = os.getpid(), (0.0, float("inf"))
            with contextlib.suppress(RuntimeError):  # the only reason that it has is that there can be no more threads
                threading.Thread(target=self._notice, name="nhc-lateness", daemon=True).start()

    @property
    def seconds(self) -> float:
        """How late it was so far, the tick that is under way included."""
        noted, began = self._noted
        return noted + _over(time.monotonic() - began)

    def now(self) -> float:
        """Seconds on the steady clock, less the lateness."""
        return time.monotonic() - self.seconds

    def _notice(self) -> None:
        self._noted = 0.0, time.monotonic()
        while True:
            time.sleep(TICK)
            noted, began = self._noted
            now = time.monotonic()
            self._noted = noted + _over(now - began), now


def _over(seconds: float) -> float:
    over = seconds - TICK
    return over if over > TICK else 0.0
