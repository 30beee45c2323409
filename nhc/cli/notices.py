"""`nhc notices`: tell people what is wrong, test a channel, show what waits."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time

import click

from nhc.light import TYPE_CHECKING
from nhc.model import printable
from nhc.settings_file import SettingsError
from nhc.timestamps import utc

if TYPE_CHECKING:
    from typing import Callable

    from nhc.notices.settings import NoticesSettings
    from nhc.store.database import Store

SETTINGS = "/etc/nhc/notices.toml"
_FILE = click.option(
    "-s", "--settings", "path", metavar="FILE", help=f"Settings (TOML). Default: {SETTINGS}.", default=SETTINGS
)


def _carried_out(name: str, work: Callable[[], int]) -> None:
    """Run a command: its status, or one line and 2 (settings) or 3 (it cannot be done now)."""
    try:
        from nhc.store.errors import StoreError
    except ModuleNotFoundError as error:
        from nhc.extras import how_to_install

        raise click.ClickException(
            f"nhc notices needs the Python package {error.name}: {how_to_install(error.name or '', 'remedy')}"
        ) from None
    try:
        status = work()
    except SettingsError as error:
        print(f"nhc notices {name}: {printable(str(error))}", file=sys.stderr)
        status = 2
    except StoreError as error:
        print(f"nhc notices {name}: {printable(str(error))}", file=sys.stderr)
        status = 3
    raise SystemExit(status)


def _settings(path: str) -> NoticesSettings:
    """Raises SettingsError."""
    try:
        from nhc.notices.settings import load
    except ModuleNotFoundError as error:
        from nhc.extras import how_to_install

        raise SettingsError(f"{error.name} is missing: {how_to_install(error.name or '', 'remedy')}") from None
    return load(path)


def _store(found: NoticesSettings) -> Store:
    from nhc.store.connect import open_store

    return open_store(found.store)


@click.command()
@_FILE
@click.option("--once", is_flag=True, help="One round, then end.")
@click.option("--check-settings", is_flag=True, help="Read the settings, say what is wrong, and end.")
def run(path: str, once: bool, check_settings: bool) -> None:
    """Send notices as incidents begin, change and end, until a signal.

    Of several over one store one sends, the others wait.
    """
    _carried_out("run", lambda: _run(path, once, check_settings))


def _run(path: str, once: bool, check_settings: bool) -> int:
    found = _settings(path)
    if check_settings:
        click.echo(f"{path}: nothing is wrong")
        return 0
    if not found.channels:
        raise SettingsError(f"{path}: no [channels.NAME]: there is nobody to tell")
    from nhc.notices.service import NoticeService
    from nhc.store.errors import LeadershipLost, StoreError
    from nhc.store.leader import Leader

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    store = _store(found)
    leader = Leader(store, name="notices")
    service = NoticeService(store, found)
    said = ""
    try:
        while not stop.is_set():
            problem = ""
            try:
                if leader.attempt():
                    problem = "; ".join(service.round(leader.fence).problems)
                else:
                    problem = "waits: another sends the notices of this store"
            except LeadershipLost as error:
                problem = str(error)
            except StoreError as error:
                if once:
                    raise
                problem = str(error)
            if problem and problem != said:
                print(f"nhc notices run: {printable(problem)}", file=sys.stderr, flush=True)
            said = problem
            if once:
                return 1 if problem else 0
            stop.wait(found.every)
    finally:
        leader.release()
        store.close()
    return 0


@click.command()
@click.argument("channel")
@_FILE
def test(channel: str, path: str) -> None:
    """Send a test to CHANNEL at once, and say what it answered. The store is not needed."""
    _carried_out("test", lambda: _test(channel, path))


def _test(name: str, path: str) -> int:
    found = _settings(path)
    channel = found.channels.get(name)
    if channel is None:
        raise SettingsError(f"{path}: there is no channel {name!r}: {', '.join(found.channels) or 'none at all'}")
    from nhc.notices.sender import SendLater, SendRefused
    from nhc.notices.service import trial

    try:
        channel.way.deliver(trial(found, time.time()))
    except (SendLater, SendRefused) as error:
        print(f"nhc notices test: {name}: {printable(str(error))}", file=sys.stderr)
        return 3
    click.echo(f"{name}: taken")
    return 0


@click.command()
@_FILE
@click.option("-f", "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def status(path: str, form: str) -> None:
    """Show for each channel what waits, was sent and was lost."""
    _carried_out("status", lambda: _status(path, form))


def _status(path: str, form: str) -> int:
    found = _settings(path)
    from nhc.notices import service

    if found.store.startswith("sqlite:///") and not os.path.exists(found.store[len("sqlite:///") :]):
        click.echo(f"{found.store} is not there yet: nothing was sent" if form == "text" else "{}")
        return 0
    store = _store(found)
    try:
        counts = service.status(store, found)
    finally:
        store.close()
    if form == "json":
        click.echo(json.dumps({name: one._asdict() for name, one in counts.items()}, ensure_ascii=False))
        return 0
    for name, one in counts.items():
        oldest = f", the oldest since {utc(one.oldest)}" if one.oldest is not None else ""
        last = f"; last problem: {printable(one.error)}" if one.error else ""
        click.echo(f"{name}: {one.waiting} waiting{oldest}, {one.sent} sent, {one.lost} lost{last}")
    return 0
