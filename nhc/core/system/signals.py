"""Send a signal to one process and to no other.

Between the moment a check reads a process and the moment it kills it, the process can end and its
number be given to another. A process is its number and its start time together.
"""

from __future__ import annotations

import os
import signal

from nhc.core.light import TYPE_CHECKING
from nhc.core.system import process
from nhc.core.system.process_identity import read_stat

if TYPE_CHECKING:
    from typing import Callable, Optional


def kill(pid: int, started: int, number: int) -> None:
    """Send signal `number` to `pid` if it is still the process that began at `started`.

    Raises ProcessLookupError when that is gone. With a pidfd (Linux 5.3) nothing can come between
    looking and sending; before that a few microseconds can.
    """
    send: Optional[Callable[[int, int], None]] = getattr(signal, "pidfd_send_signal", None)
    pidfd = process.pidfd(pid)
    try:
        stat = read_stat(pid)
        if stat is None or stat.started != started:
            raise ProcessLookupError(3, "no such process any more", str(pid))
        if pidfd >= 0 and send:
            send(pidfd, number)
        else:
            os.kill(pid, number)
    finally:
        if pidfd >= 0:
            os.close(pidfd)
