"""`nhc notices run`: notices in the foreground, once for cron, or as a service."""

from __future__ import annotations

import contextlib

import click

from nhc.cli.carried_out import end
from nhc.cli.notices import FILE, settings_of
from nhc.light import TYPE_CHECKING
from nhc.settings.settings_file import SettingsError

if TYPE_CHECKING:
    from typing import Iterator

    from nhc.rounds.service import RoundService


@click.command("run")
@FILE
@click.option("--once", is_flag=True, help="One round, then end.")
@click.option("--check-settings", is_flag=True, help="Read the settings, say what is wrong, and end.")
@click.option("--listen", default="", metavar="ADDRESS", help="Serve /metrics and /healthz: 127.0.0.1:9470.")
def command(path: str, once: bool, check_settings: bool, listen: str) -> None:
    """Send notices as incidents begin, change and end, until a signal.

    Of several over one store one sends, the others wait. Exit status: 0 done or ended by a signal, 1 a channel has a
    problem (with --once), 2 wrong usage or settings, 3 the store, the lead or the address of --listen
    cannot be had.
    """
    end("notices run", lambda: run(path, once, check_settings, listen))


def run(path: str, once: bool, check_settings: bool, listen: str) -> int:
    """Carry it out. Raises SettingsError, StoreError, CommandError."""
    if check_settings:
        settings_of(path)
        click.echo(f"{path}: nothing is wrong")
        return 0
    with service_of(path, once, listen) as service:
        return service.run(once)


@contextlib.contextmanager
def service_of(path: str, once: bool = False, listen: str = "") -> Iterator[RoundService]:
    """The service. Raises SettingsError, StoreError, CommandError."""
    settings = settings_of(path)
    if not settings.channels:
        raise SettingsError(f"{path}: no [channels.NAME]: there is nobody to tell")
    from nhc.notices.rounds import NoticeRounds
    from nhc.rounds.leader import Leader
    from nhc.rounds.service import RoundService
    from nhc.store.settings import fleet_store

    store = fleet_store(settings.store)
    try:
        leader = Leader(store, name="notices")
        work = NoticeRounds(settings, store, once)
        yield RoundService("notices run", work, leader, every=settings.every, listen=listen, finish=work.service.close)
    finally:
        store.close()
