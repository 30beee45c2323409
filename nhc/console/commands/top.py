"""`nhc top`: a fleet in a terminal."""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import ExitStack, closing

import click

from nhc.core.command_line.clean_output import bare_streams
from nhc.core.command_line.common_options import BY, FiniteNumber, GroupedCommand, person, under
from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Optional, Tuple

    from nhc.console.sources import FleetSource
    from nhc.store.database import Store

_where = under("What is shown")
_how = under("How")
WIDTH = 200
"""Columns of a line of --once, where nobody says how many there are."""


@click.command(cls=GroupedCommand)
@_where("--store", metavar="URL", help="The fleet store. Default: what /etc/nhc/console.toml says.")
@_where("-r", "--report", "reports", multiple=True, metavar="PATH",
        help="Reports in files or a directory: a sweep's, or what agents write. Repeatable.")  # fmt: skip
@_where("--adapter", metavar="NAME", help="A cluster without a store, by this adapter: kubernetes, slurm …")
@_how("--every", default=2.0, show_default=True, type=FiniteNumber(0.2, 3600), metavar="SECONDS",
      help="Between two looks.")  # fmt: skip
@_how("--stale", metavar="DURATION", help="A report older than this is not believed. Default: what the settings say.")
@_how("--colors", type=click.Choice(["auto", "16", "none"]), default="auto", show_default=True,
      help="What the terminal can do. $NO_COLOR is none.")  # fmt: skip
@_how(
    "--apply",
    "act",
    is_flag=True,
    help="Approve and refuse repairs, hold and release nodes. Without it, nothing is decided.",
)
@BY
@_how("--once", is_flag=True, help="Print one picture as text, and end.")
def top(
    store: Optional[str], reports: Tuple[str, ...], adapter: Optional[str], every: float, stale: Optional[str],
    colors: str, act: bool, by: str, once: bool,
) -> None:  # fmt: skip
    """Watch a fleet in a terminal: problems first, a map by group, nodes, repairs.

    Keys: 1 to 4 choose a view, / filters, Enter looks closer, Escape goes back, g groups the map by another fact, p
    pauses, q ends. docs/console.md.

    Exit status: 0, 2 wrong usage or settings, or a Python package is missing, 3 the fleet cannot be read.
    """
    if sum(map(bool, (store, reports, adapter))) > 1:
        raise click.UsageError("--store, --report and --adapter exclude each other")
    if act and (reports or adapter):
        raise click.UsageError("--apply needs a store: decisions are written there")
    if not once and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("nhc top needs a terminal; --once prints one picture as text")
    _prepare(colors)
    with ExitStack() as stack:
        source, opened = _source(stack, store, reports, adapter, stale)
        if once:
            _print_once(source)
            return
        from nhc.console.top.app import TopApp, TopSettings

        bare_streams()
        TopApp(source, opened, TopSettings(every, person(by) if act else "")).run()


def _prepare(colors: str) -> None:
    """Tell the library what the terminal can do, before it is imported."""
    if colors == "none":
        os.environ["NO_COLOR"] = "1"
    elif colors == "16":
        os.environ["TEXTUAL_COLOR_SYSTEM"] = "standard"
    importlib.import_module("nhc.console.top.app")


def _source(
    stack: ExitStack, url: Optional[str], reports: Tuple[str, ...], adapter: Optional[str], stale: Optional[str]
) -> Tuple[FleetSource, Optional[Store]]:
    from nhc.console.commands.console import cluster, settings_of
    from nhc.console.sources import ReportsSource, StoreSource
    from nhc.core.units import seconds
    from nhc.store.settings import fleet_store

    settings = settings_of(None)
    try:
        limit = seconds(stale) if stale else settings.stale
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--stale") from None
    if reports:
        return ReportsSource(reports, limit), None
    if adapter:
        return cluster(adapter, limit), None
    store = stack.enter_context(closing(fleet_store(url or settings.store, create=False)))
    return StoreSource(store, limit), store


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
