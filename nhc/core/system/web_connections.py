"""Connections that wait: a client that sends nothing, or sends too slowly, loses its connection.

aiohttp bounds how long a connection may be idle between two requests, not how long the head of one may take.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import Optional

from aiohttp.web import BaseRequest

from nhc.core.system.web_refusals import WebRefusals


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

    def busy(self, request: BaseRequest) -> None:
        """A request has come in whole as far as its head."""
        connection = self._connection(request)
        if connection is not None:
            connection.disarm()

    def idle(self, request: BaseRequest) -> None:
        """It was answered: the next may come."""
        connection = self._connection(request)
        if connection is not None:
            connection.rest()

    def _connection(self, request: BaseRequest) -> Optional[LimitedConnection]:
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
