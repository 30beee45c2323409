"""The steady clocks of loops, stored so that a wait continues in the next process on the same host."""

from __future__ import annotations

import time
from typing import Callable, Optional

import sqlalchemy as sa

from nhc.core.system.steady_time import ClockAnchor, SteadyClock, SteadyTime
from nhc.store.database import Fence, Store
from nhc.store.schema import clocks

KEEP_EVERY = 60.0
"""Seconds between two writes while the clock is steady."""


class KeptClock:
    """The clock of the loop of this name over one store."""

    def __init__(
        self, store: Store, name: str, fence: Optional[Fence] = None, clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._store, self._name, self._fence = store, name, fence
        self._steady = SteadyClock(clock, monotonic)
        self._kept: Optional[ClockAnchor] = None
        self._resumed = False

    def read(self) -> SteadyTime:
        """The time now, and since when waits count."""
        return self._steady.read()

    def begin_round(self, write: bool) -> float:
        """Record that a round begins now; returns the seconds by which the clock was set since the last round, 0.0 for
        not.

        Raises StoreError, LeadershipLost.
        """
        if not self._resumed:
            with self._store.read() as connection:
                row = connection.execute(sa.select(clocks).where(clocks.c.name == self._name)).first()
            self._kept = None if row is None else ClockAnchor(row.boot, row.ahead, row.since, row.looked)
            self._steady.resume(self._kept)
            self._resumed = True
        self._steady.read()
        if write and self._is_due(self._steady.anchor):
            self._keep(self._steady.anchor)
        return self._steady.take_step()

    def _is_due(self, anchor: ClockAnchor) -> bool:
        kept = self._kept
        return kept is None or kept[:3] != anchor[:3] or anchor.looked - kept.looked >= KEEP_EVERY

    def _keep(self, anchor: ClockAnchor) -> None:
        values = anchor._asdict()
        with self._store.write(self._fence) as connection:
            if not connection.execute(sa.update(clocks).where(clocks.c.name == self._name).values(values)).rowcount:
                connection.execute(sa.insert(clocks).values(name=self._name, **values))
        self._kept = anchor
