"""The process behind the shell: its pipes, and the conversation over them (data/shell.bash has the other end)."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys
import termios
import time

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.system import process

if TYPE_CHECKING:
    from typing import Callable, List, Mapping, Optional, Sequence, Tuple

OUTPUT_LIMIT = 256 << 10
"""Bytes of a line's output kept, the last ones; the rest is read and dropped, so that no line blocks on us."""

# Descriptors in the shell (data/shell.bash): far above those that scripts choose for themselves.
_LINES, _REQUESTS, _REPLIES, _TURN_OUT, _TURN_IN = 60, 61, 62, 63, 64


class LineEnd(NamedTuple):
    """How a line ended: its status, whether it took the shell with it, and the signal that ended that, 0 for none."""

    status: int
    shell_gone: bool = False
    signal: int = 0


class Bash:
    """The process, its pipes, and the conversation over them."""

    def __init__(self, bash: str, script: str, environment: Mapping[str, str], host: Host) -> None:
        self._watch = host.system.watch
        program, argv = host.system.started(bash, ["nhc", "--norc", "--noprofile", "-c", script, "nhc"])
        ours, theirs = _pipes()
        self._lines, self._requests, self._replies, self._output, self._turn = ours
        lines, requests, replies, output, turn_out, turn_in = theirs
        try:
            self.pid = os.posix_spawn(
                program,
                argv,
                environment,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, output, 1),
                    (os.POSIX_SPAWN_DUP2, output, 2),
                    (os.POSIX_SPAWN_DUP2, lines, _LINES),
                    (os.POSIX_SPAWN_DUP2, requests, _REQUESTS),
                    (os.POSIX_SPAWN_DUP2, replies, _REPLIES),
                    (os.POSIX_SPAWN_DUP2, turn_out, _TURN_OUT),
                    (os.POSIX_SPAWN_DUP2, turn_in, _TURN_IN),
                ],
                setpgroup=0,
                setsigmask=(),
                setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
            )
        except BaseException:
            for fd in ours:
                os.close(fd)
            raise
        finally:
            os.write(turn_in, b"x")  # while its other end is surely open
            for fd in theirs:
                os.close(fd)
        if self._watch:
            self._watch("started", self.pid)
        self._pidfd = process.pidfd(self.pid)
        self._end: Optional[process.ProcessEnd] = None
        self.asker = 0  # the process whose request is being answered
        self._answered = 0  # the process that was answered last, until it has read the answer
        self._kept = bytearray()
        self._asked = bytearray()

    def begin(self, assign: str, line: str) -> None:
        """Hand the shell its next line, and the assignments to make before it."""
        self._write(self._lines, f"{assign}\0{line}\0".encode(errors="surrogateescape"))

    def serve(self, answer: Callable[[Sequence[str]], Optional[str]]) -> LineEnd:
        """Answer the shell's requests until it says that it is done, or ends."""
        poll = self._poll()
        while True:
            request = self._request()
            if request is not None:
                self.asker, fields = int(request[0]), request[1:]
                if fields[0] in ("ready", "end"):
                    self._drain()
                    return LineEnd(int(fields[1]))
                reply = answer(fields)
                if reply is not None:
                    self._answered = self.asker
                    self._write(self._replies, f"{self.asker} {reply}\0".encode(errors="surrogateescape"))
                continue
            if self._end is None:
                self._end = process.process_end(self.pid)
            if self._end is not None:
                if self._drain():
                    continue
                return LineEnd(self._end.status, True, self._end.signal)
            if self._answered:
                self._settle()
            for fd, _event in poll.poll(10 if self._pidfd < 0 or self._answered else 1000):
                if fd == process.lifeline:
                    process.orphaned(self.pid)
                if fd == self._output:
                    more = _read(fd, self._kept, OUTPUT_LIMIT)
                else:
                    more = fd != self._requests or _read(fd, self._asked, 0)
                if not more:
                    poll.unregister(fd)

    def _poll(self) -> select.poll:
        poll = select.poll()
        for fd in (self._output, self._requests, self._pidfd):
            if fd >= 0:
                poll.register(fd, select.POLLIN)
        if process.lifeline >= 0:
            poll.register(process.lifeline, 0)
        return poll

    def take_output(self) -> str:
        text = self._kept.decode(errors="replace")
        self._kept.clear()
        return text

    def close(self) -> None:
        for fd in (self._lines, self._requests, self._replies, self._output, self._turn, self._pidfd):
            if fd >= 0:
                os.close(fd)
        deadline = time.monotonic() + 0.5  # it ends by itself when it finds no more lines
        while self._end is None and process.process_end(self.pid) is None:
            if time.monotonic() > deadline:
                process.signal_group(self.pid, signal.SIGKILL)
                process.abandon(self.pid)
                break
            time.sleep(0.001)
        if self._watch:
            self._watch("ended", self.pid)

    def _settle(self) -> None:
        """Where the process that asked last was killed before it read its answer, give its turn to the others."""
        unread = int.from_bytes(fcntl.ioctl(self._replies, termios.FIONREAD, bytes(4)), sys.byteorder)
        if not unread:
            self._answered = 0
        elif not _runs(self._answered):
            self._answered = 0
            self._write(self._turn, b"x")

    def _drain(self) -> bool:
        """Read what is there; whether a whole request was."""
        _read(self._output, self._kept, OUTPUT_LIMIT)
        before = len(self._asked)
        _read(self._requests, self._asked, 0)
        return len(self._asked) > before

    def _request(self) -> Optional[List[str]]:
        """Take the next whole request from what has been read."""
        head, nul, rest = bytes(self._asked).partition(b"\0")
        if not nul:
            return None
        count = int(head)
        fields = rest.split(b"\0", count)
        if len(fields) <= count:
            return None
        self._asked[:] = fields[count]
        return [field.decode(errors="surrogateescape") for field in fields[:count]]

    def _write(self, fd: int, data: bytes) -> None:
        """Write all of it, reading the shell's output meanwhile; give up when the shell is gone."""
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        poll.register(self._output, select.POLLIN)
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(fd, view) :]
                continue
            except BlockingIOError:
                pass
            except BrokenPipeError:
                return
            ready = dict(poll.poll(100))
            if self._output in ready and not _read(self._output, self._kept, OUTPUT_LIMIT):
                poll.unregister(self._output)
            if not ready and not _alive(self.pid):
                return


