"""The console's web server: its parts, its listener, how it starts and ends."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from functools import partial
from typing import AsyncIterator, Callable, Dict, Optional, Tuple

from aiohttp import web

from nhc.console import screens
from nhc.console.access import Grant
from nhc.console.deep_reader import FRESH, DeepReader
from nhc.console.doors import Doors, WrongLogins, add_headers, guard
from nhc.console.hub import Hub
from nhc.console.routes import OFFENDERS, ROUTES, plain_errors
from nhc.console.scheduler import Scheduler
from nhc.console.settings import ConsoleSettings
from nhc.console.snapshot import NotFound, Snapshot
from nhc.console.sources import FleetSource, SourceError
from nhc.core.system.addresses import host_and_port
from nhc.core.system.web_listener import OpenConnections, WebRefusals, listening, listening_at
from nhc.core.system.web_server import BoundedServer
from nhc.store.database import Store

BODY_LIMIT = 64 << 10
"""Bytes of a request; a form of ours has some hundred."""


class Server:
    """The server's parts. `store` is None if the fleet comes only from reports: then nothing can be decided."""

    def __init__(
        self,
        settings: ConsoleSettings,
        source: FleetSource,
        store: Optional[Store],
        clock: Callable[[], float] = time.time,
        scheduler: Optional[Scheduler] = None,
    ) -> None:
        self.settings, self.source, self.store, self.clock = settings, source, store, clock
        self.scheduler = scheduler
        self.hub = Hub(source, settings.refresh, clock)
        self.doors = Doors(settings, clock)
        self.refusals = WebRefusals("console")
        self.wrong = WrongLogins(self.refusals, store)
        self.deep = DeepReader(store, clock) if store is not None else None
        self.started = clock()

    def snapshot(self) -> Snapshot:
        """The last one that could be read. Raises SourceError before there is one."""
        snapshot = self.hub.current()
        if snapshot is None:
            raise SourceError(self.hub.problem)
        return snapshot

    def required_store(self) -> Store:
        """The store. Raises NotFound if there is none."""
        if self.store is None:
            raise NotFound("there is no fleet store here: reports alone are shown")
        return self.store

    def verdict_reader(self) -> DeepReader:
        """The reader of deep verdicts. Raises NotFound if there is no store."""
        self.required_store()
        assert self.deep is not None
        return self.deep

    def app(self) -> web.Application:
        """The application with its guard, its routes and the reader of the source."""
        scopes: Dict[Tuple[str, str], Grant] = {}
        app = web.Application(
            middlewares=[guard(self.doors, scopes, self.wrong), plain_errors], client_max_size=BODY_LIMIT
        )
        for route in ROUTES:
            added = app.router.add_route(route.method, route.path, partial(route.answer, self))
            if added.resource is not None:
                scopes[route.method, added.resource.canonical] = route.scope
        app.on_response_prepare.append(add_headers)
        app.on_shutdown.append(self.hub.end_streams)
        app.cleanup_ctx.append(self._reading)
        return app

    async def _reading(self, _app: web.Application) -> AsyncIterator[None]:
        await self.hub.refresh()
        tasks = [asyncio.create_task(self.hub.run())]
        if self.deep is not None and self.store is not None:
            tasks.append(asyncio.create_task(self._read_ahead(self.store, self.deep)))
        yield
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _read_ahead(self, store: Store, reader: DeepReader) -> None:
        """Prepare, before a request comes, what takes longer than a viewer waits; until it is cancelled.

        If anything fails, the cached answer gets too old, and the next request gets the reason.
        """
        while True:
            with contextlib.suppress(Exception):
                await self.hub.count_ahead(OFFENDERS, lambda: screens.offenders(store, self.clock()))
            with contextlib.suppress(Exception):
                await asyncio.to_thread(reader.refresh, self.hub.snapshot)
            await asyncio.sleep(FRESH / 4)


def tls_context(settings: ConsoleSettings) -> Optional[ssl.SSLContext]:
    """The listener's TLS, None if it has none. Raises OSError, ssl.SSLError."""
    tls = settings.tls
    if not tls.certificate:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tls.clients or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(tls.certificate, tls.key)
    if tls.clients:
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


async def serve(console: Server, ready: Callable[[str], None]) -> None:
    """Until it is cancelled. `ready` gets the address. Raises OSError if it cannot listen."""
    listen, bounds = console.settings.listen, console.settings.bounds
    refusals = console.refusals
    connections = OpenConnections(bounds, refusals)
    server = BoundedServer(console.app(), bounds, refusals, connections)
    try:
        if listen.startswith("unix:"):
            await server.start(listening_at(listen[5:], connections))
        else:
            await server.start(listening(*host_and_port(listen), connections), tls_context(console.settings))
        ready(listen)
        await asyncio.Event().wait()
    finally:
        await server.close()
