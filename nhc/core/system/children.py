"""Children of this process: how one is started, and those on their way out.

Nobody waits for the latter while there is a report to show. A parent that never looks, as a container's first process,
would keep each as a zombie; so a run reaps all it started.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` makes enumerations of it: 0.3 ms
import os
import time

from nhc.core.light import TYPE_CHECKING
from nhc.core.system.process import reaped, signal_group

if TYPE_CHECKING:
    from typing import Callable, List, Optional, Sequence, Tuple

    Pipe = Tuple[int, int]
    """The reading and the writing end."""

LET_GO = 0.25
"""Seconds given to workers to end by themselves: where a run is broken off, and before its process ends."""

_ended: List[int] = []
"""Workers on their way out, and as negative numbers the groups of killed commands: reaped by `reap_all` before this
process ends, and by its next run."""

FAILED = 3
"""Exit status of a child that ended with an exception."""


def fork(child: Callable[..., object], pipes: int = 1) -> Tuple[int, List[Pipe]]:
    """Start a process that calls `child` with so many pipes and ends. Returns its pid and the pipes.

    Each side closes the ends that it does not use. Raises OSError, leaving no descriptor open, where the node has no
    process or descriptor left.
    """
    opened: List[Pipe] = []
    # Python calls functions of logging's and others before and after it forks, and drops what a signal's handler raises
    # while it is in one: then nobody would end.
    mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, (_signal.SIGTERM, _signal.SIGHUP, _signal.SIGINT))
    pid = -1
    try:
        while len(opened) < pipes:
            opened.append(os.pipe())
        pid = os.fork()
    except OSError:
        for fd in (end for pipe in opened for end in pipe):
            os.close(fd)
        raise
    finally:
        if pid:
            _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
    if pid == 0:
        status = FAILED
        try:
            _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
            child(*opened)
            status = 0
        finally:
            os._exit(status)
    return pid, opened


def ask_child(answer: Callable[[], object], timeout: float, memory: int = 0) -> object:
    """What `answer` returns, called in a child that is killed after so many seconds; None if there is no whole answer.

    The child holds nothing that anybody waits for: a call into a driver can hang so that nothing ends it. It may have
    `memory` bytes more than this process; 0 is no bound, for drivers, which reserve more address space than they use.
    Raises OSError where no process can be started.
    """
    import pickle
    import select

    def child(pipe: Pipe) -> None:
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        close_all_but((pipe[1],))
        if memory:
            bound_address_space(memory)
        view = memoryview(pickle.dumps(answer()))
        while view:
            view = view[os.write(pipe[1], view) :]

    pid, ((reading, writing),) = fork(child)
    os.close(writing)
    parts: List[bytes] = []
    until = time.monotonic() + timeout
    try:
        while True:
            left = until - time.monotonic()
            if left <= 0 or not select.select([reading], [], [], left)[0]:
                break
            data = os.read(reading, 1 << 16)
            if not data:
                break
            parts.append(data)
    finally:
        os.close(reading)
        kill(pid)
        if reap(pid, LET_GO) is None:
            leave_to_end(pid)
    try:
        value: object = pickle.loads(b"".join(parts))  # noqa: S301 (from our own fork)
    except Exception:  # it ended, or was ended, before its answer was whole
        return None
    return value


def close_all_but(keep: Sequence[int]) -> None:
    """In a child: close every descriptor above the standard streams that is not one of these."""
    below = 3
    for fd in sorted(keep):
        os.closerange(below, fd)
        below = fd + 1
    try:
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    except (OSError, ValueError):
        highest = 4096
    os.closerange(below, highest + 1)


def leave_to_end(pid: int) -> None:
    """A worker is on its way out: nobody waits for it now."""
    _ended.append(pid)


def reap_ended() -> None:
    """Reap those that have ended since."""
    _ended[:] = [pid for pid in _ended if not reaped(pid)]


def reap_all() -> None:
    """Reap what a run of this process has left, so that no parent has to that may never look: a container's init.

    What does not end by itself in half of LET_GO is killed; uninterruptible sleep is not waited for.
    """
    until = time.monotonic() + LET_GO
    half = until - LET_GO / 2
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


def reap(pid: int, timeout: float) -> Optional[int]:
    """The wait status of a child that ends within `timeout` seconds, else None."""
    until = time.monotonic() + timeout
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
    signal_group(pid, 9)  # SIGKILL; `signal` makes enumerations of them: 0.3 ms


def has_address_space(size: int) -> bool:
    """Whether so many bytes of address space can be had now. Costs nothing: no page of it is touched.

    CPython 3.11 spins for ever where memory ends at one certain place. An exception inside a `with` or a `try` has its
    instruction's number pushed as an int (Python/ceval.c, `exception_unwind`). Where that int cannot be allocated, the
    interpreter goes to the same place again. It was seen in imports of the database's libraries. No code of ours runs
    then, so the room is looked for before.
    """
    import mmap

    try:
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except (OSError, MemoryError):
        return False
    return True


def bound_address_space(more: int) -> None:
    """Bound this process to so many bytes beyond the address space that it has now (RLIMIT_AS).

    What asks for more gets MemoryError. A lower bound that stands already stays. Raises OSError where the process
    cannot say how much it has.
    """
    import resource

    with open("/proc/self/statm", "rb") as file:
        has = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    bounds = [bound for bound in (soft, hard) if bound != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([has + more, *bounds]), hard))
