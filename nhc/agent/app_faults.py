"""Faults of applications in the kernel log, as events: a job that ran out of memory, an Xid of its own making.

They take no node out and leave no finding, so an event is all there is to see of them: node-problem-detector tells
an OOM kill in the same way.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Callable, Dict, List, Tuple

from nhc.kernlog.match import Match
from nhc.model import printable

AGAIN = 60.0
"""Seconds within which one fault of one device is one event: a kill is told in several lines."""
KEPT = 256


class AppFaults:
    """Tells each fault once a while. `emit` takes what goes into a log.event."""

    def __init__(self, emit: Callable[[Dict[str, Any]], None], clock: Callable[[], float]) -> None:
        self._emit, self._clock = emit, clock
        self._told: OrderedDict[Tuple[str, str, str], float] = OrderedDict()

    def tell(self, matches: List[Match]) -> None:
        from nhc.checks.kmsg import reason_of

        now = self._clock()
        for match in matches:
            # The lines of one OOM kill name different things; they are one kill.
            key = (match.kind, match.code, match.device if match.kind != "oom" else "")
            last = self._told.get(key)
            if last is not None and now - last < AGAIN:
                continue
            self._told[key] = now
            self._told.move_to_end(key)
            while len(self._told) > KEPT:
                self._told.popitem(last=False)
            named = reason_of(match.kind, match.code)
            message = printable(f"{match.message}: {match.line}", 1000)
            self._emit({"type": "check_kmsg", "reason": named, "severity": "warn", "message": message})
