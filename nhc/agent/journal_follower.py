"""journald, live: one `journalctl --follow` for each thing that is followed, started again when it ends.

This module files no kernel messages: journald has no number that tells what a check has read already. A line that may
mean something makes the check run at once. The check reads from its own cursor: nothing twice, nothing missed. A
journalctl that lags or dies costs time but no finding.
"""

from __future__ import annotations

import os
from typing import Callable, List, Optional, Sequence

from nhc.agent.event_loop import Loop, Timer
from nhc.core.host import Host
from nhc.core.system import process
from nhc.core.system.backoff import Backoff
from nhc.node.kernlog.catalogue import Matcher
from nhc.node.kernlog.match import Match
from nhc.node.kernlog.node_context import leaves_no_finding

AGAIN = (1.0, 60.0)
"""Seconds before a journalctl that ended is started again: the first and the longest wait."""
STEADY = 30.0
"""If it has run for so many seconds, the next wait is the first one again."""
CHUNK = 1 << 16
PAUSE = 0.02
"""Seconds between reads of full chunks: journald keeps what we have not read, the loop has more to do."""
LINE = 1 << 20
"""Bytes of a line without an end; a longer one is dropped."""
APART = 0.5
"""Least seconds between two rounds that lines of the log ask for."""


class Journalctl:
    """One child. `options` gives its options when it is started, `take` gets the whole lines that it writes.

    `report` is called with the reason why nothing can be read, and with "" when something is read.
    """

    def __init__(
        self,
        loop: Loop,
        host: Host,
        options: Callable[[], Sequence[str]],
        take: Callable[[List[bytes]], None],
        report: Callable[[str], None],
    ) -> None:
        self.loop, self.host, self.options, self.take, self.report = loop, host, options, take, report
        self.pid = 0
        self._fd = -1
        self._rest = b""
        self._again = Backoff(*AGAIN)
        self._began = 0.0
        self._over = False
        self._timer: Optional[Timer] = None

    def start(self) -> None:
        """Start it, unless it runs or waits to be started again."""
        if self._over or self.pid or (self._timer is not None and self._timer.when > self.loop.clock()):
            return
        self._timer = None
        program = self.host.which("journalctl")
        if program is None:
            self._failed("journalctl is not installed")
            return
        argv = ["journalctl", "--follow", "--no-pager", "--quiet", *self.options()]
        reading = writing = -1
        try:
            reading, writing = os.pipe()
            program, argv = self.host.system.started(program, argv)
            self.pid = os.posix_spawn(
                program,
                argv,
                {**self.host.environ, "PATH": process.PATH, "LC_ALL": "C"},
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, writing, 1),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                ],
                setsigmask=(),
            )
        except OSError as error:
            if reading >= 0:
                os.close(reading)
            self._failed(f"journalctl: {error.strerror}")
            return
        finally:
            if writing >= 0:
                os.close(writing)
        os.set_blocking(reading, False)
        self._fd, self._rest, self._began = reading, b"", self.loop.clock()
        self._watch()
        self.loop.child(self.pid, lambda _status: self._ended())

    def runs_for(self) -> float:
        """Seconds since it was started, 0.0 if it does not run."""
        return self.loop.clock() - self._began if self.pid else 0.0

    def close(self) -> None:
        """End it for good."""
        self._over = True
        if self._timer:
            self._timer.cancel()
        if self.pid:
            try:
                os.kill(self.pid, 15)
            except ProcessLookupError:
                pass
        self._forget()

    def _watch(self) -> None:
        self._timer = None
        if self._fd >= 0:
            self.loop.watch(self._fd, lambda _events: self._read())

    def _read(self) -> bool:
        """Take one chunk in; whether there was one."""
        try:
            data = os.read(self._fd, CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self.loop.forget(self._fd)
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE:
            self._rest = b""
        if len(data) == CHUNK and self.pid:
            self.loop.forget(self._fd)
            self._timer = self.loop.after(PAUSE, self._watch)
        if lines:
            self.report("")
            self.take(lines)
        return True

    def _ended(self) -> None:
        self.pid = 0
        while self._fd >= 0 and self._read():
            pass  # what it wrote last
        self._forget()
        if self.loop.clock() - self._began >= STEADY:
            self._again.reset()
        self._failed("journalctl ended")

    def _forget(self) -> None:
        if self._fd >= 0:
            self.loop.forget(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _failed(self, problem: str) -> None:
        if self._over:
            return
        self.report(problem)
        if self._timer:
            self._timer.cancel()
        self._timer = self.loop.after(self._again.next(), self.start)


class KernelJournal:
    """The kernel's messages in journald. `wake` is called when a check should read them, not more often than APART."""

    def __init__(self, loop: Loop, host: Host, wake: Callable[[], None], log: Callable[[str], None]) -> None:
        self.loop, self.host, self.wake, self.log = loop, host, wake, log
        self.needles: Sequence[str] = ()
        """Texts without which no rule of the checks' own files matches; with "" every line counts."""
        self.problem = ""
        self._child: Optional[Journalctl] = None
        self._fresh = True
        self._woke = float("-inf")
        self._timer: Optional[Timer] = None
        self._matcher = Matcher()
        self._apps: Callable[[List[Match]], None] = lambda matches: None

    def call_for_apps(self, call: Callable[[List[Match]], None]) -> None:
        """Call this with faults of applications, which leave no finding: no check has anything to say of them."""
        self._apps = call

    @property
    def pid(self) -> int:
        return self._child.pid if self._child else 0

    def follow(self, needles: Sequence[str] = ()) -> None:
        """Begin to follow, or go on with these texts."""
        self.needles = needles
        if self._child is None:
            self._child = Journalctl(self.loop, self.host, self._options, self._take, self._note_problem)
            self._child.start()

    def close(self) -> None:
        if self._child:
            self._child.close()
            self._child = None
        if self._timer:
            self._timer.cancel()
            self._timer = None
        self.problem = ""

    def _options(self) -> Sequence[str]:
        # The newest line shows that journalctl follows: what came before that line, the check reads now.
        self._fresh = True
        return ("--dmesg", "--boot", "--lines=1", "--output=short")

    def _note_problem(self, problem: str) -> None:
        if problem and problem != self.problem:
            self.log(f"journald: {problem}: the kernel log is read with each round until it is followed again")
        self.problem = problem

    def _take(self, lines: List[bytes]) -> None:
        text = b"\n".join(lines).decode(errors="replace")
        known = [text[start:end] for start, end, _numbers in self._matcher.candidates(text)]
        newest_before, self._fresh = self._fresh, False
        asks = newest_before or known or any(each in text for each in self.needles)
        if asks and self._timer is None:
            wait = self._woke + APART - self.loop.clock()
            self._timer = self.loop.after(max(0.0, wait), self._wake)
        if newest_before and known and text.startswith(known[0]):
            del known[0]  # logged before this agent followed
        apps = self._app_faults(known)
        if apps:
            self._apps(apps)

    def _app_faults(self, lines: Sequence[str]) -> List[Match]:
        """The faults that leave no finding in these lines of `--output=short` ("Nov 22 05:35:16 host kernel: ...")."""
        faults = []
        for line in dict.fromkeys(lines):
            _stamp, kernel, text = line.partition(" kernel: ")  # another name there is a program's that wrote to kmsg
            match = self._matcher.judge(text) if kernel else None
            if match is not None and leaves_no_finding(self.host, match):
                faults.append(match)
        return faults

    def _wake(self) -> None:
        self._timer, self._woke = None, self.loop.clock()
        self.wake()
