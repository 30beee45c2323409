"""A worker process in the supervisor's hands: what is known of it, and how it and its commands are ended."""

from __future__ import annotations

import os
import time

from nhc.process import adopt_orphans, reaped
from nhc.values import TYPE_CHECKING
from nhc.worker import messages

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence

    from nhc.survivors import Process

LAST_BREATH = 0.1
"""Seconds given to what was killed to disappear, all of it together, before it is said to be still there."""

LET_GO = 0.25
"""Seconds given to workers to end by themselves: where a run is broken off, and before its process ends."""

_ended: List[int] = []
"""Workers on their way out, and as negative numbers the groups of killed commands. Nobody waits for them while there
is a report to show; `reap_all` does before the process ends, and the next run of this process."""


class Worker:
    """The supervisor's view of one worker process."""

    def __init__(self, pid: int, results: int, orders: int, serial: bool) -> None:
        self.pid = pid
        self.results = results
        self.orders = orders  # the serial worker's task numbers are written here
        self.serial = serial
        self.task: Optional[int] = None
        self.waits: Optional[int] = None  # what it has claimed and may not begin yet
        self.since = 0.0
        self.commands: Dict[int, float] = {}  # what it waits for, since when
        self.abandoned: Optional[Process] = None
        self.buffer = bytearray()


def leave_to_end(pid: int) -> None:
    """A worker is on its way out: nobody waits for it now."""
    _ended.append(pid)


def reap_ended() -> None:
    """Reap those that have ended since."""
    _ended[:] = [pid for pid in _ended if not reaped(pid)]


def reap_all(patience: float = LET_GO) -> None:
    """Reap what a run of this process has left, so that no parent has to that may never look: a container's init.

    What does not end by itself in half the time is killed; uninterruptible sleep is not waited for.
    """
    until = time.monotonic() + patience
    half = until - patience / 2
    reap_ended()
    while _ended and time.monotonic() < until:
        time.sleep(0.0005)
        reap_ended()
        if half and time.monotonic() >= half:
            half = 0.0
            for pid in _ended:
                _kill(abs(pid))


def overhear(worker: Worker) -> bool:
    """Learn of commands that a killed worker has started since it was last listened to; whether there are any."""
    known = set(worker.commands)
    try:
        worker.buffer += os.read(worker.results, 65536)
    except BlockingIOError:
        return False
    for what, number, *_more in messages(worker.buffer):
        if what == "started":
            worker.commands[number] = time.monotonic()
        elif what == "ended":
            worker.commands.pop(number, None)
    return not known >= set(worker.commands)


def kill_all(worker: Worker) -> None:
    """End a worker and its commands, as far as a signal can."""
    if worker.commands:
        adopt_orphans()
    for pid in (worker.pid, *worker.commands):
        _kill(pid)
    for pid in worker.commands:
        if -pid not in _ended:
            _ended.append(-pid)


def _kill(pid: int) -> None:
    for send in (os.killpg, os.kill):
        try:
            send(pid, 9)  # SIGKILL; `signal` makes enumerations of them: 0.3 ms
        except (ProcessLookupError, PermissionError):
            pass


def outlast(workers: Sequence[Worker]) -> List[Optional[Process]]:
    """What is left of killed workers and their commands after a moment: for each the worst that is, None for nothing.

    Only uninterruptible sleep (`Process.unkillable`) keeps a killed process for good.
    """
    from nhc.survivors import identify, is_alive

    left = {worker: [identify(pid) for pid in (worker.pid, *worker.commands)] for worker in workers}
    until = time.monotonic() + LAST_BREATH
    while True:
        for worker in workers:
            left[worker] = [process for process in left[worker] if process and is_alive(process)]
        if not any(left.values()) or time.monotonic() >= until:
            break
        time.sleep(0.001)
    for worker in workers:
        if reap(worker.pid, 0.0) is None:
            leave_to_end(worker.pid)
    found = [[identify(process.pid) or process for process in left[worker] if process] for worker in workers]
    return [max(some, key=lambda process: process.unkillable, default=None) for some in found]


def reap(pid: int, patience: float) -> Optional[int]:
    """The wait status of a child that ends within `patience` seconds, else None."""
    until = time.monotonic() + patience
    while True:
        try:
            done, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return 0
        if done:
            return status
        if time.monotonic() >= until:
            return None
        time.sleep(0.001)


def cause_of_end(pid: int) -> str:
    """How a worker ended that is about to be gone."""
    status = reap(pid, LAST_BREATH)
    if status is None or not os.WIFSIGNALED(status):
        return "ended early"
    import signal

    try:
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    except ValueError:
        return f"killed by signal {os.WTERMSIG(status)}"
