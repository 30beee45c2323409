"""How the agent sends reports and events to a sink: a process for each, a pipe to it, and bounded memory on both sides.

A full or hung disk, a server that is away for an hour, a library that leaks: none of these may affect the process that
watches the node. While a sink accepts nothing, only the newest state and the newest events are kept for it.
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
"""After so many failed starts of a sink in a row the agent reports a problem."""
CLOSING_TIMEOUT = 5.0
"""Seconds that a sink has to end."""


class Outgoing:
    """What is still to be sent to one sink: events, and the state if it `wants_state` and the state has changed.

    Nothing is sent before the sink has reported the faults that it already shows. `state` gives the newest state, as
    JSON.
    """

    def __init__(self, state: Callable[[], bytes], wants_state: bool) -> None:
        self._state, self._wants_state = state, wants_state
        self._events: Deque[Event] = deque()
        self._stale = wants_state
        self._held = True
        self.lost = 0

    def __len__(self) -> int:
        return len(self._events)

    def hold(self) -> None:
        """A new process: it gets the state as well, when it is ready."""
        self._stale, self._held = self._wants_state, True

    def release(self) -> None:
        """The sink is ready."""
        self._held = False

    def add(self, events: List[Event]) -> None:
        for event in events:
            if len(self._events) >= MOST_EVENTS:
                self._events.popleft()
                self.lost += 1
            self._events.append(event)

    def changed(self) -> bool:
        """The state has changed. Returns whether it is to be sent."""
        self._stale = self._wants_state
        return self._wants_state

    def message(self) -> bytes:
        """The next message, b"" if there is none."""
        if self._held or not (self._stale or self._events):
            return b""
        batch = [self._events.popleft() for _ in range(min(BATCH, len(self._events)))]
        head = json.dumps({"events": batch, "lost": self.lost}, ensure_ascii=False).encode()
        body = self._state() if self._stale else b""
        self._stale = False
        return LENGTH.pack(len(head)) + head + LENGTH.pack(len(body)) + body


class SinkPipe:
    """The pipes to and from a sink's process. `heard` is called when there is something to read."""

    def __init__(self, loop: Loop, writing: int, reading: int, heard: Callable[[], None]) -> None:
        self._loop = loop
        self._out, self._in = writing, reading
        self._buffer = b""
        self._received = bytearray()
        for fd in (writing, reading):
            os.set_blocking(fd, False)
        loop.watch(reading, lambda _events: heard(), READ)

    def send(self, outgoing: Outgoing) -> None:
        """Send as much as fits; the rest when the pipe has room."""
        while self._out >= 0:
            self._buffer = self._buffer or outgoing.message()
            if not self._buffer:
                break
            try:
                self._buffer = self._buffer[os.write(self._out, self._buffer) :]
            except BlockingIOError:
                self._loop.watch(self._out, lambda _events: self.send(outgoing), WRITE)
                return
            except OSError:
                break  # the code that reaps the process sees its end
        if self._out >= 0:
            self._loop.forget(self._out)

    def lines(self) -> List[bytes]:
        """The messages that came."""
        try:
            data = os.read(self._in, 1 << 16)
        except BlockingIOError:
            return []
        if not data:
            self._loop.forget(self._in)
            return []
        self._received += data
        *lines, self._received = self._received.split(b"\n")
        return [bytes(line) for line in lines]

    def finish(self, outgoing: Outgoing) -> None:
        """Send what fits, and the rest of a message now or never; then nothing more."""
        self.send(outgoing)
        if self._buffer:
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
        self._close(self._out)
        self._out = -1

    def close(self) -> None:
        """The process has ended."""
        self._close(self._in)
        self._close(self._out)
        self._in = self._out = -1

    def _close(self, fd: int) -> None:
        if fd >= 0:
            self._loop.forget(fd)
            os.close(fd)


