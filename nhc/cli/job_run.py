"""`nhc job run`: restart jobs after infrastructure faults, in the foreground, once for cron, or as a service."""

from __future__ import annotations

import contextlib
import json
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

import click

from nhc.cli.carried_out import tell_stand_in
from nhc.cli.command_error import CommandError
from nhc.cli.common_options import FORMAT
from nhc.cli.job_options import SETTINGS, STORE_URL, carried_out, settings_of
from nhc.cli.option_groups import GroupedCommand, under
from nhc.jobs import metrics
from nhc.jobs.job_round import JobEvent, JobRound
from nhc.jobs.site import JobSite, open_site
from nhc.model import printable
from nhc.plugins import NoAdapter
from nhc.ports.adapter import AdapterError
from nhc.rounds.leader import Leader
from nhc.rounds.service import RoundEnd, RoundService
from nhc.store.database import Fence

LEAD = "jobs"
"""The name of this lead: jobs and nodes are looked after by two processes, which do not wait for one another."""


@click.command("run", cls=GroupedCommand)
@SETTINGS
@STORE_URL
@under("What is done")("--once", is_flag=True, help="One round, then end: for cron.")
@under("What is done")("--dry-run", is_flag=True, help="Show what would be done; write and change nothing.")
@under("What is shown")("--listen", default="", metavar="ADDRESS", help="Serve /metrics and /healthz: 127.0.0.1:9471.")
@under("What is shown")("--metrics-file", default="", metavar="FILE", help="Write metrics for a textfile collector.")
@FORMAT
def command(**options: Any) -> None:
    """Restart the jobs that asked for it after their nodes have failed them. Application failures are left alone.

    Nothing is done to jobs unless the settings enable it. One process leads a store; others wait. Exit status: 0 done
    or ended by a signal, 1 something could not be read (with --once), 2 wrong usage or settings, 3 the store, the
    controller or the lead cannot be had.
    """
    carried_out("run", lambda: run(options))


def run(options: Dict[str, Any]) -> int:
    """Carry it out. Raises SettingsError, StoreError, CommandError."""
    with service_of(options) as (service, summary):
        return service.run(options["once"], summary)


@contextlib.contextmanager
def service_of(options: Dict[str, Any]) -> Iterator[Tuple[RoundService, Callable[[], None]]]:
    """The service, and what shows its only round. Raises SettingsError, StoreError, CommandError."""
    settings = settings_of(options["settings_path"], options["store_url"])
    try:
        site = open_site(settings, look=options["dry_run"])
    except (NoAdapter, AdapterError) as error:
        raise CommandError(str(error), 2) from None
    try:
        leader = None if options["dry_run"] else Leader(site.store, name=LEAD)
        tell_stand_in("job run", site.store)
        work = _JobRounds(site, leader is not None, options)
        service = RoundService(
            "job run", work, leader, every=settings.every, listen=options["listen"],
            metrics_file=options["metrics_file"],
        )  # fmt: skip
        yield service, work.summary
    finally:
        site.close()


class _JobRounds:
    """What `nhc job run` does each round.

    /healthz speaks of this process and its store: a controller that cannot be read is `nhc_job_problems`, since no
    restart of ours brings it back.
    """

    def __init__(self, site: JobSite, leading: bool, options: Dict[str, Any]) -> None:
        self.site = site
        self.json, self.streams = options["form"] == "json", leading and not options["once"]
        self.dry = not leading
        self.totals = metrics.JobTotals()
        self.last: Optional[JobRound] = None

    def lead(self, fence: Optional[Fence]) -> None:
        """See RoundWork."""
        self.loop = self.site.loop(fence, self.tell)

    def round(self) -> RoundEnd:
        """See RoundWork."""
        self.last = self.loop.round(apply=not self.dry)
        self.totals.add(self.last)
        would = [f"would {one.what} {one.job}: {one.why}" for one in self.last.would] if self.streams else []
        return RoundEnd(self.last.problems, tuple(would))

    def page(self) -> str:
        """See RoundWork."""
        assert self.last is not None
        return metrics.render(self.site.store, self.last, self.totals, not self.dry)

    def standby(self) -> str:
        """See RoundWork."""
        return metrics.STANDS_BY

    def summary(self) -> None:
        """What the only round came to."""
        done = self.last
        assert done is not None
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
            if self.streams:
                click.echo(json.dumps(event._asdict(), ensure_ascii=False))
            return
        click.echo(printable(f"{event.job}  {event.what}  {event.why}".rstrip()))
