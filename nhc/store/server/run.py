"""Run the server: listen, watch the store and the tokens, end in good order on a signal."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import ssl
from typing import Optional

from nhc.core.system.service_log import failure, problem
from nhc.core.system.stop_signals import StopSignals, collect_garbage_seldom
from nhc.core.system.web_listener import OpenConnections, WebBounds, listening
from nhc.core.system.web_server import BoundedServer
from nhc.store.database import Store
from nhc.store.intake import IntakeSettings
from nhc.store.retention import PruneSettings
from nhc.store.rounds.pruner import Pruner
from nhc.store.server.access import KnownTokens
from nhc.store.server.app import Intake
from nhc.store.server.counters import ServerCounters
from nhc.store.server.settings import ServerSettings
from nhc.store.server.writer import Writer

LOOK = 2.0
"""Seconds between two checks of the store and the tokens: a revoked token stays valid for so long."""
SILENT = 5.0
"""Seconds without an answer after which /healthz reports that the store does not answer."""
ENDING = 10.0
"""Seconds in which what has come in is written after the signal to end."""
FEWEST = 8
"""The least number of file descriptors with which it starts."""


class CannotServe(Exception):
    """It cannot start: one line for a person."""


def serve(
    settings: ServerSettings, store: Store, pace: IntakeSettings, keep: Optional[PruneSettings] = None,
    stop: Optional[StopSignals] = None,
) -> None:  # fmt: skip
    """Serve until SIGTERM or SIGINT. SIGHUP reads the certificate and its key again. `keep`: None prunes nothing.

    `stop` ends by the same signals; if one of them came before, this ends at once.

    Raises CannotServe, StoreError.
    """
    try:
        for fd in [os.dup(0) for _ in range(FEWEST)]:
            os.close(fd)
        loop = asyncio.new_event_loop()  # a loop that finds no descriptors says so with a traceback
    except OSError as error:
        raise CannotServe(f"it cannot begin: {error.strerror or error}") from None
    try:
        loop.run_until_complete(_serve(loop, settings, store, pace, keep or PruneSettings(every=0.0), stop))
    finally:
        loop.close()


async def _serve(
    loop: asyncio.AbstractEventLoop, settings: ServerSettings, store: Store, pace: IntakeSettings, keep: PruneSettings,
    stop: Optional[StopSignals],
) -> None:  # fmt: skip
    collect_garbage_seldom()
    counters = ServerCounters()
    pruner = Pruner(store, keep, "nhc server", log=counters.note)
    counters.also(lambda: "".join(family.render() for family in pruner.families()))
    tokens = KnownTokens(store, counters.note)
    tokens.refresh()
    writer = Writer(store, pace, counters, settings.waiting)
    bounds = WebBounds(settings.connections, settings.connections_each, settings.slow)
    connections = OpenConnections(bounds, counters)
    intake = Intake(settings, tokens, writer, counters, connections)
    context = tls(settings)
    end = asyncio.Event()

    def ending() -> None:
        end.set()
        if stop is not None:
            stop.end()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending)
    if stop is not None and stop.come:
        end.set()
    loop.add_signal_handler(signal.SIGHUP, functools.partial(_reload, context, settings, counters))
    web_server = BoundedServer(
        intake.application(), bounds, counters, connections, ending=ENDING, unpack=False, line=4096
    )
    try:
        sockets = listening(*settings.address, connections)
        bound = sockets[0].getsockname()
        await web_server.start(sockets, context)
    except (OSError, OverflowError) as error:
        await web_server.close()
        raise CannotServe(f"{settings.listen}: {getattr(error, 'strerror', None) or error}") from None
    writer.start()
    pruner.start()
    watching = loop.create_task(_watch(intake, tokens))
    address = f"[{bound[0]}]:{bound[1]}" if ":" in bound[0] else f"{bound[0]}:{bound[1]}"
    counters.note(f"listening on {'https' if context else 'http'}://{address}, store {store.name}")
    await end.wait()
    counters.note("ending: what has come in is written")
    watching.cancel()
    pruner.stop()
    await web_server.shut()
    await writer.close(ENDING)
    await web_server.close()


class ServerTls(ssl.SSLContext):
    """TLS 1.2 or newer."""

    def __init__(self, _protocol: int) -> None:
        self.minimum_version = ssl.TLSVersion.TLSv1_2

    def ask_for_certificates(self) -> None:
        """Clients may show a certificate; a client without one shows a token."""
        self.verify_mode = ssl.CERT_OPTIONAL


def tls(settings: ServerSettings) -> Optional[ssl.SSLContext]:
    """The TLS context, None for plain HTTP. Raises CannotServe."""
    if not settings.tls:
        return None
    context = ServerTls(ssl.PROTOCOL_TLS_SERVER)
    _load(context, settings)
    if settings.client_ca:
        try:
            context.load_verify_locations(settings.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise CannotServe(f"{settings.client_ca}: {_why(error)}") from None
        context.ask_for_certificates()
    return context


def _load(context: ssl.SSLContext, settings: ServerSettings) -> None:
    for path in filter(None, (settings.certificate, settings.key)):
        if not os.access(path, os.R_OK):
            raise CannotServe(f"{path}: {'Permission denied' if os.path.exists(path) else 'No such file'}")
    try:
        # An encrypted key would be asked for on the terminal: an empty password fails instead.
        context.load_cert_chain(settings.certificate, settings.key or None, password="")
    except (OSError, ssl.SSLError) as error:
        raise CannotServe(f"{settings.certificate}: {_why(error)}") from None


def _why(error: Exception) -> str:
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)


def _reload(context: Optional[ssl.SSLContext], settings: ServerSettings, counters: ServerCounters) -> None:
    if context is None:
        return
    try:
        _load(context, settings)
        counters.note("the certificate was read again")
    except CannotServe as error:
        counters.note(problem(f"the old certificate stays: {error}"))


async def _watch(intake: Intake, tokens: KnownTokens) -> None:
    """Follow tokens that are made and revoked, and check whether the store answers."""
    loop = asyncio.get_running_loop()
    while True:
        problem = ""
        try:
            await asyncio.wait_for(loop.run_in_executor(None, tokens.refresh), SILENT)
            await asyncio.wait_for(intake.writer.probe(), SILENT)
        except asyncio.TimeoutError:
            problem = f"nothing came for {SILENT:g} s"
        except Exception as error:  # of any kind: the next check may succeed
            problem = failure(error)
        problem = problem or intake.writer.problem  # what can be read may still not be written: a full disk
        intake.store_said(problem)
        await asyncio.sleep(LOOK)