class Restarts:
    """The failed starts of a process: how many, and how long to wait before the next."""

    def __init__(self) -> None:
        self.count = 0
        self._backoff = Backoff(*BACKOFF)
        self._in_a_row = 0
        """Counted without a message from it in between."""
        self._began = 0.0

    @property
    def several(self) -> bool:
        """Whether it could not be started several times in a row."""
        return self._in_a_row >= SEVERAL

    def started(self, now: float) -> None:
        self._began = now

    def heard(self) -> None:
        """The process has sent a message."""
        self._in_a_row = 0

    def delivered(self) -> None:
        """The next wait is the shortest again."""
        self._backoff.reset()

    def failed(self, now: float) -> float:
        """Count a failure. Returns the seconds to wait."""
        self.count += 1
        self._in_a_row += 1
        if self._began and now - self._began > BACKOFF[1]:
            self._backoff.reset()
        return self._backoff.next()


class SinkHandle:
    """The agent's side of one sink. `state` returns the node's current state, as bytes of JSON.

    The sinks in one list `together` share a process: when one starts, those without a process start with it.
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
        self.name, self.make, self.loop, self.log = name, make, loop, log
        self.standing = standing
        self.problem = "not started"
        """Why it cannot deliver, "" while all is delivered."""
        self.pid = 0
        self._restarts = Restarts()
        self._outgoing = Outgoing(state, wants_state)
        self._pipe: Optional[SinkPipe] = None
        self._closing = False

    @property
    def dead(self) -> str:
        """Why it has no process after several tries, "" while it has one or has just lost it."""
        return self.problem if not self.pid and self._restarts.several and not self._closing else ""

    @property
    def restarts(self) -> int:
        """How often its process ended or could not be started."""
        return self._restarts.count

    @property
    def waiting(self) -> int:
        """How many events wait for it."""
        return len(self._outgoing)

    @property
    def lost(self) -> int:
        """How many events it did not accept in time."""
        return self._outgoing.lost

    def start(self) -> None:
        """Start the sink's process. Called while this process has one thread (it always has one)."""
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
        self.pid = pid
        self.problem = "starting"
        self._restarts.started(self.loop.clock())
        self._outgoing.hold()
        self._pipe = SinkPipe(self.loop, writing, reading, self._listen)

    def changed(self) -> None:
        """The state has changed: send it when there is room."""
        if self._outgoing.changed():
            self._send()

    def publish(self, events: List[Event]) -> None:
        self._outgoing.add(events)
        self._send()

    def _send(self) -> None:
        if self._pipe is not None:
            self._pipe.send(self._outgoing)

    def _listen(self) -> None:
        for line in self._pipe.lines() if self._pipe is not None else ():
            self._take_message(json.loads(line))

    def _take_message(self, message: Dict[str, Any]) -> None:
        if "log" in message:
            self.log(f"{self.name}: {message['log']}")
        if "problem" in message:
            self.problem = str(message["problem"])
            if not self.problem:
                self._restarts.delivered()
        if "standing" in message:
            self._restarts.heard()
            if self.standing:
                self.standing(self.name, [Standing(*fault) for fault in message["standing"]])
            self._outgoing.release()
            self._send()
        if "ended" in message and not self._closing:
            self._ended(self.pid, FAILED << 8)

    def _ended(self, pid: int, status: int) -> None:
        if pid == self.pid:
            self._listen()  # what it wrote last; it may have said there that it ends
        if pid != self.pid:
            return
        if self._pipe is not None:
            self._pipe.close()
        self.pid, self._pipe = 0, None
        if not self._closing:
            how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"status {os.WEXITSTATUS(status)}"
            self._gone(f"its process ended with {how}")

    def _gone(self, problem: str) -> None:
        wait = self._restarts.failed(self.loop.clock())
        before = self.problem.partition(" (")[0]  # its last message, without those of the tries before
        self.problem = f"{problem}{f' ({before})' if before and before != problem else ''}"
        self.log(f"{self.name}: {self.problem}; tried again in {wait:.0f} s")
        self.loop.after(wait, self.start)

    def close(self) -> None:
        """Let it deliver what was sent, then end. `wait` reaps it."""
        self._closing = True
        if self._pipe is not None:
            self._pipe.finish(self._outgoing)

    def wait(self, until: float) -> None:
        """Wait until the monotonic time `until`, then kill it."""
        if self.pid and reap(self.pid, until - time.monotonic()) is None:
            os.kill(self.pid, signal.SIGKILL)
            reap(self.pid, float("inf"))
        self.pid = 0
