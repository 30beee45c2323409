"""`nhc serve notices`, `nhc notices test`, `nhc status notices`: send notices, test a channel, show what waits."""

from __future__ import annotations

import contextlib
import json
import time

import click

from nhc.core.command_line import options
from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import click_command, service_command
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import printable
from nhc.core.settings.settings_file import SettingsError
from nhc.core.timestamps import utc
from nhc.store.commands.store_options import ONCE, metrics_address

if TYPE_CHECKING:
    from typing import Iterator

    from nhc.store.rounds.service import RoundService


class ChannelsOptions(options.CommandOptions):
    """Which settings."""

    settings: str = options.settings_file("notices.toml", needed=True)


class NoticesOptions(options.CommandOptions):
    settings: str = options.settings_file("notices.toml", needed=True, checked=True)
    once: bool = ONCE
    listen: str = metrics_address(9470)


@service_command
def run(args: NoticesOptions) -> int:
    """Send notices as incidents begin, change and end, until a signal.

    Of several over one store one sends, the others wait. Exit status: 0 done or ended by a signal, 1 a channel has a
    problem (with --once), 2 wrong usage or settings, 3 the store, the lead or the address of --listen
    cannot be had.
    """
    with service_of(args.settings, args.once, args.listen) as service:
        return service.run(args.once)


@contextlib.contextmanager
def service_of(path: str, once: bool = False, listen: str = "") -> Iterator[RoundService]:
    """The service. Raises SettingsError, StoreError."""
    from nhc.console.notices.service import NoticeRounds
    from nhc.console.notices.settings import PATH, load
    from nhc.store.rounds.leader import Leader
    from nhc.store.rounds.service import RoundService
    from nhc.store.settings import fleet_store

    settings = load(path)
    if not settings.channels:
        raise SettingsError(f"{path or PATH}: no [channels.NAME]: there is nobody to tell")
    with contextlib.closing(fleet_store(settings.store)) as store:
        leader = Leader(store, name="notices")
        work = NoticeRounds(settings, store, once)
        yield RoundService(
            "serve notices", work, leader, every=settings.every, listen=listen, finish=work.service.close
        )


class TestOptions(ChannelsOptions):
    channel: str = options.argument("CHANNEL", needed=True)


@click_command
def test(args: TestOptions) -> None:
    """Send a test to CHANNEL at once, and say what it answered. The store is not needed."""
    from nhc.console.notices.sender import DEADLINE, SendLater, SendRefused
    from nhc.console.notices.service import trial
    from nhc.console.notices.settings import PATH, load
    from nhc.core.system.exchange import Exchange

    settings = load(args.settings)
    receiver = settings.channels.get(args.channel)
    if receiver is None:
        known = ", ".join(settings.channels) or "none at all"
        raise SettingsError(f"{args.settings or PATH}: there is no channel {args.channel!r}: {known}")
    try:
        with Exchange(DEADLINE) as exchange:
            receiver.way.deliver(trial(settings, time.time()), exchange)
    except (SendLater, SendRefused) as error:
        raise CommandError(f"{args.channel}: {error}") from None
    click.echo(f"{args.channel}: taken")


class NoticesStatusOptions(ChannelsOptions, options.Formatted):
    pass


@click_command
def status(args: NoticesStatusOptions) -> None:
    """Show for each channel what waits, was sent and was lost."""
    from nhc.console.notices import service
    from nhc.console.notices.settings import load
    from nhc.store.errors import NoStore
    from nhc.store.settings import fleet_store

    settings = load(args.settings)
    try:
        with contextlib.closing(fleet_store(settings.store, create=False)) as store:
            counts = service.status(store, settings)
    except NoStore as error:
        click.echo(f"{error.name} is not there yet: nothing was sent" if args.form == "text" else "{}")
        return
    if args.form == "json":
        click.echo(json.dumps({name: count._asdict() for name, count in counts.items()}, ensure_ascii=False))
        return
    for name, count in counts.items():
        oldest = f", the oldest since {utc(count.oldest)}" if count.oldest is not None else ""
        last = f"; last problem: {printable(count.error)}" if count.error else ""
        click.echo(f"{name}: {count.waiting} waiting{oldest}, {count.sent} sent, {count.lost} lost{last}")
