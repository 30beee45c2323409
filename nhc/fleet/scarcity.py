"""How many nodes a shard has in hand at a time.

Where it gets no process, thread or descriptor: fewer, and those again later.

A user's limit (ulimit -u), a container's (pids.max) or a full table of files is nothing that a node can help. What can
go on goes on with what there is; the fan-out grows again while that goes well.
"""

from __future__ import annotations

from collections import deque
from typing import Deque, Optional

PAUSE = 0.5
"""Seconds after which a node that had to wait is tried again."""
FEW = 8
"""Nodes at a time at least, where there is enough for more and only this process is late."""
GROW = 2.0
"""Seconds without scarcity after which one node more is tried at a time."""
HOPELESS = 5.0
"""Seconds in which not even one node could be begun, after which the shard hands its nodes back."""


FIRST = 16
"""Hosts that a shard begins with at once: how long these take is not known yet."""
LEAST = 2
PATIENT = 2.0
"""Seconds after which a host that does not answer is no reason to begin with fewer."""


class Starts:
    """How many hosts at a time may be between their first packet and the first line of their Python.

    A handshake and a Python's start cost processor time, here and behind a bastion or on a container host there too: a
    hundred at once only make each other late. As TCP finds its window, each start that was quick lets one more begin
    (twice as many after each round), and while starts are slow a quarter fewer do. `slow` is in seconds: longer than
    that, and than three times the quickest so far, is slow; far hosts are not.
    """

    def __init__(self, most: int, slow: float) -> None:
        self.most, self.slow = most, slow
        self.window = float(min(FIRST, most))
        self.usual: Optional[float] = None
        self._quickest = float("inf")
        self._shrunk = float("-inf")

    def ended(self, seconds: float, now: float) -> None:
        """A host's Python runs, so many seconds after it was begun with."""
        self._quickest = min(self._quickest, seconds)
        self.usual = seconds if self.usual is None else self.usual + (seconds - self.usual) / 8
        if seconds <= self._limit():
            self.window = min(float(self.most), self.window + 1)
        elif self.crowded:
            self.fewer(now)

    def fewer(self, now: float) -> None:
        """Starts are slow, or did not come to their end: fewer at a time, once for all that were under way."""
        if now - self._shrunk > (self.usual or self.slow) / 2:
            self.window, self._shrunk = max(float(LEAST), self.window * 3 / 4), now

    @property
    def crowded(self) -> bool:
        """Whether starts are slow in general, and not only those of a few hosts."""
        return self.usual is not None and self.usual > self._limit()

    @property
    def patience(self) -> float:
        """Seconds after which a host without an answer does not count any more: nobody is held up by the dead."""
        return max(PATIENT, 2 * (self.usual or 0.0))

    def room(self, under_way: int) -> bool:
        """Whether one more may be begun with."""
        return under_way < int(self.window)

    def _limit(self) -> float:
        return max(self.slow, 3 * self._quickest)


class Scarcity:
    """How many nodes at a time there is enough for, and which nodes wait."""

    def __init__(self, fanout: int) -> None:
        self.most = self.now = self.least = fanout
        self.waiting: Deque[int] = deque()
        self._when = 0.0
        self._since: Optional[float] = None

    def fanout(self, now: float) -> int:
        """The fan-out at this time."""
        if self.now < self.most and now - self._when > GROW:
            self.now, self._when = self.now + 1, now
        return self.now

    def noted(self, index: int, active: int, now: float) -> None:
        """A node got nothing to be reached with while so many others had it."""
        self.waiting.append(index)
        self.now = max(1, min(self.now, active))
        self.least = min(self.least, self.now)
        self._when = now
        if self._since is None:
            self._since = now

    def late(self, active: int, now: float) -> None:
        """Fewer nodes at a time, since this process is late. It has what it needs for each, so nothing is told."""
        self.now, self._when = min(self.most, max(FEW, min(self.now, active) * 3 // 4)), now

    def finished(self) -> None:
        """A node was finished, so there is enough for some."""
        self._since = None

    def again(self, now: float) -> Optional[int]:
        """A node that has waited long enough, if there is one."""
        return self.waiting.popleft() if self.waiting and now - self._when > PAUSE else None

    def hopeless(self, now: float) -> bool:
        """Whether nothing has come of it for long."""
        return self._since is not None and now - self._since > HOPELESS
