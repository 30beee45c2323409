"""`nhc serve job`: restart jobs after infrastructure faults, in the foreground, once for cron, or as a service."""

from __future__ import annotations

import contextlib
import json
from typing import Callable, Iterator, Tuple

import click

from nhc.core.command_line import options
from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import service_command
from nhc.core.command_line.printing import show as show_value
from nhc.core.exit_status import EXIT_USAGE
from nhc.core.model import printable
from nhc.jobs.commands.job_options import settings_of
from nhc.jobs.job_round import JobEvent
from nhc.jobs.job_site import open_site
from nhc.jobs.restart_rounds import JobRounds
from nhc.marks.ports.adapter import AdapterError
from nhc.store.commands.store_options import DRY_RUN, METRICS_FILE, ONCE, metrics_address, note_stand_in
from nhc.store.rounds.leader import Leader
from nhc.store.rounds.service import RoundService

LEAD = "jobs"
"""The name of this lead: jobs and nodes are looked after by two processes, which do not wait for one another."""


class JobRunOptions(options.Formatted):
    settings: str = options.settings_file("jobs.toml", checked=True)
    once: bool = ONCE
    dry_run: bool = DRY_RUN
    listen: str = metrics_address(9471)
    metrics_file: str = METRICS_FILE


@service_command
def command(args: JobRunOptions) -> int:
    """Restart the jobs that asked for it after their nodes have failed them. Application failures are left alone.

    Nothing is done to jobs unless the settings enable it. One process leads a store; others wait. Exit status: 0 done
    or ended by a signal, 1 something could not be read (with --once), 2 wrong usage or settings, 3 the store, the
    controller or the lead cannot be had.
    """
    with service_of(args) as (service, summary):
        return service.run(args.once, summary)


@contextlib.contextmanager
def service_of(args: JobRunOptions) -> Iterator[Tuple[RoundService, Callable[[], None]]]:
    """The service, and what shows its only round. Raises SettingsError, StoreError, CommandError."""
    settings = settings_of(args.settings)
    try:
        site = open_site(settings, look=args.dry_run)
    except AdapterError as error:
        raise CommandError(str(error), EXIT_USAGE) from None
    try:
        dry, once, as_json = args.dry_run, args.once, args.form == "json"
        leader = None if dry else Leader(site.store, name=LEAD)
        note_stand_in("serve job", site.store)
        show = show_event if not as_json else show_event_as_json if not (once or dry) else lambda _event: None
        work = JobRounds(site, show, apply=not dry, once=once)
        service = RoundService(
            "serve job", work, leader, every=settings.every, listen=args.listen,
            metrics_file=args.metrics_file,
        )  # fmt: skip
        yield service, lambda: summary(work, as_json)
    finally:
        site.close()


def summary(work: JobRounds, as_json: bool) -> None:
    """Print the result of the only round."""
    done = work.last
    assert done is not None
    if as_json:
        value = {
            "at": done.at, "jobs": done.jobs, "problems": list(done.problems),
            **{name: [entry._asdict() for entry in getattr(done, name)] for name in ("events", "waiting", "would")},
        }  # fmt: skip
        show_value(value)
        return
    for entry in done.would:
        click.echo(printable(f"would {entry.what}  {entry.job}  {entry.why}"))
    for entry in done.waiting:
        click.echo(printable(f"waits  {entry.job}  {entry.why}"))
    what = f"{len(done.events)} events" if work.apply else "dry run: nothing changed"
    click.echo(f"{done.jobs} jobs; {what}; {len(done.waiting)} wait; {len(done.would)} would be restarted")


def show_event(event: JobEvent) -> None:
    """Print an event that is in the store, as a line."""
    click.echo(printable(f"{event.job}  {event.what}  {event.why}".rstrip()))


def show_event_as_json(event: JobEvent) -> None:
    """Print it as JSON."""
    click.echo(json.dumps(event._asdict(), ensure_ascii=False))
