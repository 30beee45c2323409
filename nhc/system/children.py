"""Children of this process that are on their way out: nobody waits for them while there is a report to show.

A parent that never looks, as a container's first process, would keep each as a zombie; so a run reaps all it started.
"""

from __future__ import annotations

import os
import time

from nhc.light import TYPE_CHECKING
from nhc.system.process import reaped

if TYPE_CHECKING:
    from typing import List, Optional

LET_GO = 0.25
"""Seconds given to workers to end by themselves: where a run is broken off, and before its process ends."""

_ended: List[int] = []
"""Workers on their way out, and as negative numbers the groups of killed commands. Nobody waits for them while there
is a report to show; `reap_all` does before the process ends, and the next run of this process."""


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
                kill(abs(pid))


def leave_group_to_end(pid: int) -> None:
    """The same for all that is left of a killed command's group."""
    if -pid not in _ended:
        _ended.append(-pid)


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


def kill(pid: int) -> None:
    """End a process and its group, as far as a signal can."""
    for send in (os.killpg, os.kill):
        try:
            send(pid, 9)  # SIGKILL; `signal` makes enumerations of them: 0.3 ms
        except (ProcessLookupError, PermissionError):
            pass
