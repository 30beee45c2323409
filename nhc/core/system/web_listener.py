"""What a server of ours refuses, and the socket that it listens on.

The socket takes so many connections, and so many from one address, before TLS or HTTP begin.

asyncio shows a connection of TLS to its protocol when the handshake is over; a client that is silent before that would
hold a descriptor that nobody counts. So connections are counted where they are accepted.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import time
from collections import Counter, OrderedDict
from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple

from nhc.core.system.addresses import peer_user
from nhc.core.system.service_log import ServiceLog, problem

QUIET = 60.0
"""Seconds in which the same refusal of the same peer is counted and not logged again."""
REMEMBERED = 10_000
"""Peers and reasons whose last line is remembered."""
WHYS = ("connections", "internal", "login", "malformed", "slow")
"""Why any server of ours refuses."""


class WebRefusals:
    """Refusals: counted, and logged at most once a minute for each reason and address. Of one thread.

    `server` is the command that refuses, `asked` what it is sent.

    `whys` are further reasons of its own for refusing; each is 0 before the first refusal.
    """

    def __init__(self, server: str, asked: str = "a request", whys: Sequence[str] = ()) -> None:
        self._log, self._asked = ServiceLog(server), asked
        self.refused: Counter[str] = Counter(dict.fromkeys((*WHYS, *whys), 0))
        self.connections = 0
        self._logged: OrderedDict[tuple[str, str], float] = OrderedDict()

    def refuse(self, why: str, peer: str, detail: str, now: float) -> None:
        """Count a refusal, and log it unless it was logged of this peer a moment ago."""
        self.refused[why] += 1
        self.once(why, peer, f"refused {self._asked} from {peer}: {detail}", now)

    def mention(self, peer: str, line: str, now: float) -> None:
        """Log a line about a peer, unless one was logged a moment ago."""
        self.once("", peer, f"{peer}: {line}", now)

    def once(self, why: str, peer: str, line: str, now: float) -> None:
        """Log a line, unless one of this peer and reason was logged a moment ago."""
        quiet = now - self._logged.pop((why, peer), float("-inf")) < QUIET
        self._logged[why, peer] = now
        if not quiet:
            if len(self._logged) > REMEMBERED:
                self._logged.popitem(last=False)
            self.note(problem(line))

    def count_connections(self, count: int) -> None:
        """So many more connections are open, or fewer."""
        self.connections += count

    def note(self, line: str) -> None:
        """One line on standard error, where systemd's journal takes it."""
        self._log(line)


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
