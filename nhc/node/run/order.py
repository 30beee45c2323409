"""Which tasks have ended, in memory that the supervisor and its workers share, so that lines keep their order.

A task that may change something begins when all before it have ended; one that only looks when all that change
something before it have. A worker looks for itself: between sixty healthy checks it need not wait for an answer.
"""

from __future__ import annotations

import mmap
import os
import select
import time

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import List, Sequence

FIRST_PAUSE = 0.0002
"""Seconds until a worker that waits looks again; doubled up to LONGEST_PAUSE."""
LONGEST_PAUSE = 0.005


class TaskOrder:
    """`changes` says of each task whether it may change something. `poll` is woken when a worker has to wait.

    Raises OSError if there is no memory or descriptor for it.
    """

    def __init__(self, changes: Sequence[bool], poll: select.poll) -> None:
        self._ended = mmap.mmap(-1, len(changes))
        self._before: List[int] = []  # how many tasks must have ended before each one
        before = 0
        for number, may_change in enumerate(changes):
            self._before.append(number if may_change else before)
            before = number + 1 if may_change else before
        self._poll = poll
        self.wake, self.waker = os.pipe()
        os.set_blocking(self.wake, False)
        poll.register(self.wake, select.POLLIN)

    def end(self, number: int) -> None:
        """A task has ended, in a way that lets those below begin."""
        self._ended[number] = 1

    def before(self, number: int) -> int:
        """How many tasks, from the first, must have ended before one begins."""
        return self._before[number]

    def may_begin(self, number: int) -> bool:
        return self._ended.find(b"\0", 0, self._before[number]) < 0

    def wait(self, number: int, lifeline: int, waker: int) -> bool:
        """In a worker: wait until a task may begin. False if nobody reads from the worker any more.

        `waker` is what `self.waker` is called in the worker.
        """
        poll = select.poll()
        poll.register(lifeline, 0)
        os.write(waker, b"x")
        pause = FIRST_PAUSE
        while not self.may_begin(number):
            if poll.poll(0):
                return False
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        return True

    def woken(self) -> None:
        """In the supervisor: take note of having been woken."""
        try:
            os.read(self.wake, 4096)
        except BlockingIOError:
            pass

    def close(self) -> None:
        self._poll.unregister(self.wake)
        os.close(self.wake)
        os.close(self.waker)
