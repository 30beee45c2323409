"""Shows the progress of a run: which check runs, for how long, and about how long the rest will take.

On a terminal a small process of its own rewrites one line a second, as the run itself waits for its checks. Elsewhere
a line is written as each check begins and ends.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from typing import List, Sequence

from nhc.core.units import show_seconds
from nhc.node.planning.suites import ExpectedCheck


def line(steps: Sequence[ExpectedCheck], done: int, spent: float) -> str:
    """The line while check number `done` (from 0) has run for `spent` seconds. Pure."""
    if done >= len(steps):
        return f"{len(steps)}/{len(steps)} done"
    left = max(steps[done].seconds - spent, 0.0) + sum(step.seconds for step in steps[done + 1 :])
    since = f" {_clock(spent)}" if spent >= 1 else ""
    return f"{done + 1}/{len(steps)} {steps[done].name}{since}, about {_clock(left)} left"


def _clock(seconds: float) -> str:
    return show_seconds(round(seconds)) if seconds < 100 else f"{round(seconds / 60)} min"


class RunProgress:
    """Shows how far a run is. `ended` is called as each check ends, `close` at the end."""

    def __init__(self, steps: Sequence[ExpectedCheck], stream: int = 2, terminal: bool = False) -> None:
        self.steps: List[ExpectedCheck] = list(steps)
        self.stream = stream
        self.began = time.monotonic()
        self.done = 0
        self._pid = 0
        self._pipe = -1
        if terminal:
            self._start()
        else:
            self._say(line(self.steps, 0, 0.0))

    def _start(self) -> None:
        try:
            reader, writer = os.pipe()
        except OSError:
            return
        try:
            sys.stdout.flush()
            sys.stderr.flush()
            pid = os.fork()
        except OSError:
            os.close(reader)
            os.close(writer)
            return
        if pid == 0:
            try:
                os.close(writer)
                for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                    signal.signal(number, signal.SIG_IGN)  # it ends when the run closes the pipe
                self._rewrite(reader)
            finally:
                os._exit(0)
        os.close(reader)
        self._pid, self._pipe = pid, writer

    def _rewrite(self, reader: int) -> None:
        """In the small process: one line, again and again, until the pipe is closed."""
        done, since = 0, time.monotonic()
        while True:
            self._write(f"\r\033[K{line(self.steps, done, time.monotonic() - since)[:100]}")
            if not select.select([reader], [], [], 1.0)[0]:
                continue
            data = os.read(reader, 256)
            if not data:
                self._write("\r\033[K")
                return
            done, since = done + len(data), time.monotonic()

    def ended(self) -> None:
        """A check has ended."""
        self.done += 1
        if self._pipe >= 0:
            try:
                os.write(self._pipe, b".")
            except OSError:
                pass
        elif not self._pid and self.done < len(self.steps):
            self._say(line(self.steps, self.done, 0.0))

    def _say(self, text: str) -> None:
        self._write(f"{text}\n")

    def _write(self, text: str) -> None:
        try:
            os.write(self.stream, text.encode(errors="replace"))
        except OSError:
            pass

    def close(self) -> None:
        """Nothing more is shown."""
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        if self._pid:
            try:
                os.waitpid(self._pid, 0)
            except ChildProcessError:
                pass
            self._pid = 0
