"""What a worker process does: claim a task, carry it out, say so. The watchdog forks it.

Messages travel over a pipe as a length and a marshalled tuple. They carry the times at which things happened,
because the supervisor need not read them then. Nothing that a hung worker leaves behind may be something that
its caller waits on.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` makes enumerations of it: 0.3 ms
import fcntl
import marshal
import os
import time

from nhc.core.light import TYPE_CHECKING
from nhc.core.system import process
from nhc.core.system.children import close_all_but

if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Mapping, Optional, Sequence, Tuple, Union

    from typing_extensions import TypeAlias

    from nhc.node.run.order import TaskOrder

Notify: TypeAlias = "Callable[..., None]"
Work: TypeAlias = "Callable[[int], Any]"
"""Carries out one task inside a worker and returns a value that marshal can carry."""
Factory: TypeAlias = "Callable[[Notify, Tuple[int, ...]], Work]"
"""Makes a worker's Work, once, inside the worker: given its Notify and the serial tasks completed so far."""

NUMBER = 4
"""Bytes of a number between a supervisor and its worker. (The struct module would cost each start two imports.)"""

ORPHAN = 5.0
"""Seconds after a task's deadline when the kernel itself ends a worker: its supervisor, which would have, is gone."""


def packed(number: int) -> bytes:
    """A number as the pipes between a supervisor and its worker carry it."""
    return number.to_bytes(NUMBER, "little")


def unpacked(data: Union[bytes, bytearray]) -> int:
    """The number at the start of what came through such a pipe."""
    return int.from_bytes(data[:NUMBER], "little")


class MayEndRun(Exception):
    """Raised by a Work whose value may end the whole run: the worker sends it and ends, which wakes the supervisor."""

    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value


def live(
    make: Factory,
    completed: Tuple[int, ...],
    results: int,
    orders: int,
    serial: bool,
    timeouts: Sequence[float],
    follows: Mapping[int, int],
    first: int = -1,
    order: Optional[TaskOrder] = None,
    waker: int = -1,
) -> None:
    """What a worker does: claim a task, carry it out, say so, until there are no more.

    It must not outlive its supervisor for long, which may be killed. While it waits for a command it sees that its
    results have no reader any more (`process.lifeline`); any other hang is ended by the kernel's alarm.

    A `serial` worker's orders come one by one as it finishes, so it reports an end before it asks for more. The others
    find all tokens there already, and report an end together with the next beginning. `order` says when a task may
    begin. After a task comes the one that `follows` it, if any; `first`, if not negative, comes before any token.
    """

    def pack(*message: Any) -> bytes:
        body = marshal.dumps(message)
        return packed(len(body)) + body

    def send(data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(results, view) :]

    process.hold_lifeline(results)
    work = make(lambda *message: send(pack(*message)), completed)
    unsent = b""
    more = True
    number = first
    while more:
        if number < 0:
            try:
                token = os.read(orders, NUMBER)
            except BlockingIOError:  # the supervisor is taking the tokens back
                break
            if len(token) < NUMBER:
                unsent += b"" if serial else pack("emptied", -1)
                break
            number = unpacked(token)
        if order is not None and not order.may_begin(number):
            send(unsent + pack("waits", number))
            unsent = b""
            if not order.wait(number, results, waker):
                break
        begun = time.monotonic()
        send(unsent + pack("begin", number, begun))
        _signal.setitimer(_signal.ITIMER_REAL, min(timeouts[number] + ORPHAN, 1e6))
        try:
            value = work(number)
        except MayEndRun as last:
            value, more = last.value, False
        unsent = pack("done", number, value, time.monotonic() - begun)
        if order is not None and more and not serial:
            order.end(number)
        if serial:
            send(unsent)
            unsent = b""
            _signal.setitimer(_signal.ITIMER_REAL, 0)  # its next order may be long in coming
        number = follows.get(number, -1)
    send(unsent)
    _signal.setitimer(_signal.ITIMER_REAL, 0)
    end = getattr(work, "end", None)
    if end:
        end()
    os.close(results)  # that the pipe is closed wakes the supervisor: before the process is taken down, not after


def quiet(*keep: int) -> Tuple[int, ...]:
    """In a fresh worker: no inherited descriptors, no inherited signal handlers, silent standard streams.

    Returns what the kept descriptors are called now. A process that hangs for ever in a worker must hold
    nothing that its caller waits on: sshd, slurmd and node-problem-detector read our stdout to its end.
    """
    kept = tuple(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in keep)  # above the standard streams
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    close_all_but(kept)
    for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGALRM, _signal.SIGCHLD):
        _signal.signal(number, _signal.SIG_DFL)
    # Speaking to a supervisor that is gone must fail, not end the worker before it has ended its command.
    _signal.signal(_signal.SIGPIPE, _signal.SIG_IGN)
    return kept


def messages(buffer: bytearray) -> Iterator[Any]:
    """The whole messages at the start of `buffer`, which they are taken from."""
    while len(buffer) >= NUMBER:
        end = NUMBER + unpacked(buffer)
        if len(buffer) < end:
            return
        message = marshal.loads(bytes(buffer[NUMBER:end]))  # noqa: S302 (from a fork of this very process)
        del buffer[:end]
        yield message
