"""A TLS proxy that spoils a connection to an API server on purpose: resets, errors, delays, silence.

    with Wire(plane) as wire:
        wire.next(Error(429, retry_after=1))   # the next request that matches
        client = kube.client(token, wire.url)

It ends TLS with the API server's own certificate, reads one request after another, and does to each what the
first matching fault says; without one, it passes the request on. A watch is passed on as it streams.
"""

from __future__ import annotations

import ctypes
import json
import socket
import ssl
import struct
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Callable


@dataclass(frozen=True)
class Fault:
    """What to do to a request. `times` counts down, -1 is for ever; `match` sees method and path."""

    kind: str
    status: int = 0
    body: dict[str, Any] | None = None
    headers: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0


def reset(after: bool = False) -> Fault:
    """Break the connection with an RST, before the request reaches the server or after the server acted."""
    return Fault("reset-after" if after else "reset")


def error(status: int, reason: str = "", message: str = "", retry_after: float | None = None) -> Fault:
    """Answer with an error of the API server's form."""
    body = {"kind": "Status", "status": "Failure", "code": status, "reason": reason, "message": message}
    headers = () if retry_after is None else (("Retry-After", f"{retry_after:g}"),)
    return Fault("answer", status, body, headers)


def page(status: int) -> Fault:
    """Answer with a web page, as a load balancer does."""
    return Fault("page", status)


def slow(seconds: float) -> Fault:
    """Pass it on after a while."""
    return Fault("slow", seconds=seconds)


def silent() -> Fault:
    """Take the request and never say anything: a half-open connection."""
    return Fault("silent")


def gone() -> Fault:
    """A watch that is told at once that its version is too old."""
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    return Fault("answer", 200, {"type": "ERROR", "object": status})


