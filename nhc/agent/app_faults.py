"""Faults in the kernel log that leave no finding, as events: a job that ran out of memory, an Xid of its own making, a
file system that the node does not mount.

They take no node out of service and leave no finding, so an event is their only trace: node-problem-detector reports
an OOM kill in the same way.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Callable, List, Tuple

from nhc.core.model import printable
from nhc.marks.ports.sinks import EventDetails
from nhc.node.kernlog.match import Match

AGAIN = 60.0
"""Seconds within which one fault of one device is one event: a kill is logged in several lines."""
KEPT = 256


class AppFaults:
    """Publishes each fault once a while. `emit` takes what goes into a log.event."""

    def __init__(self, emit: Callable[[EventDetails], None], clock: Callable[[], float]) -> None:
        self._emit, self._clock = emit, clock
        self._published: OrderedDict[Tuple[str, str, str], float] = OrderedDict()

    def publish(self, matches: List[Match]) -> None:
        from nhc.node.checks.kmsg import reason_of

        now = self._clock()
        for match in matches:
            # The lines of one OOM kill name different things; they are one kill.
            key = (match.kind, match.code, match.device if match.kind != "oom" else "")
            last = self._published.get(key)
            if last is not None and now - last < AGAIN:
                continue
            self._published[key] = now
            self._published.move_to_end(key)
            while len(self._published) > KEPT:
                self._published.popitem(last=False)
            reason = reason_of(match.kind, match.code)
            message = printable(f"{match.message}: {match.line}", 1000)
            self._emit({"type": "check_kmsg", "reason": reason, "severity": "warn", "message": message})
