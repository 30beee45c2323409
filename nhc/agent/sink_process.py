"""A sink's process: receives what the agent sends, delivers the newest, tries again.

Sinks that share a process have a thread each. A sink that cannot be made, or breaks, ends alone, and the agent starts
it in another process.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import struct
import threading
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence, Tuple

from nhc.agent.event_loop import READ
from nhc.core.model import Report, printable
from nhc.core.system.backoff import Backoff
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.sinks import Delivery, Event, NodeCondition, NotYetDelivered, Sink, Standing

MOST_EVENTS = 1000
"""Events kept, on either side of the pipe, for a sink that does not accept them."""
RETRY = (0.5, 15.0)
LOOK = 5.0
"""Seconds between two checks of a buffered sink's problem."""
LENGTH = struct.Struct("=I")

PASSING = (AdapterError, OSError, RuntimeError, MemoryError)
"""Errors that may pass: the other side is away, or this machine has no descriptor, thread or memory free now."""

Make = Callable[[Callable[[str], None]], Sink]
"""Makes the sink, inside its process, with a function to complain to."""


class SinkProcess:
    """The sink's side: receives messages, delivers the newest, tries again."""

    def __init__(self, make: Make, reading: int, writing: int) -> None:
        self.make = make
        self.reading, self.writing = reading, writing
        self.buffer = bytearray()
        self.report: Optional[Report] = None
        self.complete = False
        self.conditions: List[NodeCondition] = []
        self.contexts: Dict[str, Tuple[str, ...]] = {}
        self.events: Deque[Event] = deque()
        self.lost = self.lost_before = 0
        self.new = False
        self.over = False
        self.problem: Optional[str] = None

    def say(self, **message: Any) -> None:
        """Send the agent a message."""
        try:
            os.write(self.writing, json.dumps(message).encode() + b"\n")
        except OSError:
            self.over = True

    def run(self) -> None:
        """Run until the agent closes the pipe. An exception of the sink is reported to the agent, and raised."""
        try:
            self._run()
        except Exception as error:
            self.say(problem=printable(f"{type(error).__name__}: {error}", 500))
            raise

    def _run(self) -> None:
        sink = self.make(lambda line: self.say(log=printable(line, 1000)))
        gc.freeze()
        gc.enable()  # this process stays; the fork was made for a round, whose process ends soon
        backoff = Backoff(*RETRY)
        standing: Optional[List[Standing]] = None
        while standing is None and not self.over:
            try:
                standing = sink.standing()
            except PASSING as error:
                self._trouble(_error_text(error))
                self._take(backoff.next())
        self.say(standing=[list(fault) for fault in standing or ()])
        backoff.reset()
        wait = 0.0
        problem = getattr(sink, "problem", None)  # of a buffered sink (nhc.marks.ports.sinks.BufferedSink)
        while not self.over or (self.new and not wait):
            if wait or problem is None:
                self._take(wait or None)
            else:
                self._take(LOOK, until_new=True)
            if not self.new:
                if problem is not None and not wait:
                    self._trouble(problem())
                continue
            try:
                self._deliver(sink)
            except PASSING as error:
                self._trouble(_error_text(error))
                wait = backoff.next()
            else:
                self._trouble(problem() if problem is not None else "")
                backoff.reset()
                wait = 0.0
        try:
            sink.close()
        except PASSING:
            pass

    def _deliver(self, sink: Sink) -> None:
        report = self.report or Report("", "", 0.0, 0.0, ())
        delivery = Delivery(report, self.complete, tuple(self.events), tuple(self.conditions), self.lost, self.contexts)
        try:
            sink.deliver(delivery)
        except NotYetDelivered:
            self.events.clear()
            raise
        self.events.clear()
        self.new = False

    def _trouble(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            self.say(problem=printable(problem, 500))

    def _take(self, wait: Optional[float], until_new: bool = False) -> None:
        """Read what has come: with `wait` for that long (or `until_new`), without it until something comes."""
        poll = select.poll()
        poll.register(self.reading, READ)
        until = None if wait is None else time.monotonic() + wait
        while not self.over:
            left = None if until is None else max(0, int((until - time.monotonic()) * 1000))
            if not poll.poll(0 if self.new and (wait is None or until_new) else left):
                return
            data = os.read(self.reading, 1 << 20)
            if not data:
                self.over = True
                return
            self.buffer += data
            while self._message():
                pass

    def _message(self) -> bool:
        from nhc.core.render.json import from_dict

        size = LENGTH.size
        if len(self.buffer) < size:
            return False
        head = LENGTH.unpack_from(self.buffer)[0]
        if len(self.buffer) < 2 * size + head:
            return False
        body = LENGTH.unpack_from(self.buffer, size + head)[0]
        end = 2 * size + head + body
        if len(self.buffer) < end:
            return False
        message = json.loads(bytes(self.buffer[size : size + head]))
        for event in message["events"]:
            if len(self.events) >= MOST_EVENTS:
                self.events.popleft()
                self.lost += 1
            self.events.append(event)
        self.lost += message["lost"] - self.lost_before
        self.lost_before = message["lost"]
        if body:
            state = json.loads(bytes(self.buffer[2 * size + head : end]))
            self.report = from_dict(state["report"])
            self.complete = bool(state["complete"])
            self.conditions = state["conditions"]
            self.contexts = {line: tuple(names) for line, names in state["contexts"].items()}
        del self.buffer[:end]
        self.new = True
        return True

    def run_beside_others(self) -> None:
        """`run` in a thread; the agent gets a message when it ends."""
        with contextlib.suppress(Exception):
            self.run()
        self.say(ended=True)


def run_all(sinks: Sequence[SinkProcess]) -> None:
    """Run the sinks of this process until all have ended."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the agent ends them by closing the pipe
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if len(sinks) == 1:
        sinks[0].run()
        return
    threads = [threading.Thread(target=sink.run_beside_others, name=f"sink-{n}") for n, sink in enumerate(sinks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _error_text(error: BaseException) -> str:
    """An adapter error's own text; for any other error its type as well."""
    return str(error) if isinstance(error, AdapterError) else f"{type(error).__name__}: {error}"
