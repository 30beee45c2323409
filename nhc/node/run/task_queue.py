"""Tasks, and the numbers of those that nobody has claimed yet, in a pipe from which every worker takes the next.

A pipe holds some sixteen thousand of them; where a plan has more, the supervisor goes on writing as workers read.
"""

from __future__ import annotations

import os
import select

from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.node.run.worker import packed

if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, Optional, Sequence

    from nhc.core.system.process_identity import KnownProcess


class TaskResult(NamedTuple):
    """How a task ended.

    `how` is "done" with its value, "timeout", "source-hung" (the first task of its source timed out), "died" (its
    worker ended, `value` says how), "no-worker" (none could be started, `value` says why), "not-run" (an earlier task
    stopped the run) or "out-of-time" (the whole run's deadline passed before its turn).
    """

    how: str
    value: Any = None
    elapsed: float = 0.0
    stuck: Optional[KnownProcess] = None


class Task(NamedTuple):
    """One task. `timeout` in seconds. A serial task runs in one common worker.

    A serial task, and one that `changes` something, starts when all before it have ended, and is over before any after
    it starts. The others, which only look, overlap; those of one `source` are carried out in turn by one worker, so
    that what is slow to begin with begins once.
    """

    timeout: float
    serial: bool = False
    changes: bool = False
    source: str = ""


def followers(tasks: Sequence[Task]) -> Dict[int, int]:
    """For each task that its worker goes on from, the next of its source: up to one that changes something."""
    last: Dict[str, int] = {}
    following: Dict[int, int] = {}
    for number, task in enumerate(tasks):
        if task.serial or task.changes:
            last.clear()
        elif task.source:
            if task.source in last:
                following[last[task.source]] = number
            last[task.source] = number
    return following


class Tokens:
    """`reader` is what workers read. Once all is written the pipe is closed, so that they find its end.

    `poll` wakes the supervisor when there is room for more.
    """

    def __init__(self, numbers: Iterable[int], poll: select.poll) -> None:
        self._unwritten = memoryview(b"".join(map(packed, numbers)))
        self.reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._poll = poll
        poll.register(self._writer, select.POLLOUT)
        self.refill()

    def refill(self) -> None:
        """Write what there is room for."""
        try:
            while self._unwritten:
                self._unwritten = self._unwritten[os.write(self._writer, self._unwritten) :]
        except BlockingIOError:
            return
        self._end()

    def take_back(self) -> None:
        """Leave nothing to claim."""
        self._unwritten = memoryview(b"")
        self._end()
        os.set_blocking(self.reader, False)
        try:
            while os.read(self.reader, 65536):
                pass
        except BlockingIOError:
            pass
        os.set_blocking(self.reader, True)

    def close(self) -> None:
        self._end()
        os.close(self.reader)

    def _end(self) -> None:
        if self._writer >= 0:
            self._poll.unregister(self._writer)
            os.close(self._writer)
            self._writer = -1
