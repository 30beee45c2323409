"""An aiohttp server that strangers may reach: bounds for connections and heads, and one line for what is no request.

aiohttp bounds how long a connection may be idle between two requests, not how long the head of one may take. For each
request that is none and each connection that breaks, aiohttp and asyncio write a traceback: anybody who reaches the
port could fill the log with them.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
import weakref
from typing import Awaitable, Callable, Dict, List, Optional, Sequence

from aiohttp import web, web_response
from aiohttp.http_exceptions import HttpProcessingError

from nhc.core.model import printable
from nhc.core.system.web_listener import BACKLOG, CountedListener, OpenConnections, WebBounds, WebRefusals

KEEP_ALIVE = 75.0
"""Seconds that a connection may be idle: an agent pushes once a minute, and TLS anew costs as much as its push."""


class BoundedServer:
    """One application behind sockets of `nhc.core.system.web_listener`. `ending`: seconds for requests at its end.

    `unpack`: whether bodies are unpacked; `line`: the most bytes of a request's first line.
    """

    def __init__(
        self, application: web.Application, bounds: WebBounds, refusals: WebRefusals, connections: OpenConnections,
        *, ending: float = 60.0, unpack: bool = True, line: int = 8190,
    ) -> None:  # fmt: skip
        self._refusals, self._bounds, self.connections = refusals, bounds, connections
        self._limits = ConnectionLimits(bounds.slow, KEEP_ALIVE, refusals)
        web_response.SERVER_SOFTWARE = "nhc"  # type: ignore[attr-defined]  # no version: it would name known flaws
        self._runner = web.AppRunner(
            application, access_log=None, auto_decompress=unpack, keepalive_timeout=KEEP_ALIVE, max_line_size=line,
            max_field_size=8190, shutdown_timeout=ending, logger=library_logger(refusals), handle_signals=False,
        )  # fmt: skip
        self._listeners: List[asyncio.AbstractServer] = []

    async def start(self, sockets: Sequence[CountedListener], context: Optional[ssl.SSLContext] = None) -> None:
        """Begin to take requests. Raises OSError."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(uncaught_handler(self._refusals))
        await self._runner.setup()
        inner = self._runner.server
        assert inner is not None
        inner.request_handler = guarded(inner.request_handler, self._refusals, self._limits)
        for listener in sockets:
            server = await loop.create_server(
                lambda: LimitedConnection(self._limits, inner(), loop), sock=listener, ssl=context, backlog=BACKLOG,
                ssl_handshake_timeout=self._bounds.slow if context else None,
            )  # fmt: skip
            self._listeners.append(server)

    async def shut(self) -> None:
        """Take no more connections, and let what is under way end."""
        for listener in self._listeners:
            listener.close()
        await self._runner.shutdown()

    async def close(self) -> None:
        """End it."""
        for listener in self._listeners:
            listener.close()
        await self._runner.cleanup()


Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class OneLine(logging.Handler):
    """Counts what a library logs, and says it at most once a minute for each kind and address."""

    def __init__(self, refusals: WebRefusals) -> None:
        super().__init__(logging.WARNING)
        self._refusals = refusals

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        error = record.exc_info[1] if record.exc_info else None
        text = error.message if isinstance(error, HttpProcessingError) else str(error or record.getMessage())
        what = f"{type(error).__name__}: {text}" if error is not None else text
        peer = str(record.args[0]) if record.args and isinstance(record.args, tuple) else "somebody"
        self._refusals.refuse("malformed", printable(peer, 100), f"400: {printable(what, 200)}", time.monotonic())


def library_logger(refusals: WebRefusals) -> logging.Logger:
    """The logger of the libraries of this server."""
    handler = OneLine(refusals)
    for name in ("asyncio", "aiohttp.server", "aiohttp.web", "aiohttp.internal"):
        library = logging.getLogger(name)
        library.handlers, library.propagate = [handler], False
    return logging.getLogger("aiohttp.server")


