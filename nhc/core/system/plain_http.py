"""Small questions over plain HTTP: metadata services, health endpoints, Unix sockets.

HTTP over a socket by hand: importing http.client costs 30 ms of a node's start. One request, one answer, one deadline
for all of it.
"""

from __future__ import annotations

import time

from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Dict, Optional, Tuple

_LIMIT = 65536


class NoHttpResponse(Exception):
    """There is no answer; the text says why. `refused` where nothing listens there at all."""

    def __init__(self, text: str, refused: bool = False) -> None:
        super().__init__(text)
        self.refused = refused


class HttpResponse(NamedTuple):
    """An HTTP status and the body, at most 64 KiB of it."""

    status: int
    body: str


def request(
    method: str, url: str, headers: Optional[Dict[str, str]] = None, until: float = 0.0, unix: str = ""
) -> HttpResponse:
    """The answer to one question, whatever its status. `until` is time.monotonic()'s; `unix` a socket to ask instead.

    Raises NoHttpResponse, PermissionError where the socket may not be used.
    """
    import socket

    host, port, path = _split(url)
    lines = [f"{method} {path} HTTP/1.0", f"Host: {host}", "Content-Length: 0", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    data = b""
    try:
        if unix:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        else:
            connection = socket.create_connection((host, port), left(until))
        with connection:
            connection.settimeout(left(until))
            if unix:
                connection.connect(unix)
            connection.sendall("\r\n".join([*lines, "", ""]).encode())
            while len(data) < _LIMIT:
                connection.settimeout(left(until))
                more = connection.recv(8192)
                if not more:
                    break
                data += more
                if _whole(data):
                    break
    except PermissionError:
        raise
    except OSError as error:
        gone = isinstance(error, (ConnectionRefusedError, FileNotFoundError))
        raise NoHttpResponse(f"{unix or host}: {error.strerror or error}", gone) from None
    head, _, body = data.partition(b"\r\n\r\n")
    status_line = head.split(b"\r\n", 1)[0].split(b" ", 2)
    if len(status_line) < 2 or not status_line[0].startswith(b"HTTP/") or not status_line[1].isdigit():
        raise NoHttpResponse(f"{unix or host} answered no HTTP to {path.partition('?')[0]}")
    return HttpResponse(int(status_line[1]), body.decode(errors="replace"))


def _whole(data: bytes) -> bool:
    """Whether the answer is there as long as its head says: some services keep the connection open."""
    head, end, body = data.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        if end and name == b"content-length" and value.strip().isdigit():
            return len(body) >= int(value)
    return False


def left(until: float) -> float:
    """Seconds until then. Raises OSError when there are none."""
    remaining = until - time.monotonic()
    if remaining <= 0:
        raise OSError(110, "did not answer in time")
    return remaining


def _split(url: str) -> Tuple[str, int, str]:
    """Host, port and path of a plain http URL. Raises NoHttpResponse."""
    scheme, _, rest = url.partition("://")
    place, slash, path = rest.partition("/")
    host, colon, port = place.partition(":")
    if scheme != "http" or not host or (colon and not port.isdigit()):
        raise NoHttpResponse(f"{url}: not an http:// address")
    return host, int(port) if port else 80, (slash or "/") + path
