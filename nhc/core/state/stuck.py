"""Checks that nothing could kill: remembered by pid and start time until they are gone.

Without this a node with one dead mount gains a process in uninterruptible sleep on every run, which is
how health checks themselves have taken nodes down.
"""

from __future__ import annotations

import time

from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.state.store import State

if TYPE_CHECKING:
    from typing import Any, Dict, Optional

    from nhc.core.system.process_identity import KnownProcess


GRACE = 10.0
"""Seconds given to a killed process that merely waits for a processor before the next run calls it stuck."""


class StuckCheck(NamedTuple):
    """A process left behind by the check `key`, first seen stuck at `since` (Unix time)."""

    process: KnownProcess
    since: float

    def since_text(self) -> str:
        from nhc.core.timestamps import utc  # only where something is stuck

        return utc(self.since)


class StuckChecks:
    """What earlier runs left behind, and what this one does."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.known: Dict[str, StuckCheck] = {}
        self.gone = set()
        self.added: Dict[str, StuckCheck] = {}
        for key, record in state.load("stuck").items():
            from nhc.core.system.process_identity import identify  # only where something was stuck

            stuck = _read(record)
            process = identify(stuck.process.pid) if stuck is not None else None
            if stuck is None or process is None or process.start != stuck.process.start:
                self.gone.add(key)
            elif process.unkillable or not 0 <= time.time() - stuck.since < GRACE:
                self.known[key] = stuck

    def get(self, key: str) -> Optional[StuckCheck]:
        return self.known.get(key)

    def add(self, key: str, process: KnownProcess, now: float) -> None:
        self.added[key] = StuckCheck(process, now)

    def save(self) -> None:
        if not self.gone and not self.added:
            return

        def change(records: Dict[str, Any]) -> None:
            for key in self.gone:
                records.pop(key, None)
            for key, stuck in self.added.items():
                records[key] = {"pid": stuck.process.pid, "start": stuck.process.start, "since": stuck.since}

        self.state.update("stuck", change)


def _read(record: Any) -> Optional[StuckCheck]:
    from nhc.core.system.process_identity import KnownProcess

    try:
        stuck = StuckCheck(KnownProcess(int(record["pid"]), int(record["start"])), float(record["since"]))
        stuck.since_text()
        return stuck
    except (TypeError, KeyError, ValueError, OverflowError, OSError):
        return None
