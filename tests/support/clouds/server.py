"""A cloud's HTTP endpoint on loopback: it counts what changes a machine, and goes wrong in the ways that clouds do."""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Callable
from urllib.parse import parse_qsl, urlsplit


@dataclass
class Asked:
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    raw_query: str = ""


@dataclass
class Reply:
    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Operation:
    """What a request asks for. `changes` says whether it changes a machine."""

    name: str
    changes: bool
    run: Callable[[], Reply]
    key: str = ""


class FakeCloud:
    """Subclass it: `route` reads a request, `failure` words an error of a kind (throttled, error, denied).

    `next_fault` is for the next request that changes something: "lost" (it takes effect, its answer never arrives),
    "silent" (the same, and the connection stays open), "throttled", "error".
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.keys: list[str] = []
        self.requests: list[str] = []
        self.wrong: list[str] = []
        """What the vendor's model does not allow, in requests and in our own answers: must stay empty."""
        self.next_fault = ""
        self.denied = False
        self.next_reads: list[str] = []
        """What goes wrong with the next requests that change nothing: throttled, error, denied."""
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._open: set[socket.socket] = set()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # or a body waits 40 ms for the acknowledgement of its head

            def log_message(self, *_arguments: object) -> None:
                pass

            def setup(self) -> None:
                super().setup()
                fake._open.add(self.connection)

            def finish(self) -> None:
                fake._open.discard(self.connection)
                super().finish()

            def handle_one(self) -> None:
                where = urlsplit(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                asked = Asked(
                    self.command,
                    where.path,
                    dict(parse_qsl(where.query, keep_blank_values=True)),
                    {name.lower(): value for name, value in self.headers.items()},
                    body,
                    where.query,
                )
                reply = fake.answer(asked)
                if reply is None:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_one

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_arguments: object) -> None:
                pass  # a client that went away

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.005,), daemon=True).start()

    def route(self, asked: Asked) -> Operation:
        raise NotImplementedError

    def failure(self, kind: str, operation: Operation) -> Reply:
        raise NotImplementedError

    def answer(self, asked: Asked) -> Reply | None:
        with self._lock:
            try:
                operation = self.route(asked)
            except AssertionError as error:
                self.wrong.append(f"{asked.method} {asked.path}: {error}")
                return Reply(400, str(error).encode())
            self.requests.append(operation.name)
            if not operation.changes:
                wrong = self.next_reads.pop(0) if self.next_reads else ""
                return self.failure(wrong, operation) if wrong else self._run(operation)
            self.calls.append(operation.name)
            self.keys.append(operation.key)
            if self.denied:
                return self.failure("denied", operation)
            fault, self.next_fault = self.next_fault, ""
            if fault in ("throttled", "error"):
                return self.failure(fault, operation)
            reply = self._run(operation)
        if fault == "silent":
            self._ended.wait(30)
        return None if fault in ("lost", "silent") else reply

    def _run(self, operation: Operation) -> Reply:
        try:
            return operation.run()
        except Exception as error:
            self.wrong.append(f"{operation.name}: {error!r}")
            return Reply(500, str(error).encode())

    def vanish(self) -> None:
        """Nobody listens any more."""
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it ended by itself

    def close(self) -> None:
        self._ended.set()
        if self._server.socket.fileno() >= 0:
            self.vanish()
