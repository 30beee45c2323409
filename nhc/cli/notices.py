"""`nhc notices test|status`: test a channel, show what waits; and what `nhc notices run` has in common with them."""

from __future__ import annotations

import json
import os
import sys
import time

import click

from nhc.cli.cannot_run import missing_package
from nhc.cli.carried_out import end
from nhc.light import TYPE_CHECKING
from nhc.model import printable
from nhc.settings.settings_file import SettingsError
from nhc.timestamps import utc

if TYPE_CHECKING:
    from nhc.notices.settings import NoticesSettings

SETTINGS = "/etc/nhc/notices.toml"
FILE = click.option(
    "-s", "--settings", "path", metavar="FILE", help=f"Settings (TOML). Default: {SETTINGS}.", default=SETTINGS
)


def settings_of(path: str) -> NoticesSettings:
    """Raises SettingsError."""
    try:
        from nhc.notices.settings import load
    except ModuleNotFoundError as error:
        raise missing_package("nhc notices", error.name, "remedy") from None
    if path == SETTINGS and not os.path.exists(SETTINGS):
        raise SettingsError(f"there is no {SETTINGS}: name the settings with -s")
    return load(path)


@click.command()
@click.argument("channel")
@FILE
def test(channel: str, path: str) -> None:
    """Send a test to CHANNEL at once, and say what it answered. The store is not needed."""
    end("notices test", lambda: _test(channel, path))


def _test(name: str, path: str) -> int:
    settings = settings_of(path)
    channel = settings.channels.get(name)
    if channel is None:
        raise SettingsError(f"{path}: there is no channel {name!r}: {', '.join(settings.channels) or 'none at all'}")
    from nhc.notices.sender import DEADLINE, SendLater, SendRefused
    from nhc.notices.service import trial
    from nhc.system.exchange import Exchange

    try:
        with Exchange(DEADLINE) as exchange:
            channel.way.deliver(trial(settings, time.time()), exchange)
    except (SendLater, SendRefused) as error:
        print(f"nhc notices test: {name}: {printable(str(error))}", file=sys.stderr)
        return 3
    click.echo(f"{name}: taken")
    return 0


@click.command()
@FILE
@click.option("-f", "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def status(path: str, form: str) -> None:
    """Show for each channel what waits, was sent and was lost."""
    end("notices status", lambda: _status(path, form))


def _status(path: str, form: str) -> int:
    settings = settings_of(path)
    from nhc.notices import service
    from nhc.store.errors import NoStore
    from nhc.store.settings import fleet_store

    try:
        store = fleet_store(settings.store, create=False)
    except NoStore as error:
        click.echo(f"{error.name} is not there yet: nothing was sent" if form == "text" else "{}")
        return 0
    try:
        counts = service.status(store, settings)
    finally:
        store.close()
    if form == "json":
        click.echo(json.dumps({name: count._asdict() for name, count in counts.items()}, ensure_ascii=False))
        return 0
    for name, count in counts.items():
        oldest = f", the oldest since {utc(count.oldest)}" if count.oldest is not None else ""
        last = f"; last problem: {printable(count.error)}" if count.error else ""
        click.echo(f"{name}: {count.waiting} waiting{oldest}, {count.sent} sent, {count.lost} lost{last}")
    return 0
