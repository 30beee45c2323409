"""A process's `stat` file, and who a process is: its pid and its start time together."""

from __future__ import annotations

import os

from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.system import process

if TYPE_CHECKING:
    from typing import Callable, Optional

KERNEL_THREAD = 0x00200000
"""PF_KTHREAD in a process's flags (include/linux/sched.h)."""


class ProcessStat(NamedTuple):
    """One process's `stat` file (proc_pid_stat(5)). Times in clock ticks, `vsize` in bytes, `rss` in pages."""

    pid: int
    name: str
    state: str
    parent: int
    flags: int
    cpu: int
    started: int
    vsize: int
    rss: int

    @property
    def kernel_thread(self) -> bool:
        return bool(self.flags & KERNEL_THREAD)


def parse_stat(text: str) -> ProcessStat:
    """The fields that checks use. Raises ValueError where the text is no stat file."""
    head, opened, rest = text.partition(" (")
    # The name is the program's own choice and can hold blanks and parentheses: it ends at the last one.
    name, closed, tail = rest.rpartition(")")
    fields = tail.split()
    if not opened or not closed or len(fields) < 22:
        raise ValueError("not a /proc/PID/stat file")
    return ProcessStat(
        pid=int(head),
        name=name,
        state=fields[0],
        parent=int(fields[1]),
        flags=int(fields[6]),
        cpu=int(fields[11]) + int(fields[12]),
        started=int(fields[19]),
        vsize=int(fields[20]),
        rss=int(fields[21]),
    )


def read_stat(pid: int, thread: int = 0) -> Optional[ProcessStat]:
    """The `stat` of a process, or of one of its threads; None where there is none (any more). Of this machine's own."""
    path = f"/proc/{pid}/task/{thread}/stat" if thread else f"/proc/{pid}/stat"
    try:
        with open(path, "rb") as file:
            return parse_stat(file.read().decode(errors="replace"))
    except (OSError, ValueError):  # it ends as it is read
        return None


class KnownProcess(NamedTuple):
    """A process that outlived SIGKILL. Its start time, in clock ticks since boot, makes the pid unique.

    `unkillable` says that it was in uninterruptible sleep when it was looked at: any other killed process only waits
    for a processor to end on, which takes its time on a busy node.
    """

    pid: int
    start: int
    unkillable: bool = False


def identify(pid: int) -> Optional[KnownProcess]:
    """The process that has this pid now, None when there is none."""
    stat = read_stat(pid)
    if stat is None or stat.state in "ZX":  # a zombie is over
        return None
    return KnownProcess(pid, stat.started, stat.state == "D")


def is_alive(process: KnownProcess) -> bool:
    """Whether that very process, not a later one with its pid, is still there."""
    now = identify(process.pid)
    return now is not None and now.start == process.start


def signal_process(pid: int, started: int, number: int) -> None:
    """Send signal `number` to `pid` if it is still the process that began at `started`.

    Between the moment a caller reads a process and the moment it kills it, the process can end and its number be given
    to another. Raises ProcessLookupError when that is gone. With a pidfd (Linux 5.3) nothing can come between
    looking and sending; before that a few microseconds can.
    """
    import signal  # it makes enumerations: 0.3 ms, which readers of /proc need not pay

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
