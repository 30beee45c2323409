"""`nhc notices run`: notices in the foreground, once for cron, or as a service."""

from __future__ import annotations

import signal
import sys
import threading
import time

import click

from nhc.cli.notices import FILE, carried_out, settings_of, store_of
from nhc.light import TYPE_CHECKING
from nhc.model import printable
from nhc.settings_file import SettingsError

if TYPE_CHECKING:
    from http.server import ThreadingHTTPServer
    from typing import Optional

    from nhc.notices.service import NoticeRound
    from nhc.notices.settings import NoticesSettings


@click.command("run")
@FILE
@click.option("--once", is_flag=True, help="One round, then end.")
@click.option("--check-settings", is_flag=True, help="Read the settings, say what is wrong, and end.")
@click.option("--listen", default="", metavar="ADDRESS", help="Serve /metrics and /healthz: 127.0.0.1:9470.")
def command(path: str, once: bool, check_settings: bool, listen: str) -> None:
    """Send notices as incidents begin, change and end, until a signal.

    Of several over one store one sends, the others wait. Exit status: 0 done or ended by a signal, 1 a channel has a
    problem (with --once), 2 wrong usage or settings, 3 the store or the address of --listen cannot be had.
    """
    carried_out("run", lambda: run(path, once, check_settings, listen))


def run(path: str, once: bool, check_settings: bool, listen: str) -> int:
    """Carry it out. Raises SettingsError, StoreError."""
    found = settings_of(path)
    if check_settings:
        click.echo(f"{path}: nothing is wrong")
        return 0
    if not found.channels:
        raise SettingsError(f"{path}: no [channels.NAME]: there is nobody to tell")
    return _NoticesProcess(found).run(once, listen)


class _NoticesProcess:
    """One process: rounds until a signal, sending where it leads."""

    def __init__(self, settings: NoticesSettings) -> None:
        from nhc.notices.metrics import NoticeTotals
        from nhc.notices.service import NoticeService
        from nhc.store.leader import Leader
        from nhc.system.metrics_server import Pages

        self.settings = settings
        self.store = store_of(settings)
        self.leader = Leader(self.store, name="notices")
        self.service = NoticeService(self.store, settings)
        self.totals, self.pages = NoticeTotals(), Pages()
        self.stop = threading.Event()
        self.said = ""

    def run(self, once: bool, listen: str) -> int:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self.stop.set())
        server: Optional[ThreadingHTTPServer] = None
        try:
            if listen:
                server = self._serve(listen)
                if server is None:
                    return 3
            while not self.stop.is_set():
                problem = self._attempt(once)
                if once:
                    return 1 if problem else 0
                self.stop.wait(self.settings.every)
        finally:
            if server is not None:
                server.shutdown()
            self.leader.release()
            self.store.close()
        return 0

    def _serve(self, listen: str) -> Optional[ThreadingHTTPServer]:
        from nhc.system.metrics_server import serve

        try:
            return serve(listen, self.pages)
        except ValueError as error:
            raise SettingsError(f"--listen: {error}") from None
        except OSError as error:
            self._say(f"--listen {listen}: {error.strerror or error}")
            return None

    def _attempt(self, once: bool) -> str:
        """A round where this process leads; what is wrong, "" for nothing. Raises StoreError with `once`.

        /healthz speaks of this process and its store: a channel that is away is `nhc_notices_channel_up`, since no
        restart of ours brings it back.
        """
        from nhc.notices.metrics import STANDS_BY
        from nhc.store.errors import LeadershipLost, StoreError

        page, unhealthy, said = STANDS_BY, "", ""
        try:
            if self.leader.attempt():
                began = time.time()
                done = self.service.round(self.leader.fence)
                self.totals.add(done)
                said, page = "; ".join(done.problems), self._metrics(done, began)
            else:
                said = "waits: another sends the notices of this store"
        except LeadershipLost as error:
            said = str(error)
        except StoreError as error:
            if once:
                raise
            said, unhealthy, page = str(error), printable(str(error)), ""
        self.pages.update(page, unhealthy)
        self._say(said)
        return said

    def _metrics(self, done: NoticeRound, began: float) -> str:
        from nhc.notices import service
        from nhc.notices.metrics import render

        return render(service.status(self.store, self.settings), done, self.totals, began, time.time())

    def _say(self, problem: str) -> None:
        """A line for the log, once as long as it stays the same."""
        if problem and problem != self.said:
            print(f"nhc notices run: {printable(problem)}", file=sys.stderr, flush=True)
        self.said = problem
