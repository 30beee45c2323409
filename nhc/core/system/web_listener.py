"""The socket that the server listens on: so many connections, and so many from one address, before TLS or HTTP begin.

asyncio shows a connection of TLS to its protocol when the handshake is over; a client that is silent before that would
hold a descriptor that nobody counts. So connections are counted where they are accepted.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import time
from collections import Counter
from typing import Callable, List, NamedTuple, Optional, Tuple

from nhc.core.system.peer import peer_user
from nhc.core.system.web_refusals import WebRefusals

BACKLOG = 1024
"""Connections that the kernel holds until they are accepted."""


class WebBounds(NamedTuple):
    """How many connections may be open, how many of one address, and in how many seconds a head comes in whole."""

    connections: int = 5000
    connections_each: int = 500
    slow: float = 20.0


class OpenConnections:
    """All connections of one server, by address."""

    def __init__(self, bounds: WebBounds, refusals: WebRefusals, clock: Callable[[], float] = time.monotonic) -> None:
        self.most, self.most_each, self.refusals, self._clock = *bounds[:2], refusals, clock
        self._of: Counter[str] = Counter()

    def enter(self, address: str) -> bool:
        """A connection was accepted; whether it may stay."""
        why = ""
        if self.refusals.connections >= self.most:
            why = f"{self.most} connections are open (limits.connections)"
        elif self._of[address] >= self.most_each:
            bound = "limits.connections-an-address; for a proxy raise it"
            why = f"{self.most_each} connections of this address are open ({bound})"
        if why:
            self.refusals.refuse("connections", address, why, self._clock())
            return False
        self._of[address] += 1
        self.refusals.count_connections(1)
        return True

    def leave(self, address: str) -> None:
        """It was closed."""
        self.refusals.count_connections(-1)
        self._of[address] -= 1
        if self._of[address] <= 0:
            del self._of[address]

    @property
    def crowded(self) -> bool:
        """Whether more than half of the connections are open: an answer then ends its own, and the next finds room."""
        return self.refusals.connections * 2 > self.most


class _Accepted(socket.socket):
    """A connection that says when it is closed."""

    closed: Optional[Callable[[], None]] = None

    def close(self) -> None:
        super().close()
        callback, self.closed = self.closed, None
        if callback is not None:
            callback()


class CountedListener(socket.socket):
    """A listening socket whose `accept` gives only what `connections` lets in."""

    connections: Optional[OpenConnections] = None

    def accept(self) -> Tuple[socket.socket, object]:
        """As socket.accept. Raises BlockingIOError where none waits, ConnectionAbortedError where it may not stay."""
        plain, peer = super().accept()
        made = _Accepted(plain.family, plain.type, plain.proto, fileno=plain.detach())
        address = group(str(peer[0])) if peer else f"user {peer_user(made)}"  # whose connections are counted together
        if self.connections is not None:
            if not self.connections.enter(address):
                made.close()
                raise ConnectionAbortedError("too many connections")
            leave = self.connections.leave
            made.closed = lambda: leave(address)
        return made, peer


def group(address: str) -> str:
    """What a client's connections are counted by: its IPv4 address, or its /64 of IPv6, which one machine has."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, 64), strict=False))


def listening_at(path: str, connections: OpenConnections) -> List[CountedListener]:
    """A Unix socket that everybody may connect to: the kernel says who connected. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listener = CountedListener(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.connections = connections
    try:
        listener.bind(path)
        os.chmod(path, 0o666)  # noqa: S103 (the kernel says who connects, not the file's mode)
        listener.setblocking(False)
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return [listener]


def listening(host: str, port: int, connections: OpenConnections) -> List[CountedListener]:
    """Sockets on every address of a host. Raises OSError, OverflowError."""
    made: List[CountedListener] = []
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, proto, _name, address in addresses:
            listener = CountedListener(family, kind, proto)
            listener.connections = connections
            made.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
            listener.setblocking(False)
            listener.listen(BACKLOG)
    except BaseException:
        for listener in made:
            listener.close()
        raise
    return made
