"""Sends events to every sink, and counts how often each thing happened."""

from __future__ import annotations

import time
from typing import Callable, Dict, List, Tuple

from nhc.agent.events import event
from nhc.agent.sink_handle import CLOSING_TIMEOUT, SinkHandle
from nhc.marks.ports.sinks import Event, EventDetails

SERIES = 512
"""Reasons that are counted separately: a check that invents a new one each time must not fill the memory."""
KINDS = 4096
"""Things that are counted separately; beyond that, notes no longer count as new."""


class Publisher:
    """The events of one node. `clock` gives Unix time."""

    def __init__(self, node: str, boot_id: str, clock: Callable[[], float]) -> None:
        self._node, self._boot_id, self._clock = node, boot_id, clock
        self.sinks: Dict[str, SinkHandle] = {}
        self.counts: Dict[str, int] = {}
        self.problem_counts: Dict[str, int] = {}
        self.problem_seen: Dict[Tuple[str, str], None] = {}

    def emit(self, kind: str, details: EventDetails) -> None:
        """Publish one event, with the time now."""
        self.publish([event(kind, self._clock(), self._node, self._boot_id, details)])

    def log_event(self, details: EventDetails) -> None:
        """Something in a log that takes no node out of service."""
        self.emit("log.event", details)

    def publish(self, events: List[Event]) -> None:
        """Hand events to every sink."""
        for published in events:
            self.count(f"event {published['event']}")
        for handle in self.sinks.values():
            handle.publish(events)

    def changed(self) -> None:
        """The state of the node has changed: sinks get it."""
        for handle in self.sinks.values():
            handle.changed()

    def close(self) -> None:
        """Give every sink some time to deliver what it has, and end it."""
        for handle in self.sinks.values():
            handle.close()
        until = time.monotonic() + CLOSING_TIMEOUT
        for handle in self.sinks.values():
            handle.wait(until)

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def is_new(self, note: str) -> bool:
        """Count a note; whether this was the first time. If there are too many different ones, none is new."""
        key = f"note {note}"
        new = key not in self.counts and len(self.counts) < KINDS
        self.count(key)
        return new

    def count_problem(self, kind: str, reason: str, times: int = 1) -> None:
        """A problem has occurred: node-problem-detector's problem_counter, and a series of its problem_gauge."""
        if reason in self.problem_counts or len(self.problem_counts) < SERIES:
            self.problem_counts[reason] = self.problem_counts.get(reason, 0) + times
        if kind and len(self.problem_seen) < SERIES:
            self.problem_seen[kind, reason] = None