@dataclass
class Wire:
    plane: Any
    strict: bool = False
    """Every write is refused that holds a field which its kind does not have; without, the server drops those."""
    seen: list[tuple[str, str]] = field(default_factory=list)
    """Every request: method and path."""

    def __post_init__(self) -> None:
        self._faults: list[tuple[Fault, Callable[[str, str], bool], int]] = []
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._cut = False
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._server.getsockname()[1]}"
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(self.plane.ca, self.plane.certificates / "apiserver.key")
        self._upstream = ssl.create_default_context(cafile=str(self.plane.ca))

    def __enter__(self) -> Wire:  # noqa: PYI034 (Self is Python 3.11's)
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)  # wakes who waits for a connection
        self._server.close()
        self.hang_up()

    def next(self, fault: Fault, method: str = "", path: str = "", times: int = 1) -> None:
        """Do this to the next requests of that method whose path holds that text."""
        with self._lock:
            self._faults.append((fault, lambda m, p: (not method or m == method) and path in p, times))

    def clear(self) -> None:
        with self._lock:
            self._faults.clear()

    def hang_up(self) -> None:
        """Break every connection now."""
        with self._lock:
            open_now, self._open = self._open, set()
        for connection in open_now:
            _break(connection)

    def down(self, is_down: bool) -> None:
        """Refuse every connection from now on, or take them again."""
        self._cut = is_down
        if is_down:
            self.hang_up()

    def count(self, method: str, path: str = "") -> int:
        return sum(1 for m, p in self.seen if m == method and path in p)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, raw: socket.socket) -> None:
        upstream: ssl.SSLSocket | None = None
        client: ssl.SSLSocket | None = None
        try:
            raw.settimeout(120)
            _wait_for_hello(raw)
            if self._cut:
                _abort(raw)
                return
            with self._lock:
                self._open.add(raw)
            client = self._tls.wrap_socket(raw, server_side=True)
            with self._lock:
                self._open.discard(raw)
                self._open.add(client)
            while True:
                request = _read_request(client)
                if request is None:
                    return
                method, path, data = request
                self.seen.append((method, path))
                if self.strict and method in ("POST", "PUT", "PATCH"):
                    asked = f"{path}{'&' if '?' in path else '?'}fieldValidation=Strict"
                    data = data.replace(path.encode(), asked.encode(), 1)
                fault = self._take(method, path)
                if fault is not None and not self._spoil(fault, client, data):
                    return
                if fault is not None and fault.kind in ("answer", "page"):
                    continue
                if upstream is None:
                    plain = socket.create_connection(("127.0.0.1", self.plane.port), 10)
                    try:
                        upstream = self._upstream.wrap_socket(plain, server_hostname="127.0.0.1")
                    except OSError:
                        plain.close()
                        raise
                upstream.sendall(data)
                if "watch=1" in path:
                    _pump(upstream, client)
                    return
                answer = _read_answer(upstream)
                if fault is not None and fault.kind == "reset-after":
                    _abort(client)
                    return
                client.sendall(answer)
        except (OSError, ValueError):
            return
        finally:
            for ended in (raw, client, upstream):
                if ended is not None:
                    with self._lock:
                        self._open.discard(ended)
                    ended.close()

    def _take(self, method: str, path: str) -> Fault | None:
        with self._lock:
            for index, (fault, match, times) in enumerate(self._faults):
                if match(method, path):
                    if times == 1:
                        del self._faults[index]
                    elif times > 0:
                        self._faults[index] = (fault, match, times - 1)
                    return fault
        return None

    def _spoil(self, fault: Fault, client: ssl.SSLSocket, data: bytes) -> bool:
        """Do what the fault says; False when the connection is over."""
        if fault.kind == "reset":
            _abort(client)
            return False
        if fault.kind == "silent":
            client.recv(1)  # until the other side gives up
            return False
        if fault.kind == "slow":
            time.sleep(fault.seconds)
        if fault.kind == "answer":
            body = json.dumps(fault.body).encode() + b"\n"
            lines = [f"HTTP/1.1 {fault.status} Spoiled", "Content-Type: application/json"]
            lines += [f"{name}: {value}" for name, value in fault.headers]
            if fault.status == 200:  # a watch: chunked, and then the end
                head = "\r\n".join([*lines, "Transfer-Encoding: chunked", "", ""]).encode()
                client.sendall(head + f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n")
            else:
                client.sendall("\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body)
        if fault.kind == "page":
            body = b"<html><h1>Bad Gateway</h1></html>"
            client.sendall(f"HTTP/1.1 {fault.status} X\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        return True


def _wait_for_hello(raw: socket.socket) -> None:
    """Wait for a client's first byte, and leave it to be read.

    A client that is reset between its connect and its handshake loses its socket in CPython: ssl.SSLSocket._create
    raises before it would close what it has made (python/cpython, Lib/ssl.py, as of 3.11.2).
    """
    raw.recv(1, socket.MSG_PEEK)


def _break(connection: socket.socket) -> None:
    """Send an RST, and leave it to the connection's own thread to close it.

    Closed under a thread that reads it, its number would be the next socket's, whose bytes the thread would take.
    A connect(2) to no family is how Linux breaks a connection that stays open as a descriptor.
    """
    fd = connection.fileno()
    if fd >= 0:
        ctypes.CDLL(None).connect(fd, bytes(16), 16)


def _abort(connection: socket.socket) -> None:
    """Close with an RST, in the thread that the connection is served by."""
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if isinstance(connection, ssl.SSLSocket):
            socket.socket(fileno=connection.detach()).close()
        else:
            connection.close()
    except OSError:
        pass


def _read_request(client: ssl.SSLSocket) -> tuple[str, str, bytes] | None:
    head = _until_blank(client)
    if not head:
        return None
    method, path, _ = head.split(b"\r\n", 1)[0].decode().split(" ", 2)
    return method, path, head + _body(client, head)


def _read_answer(upstream: ssl.SSLSocket) -> bytes:
    head = _until_blank(upstream)
    if b"transfer-encoding: chunked" not in head.lower():
        return head + _body(upstream, head)
    data = head
    while not data.endswith(b"0\r\n\r\n"):
        more = upstream.recv(65536)
        if not more:
            raise OSError("cut short")
        data += more
    return data


def _until_blank(stream: ssl.SSLSocket) -> bytes:
    data = b""
    while not data.endswith(b"\r\n\r\n"):
        more = stream.recv(1)
        if not more:
            return b""
        data += more
    return data


def _body(stream: ssl.SSLSocket, head: bytes) -> bytes:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            left, data = int(value), b""
            while len(data) < left:
                more = stream.recv(left - len(data))
                if not more:
                    raise OSError("cut short")
                data += more
            return data
    return b""


def _pump(upstream: ssl.SSLSocket, client: ssl.SSLSocket) -> None:
    while True:
        data = upstream.recv(65536)
        if not data:
            return
        client.sendall(data)
