"""One exchange with a foreign server, from the look-up of its name to the last byte of its answer, within one deadline.

The timeout of a socket counts anew with each byte: a server that sends one byte a second would hold its asker for ever.
A thread shuts the connections of an exchange down at the deadline, whatever library reads from them. The look-up of a
name has the resolver's own limit (resolv.conf(5): timeout, attempts), since nothing can end it from outside.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time
from typing import TYPE_CHECKING, List

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Optional, Type


class Exchange:
    """A context manager. `seconds` from its making to the deadline. `cancel` may be called by another thread."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.over = False
        """Whether the deadline has passed, or it was cancelled: what was read may be a part."""
        self._until = time.monotonic() + seconds
        self._watched = False
        self._lock = threading.Lock()
        self._held: List[socket.socket] = []
        self._ended = threading.Event()

    def __enter__(self) -> Exchange:  # noqa: PYI034 (Self is Python 3.11's)
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._ended.set()
        with self._lock:
            for held in self._held:
                held.close()
            self._held = []

    def connect(self, host: str, port: int) -> socket.socket:
        """A connection by TCP to the first of a host's addresses that takes it. Raises OSError."""
        problem: OSError = OSError(f"{host} has no address")
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for place, (family, kind, number, _, address) in enumerate(addresses):
            share = len(addresses) - place  # an address that swallows packets leaves time for the next
            try:
                return self._connected(socket.socket(family, kind, number), address, self._left() / share)
            except OSError as error:
                problem = error
        raise problem

    def connect_unix(self, path: str) -> socket.socket:
        """A connection to a socket of this machine. Raises OSError."""
        return self._connected(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), path, self._left())

    def _connected(self, connection: socket.socket, address: object, seconds: float) -> socket.socket:
        try:
            self._hold(connection)
            connection.settimeout(seconds)
            connection.connect(address)  # type: ignore[arg-type]
            connection.settimeout(self._left())
        except BaseException:
            connection.close()
            raise
        return connection

    def hold(self, connection: socket.socket) -> None:
        """Let a connection that is open already be part of this exchange. Raises OSError at its end."""
        self._hold(connection)
        connection.settimeout(self._left())

    def cancel(self) -> None:
        """End it now: whoever reads from a connection of it sees its end."""
        with self._lock:
            self.over = True
            for held in self._held:
                with contextlib.suppress(OSError):  # it is not connected, or no longer
                    held.shutdown(socket.SHUT_RDWR)

    def _watch(self) -> None:
        if not self._ended.wait(max(0.0, self._until - time.monotonic())):
            self.cancel()

    def _left(self) -> float:
        left = self._until - time.monotonic()
        if self.over or left <= 0:
            raise TimeoutError(110, "Connection timed out")
        return left

    def _hold(self, connection: socket.socket) -> None:
        """Keep a second descriptor of it: TLS takes the first over, and has no `dup` of its own.

        Raises OSError, also where nobody can watch it.
        """
        if not self._watched:
            try:
                threading.Thread(target=self._watch, name="nhc-exchange", daemon=True).start()
            except RuntimeError:
                raise OSError(errno.EAGAIN, "no thread can be started") from None
            self._watched = True
        with self._lock:
            self._held.append(socket.fromfd(connection.fileno(), connection.family, connection.type))
