"""A command on a terminal of its own, as somebody at a keyboard has it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import time
from typing import Iterator, List, Mapping, Sequence

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")


class Terminal:
    """`seen` is all that the command wrote, escape sequences and all; `text` is that without them."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self.master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))

        def prepare() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a run in the background ignores it, children inherit that

        self.process = subprocess.Popen(argv, env=dict(env), stdin=slave, stdout=slave, stderr=slave,
                                        start_new_session=True, preexec_fn=prepare)  # fmt: skip
        os.close(slave)
        self.seen = ""

    @property
    def text(self) -> str:
        return ESCAPE.sub("", self.seen)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def until(self, words: str, seconds: float = 90) -> None:
        """Read until the pattern was shown."""
        deadline = time.monotonic() + seconds
        while not re.search(words, self.text):
            if not self._read(deadline):
                raise AssertionError(f"{words!r} was not shown: {self.text!r}")

    def end(self, seconds: float = 90) -> int:
        """Read to the end; the exit status."""
        deadline = time.monotonic() + seconds
        while self._read(deadline):
            pass
        return self.process.wait(max(deadline - time.monotonic(), 0.1))

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self.master], [], [], max(deadline - time.monotonic(), 0))
        try:
            data = os.read(self.master, 65536) if ready else b""
        except OSError:  # EIO: nobody has the other end any more
            data = b""
        self.seen += data.decode(errors="replace")
        return bool(data)

    def session(self) -> List[int]:
        """The processes of its session that are there now."""
        found = []
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as file:
                    state, _parent, _group, session = file.read().rpartition(")")[2].split()[:4]
                if int(session) == self.process.pid and state != "Z":
                    found.append(int(name))
        return found


@contextlib.contextmanager
def terminal(argv: Sequence[str], env: Mapping[str, str]) -> Iterator[Terminal]:
    opened = Terminal(argv, env)
    try:
        yield opened
    finally:
        if opened.process.poll() is None:
            opened.process.kill()
            opened.process.wait()
        os.close(opened.master)
