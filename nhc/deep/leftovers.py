"""Processes that a run has started and that are still there: known by a variable in their environment.

Every tool of a run has NHC_DEEP_RUN=ID. So processes are found that have left their process group or session, or
whose parent is gone, also those of an earlier run that was killed.
"""

from __future__ import annotations

import os
import signal
import time
from typing import List

from nhc.core.system.bounded_read import read_bytes
from nhc.core.system.process_identity import KnownProcess, identify, is_alive, read_stat
from nhc.core.system.signals import kill
from nhc.node.checks.deep import RUN

GRACE = 30.0
"""Seconds between SIGTERM and SIGKILL: dcgmi needs up to 25 to stop its diagnostic."""
LARGEST = 16 << 20
"""Bytes of a process's environment: more than the kernel lets anybody pass on."""
KILLED = 5.0
"""Seconds that a killed process gets to disappear."""


def marked(run: str) -> List[KnownProcess]:
    """The processes of a run that are there now, without this process and its ancestors."""
    mark = f"{RUN}={run}".encode()
    own = _ancestors()
    processes: List[KnownProcess] = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) in own:
            continue
        try:
            if mark not in read_bytes(f"/proc/{name}/environ", LARGEST).split(b"\0"):
                continue
        except OSError:
            continue
        process = identify(int(name))
        if process is not None:
            processes.append(process)
    return processes


def _ancestors() -> List[int]:
    pids: List[int] = []
    pid = os.getpid()
    while pid > 1 and pid not in pids:
        pids.append(pid)
        process = read_stat(pid)
        pid = process.parent if process else 0
    return pids


def end(run: str, grace: float = GRACE) -> List[str]:
    """End all processes of a run in an orderly way: SIGTERM, time, SIGKILL. What could not be ended, a line each."""
    left = marked(run)
    for number, timeout in ((signal.SIGTERM, grace), (signal.SIGKILL, KILLED)):
        for process in left:
            try:
                kill(process.pid, process.start, number)
            except OSError:
                continue
        until = time.monotonic() + timeout
        while left and time.monotonic() < until:
            _reap()
            left = [process for process in left if is_alive(process)]
            if left:
                time.sleep(0.02)
        left = marked(run)  # what they have started meanwhile
        if not left:
            return []
    return [f"process {process.pid} does not end" for process in left]


def _reap() -> None:
    """Reap children that have ended: after a run this process may be the parent of what tools left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
