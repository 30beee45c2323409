"""Processes that outlive SIGKILL: told apart from later ones with their pid by their start time."""

from __future__ import annotations

from nhc.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Optional


class Process(NamedTuple):
    """A process that outlived SIGKILL. Its start time, in clock ticks since boot, makes the pid unique.

    `unkillable` says that it was in uninterruptible sleep when it was looked at: any other killed process only waits
    for a processor to end on, which takes its time on a busy node.
    """

    pid: int
    start: int
    unkillable: bool = False


def identify(pid: int) -> Optional[Process]:
    """The process that has this pid now, None when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(fields) < 20:
        return None  # it ends as it is read
    # After the name: state is field 3 of proc_pid_stat(5), start time field 22. A zombie is over.
    return None if fields[0] in (b"Z", b"X") else Process(pid, int(fields[19]), fields[0] == b"D")


def is_alive(process: Process) -> bool:
    """Whether that very process, not a later one with its pid, is still there."""
    found = identify(process.pid)
    return found is not None and found.start == process.start
