"""What a shard does when it gets no process, thread or descriptor: fewer nodes at a time, and those again later.

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
