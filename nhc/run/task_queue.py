"""The numbers of the tasks that nobody has claimed yet, in a pipe from which every worker takes the next.

A pipe holds some sixteen thousand of them; where a plan has more, the supervisor goes on writing as workers read.
"""

from __future__ import annotations

import os
import select

from nhc.light import TYPE_CHECKING
from nhc.run.worker import packed

if TYPE_CHECKING:
    from typing import Iterable


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
