"""An aiohttp server that strangers may reach: bounds for connections and heads, and one line for what is no request."""

from __future__ import annotations

import asyncio
import ssl
from typing import List, Optional, Sequence

from aiohttp import web

from nhc.core.system import server_name, web_errors
from nhc.core.system.web_connections import ConnectionLimits, LimitedConnection
from nhc.core.system.web_listener import BACKLOG, CountedListener, OpenConnections, WebBounds
from nhc.core.system.web_refusals import WebRefusals

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
        server_name.of_aiohttp()
        self._runner = web.AppRunner(
            application, access_log=None, auto_decompress=unpack, keepalive_timeout=KEEP_ALIVE, max_line_size=line,
            max_field_size=8190, shutdown_timeout=ending, logger=web_errors.logger(refusals), handle_signals=False,
        )  # fmt: skip
        self._listeners: List[asyncio.AbstractServer] = []

    async def start(self, sockets: Sequence[CountedListener], context: Optional[ssl.SSLContext] = None) -> None:
        """Begin to take requests. Raises OSError."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(web_errors.complain(self._refusals))
        await self._runner.setup()
        inner = self._runner.server
        assert inner is not None
        inner.request_handler = web_errors.guarded(inner.request_handler, self._refusals, self._limits)
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
