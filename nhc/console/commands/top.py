"""`nhc top`: a fleet in a terminal."""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import ExitStack, closing

import click

from nhc.console.commands.console import FleetSourceOptions, cluster, one_source
from nhc.console.settings import FILE, ConsoleSettings
from nhc.core.command_line import options
from nhc.core.command_line.clean_output import bare_streams
from nhc.core.command_line.common_options import click_command, person
from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Optional, Tuple

    from nhc.console.sources import FleetSource
    from nhc.store.database import Store

WIDTH = 200
"""Columns of a line of --once, if their number is not known."""


class TopOptions(FleetSourceOptions):
    every: float = options.real("--every", "SECONDS", "Between two looks.", 2.0, least=0.2, most=3600, heading="How")
    stale: Optional[float] = options.setting("--stale", ConsoleSettings, "stale", "TIME")
    colors: str = options.choice(
        "--colors", ["auto", "16", "none"], "What the terminal can do. $NO_COLOR is none.", "auto"
    )
    act: bool = options.flag(
        "--apply", "Approve and refuse repairs, hold and release nodes. Without it, nothing is decided."
    )
    by: str = options.BY
    once: bool = options.flag("--once", "Print one picture as text, and end.", heading="How")


@click_command
def top(args: TopOptions) -> None:
    """Watch a fleet in a terminal: problems first, a map by group, nodes, repairs.

    Keys: 1 to 4 choose a view, / filters, Enter looks closer, Escape goes back, g groups the map by another fact, p
    pauses, q ends. docs/console.md.

    Exit status: 0, 2 wrong usage or settings, or a Python package is missing, 3 the fleet cannot be read.
    """
    one_source(args)
    if args.act and (args.reports or args.adapter):
        raise click.UsageError("--apply needs a store: decisions are written there")
    if not args.once and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("nhc top needs a terminal; --once prints one picture as text")
    _prepare(args.colors)
    with ExitStack() as stack:
        source, opened = _source(stack, args)
        if args.once:
            _print_once(source)
            return
        from nhc.console.top.app import TopApp, TopSettings

        bare_streams()
        TopApp(source, opened, TopSettings(args.every, person(args.by) if args.act else "")).run()


def _prepare(colors: str) -> None:
    """Tell the library what the terminal can do, before it is imported."""
    if colors == "none":
        os.environ["NO_COLOR"] = "1"
    elif colors == "16":
        os.environ["TEXTUAL_COLOR_SYSTEM"] = "standard"
    importlib.import_module("nhc.console.top.app")


def _source(stack: ExitStack, args: TopOptions) -> Tuple[FleetSource, Optional[Store]]:
    from nhc.console.sources import ReportsSource, StoreSource
    from nhc.store.settings import fleet_store

    settings = FILE.load(overrides=args.overrides(ConsoleSettings))
    if args.reports:
        return ReportsSource(args.reports, settings.stale), None
    if args.adapter:
        return cluster(args.adapter, settings.stale), None
    store = stack.enter_context(closing(fleet_store(settings.store, create=False)))
    return StoreSource(store, settings.stale), store


def _print_once(source: FleetSource) -> None:
    import shutil

    from nhc.console.sources import SourceError
    from nhc.console.top import frame
    from nhc.core.command_line.command_error import CommandError

    try:
        snapshot = source.snapshot()
    except SourceError as error:
        raise CommandError(str(error)) from None
    width = shutil.get_terminal_size((WIDTH, 24)).columns
    for line in frame.plain(snapshot, width):
        click.echo(line)
