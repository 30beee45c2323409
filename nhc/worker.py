"""The life of a worker process: claim a task, carry it out, say so. The watchdog forks it.

Messages travel over a pipe as a length and a marshalled tuple. Nothing that a hung worker leaves behind
may be something that its caller waits on.
"""

from __future__ import annotations

import marshal
import os
import signal
import struct

from nhc.values import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Set, Tuple

    from typing_extensions import TypeAlias

Notify: TypeAlias = "Callable[..., None]"
Work: TypeAlias = "Callable[[int], Any]"
"""Carries out one task inside a worker and returns a value that marshal can carry."""
Factory: TypeAlias = "Callable[[Notify, Tuple[int, ...]], Work]"
"""Makes a worker's Work, once, inside the worker: given its Notify and the serial tasks completed so far."""

HEADER = struct.Struct("=I")
TOKEN = struct.Struct("=H")


def live(make: Factory, completed: Tuple[int, ...], results: int, orders: int, patient: bool) -> None:
    """A worker's life: claim a task, carry it out, say so, until there are no more.

    A `patient` worker's orders come one by one as it finishes, so it must say so before it asks for more. The
    others find all tokens there already, and save a wakeup of the supervisor by telling both at once.
    """

    def pack(*message: Any) -> bytes:
        body = marshal.dumps(message)
        return HEADER.pack(len(body)) + body

    def send(data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(results, view) :]

    work = make(lambda *message: send(pack(*message)), completed)
    said = b""
    while True:
        token = os.read(orders, TOKEN.size)
        if len(token) < TOKEN.size:
            send(said)
            return
        number = TOKEN.unpack(token)[0]
        send(said + pack("begin", number))
        said = pack("done", number, work(number))
        if patient:
            send(said)
            said = b""


def quiet(keep: Set[int]) -> Tuple[int, int]:
    """In a fresh worker: no inherited descriptors, no inherited signal handlers, silent standard streams.

    Returns the two kept descriptors, results first. A process that hangs for ever in a worker must hold
    nothing that its caller waits on: sshd, slurmd and node-problem-detector read our stdout to its end.
    """
    results, orders = (os.dup(fd) for fd in sorted(keep, key=_is_read_end))
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    low, high = sorted((results, orders))
    os.closerange(3, low)
    os.closerange(low + 1, high)
    os.closerange(high + 1, _highest_descriptor() + 1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    return results, orders


def _is_read_end(fd: int) -> bool:
    import fcntl

    return fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY


def _highest_descriptor() -> int:
    try:
        return max(int(name) for name in os.listdir("/proc/self/fd"))
    except (OSError, ValueError):
        return 4096


def messages(buffer: bytearray) -> Iterator[Any]:
    """The whole messages at the start of `buffer`, which they are taken from."""
    while len(buffer) >= HEADER.size:
        end = HEADER.size + HEADER.unpack_from(buffer)[0]
        if len(buffer) < end:
            return
        message = marshal.loads(bytes(buffer[HEADER.size : end]))  # noqa: S302 (from a fork of this very process)
        del buffer[:end]
        yield message
