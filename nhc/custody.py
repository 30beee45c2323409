"""A worker process in the supervisor's hands: what is known of it, and how it and its commands are ended."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` makes enumerations of it: 0.3 ms
import os
import time

from nhc.values import TYPE_CHECKING
from nhc.worker import messages

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence

    from nhc.survivors import Process

LAST_BREATH = 0.1
"""Seconds given to what was killed to disappear, all of it together, before it is said to be still there."""

_ended: List[int] = []
"""Workers on their way out. Nobody waits for them; the next run of this process reaps them."""


class Worker:
    """The supervisor's view of one worker process."""

    def __init__(self, pid: int, results: int, orders: int, serial: bool) -> None:
        self.pid = pid
        self.results = results
        self.orders = orders  # the serial worker's task numbers are written here
        self.serial = serial
        self.task: Optional[int] = None
        self.since = 0.0
        self.commands: Dict[int, float] = {}  # what it waits for, since when
        self.abandoned: Optional[Process] = None
        self.buffer = bytearray()


class Ended(BaseException):
    """A signal to end has come, the one that this is made with."""


def take_signals() -> List[int]:
    """Have the signals that would end this process at once raise Ended. Returns those: another's handler stays."""
    taken: List[int] = []

    def end(number: int, _frame: object) -> None:
        raise Ended(number)

    for number in (_signal.SIGTERM, _signal.SIGHUP):
        if _signal.getsignal(number) == _signal.SIG_DFL:
            try:
                _signal.signal(number, end)
            except ValueError:  # not the main thread: signals are not for this one
                return taken
            taken.append(number)
    return taken


def leave_to_end(pid: int) -> None:
    """A worker is on its way out: nobody waits for it."""
    _ended.append(pid)


def reap_ended() -> None:
    """Reap those that have ended since."""
    _ended[:] = [pid for pid in _ended if reap(pid, 0.0) is None]


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
    from signal import SIGKILL

    for pid in (worker.pid, *worker.commands):
        for send in (os.killpg, os.kill):
            try:
                send(pid, SIGKILL)
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
