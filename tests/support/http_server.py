"""A little HTTP server on loopback, and a handler whose answers are one call each."""

from __future__ import annotations

import contextlib
import http.server
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple


class Handler(http.server.BaseHTTPRequestHandler):
    """Says nothing on standard error. `get` and `put` are to be written; `answer` sends a whole answer."""

    disable_nagle_algorithm = True  # or a body waits 40 ms for the acknowledgement of its head

    def do_GET(self) -> None:
        self.get()

    def do_PUT(self) -> None:
        self.put()

    def get(self) -> None:
        self.answer(501)

    def put(self) -> None:
        self.answer(501)

    def answer(self, status: int, body: str | bytes = "") -> None:
        data = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Request(NamedTuple):
    """What was asked."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Reply(NamedTuple):
    """What is answered."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}


def answering(reply: Callable[[Request], Reply]) -> type[http.server.BaseHTTPRequestHandler]:
    """A handler that answers GET, POST and PUT with what a function makes of the request."""

    class FromFunction(Handler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            said = reply(Request(self.command, self.path, self.headers, body))  # type: ignore[arg-type]
            self.send_response(said.status)
            for name, value in said.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(said.body)))
            self.end_headers()
            self.wfile.write(said.body)

        do_GET = do_PUT = do_POST  # noqa: N815

    return FromFunction


@contextlib.contextmanager
def serving(
    handler: type[http.server.BaseHTTPRequestHandler], tls: tuple[str, str] | None = None
) -> Iterator[http.server.ThreadingHTTPServer]:
    """The server, on a port of its own (`server_port`), until the block ends. `tls`: certificate and key files."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.005})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
