"""`nhc notices run`: notices in the foreground, once for cron, or as a service."""

from __future__ import annotations

import contextlib
import time

import click

from nhc.cli.notices import FILE, carried_out, settings_of, store_of
from nhc.light import TYPE_CHECKING
from nhc.settings.settings_file import SettingsError

if TYPE_CHECKING:
    from typing import Iterator, Optional

    from nhc.notices.service import NoticeRound
    from nhc.notices.settings import NoticesSettings
    from nhc.rounds.service import RoundEnd, RoundService
    from nhc.store.database import Fence, Store


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
    carried_out("run", lambda: run(path, once, check_settings, listen))


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
    found = settings_of(path)
    if not found.channels:
        raise SettingsError(f"{path}: no [channels.NAME]: there is nobody to tell")
    from nhc.rounds.leader import Leader
    from nhc.rounds.service import RoundService

    store = store_of(found)
    try:
        leader = Leader(store, name="notices")
        work = _NoticesRounds(found, store, once)
        yield RoundService("notices run", work, leader, every=found.every, listen=listen, finish=work.service.close)
    finally:
        store.close()


class _NoticesRounds:
    """What `nhc notices run` does each round.

    /healthz speaks of this process and its store: a channel that is away is `nhc_notices_channel_up`, since no restart
    of ours brings it back.
    """

    def __init__(self, settings: NoticesSettings, store: Store, once: bool) -> None:
        from nhc.notices.metrics import NoticeTotals
        from nhc.notices.service import PATIENCE, NoticeService

        self.patience = None if once else PATIENCE
        self.settings, self.store = settings, store
        self.service = NoticeService(store, settings)
        self.totals = NoticeTotals()
        self.fence: Optional[Fence] = None
        self.last: Optional[NoticeRound] = None
        self.began = 0.0

    def lead(self, fence: Optional[Fence]) -> None:
        """See RoundWork."""
        self.fence = fence

    def round(self) -> RoundEnd:
        """See RoundWork."""
        from nhc.rounds.service import RoundEnd

        self.began = time.time()
        self.last = self.service.round(self.fence, self.patience)
        self.totals.add(self.last)
        return RoundEnd(tuple(self.last.problems))

    def page(self) -> str:
        """See RoundWork."""
        from nhc.notices import service
        from nhc.notices.metrics import render

        assert self.last is not None
        return render(service.status(self.store, self.settings), self.last, self.totals, self.began, time.time())

    def standby(self) -> str:
        """See RoundWork."""
        from nhc.notices.metrics import STANDS_BY

        return STANDS_BY
