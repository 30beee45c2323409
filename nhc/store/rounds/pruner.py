"""Automatic pruning inside the services: `nhc serve remedy`, `nhc serve server`.

One process prunes at a time, and all processes share one schedule: the process that begins stores the time in the row
of its own lock. So ten servers prune once a day, not ten times, and a restart does not prune earlier.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Callable, List, Optional, Sequence

import sqlalchemy as sa

from nhc.core.prometheus_family import Family, counter, gauge
from nhc.core.system.service_log import failure, problem
from nhc.store.database import Store
from nhc.store.retention import PruneSettings, prune
from nhc.store.rounds.leader import Leader
from nhc.store.schema import leader

LOCK = "prune"
FIRST = 60.0
"""Seconds from the start to the first check: a starting process has more urgent work."""
LOOK = 300.0
"""Seconds between two checks whether it is time."""


class Pruner:
    """Prunes when it is time. Its thread ends with `stop`, within one transaction's time.

    `forget` gets the names of evidence files that are no longer needed; without it, evidence is left to the process
    that has its directory. `log` gets what failed, and what was deleted.
    """

    def __init__(
        self, store: Store, settings: PruneSettings, by: str, *, log: Callable[[str], None],
        forget: Optional[Callable[[Sequence[str]], None]] = None, clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self.store, self.settings, self.by, self.clock = store, settings, by, clock
        self._log, self._forget = log, forget
        self.rows: Counter[str] = Counter()
        self.failed = 0
        self.problem = ""
        self.seconds = self.begun = 0.0
        self._end = threading.Event()
        self._thread: Optional[threading.Thread] = None

    def start(self) -> None:
        """Check periodically in a separate thread. Raises RuntimeError if none can be started."""
        if self.settings.every:
            self._thread = threading.Thread(target=self._go, name="nhc-prune", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop checking; what is under way ends with its process, and continues the next time."""
        self._end.set()
        if self._thread is not None:
            self._thread.join(1.0)

    def _go(self) -> None:
        wait = FIRST
        while not self._end.wait(wait):
            self.look()
            wait = LOOK

    def look(self) -> bool:
        """Prune if it is time; returns whether it was done now. A failure is logged, counted, and tried again later."""
        try:
            done = self._due() and self._prune()
        except Exception as error:
            self.failed += 1
            if self.problem != failure(error):
                self.problem = failure(error)
                self._log(problem(f"pruning failed: {self.problem}"))
            return False
        self.problem = ""
        return done

    def last(self) -> Optional[float]:
        """When a process last began to prune this store, None for never. Raises StoreError."""
        with self.store.read() as connection:
            when: Optional[float] = connection.scalar(sa.select(leader.c.since).where(leader.c.name == LOCK))
        return when

    def _due(self) -> bool:
        last = self.last()
        self.begun = last or 0.0
        # Setting the clock back must not stop pruning for good.
        return last is None or not 0 <= self.clock() - last < self.settings.every

    def _prune(self) -> bool:
        lock = Leader(self.store, name=LOCK, clock=self.clock)
        if not lock.attempt():  # which also writes down that it begins now
            return False
        self.begun, began = self.clock(), time.monotonic()
        try:
            done = prune(
                self.store, self.settings.keep, self.clock(), segments=self.settings.segments, by=self.by,
                with_evidence=self._forget is not None,
            )  # fmt: skip
        finally:
            lock.release()
        if self._forget is not None:
            self._forget(done.files)
        self.seconds = time.monotonic() - began
        self.rows.update(done.rows)
        gone = ", ".join(f"{count} {name}" for name, count in done.rows.items() if count)
        if gone or done.segment:
            archived = f"; the audit log's old rows are in {done.segment}" if done.segment else ""
            self._log(f"pruned: {gone or 'nothing'}{archived}")
        return True

    def families(self) -> List[Family]:
        """What it did since this process began, for /metrics; the store knows when pruning last began."""
        rows = Family("nhc_store_pruned_rows_total", "counter", "Rows deleted by age, by table.")
        for name, count in sorted(self.rows.items()):
            rows.add(float(count), table=name)
        return [
            rows,
            gauge("nhc_store_prune_last_timestamp_seconds", "When pruning last began, by any process.", self.begun),
            gauge("nhc_store_prune_seconds", "How long this process last took to prune.", self.seconds),
            counter("nhc_store_prune_failures_total", "Prunings that failed.", self.failed),
        ]  # fmt: skip
