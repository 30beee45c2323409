"""Send a signal to one process and to no other.

Between the moment a check reads a process and the moment it kills it, the process can end and its
number be given to another. A process is its number and its start time together.
"""

from __future__ import annotations

import os
import signal

from nhc.light import TYPE_CHECKING
from nhc.system.process_identity import read_stat

if TYPE_CHECKING:
    from typing import Callable, Optional


def start_ticks(pid: int) -> int:
    """When `pid` began, in clock ticks after boot; -1 where there is no such process."""
    found = read_stat(pid)
    return -1 if found is None else found.started


def kill(pid: int, started: int, number: int) -> None:
    """Send signal `number` to `pid` if it is still the process that began at `started`.

    Raises ProcessLookupError when that is gone. With a pidfd (Linux 5.3) nothing can come between
    looking and sending; before that a few microseconds can.
    """
    opener: Optional[Callable[[int], int]] = getattr(os, "pidfd_open", None)
    sender: Optional[Callable[[int, int], None]] = getattr(signal, "pidfd_send_signal", None)
    pidfd = -1
    if opener and sender:
        try:
            pidfd = opener(pid)
        except ProcessLookupError:
            raise
        except OSError:
            pass
    try:
        if start_ticks(pid) != started:
            raise ProcessLookupError(3, "no such process any more", str(pid))
        if pidfd >= 0 and sender:
            sender(pidfd, number)
        else:
            os.kill(pid, number)
    finally:
        if pidfd >= 0:
            os.close(pidfd)
