"""Connections that wait: who opens one and says nothing, or too slowly, loses it; and there are only so many.

aiohttp bounds how long a connection may be idle between two requests, not how long the head of one may take.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import Optional

from aiohttp.web import Request

from nhc.server.counters import ServerCounters


class Guard:
    """All connections of one server. A connection is ended that brings no whole head within `slow` seconds.

    Between two requests it may be idle for `keep` seconds, unless connections are getting short: see `crowded`.
    """

    def __init__(self, most: int, slow: float, keep: float, counters: ServerCounters) -> None:
        self.most, self.slow, self.keep, self.counters = most, slow, keep, counters
        self._of: weakref.WeakKeyDictionary[asyncio.BaseTransport, Guarded] = weakref.WeakKeyDictionary()

    def add(self, transport: asyncio.BaseTransport, guarded: Guarded) -> bool:
        """A connection was opened; whether it may stay."""
        if self.counters.connections >= self.most:
            self.counters.refused["connections"] += 1
            return False
        self.counters.count_connections(1)
        self._of[transport] = guarded
        return True

    @property
    def crowded(self) -> bool:
        """Whether more than half of the connections are open: an answer then ends its own, and the next finds room."""
        return self.counters.connections * 2 > self.most

    def busy(self, request: Request) -> None:
        """A request has come in whole as far as its head."""
        guarded = self._of.get(request.transport) if request.transport is not None else None
        if guarded is not None:
            guarded.disarm()

    def idle(self, request: Request) -> None:
        """It was answered: the next may come."""
        guarded = self._of.get(request.transport) if request.transport is not None else None
        if guarded is not None:
            guarded.rest()


class Guarded(asyncio.Protocol):
    """One connection: passes everything on to aiohttp's own protocol."""

    def __init__(self, guard: Guard, inner: asyncio.Protocol, loop: asyncio.AbstractEventLoop) -> None:
        self._guard, self._inner, self._loop = guard, inner, loop
        self._transport: Optional[asyncio.Transport] = None
        self._timer: Optional[asyncio.TimerHandle] = None
        self._counted = self._resting = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._counted = self._guard.add(transport, self)
        self._inner.connection_made(transport)
        if self._counted:
            self.arm()
        else:
            transport.abort()

    def arm(self) -> None:
        """Begin to wait for a head."""
        self._wait(self._guard.slow)

    def rest(self) -> None:
        """Wait for the next request, the head of which is waited for from its first byte on."""
        self._wait(self._guard.keep + self._guard.slow)  # aiohttp ends the connection after `keep`, in good order
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
        self._guard.counters.refused["slow"] += 1
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
        if self._counted:
            self._counted = False
            self._guard.counters.count_connections(-1)
        self._transport = None
        self._inner.connection_lost(exc)
