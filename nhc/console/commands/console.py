"""`nhc serve console`: the web page over a fleet, and the tokens that people log in with."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
import signal

import click

from nhc.console.settings import FILE, ConsoleSettings
from nhc.core.command_line import options
from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import click_command, service_command
from nhc.core.command_line.printing import print_result
from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Optional, Tuple

    from nhc.console.server import Server
    from nhc.console.sources import FleetSource
    from nhc.marks.ports.adapter import NodeSource


class FleetSourceOptions(options.CommandOptions):
    """Which fleet is shown: of a store, of reports in files, or of a cluster."""

    store: Optional[str] = options.setting("--store", ConsoleSettings, "store", "URL", "The fleet store.")
    reports: Tuple[str, ...] = options.texts(
        "-r --report", "PATH", "Reports in files or a directory, without a store: a sweep's, or what agents write. "
        "Repeatable.",
    )  # fmt: skip
    adapter: str = options.text(
        "--adapter", "NAME", "A cluster without a store, by this adapter: kubernetes, slurm ..."
    )  # fmt: skip


class ConsoleOptions(FleetSourceOptions):
    settings: str = options.settings_file("console.toml", checked=True, heading="Where")
    listen: Optional[str] = options.setting("--listen", ConsoleSettings, "listen", "ADDRESS")


@service_command
def run(args: ConsoleOptions) -> None:
    """Show a fleet in a browser.

    A person at this machine who gives no name may only look. docs/console.md says how people are known, and what
    each may do.

    Exit status: 0 ended by a signal, or nothing is wrong (--check-settings); 2 wrong usage or settings, or a Python
    package is missing; 3 the fleet cannot be read, or the address of --listen cannot be had.
    """
    one_source(args)
    settings = FILE.load(args.settings, overrides=args.overrides(ConsoleSettings))
    try:
        asyncio.run(_serve(_server(settings, args.reports, args.adapter)))
    except OSError as error:
        raise CommandError(f"{settings.listen}: {error.strerror or error}") from None


def one_source(args: FleetSourceOptions) -> None:
    """Raises UsageError where a command line names several."""
    if sum(map(bool, (args.store, args.reports, args.adapter))) > 1:
        raise click.UsageError("--store, --report and --adapter exclude each other")


def _server(settings: ConsoleSettings, reports: Tuple[str, ...], adapter: str) -> Server:
    from nhc.console.scheduler import Scheduler
    from nhc.console.server import Server
    from nhc.console.sources import ReportsSource, StoreSource
    from nhc.store.settings import fleet_store

    if reports:
        return Server(settings, ReportsSource(reports, settings.stale), None)
    if adapter:
        source = cluster(adapter, settings.stale)
        return Server(settings, source, None, scheduler=Scheduler(adapter, _adapter(adapter)))
    store = fleet_store(settings.store, create=False)
    scheduler = Scheduler(settings.scheduler, _adapter(settings.scheduler)) if settings.scheduler else None
    return Server(settings, StoreSource(store, settings.stale), store, scheduler=scheduler)


def cluster(name: str, stale: float) -> FleetSource:
    """A cluster as a fleet, by an adapter's name. Raises NoAdapter, AdapterError."""
    from nhc.console.sources import ClusterSource

    return ClusterSource(name, _adapter(name), stale)


def _adapter(name: str) -> NodeSource:
    """An adapter by its name. Raises NoAdapter, AdapterError."""
    from nhc.marks.plugins import open_adapter

    settings = {key: value for key, value in os.environ.items() if key.startswith("NHC_")}
    return open_adapter(name, settings, os.environ)


async def _serve(server: Server) -> None:
    from nhc.console.server import serve

    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        if task is not None:
            loop.add_signal_handler(number, task.cancel)

    def ready(listen: str) -> None:
        address = listen if listen.startswith("unix:") else server.settings.origin or f"http://{listen}"
        server.refusals.note(f"{server.source.name} at {address}")

    with contextlib.suppress(asyncio.CancelledError):
        await serve(server, ready)


class ConsoleTokenOptions(options.CommandOptions):
    person: str = options.argument("PERSON", needed=True)


@click_command
def token(args: ConsoleTokenOptions) -> None:
    """Make a token for PERSON: it is printed once, and its SHA-256 as the lines for console.toml."""
    value = secrets.token_urlsafe(32)
    digest = hashlib.sha256(value.encode()).hexdigest()
    lines = f'[[people.{args.person}.tokens]]\nsha256 = "{digest}"'
    print_result(f"token, shown once: {value}\n\n{lines}", person=args.person, token=value, sha256=digest)
