"""A worker process in the supervisor's hands: what is known of it, and how it and its commands are ended."""

from __future__ import annotations

import os
import time

from nhc.core.light import TYPE_CHECKING
from nhc.core.system.children import LET_GO, kill, leave_group_to_end, leave_to_end, reap
from nhc.core.system.process import adopt_orphans
from nhc.node.run.worker import messages, packed

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Sequence, Tuple

    from nhc.core.system.process_identity import KnownProcess

RELIEF = 0.05
"""Seconds after which a busy worker no longer holds up the tasks behind it."""
RELIEF_COMMAND = 0.005
"""The same for a worker that waits for a command. Many end sooner than another worker is forked."""
ENDING_TIME = 0.1
"""Seconds given to what was killed to disappear, all of it together, before it is said to be still there."""


class Worker:
    """The supervisor's view of one worker process."""

    def __init__(self, pid: int, results: int, orders: int, serial: bool) -> None:
        self.pid = pid
        self.results = results
        self.orders = orders  # the serial worker's task numbers are written here
        self.serial = serial
        self.task: Optional[int] = None
        self.waits: Optional[int] = None  # what it has claimed and may not begin yet
        self.last = -1  # what it claimed last
        self.source = ""  # of the task that it did last: it has that source open
        self.since = 0.0
        self.commands: Dict[int, float] = {}  # what it waits for, since when
        self.abandoned: Optional[KnownProcess] = None
        self.buffer = bytearray()

    def give(self, number: int) -> None:
        """Hand the serial worker its next task, unless it has just ended."""
        try:
            os.write(self.orders, packed(number))
        except BrokenPipeError:
            return
        self.task, self.since = number, time.monotonic()

    def read(self) -> Tuple[bool, bool]:
        """Read what it has sent: whether that was anything, and whether it has ended."""
        any_data = False
        while True:
            try:
                data = os.read(self.results, 65536)
            except BlockingIOError:
                return any_data, False
            self.buffer += data
            any_data = True
            if not data:
                return any_data, True

    def note(self, what: str, number: int, value: Any = None) -> None:
        """Take in one message about its task or a command of it."""
        if what == "begin":
            self.task, self.last, self.since, self.waits = number, number, value, None
        elif what == "waits":
            self.waits = self.last = number
        elif what == "started":
            self.commands[number] = time.monotonic()
        elif what == "ended":
            self.commands.pop(number, None)
        elif what == "abandoned":
            from nhc.core.system.process_identity import identify

            self.commands.pop(number, None)
            self.abandoned = identify(number)
        elif what == "done":
            self.task = None

    def has_open(self, source: str) -> None:
        """It did a task of this source, "" for none: the next one finds the source open."""
        self.source = source

    def take_abandoned(self) -> Optional[KnownProcess]:
        """The command that it could not end, once."""
        process, self.abandoned = self.abandoned, None
        return process

    def is_held_up(self, now: float) -> bool:
        """Whether its task holds it up, so that it will not soon claim another."""
        if self.task is None:
            return False
        return now - self.since >= RELIEF or any(now - at >= RELIEF_COMMAND for at in self.commands.values())

    def held_up_from(self) -> float:
        """When, on the monotonic clock, its task will have held it up for so long."""
        return min([self.since + RELIEF, *(at + RELIEF_COMMAND for at in self.commands.values())])


def find_late_commands(worker: Worker) -> bool:
    """Learn of commands that a killed worker has started since it was last read; whether there are any."""
    known = set(worker.commands)
    worker.read()
    for what, number, *_more in messages(worker.buffer):
        if what in ("started", "ended"):
            worker.note(what, number)
    return not known >= set(worker.commands)


def release(workers: Sequence[Worker], grace: float) -> None:
    """Have workers end their commands in the commands' own way, within `grace` seconds: nobody reads their pipes now.

    See `nhc.core.system.process.orphaned`. The messages that each has sent are read first.
    """
    for worker in workers:
        find_late_commands(worker)
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(null, worker.results, inheritable=False)
        os.close(null)
    until = time.monotonic() + grace + ENDING_TIME
    for worker in workers:
        while not ended(worker.pid) and time.monotonic() < until:
            time.sleep(0.005)


def end_all(workers: Sequence[Worker], grace: float) -> None:
    """Wait for workers that nobody listens to any more to end, then kill them; a busy one has `grace` seconds more."""
    timeout = LET_GO + (grace if any(worker.task is not None for worker in workers) else 0.0)
    until = time.monotonic() + timeout
    for worker in workers:
        if reap(worker.pid, until - time.monotonic()) is None:
            kill_all(worker)
            leave_to_end(worker.pid)


def ended(pid: int) -> bool:
    """Whether a child has ended, which it is not reaped for."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def kill_all(worker: Worker) -> None:
    """End a worker and its commands, as far as a signal can."""
    if worker.commands:
        adopt_orphans()
    for pid in (worker.pid, *worker.commands):
        kill(pid)
    for pid in worker.commands:
        leave_group_to_end(pid)


def wait_for_rest(workers: Sequence[Worker]) -> List[Optional[KnownProcess]]:
    """What is left of killed workers and their commands after a moment: for each the worst that is, None for nothing.

    Only uninterruptible sleep (`KnownProcess.unkillable`) keeps a killed process for good.
    """
    from nhc.core.system.process_identity import identify, is_alive

    left = {worker: [identify(pid) for pid in (worker.pid, *worker.commands)] for worker in workers}
    until = time.monotonic() + ENDING_TIME
    while True:
        for worker in workers:
            left[worker] = [process for process in left[worker] if process and is_alive(process)]
        if not any(left.values()) or time.monotonic() >= until:
            break
        time.sleep(0.001)
    for worker in workers:
        if reap(worker.pid, 0.0) is None:
            leave_to_end(worker.pid)
    stay = [[identify(process.pid) or process for process in left[worker] if process] for worker in workers]
    return [max(processes, key=lambda process: process.unkillable, default=None) for processes in stay]


def cause_of_end(pid: int) -> str:
    """How a worker ended that is about to be gone."""
    status = reap(pid, ENDING_TIME)
    if status is None or not os.WIFSIGNALED(status):
        return "ended early"
    import signal

    try:
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    except ValueError:
        return f"killed by signal {os.WTERMSIG(status)}"