def _pipes() -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
    """Our ends (lines, requests, replies, output, turn) and the shell's (those, and both ends of the turn's pipe).

    All are moved above the numbers that they get in the shell, where one could overwrite another.
    """
    made: List[int] = []

    def pipe() -> Tuple[int, int]:
        ends = os.pipe()
        high: List[int] = []
        try:
            for fd in ends:
                high.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _TURN_IN + 1))  # noqa: PERF401 (what is there is closed)
        finally:
            made.extend(high)
            for fd in ends:
                os.close(fd)
        return high[0], high[1]

    try:
        lines, requests, replies, output, turn = pipe(), pipe(), pipe(), pipe(), pipe()
    except BaseException:
        for fd in made:
            os.close(fd)
        raise
    ours = (lines[1], requests[0], replies[1], output[0], fcntl.fcntl(turn[1], fcntl.F_DUPFD_CLOEXEC, _TURN_IN + 1))
    for fd in ours:
        os.set_blocking(fd, False)
    return ours, (lines[0], requests[1], replies[0], output[1], turn[0], turn[1])


def _read(fd: int, kept: bytearray, limit: int) -> bool:
    """Read what is there, keeping the last `limit` bytes where that is not 0; False at the end of the stream."""
    while True:
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return True
        if not data:
            return False
        kept += data
        if limit and len(kept) > limit:
            del kept[:-limit]


def _runs(pid: int) -> bool:
    """Whether the process is there and has not ended; a killed one stays as a zombie until its parent looks."""
    from nhc.core.system.process_identity import read_stat

    stat = read_stat(pid)
    return _alive(pid) if stat is None else stat.state not in "ZX"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
