"""How the agent sends reports and events to a sink: a process for each, a pipe to it, and bounded memory on both sides.

A disk that is full or hung, a server that is away for an hour, a library that leaks: none of it may reach the
process that watches the node. While a sink does not take what it is sent, only the newest state is kept for it,
and the newest events.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, List, Optional

from nhc.agent.check_round import become_child
from nhc.agent.event_loop import READ, WRITE, Loop
from nhc.agent.sink_process import LENGTH, MOST_EVENTS, Make, SinkProcess, run_all
from nhc.core.system.backoff import Backoff
from nhc.core.system.children import FAILED, fork, reap
from nhc.marks.ports.sinks import Event, Standing

if TYPE_CHECKING:
    from nhc.core.system.children import Pipe

BATCH = 100
"""Events sent at a time."""
BACKOFF = (1.0, 60.0)
SEVERAL = 3
"""Times in a row that a sink could not be started, after which the agent is not well."""
CLOSING_TIMEOUT = 5.0
"""Seconds that a sink has to end in."""


class SinkHandle:
    """The agent's side of one sink. `state` says how the node is, as bytes of JSON, whenever it is asked.

    Sinks of one list `together` share a process: when one starts, those of them that have no process start with it.
    """

    def __init__(
        self,
        name: str,
        make: Make,
        loop: Loop,
        state: Callable[[], bytes],
        log: Callable[[str], None],
        standing: Optional[Callable[[str, List[Standing]], None]] = None,
        wants_state: bool = True,
        together: Optional[List[SinkHandle]] = None,
    ) -> None:
        self._together = [] if together is None else together
        self._together.append(self)
        self.name, self.make, self.loop, self.state, self.log = name, make, loop, state, log
        self.standing = standing
        self.wants_state = wants_state
        self.problem = "not started"
        """What keeps it from delivering, "" while all is delivered."""
        self.restarts = 0
        self.lost = 0
        self.pid = 0
        self._events: Deque[Event] = deque()
        self._stale = wants_state
        self._out = self._in = -1
        self._buffer = b""
        self._received = bytearray()
        self._backoff = Backoff(*BACKOFF)
        self._failures = 0  # in a row, without a message from it in between
        self._began = 0.0
        self._closing = False
        self._asked = False  # whether it has reported the faults that stood before: until then it is sent nothing

    @property
    def dead(self) -> str:
        """Why it has no process and has got none for several tries, "" while it has one or only just lost it."""
        return self.problem if not self.pid and self._failures >= SEVERAL and not self._closing else ""

    @property
    def waiting(self) -> int:
        return len(self._events)

    def start(self) -> None:
        """Start the sink's process. Called while this process has one thread, as it always has."""
        if self.pid:
            return  # a sink that it shares its process with has started it
        handles = [handle for handle in self._together if not handle.pid]
        sys.stdout.flush()
        sys.stderr.flush()

        def child(*pipes: Pipe) -> None:
            ends = [(down[0], up[1]) for down, up in zip(pipes[::2], pipes[1::2])]
            become_child([end for pair in ends for end in pair])
            run_all([SinkProcess(handle.make, *pair) for handle, pair in zip(handles, ends)])

        try:
            pid, pipes = fork(child, pipes=2 * len(handles))
        except OSError as error:
            self._gone(f"cannot be started: {error.strerror}")
            return
        for handle, down, up in zip(handles, pipes[::2], pipes[1::2]):
            os.close(down[0])
            os.close(up[1])
            handle._started(pid, down[1], up[0])

        def ended(status: int) -> None:
            for handle in handles:
                handle._ended(pid, status)

        self.loop.child(pid, ended)

    def _started(self, pid: int, writing: int, reading: int) -> None:
        os.set_blocking(writing, False)
        os.set_blocking(reading, False)
        self.pid, self._out, self._in = pid, writing, reading
        self._began = self.loop.clock()
        self._buffer, self._received = b"", bytearray()
        self._stale, self._asked = self.wants_state, False
        self.problem = "starting"
        self.loop.watch(reading, lambda _events: self._listen(), READ)

    def changed(self) -> None:
        """The state is another: send it when there is room."""
        if self.wants_state:
            self._stale = True
            self._write()

    def publish(self, events: List[Event]) -> None:
        for event in events:
            if len(self._events) >= MOST_EVENTS:
                self._events.popleft()
                self.lost += 1
            self._events.append(event)
        self._write()

    def _write(self) -> None:
        """Send as much as goes; the rest when the pipe has room."""
        while self._out >= 0 and self._asked:
            if not self._buffer:
                if not self._stale and not self._events:
                    break
                batch = [self._events.popleft() for _ in range(min(BATCH, len(self._events)))]
                head = json.dumps({"events": batch, "lost": self.lost}, ensure_ascii=False).encode()
                body = self.state() if self._stale else b""
                self._stale = False
                self._buffer = LENGTH.pack(len(head)) + head + LENGTH.pack(len(body)) + body
            try:
                written = os.write(self._out, self._buffer)
            except BlockingIOError:
                self.loop.watch(self._out, lambda _events: self._write(), WRITE)
                return
            except OSError:
                break  # `_ended` sees its end
            self._buffer = self._buffer[written:]
        if self._out >= 0:
            self.loop.forget(self._out)

    def _listen(self) -> None:
        try:
            data = os.read(self._in, 1 << 16)
        except BlockingIOError:
            return
        if not data:
            self.loop.forget(self._in)
            return
        self._received += data
        *lines, self._received = self._received.split(b"\n")
        for line in lines:
            self._take_message(json.loads(line))

    def _take_message(self, message: Dict[str, Any]) -> None:
        if "log" in message:
            self.log(f"{self.name}: {message['log']}")
        if "problem" in message:
            self.problem = str(message["problem"])
            if not self.problem:
                self._backoff.reset()
        if "standing" in message:
            self._failures = 0
            if self.standing:
                self.standing(self.name, [Standing(*fault) for fault in message["standing"]])
            self._asked = True
            self._write()
        if "ended" in message and not self._closing:
            self._ended(self.pid, FAILED << 8)

    def _ended(self, pid: int, status: int) -> None:
        if pid == self.pid:
            self._listen()  # what it wrote last; it may have said there that it ends
        if pid != self.pid:
            return
        for fd in (self._in, self._out):
            self.loop.forget(fd)
            os.close(fd)
        self.pid, self._in, self._out = 0, -1, -1
        if not self._closing:
            how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"status {os.WEXITSTATUS(status)}"
            self._gone(f"its process ended with {how}")

    def _gone(self, problem: str) -> None:
        self.restarts += 1
        self._failures += 1
        if self._began and self.loop.clock() - self._began > BACKOFF[1]:
            self._backoff.reset()
        before = self.problem.partition(" (")[0]  # its last message, without those of the tries before
        self.problem = f"{problem}{f' ({before})' if before and before != problem else ''}"
        wait = self._backoff.next()
        self.log(f"{self.name}: {self.problem}; tried again in {wait:.0f} s")
        self.loop.after(wait, self.start)

    def close(self) -> None:
        """Let it deliver what was sent and end. `wait` reaps it."""
        self._closing = True
        if self._out >= 0:
            self._write()
            if self._buffer:  # the rest of a message goes now, or not at all
                ready = select.poll()
                ready.register(self._out, WRITE)
                until = time.monotonic() + 1.0
                while self._buffer and time.monotonic() < until:
                    ready.poll(100)
                    try:
                        self._buffer = self._buffer[os.write(self._out, self._buffer) :]
                    except BlockingIOError:
                        continue
                    except OSError:
                        break
            self.loop.forget(self._out)
            os.close(self._out)
            self._out = -1

    def wait(self, until: float) -> None:
        """Until the monotonic time `until`, then it is killed."""
        if self.pid and reap(self.pid, until - time.monotonic()) is None:
            os.kill(self.pid, signal.SIGKILL)
            reap(self.pid, float("inf"))
        self.pid = 0
