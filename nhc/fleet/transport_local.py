"""Commands on this machine, and the stream over a child process that the OpenSSH transport uses as well."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from typing import List, Mapping, Optional, Sequence

from nhc.fleet.transport import Node, OutOfResources, Trouble, is_scarce, left

KEPT = 4096
"""Bytes of standard error that are kept."""


class ProcessStream:
    """A child process in a session of its own; it never blocks past a deadline."""

    def __init__(self, argv: Sequence[str], environ: Optional[Mapping[str, str]] = None) -> None:
        try:
            self.process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
                start_new_session=True, env=None if environ is None else dict(environ),
            )  # fmt: skip
        except OSError as error:
            if is_scarce(error):
                raise OutOfResources(f"{argv[0]}: {error.strerror}") from None
            raise Trouble("NoCommand", f"{argv[0]}: {error.strerror}") from None
        assert self.process.stdin
        assert self.process.stdout
        assert self.process.stderr
        self.stdin, self.stdout, self.stderr = self.process.stdin, self.process.stdout, self.process.stderr
        self.complaints = b""
        for pipe in (self.stdin, self.stdout, self.stderr):
            os.set_blocking(pipe.fileno(), False)
        self.open = {self.stdout.fileno(), self.stderr.fileno()}
        self.waiting: List[bytes] = []

    def send(self, data: bytes, deadline: float) -> None:
        rest = memoryview(data)
        while rest:
            self._poll(deadline, self.stdin.fileno())
            try:
                rest = rest[os.write(self.stdin.fileno(), rest) :]
            except BlockingIOError:
                continue
            except OSError:
                return  # it has ended: what it said is still to be read

    def receive(self, deadline: float) -> bytes:
        while not self.waiting and self.stdout.fileno() in self.open:
            self._poll(deadline)
        return self.waiting.pop(0) if self.waiting else b""

    def _poll(self, deadline: float, writing: int = -1) -> None:
        """Wait for something to happen, and take what is there to read."""
        poll = select.poll()
        for fd in self.open:
            poll.register(fd, select.POLLIN)
        if writing >= 0:
            poll.register(writing, select.POLLOUT)
        for fd, _event in poll.poll(min(left(deadline), 3600.0) * 1000):
            if fd == writing:
                continue
            try:
                data = os.read(fd, 65536)
            except BlockingIOError:
                continue
            if not data:
                self.open.discard(fd)
            elif fd == self.stdout.fileno():
                self.waiting.append(data)
            else:
                self.complaints = (self.complaints + data)[-KEPT:]

    def finish(self, deadline: float) -> int:
        """Read what is left to read of standard error; the exit status."""
        while self.stderr.fileno() in self.open:
            self._poll(deadline)
        try:
            return self.process.wait(left(deadline))
        except subprocess.TimeoutExpired:
            raise Trouble("Timeout", "the deadline passed") from None

    def complaint(self) -> str:
        return self.complaints.decode(errors="replace")

    def close(self) -> None:
        for pipe in (self.stdin, self.stdout, self.stderr):
            pipe.close()
        self.open.clear()
        if self.process.poll() is None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except OSError:
                pass
            try:
                self.process.wait(0.5)
            except subprocess.TimeoutExpired:
                pass  # in uninterruptible sleep: left to init


class LocalSession:
    """A shell of this machine."""

    def start(self, command: str, deadline: float) -> ProcessStream:
        left(deadline)
        return ProcessStream(["/bin/sh", "-c", command])

    def close(self) -> None:
        """Nothing is open."""


class Local:
    """Every node is this machine."""

    def connect(self, node: Node, deadline: float) -> LocalSession:
        left(deadline)
        return LocalSession()

    def close(self) -> None:
        """Nothing is open."""