def uncaught_handler(refusals: WebRefusals) -> Callable[[asyncio.AbstractEventLoop, Dict[str, object]], None]:
    """The event loop's handler of errors that nobody caught."""

    def handle(_loop: asyncio.AbstractEventLoop, context: Dict[str, object]) -> None:
        error = context.get("exception")
        what = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(context.get("message"))
        refusals.mention("a connection", printable(what, 200), time.monotonic())

    return handle


def guarded(handler: Handler, refusals: WebRefusals, limits: ConnectionLimits) -> Handler:
    """A handler whose own errors are an answer and a line: 400 for text that cannot be text, else 500.

    Its connection is not waited for while it works.
    """

    async def guard(request: web.BaseRequest) -> web.StreamResponse:
        limits.busy(request)
        try:
            return await handler(request)
        except web.HTTPException:
            raise
        except Exception as error:
            status, why, answer = 500, "internal", "internal error"
            if isinstance(error, UnicodeError):
                status, why, answer = 400, "malformed", "malformed"
            what = f"{status}: {type(error).__name__}: {error}"
            refusals.refuse(why, request.remote or "somebody", printable(what, 200), time.monotonic())
            response = web.json_response({"error": answer}, status=status)
            response.force_close()
            return response
        finally:
            limits.idle(request)

    return guard


class ConnectionLimits:
    """All connections of one server. A connection is ended that brings no whole head within `slow` seconds.

    Between two requests it may be idle for `keep` seconds.
    """

    def __init__(self, slow: float, keep: float, refusals: WebRefusals) -> None:
        self.slow, self.keep, self.refusals = slow, keep, refusals
        self._of: weakref.WeakKeyDictionary[asyncio.BaseTransport, LimitedConnection] = weakref.WeakKeyDictionary()

    def add(self, transport: asyncio.BaseTransport, connection: LimitedConnection) -> None:
        """A connection was opened."""
        self._of[transport] = connection

    def busy(self, request: web.BaseRequest) -> None:
        """A request has come in whole as far as its head."""
        connection = self._connection(request)
        if connection is not None:
            connection.disarm()

    def idle(self, request: web.BaseRequest) -> None:
        """It was answered: the next may come."""
        connection = self._connection(request)
        if connection is not None:
            connection.rest()

    def _connection(self, request: web.BaseRequest) -> Optional[LimitedConnection]:
        return self._of.get(request.transport) if request.transport is not None else None


class LimitedConnection(asyncio.Protocol):
    """One connection: passes everything on to aiohttp's own protocol."""

    def __init__(self, limits: ConnectionLimits, inner: asyncio.Protocol, loop: asyncio.AbstractEventLoop) -> None:
        self._limits, self._inner, self._loop = limits, inner, loop
        self._transport: Optional[asyncio.Transport] = None
        self._timer: Optional[asyncio.TimerHandle] = None
        self._resting = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._limits.add(transport, self)
        self._inner.connection_made(transport)
        self.arm()

    def arm(self) -> None:
        """Begin to wait for a head."""
        self._wait(self._limits.slow)

    def rest(self) -> None:
        """Wait for the next request, the head of which is waited for from its first byte on."""
        self._wait(self._limits.keep + self._limits.slow)  # aiohttp ends the connection after `keep`, in good order
        self._resting = True

    def _wait(self, seconds: float) -> None:
        self.disarm()
        if self._transport is not None and not self._transport.is_closing():
            self._timer = self._loop.call_later(seconds, self._over)

    def disarm(self) -> None:
        """Wait no more."""
        self._resting = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _over(self) -> None:
        self._limits.refusals.refused["slow"] += 1
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._resting:
            self.arm()
        self._inner.data_received(data)

    def eof_received(self) -> Optional[bool]:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Optional[Exception]) -> None:
        self.disarm()
        self._transport = None
        self._inner.connection_lost(exc)
