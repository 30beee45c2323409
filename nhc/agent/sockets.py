"""Listening sockets in the agent's loop: each connection sends one request, gets one answer, and is bounded."""

from __future__ import annotations

import errno
import os
import socket
from typing import Callable, Dict, List, Optional

from nhc.agent.event_loop import READ, WRITE, Loop, Timer
from nhc.core.system.addresses import host_and_port, peer_user
from nhc.core.system.process import NOTHING_LEFT

CONNECTIONS = 64
LONGEST_PATH = 107
"""Bytes of a Unix socket's path (unix(7): sun_path holds 108, with the zero at its end)."""
TIMEOUT = 10.0
"""Seconds that a peer may take to send its request, and again to read its answer."""


class Connection:
    """One peer. `received` gets what has come so far; `answer` sends and closes."""

    def __init__(self, server: SocketServer, peer: socket.socket) -> None:
        self.server, self.loop = server, server.loop
        self.socket = peer
        self.fd = peer.fileno()
        self.received = bytearray()
        self.uid = peer_user(peer) if peer.family == socket.AF_UNIX else -1
        self.keep = False
        self._out = b""
        self._answered = False
        self._timer: Optional[Timer] = None
        self._end_after(TIMEOUT)
        self.loop.watch(self.fd, lambda _events: self._read(), READ)

    def _end_after(self, seconds: float) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = self.loop.after(seconds, self.close)

    def keep_open(self, seconds: float) -> None:
        """The answer takes longer than usual, at most so long, even if the other side has not sent everything."""
        self.keep = True
        self._end_after(seconds)

    def _read(self) -> None:
        try:
            data = self.socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        if not data:
            if not self._answered and not self.keep:
                self.close()
            else:
                self.loop.forget(self.fd)
                if self._out:
                    self.loop.watch(self.fd, lambda _events: self._write(), WRITE)
            return
        self.received += data
        if len(self.received) > self.server.limit:
            self.close()
            return
        if not self._answered:
            self.server.received(self)

    def answer(self, data: bytes) -> None:
        """Send this and close."""
        if self.fd < 0 or self._answered:
            return
        self._answered = True
        self._out = data
        self._end_after(TIMEOUT)
        self._write()

    def _write(self) -> None:
        try:
            self._out = self._out[self.socket.send(self._out) :]
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        if self._out:
            self.loop.watch(self.fd, lambda _events: self._write(), WRITE)
        else:
            self.close()

    def close(self) -> None:
        if self.fd < 0:
            return
        if self._timer:
            self._timer.cancel()
        self.loop.forget(self.fd)
        self.server.connections.pop(self.fd, None)
        self.fd = -1
        self.socket.close()


class SocketServer:
    """A listening socket. `received` is called when a connection has sent something more."""

    def __init__(
        self, loop: Loop, listening: socket.socket, received: Callable[[Connection], None], limit: int
    ) -> None:
        self.loop, self.socket, self.received, self.limit = loop, listening, received, limit
        self.connections: Dict[int, Connection] = {}
        listening.setblocking(False)
        loop.watch(listening.fileno(), lambda _events: self._accept())

    def _accept(self) -> None:
        while True:
            try:
                peer, _address = self.socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in NOTHING_LEFT | {errno.ENOBUFS}:
                    self.loop.forget(self.socket.fileno())
                    self.loop.after(1.0, self._resume)
                return
            if len(self.connections) >= CONNECTIONS and not self._make_room():
                peer.close()
                continue
            peer.setblocking(False)
            connection = Connection(self, peer)
            self.connections[connection.fd] = connection

    def _make_room(self) -> bool:
        """Close the connection that has been silent longest: one client with many cannot block others."""
        silent = next((peer for peer in self.connections.values() if not peer.keep), None)
        if silent is None:
            return False
        silent.close()
        return True

    def _resume(self) -> None:
        if self.socket.fileno() >= 0:
            self.loop.watch(self.socket.fileno(), lambda _events: self._accept())

    def close(self) -> None:
        self.loop.forget(self.socket.fileno())
        self.socket.close()
        for connection in list(self.connections.values()):
            connection.close()


def listen_tcp(address: str) -> socket.socket:
    """A socket on `HOST:PORT`, `[::1]:PORT` too. Raises OSError."""
    host, port = host_and_port(address)
    host = host or "0.0.0.0"  # noqa: S104 (only where it is asked for)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(CONNECTIONS)
    except (OSError, UnicodeError) as error:
        made.close()
        raise OSError(getattr(error, "errno", 0) or 22, getattr(error, "strerror", "") or str(error), address) from None
    return made


def listen_unix(path: str) -> socket.socket:
    """A socket that only its owner can connect to. One that a dead agent left is replaced. Raises OSError."""
    _fits(path)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        try:
            made.bind(path)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise OSError(error.errno, error.strerror, path) from None
            if _alive(path):
                raise OSError(error.errno, "another agent listens there", path) from None
            os.unlink(path)
            made.bind(path)
        made.listen(16)
    except BaseException:
        made.close()
        raise
    finally:
        os.umask(before)
    return made


def _fits(path: str) -> None:
    """Raises OSError if the kernel does not accept this path; Python's own error has no number and no file."""
    length = len(os.fsencode(path))
    if length > LONGEST_PATH:
        raise OSError(
            errno.ENAMETOOLONG, f"a socket's path has at most {LONGEST_PATH} bytes, this one has {length}", path
        )


def _alive(path: str) -> bool:
    """Whether a process listens on a Unix socket."""
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    probe.settimeout(1.0)
    try:
        probe.connect(path)
    except OSError:
        return False
    finally:
        probe.close()
    return True


def ask(path: str, question: bytes, timeout: float) -> bytes:
    """Send one request to an agent's socket. Raises OSError."""
    _fits(path)
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    peer.settimeout(timeout)
    parts: List[bytes] = []
    try:
        peer.connect(path)
        peer.sendall(question + b"\n")
        while True:
            data = peer.recv(1 << 16)
            if not data:
                return b"".join(parts)
            parts.append(data)
    finally:
        peer.close()
