"""How a sweep reaches a node: a Protocol that the local, the paramiko and the OpenSSH transport satisfy.

A transport connects, a session starts commands (several over one connection), a stream is one command's input
and output. Every deadline is a time of `time.monotonic()`, mostly a `Deadline`; a missed deadline, and every other
failure, is a Trouble with a stable reason.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
import time
from typing import Mapping, NamedTuple, Optional, Protocol, Tuple

from nhc.core.model import printable
from nhc.core.system.process import NOTHING_LEFT

# How late this process is by its own doing, where the client is busy: time that no host may be blamed for.
#
# A thread asks to wake every tick, and notes by how much it did not: it waited for a processor, or for Python's lock,
# as the threads beside it did.


TICK = 0.05
"""Seconds. Less than a tick more is the system's ordinary jitter, and counts as none."""


class Lateness:
    """`seconds` grow by what this process was late; `now` is a clock that stands still meanwhile."""

    def __init__(self) -> None:
        self._noted = 0.0, float("inf")  # the lateness so far, when the tick began: who reads has both or neither
        self._asked = 0

    def start(self) -> None:
        """Begin to notice, in a thread of its own, unless that is so. Without a thread this process is never late."""
        if self._asked != os.getpid():  # a thread does not come along into a forked process
            self._asked, self._noted = os.getpid(), (0.0, float("inf"))
            with contextlib.suppress(RuntimeError):  # the only reason that it has is that there can be no more threads
                threading.Thread(target=self._notice, name="nhc-lateness", daemon=True).start()

    @property
    def seconds(self) -> float:
        """How late it was so far, the tick that is under way included."""
        noted, began = self._noted
        return noted + _over(time.monotonic() - began)

    def now(self) -> float:
        """Seconds on the steady clock, less the lateness."""
        return time.monotonic() - self.seconds

    def _notice(self) -> None:
        self._noted = 0.0, time.monotonic()
        while True:
            time.sleep(TICK)
            noted, began = self._noted
            now = time.monotonic()
            self._noted = noted + _over(now - began), now


def _over(seconds: float) -> float:
    over = seconds - TICK
    return over if over > TICK else 0.0


CLIENT = Lateness()
"""How late this process is; a shard starts it."""


class Node(NamedTuple):
    """A node to sweep. `name` is its identity in every result; the rest is how to reach it, empty where not said.

    `groups` are the groups that its source puts it in, `facts` what the source says of it (rack, type).
    `arguments` are more arguments for the OpenSSH client, which then carries the connection.
    """

    name: str
    address: str = ""
    user: str = ""
    port: int = 0
    groups: Tuple[str, ...] = ()
    facts: Mapping[str, str] = {}
    identity: str = ""
    password: str = ""
    python: str = ""
    sudo: Optional[bool] = None
    sudo_password: str = ""
    connection: str = ""
    arguments: Tuple[str, ...] = ()
    problem: str = ""
    """Why this node cannot be reached at all, known already from its source."""

    @property
    def target(self) -> str:
        return self.address or self.name


class Trouble(Exception):
    """Why a node gave no report: a CamelCase reason, one line, and whether trying again may help."""

    def __init__(self, reason: str, message: str, passing: bool = False) -> None:
        super().__init__(message)
        self.reason, self.message, self.passing = reason, message, passing


class OutOfResources(Trouble):
    """No process, thread or descriptor is left here to reach the node with: that may pass, and is not its fault."""

    def __init__(self, message: str) -> None:
        super().__init__("OutOfResources", message, passing=True)


def is_scarce(error: BaseException) -> bool:
    """Whether an error means that no process, thread or descriptor is left, here or for this user."""
    if isinstance(error, RuntimeError):
        return "start new thread" in str(error)  # all that `threading` says of a thread that cannot be made
    return isinstance(error, OSError) and error.errno in NOTHING_LEFT | {errno.EAGAIN}


def no_descriptors() -> bool:
    """Whether no file can be opened at the moment: a resolver that fails for that says that there is no such host."""
    try:
        os.close(os.dup(2))
    except OSError as error:
        return is_scarce(error)
    return False


class Stream(Protocol):
    """One command on a node."""

    def send(self, data: bytes, deadline: float) -> None:
        """Write to its standard input."""
        ...

    def receive(self, deadline: float) -> bytes:
        """Some of its standard output, b"" at the end."""
        ...

    def complaint(self) -> str:
        """The last of what it wrote to standard error."""
        ...

    def close(self) -> None:
        """Stop listening; on a transport that can, end the command."""
        ...


class Session(Protocol):
    """A connection to one node."""

    def start(self, command: str, deadline: float) -> Stream:
        """Start a shell command."""
        ...

    def close(self) -> None: ...


class Transport(Protocol):
    """A way to reach nodes, used from many threads."""

    def connect(self, node: Node, deadline: float) -> Session: ...

    def close(self) -> None: ...


class Deadline(float):
    """A deadline so many seconds from now that does not run while our own threads wait for a processor.

    As a number it is the time at which it passes where this process is never late. `left` and `passed` know how late it
    was since: what waits with a deadline asks them again when its wait ends.
    """

    __slots__ = ("late",)
    late: float

    def __new__(cls, seconds: float) -> Deadline:  # noqa: PYI034 (Self came with Python 3.11)
        made = super().__new__(cls, time.monotonic() + seconds)
        made.late = CLIENT.seconds
        return made


def _seconds(deadline: float) -> float:
    late = CLIENT.seconds - deadline.late if isinstance(deadline, Deadline) else 0.0
    return deadline + late - time.monotonic()


def passed(deadline: float, nearly: float = 0.0) -> bool:
    """Whether the deadline has passed, or has less than `nearly` seconds to go."""
    return _seconds(deadline) <= nearly


def left(deadline: float, reason: str = "Timeout", message: str = "the deadline passed") -> float:
    """Seconds until the deadline; raises Trouble when it has passed."""
    seconds = _seconds(deadline)
    if seconds <= 0:
        raise Trouble(reason, message)
    return seconds


def wait_for(event: threading.Event, deadline: float) -> None:
    """Wait until the event is set or the deadline has passed. Raises Trouble where it had passed before."""
    seconds = left(deadline)
    while not event.wait(seconds):
        seconds = _seconds(deadline)
        if seconds <= 0:
            return


# The TCP connection to a host, and what it means when there is none.


def connect_tcp(host: str, port: int, deadline: float) -> socket.socket:
    """A socket to the host, without Nagle's delay. Raises Trouble."""
    where = f"{host} port {port}"
    try:
        sock = socket.create_connection((host, port), left(deadline))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock
    except socket.gaierror as error:
        if no_descriptors():
            raise OutOfResources(f"{where}: {os.strerror(errno.EMFILE)}") from None
        passing = error.errno == socket.EAI_AGAIN
        raise Trouble("NoAddress", f"{host}: {error.strerror}", passing) from None
    except UnicodeError:
        raise Trouble("NoAddress", f"{printable(host)!r} is not a host name") from None
    except socket.timeout:
        raise Trouble("ConnectTimeout", f"{where}: no answer") from None
    except OSError as error:
        if is_scarce(error):
            raise OutOfResources(f"{where}: {error.strerror}") from None
        if error.errno == errno.ECONNREFUSED:
            raise Trouble("Refused", f"{where}: connection refused") from None
        if error.errno == errno.ETIMEDOUT:
            raise Trouble("ConnectTimeout", f"{where}: no answer") from None
        if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
            raise Trouble("Unreachable", f"{where}: {error.strerror}") from None
        raise Trouble("ConnectFailed", f"{where}: {error.strerror}", passing=True) from None
