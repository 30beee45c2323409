"""A worker process in the supervisor's hands: what is known of it, and how it and its commands are ended."""

from __future__ import annotations

import os
import time

from nhc.light import TYPE_CHECKING
from nhc.run.worker import messages
from nhc.system.children import kill, leave_group_to_end, leave_to_end, reap
from nhc.system.process import adopt_orphans

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence

    from nhc.system.process_identity import Process

LAST_BREATH = 0.1
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
        self.since = 0.0
        self.commands: Dict[int, float] = {}  # what it waits for, since when
        self.abandoned: Optional[Process] = None
        self.buffer = bytearray()


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
        kill(pid)
    for pid in worker.commands:
        leave_group_to_end(pid)


def outlast(workers: Sequence[Worker]) -> List[Optional[Process]]:
    """What is left of killed workers and their commands after a moment: for each the worst that is, None for nothing.

    Only uninterruptible sleep (`Process.unkillable`) keeps a killed process for good.
    """
    from nhc.system.process_identity import identify, is_alive

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
