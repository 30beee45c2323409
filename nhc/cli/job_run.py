"""`nhc job run`: restart jobs after infrastructure faults, in the foreground, once for cron, or as a service."""

from __future__ import annotations

import json
import signal
import sys
import threading
from typing import Any, Dict, List, Optional

import click

from nhc.cli.job_options import SETTINGS, STORE_URL, JobCommandError, carried_out, settings_of
from nhc.cli.option_groups import GroupedCommand, under
from nhc.jobs.loop import JobEvent, JobRound
from nhc.jobs.site import JobSite, open_site
from nhc.model import printable
from nhc.plugins import NoAdapter
from nhc.ports import AdapterError
from nhc.store.database import Fence
from nhc.store.errors import LeadershipLost, StoreError
from nhc.store.leader import Leader, leads

LEAD = "jobs"
"""The name of this lead: jobs and nodes are looked after by two processes, which do not wait for one another."""


@click.command("run", cls=GroupedCommand)
@SETTINGS
@STORE_URL
@under("What is done")("--once", is_flag=True, help="One round, then end: for cron.")
@under("What is done")("--dry-run", is_flag=True, help="Show what would be done; write and change nothing.")
@under("What is shown")(
    "-f", "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="Output format.",
)  # fmt: skip
def command(**options: Any) -> None:
    """Restart the jobs that asked for it after their nodes have failed them. Application failures are left alone.

    Nothing is done to jobs unless the settings enable it. One process leads a store; others wait. Exit status: 0 done
    or ended by a signal, 1 something could not be read (with --once), 2 wrong usage or settings, 3 the store, the
    controller or the lead cannot be had.
    """
    carried_out("run", lambda: run(options))


def run(options: Dict[str, Any]) -> int:
    """Carry it out. Raises SettingsError, StoreError, JobCommandError."""
    settings = settings_of(options["settings_path"], options["store_url"])
    try:
        site = open_site(settings)
    except (NoAdapter, AdapterError) as error:
        raise JobCommandError(str(error), 2) from None
    try:
        return _JobService(site, options).run()
    finally:
        site.close()


class _JobService:
    """One process: rounds until a signal, leading where it may."""

    def __init__(self, site: JobSite, options: Dict[str, Any]) -> None:
        self.site, self.options = site, options
        self.json = options["form"] == "json"
        self.dry = bool(options["dry_run"])
        self.stop = threading.Event()
        self.leader = None if self.dry else Leader(site.store, name=LEAD)
        self.said: List[str] = []

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self.stop.set())
        try:
            return self._once() if self.options["once"] or self.dry else self._rounds()
        finally:
            if self.leader is not None:
                self.leader.release()

    def _once(self) -> int:
        fence: Optional[Fence] = None
        if self.leader is not None:
            if not self.leader.attempt():
                raise JobCommandError(f"another leads this store: {leads(self.site.store, LEAD) or 'unknown'}")
            fence = self.leader.fence
        done = self.site.loop(fence, self.tell).round(apply=not self.dry)
        self._after(done)
        self._summary(done)
        return 1 if done.problems else 0

    def _rounds(self) -> int:
        """Rounds while it leads. A store that is away is waited for."""
        assert self.leader is not None
        loop, number = None, -1
        while not self.stop.is_set():
            try:
                if not self.leader.attempt() or self.leader.fence is None:
                    loop = None
                    self.say(f"waits: another leads this store: {leads(self.site.store, LEAD) or 'unknown'}")
                else:
                    if loop is None or number != self.leader.fence.number:
                        number = self.leader.fence.number
                        loop = self.site.loop(self.leader.fence, self.tell)
                        self.say(f"leads as {self.leader.holder} (number {number})")
                    self._after(loop.round())
            except LeadershipLost as error:
                loop = None
                self.say(str(error))
            except StoreError as error:
                self.say(str(error))
            self.stop.wait(self.site.settings.every)
        return 0

    def _after(self, done: JobRound) -> None:
        for problem in done.problems:
            self.say(problem)
        for one in done.would:
            if not self.options["once"] and not self.dry:
                self.say(f"would {one.what} {one.job}: {one.why}")
        if not done.problems and not done.would:
            self.said = self.said[:0]

    def _summary(self, done: JobRound) -> None:
        if self.json:
            value = {
                "at": done.at, "jobs": done.jobs, "problems": list(done.problems),
                **{name: [one._asdict() for one in getattr(done, name)] for name in ("events", "waiting", "would")},
            }  # fmt: skip
            click.echo(json.dumps(value, indent=2, ensure_ascii=False))
            return
        for one in done.would:
            click.echo(printable(f"would {one.what}  {one.job}  {one.why}"))
        for one in done.waiting:
            click.echo(printable(f"waits  {one.job}  {one.why}"))
        what = "dry run: nothing changed" if self.dry else f"{len(done.events)} events"
        click.echo(f"{done.jobs} jobs; {what}; {len(done.waiting)} wait; {len(done.would)} would be restarted")

    def tell(self, event: JobEvent) -> None:
        """An event that is in the store."""
        if self.json:
            if not self.options["once"] and not self.dry:
                click.echo(json.dumps(event._asdict(), ensure_ascii=False))
            return
        click.echo(printable(f"{event.job}  {event.what}  {event.why}".rstrip()))

    def say(self, text: str) -> None:
        """A line for the log, once as long as nothing else happens."""
        if text not in self.said:
            self.said.append(text)
            print(f"nhc job run: {printable(text)}", file=sys.stderr, flush=True)
