"""`nhc abort sweep`: end a sweep, whoever runs it."""

from __future__ import annotations

import time

import click

from nhc.core.command_line import options
from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import click_command, person
from nhc.core.exit_status import EXIT_USAGE
from nhc.core.plugins import NoAdapter
from nhc.deep.sweep import Surroundings, Sweeper
from nhc.deep.sweep_plan import BadPlan, read
from nhc.marks.plugins import launcher as launcher_of
from nhc.marks.ports.adapter import AdapterError
from nhc.store import deep
from nhc.store.commands.store_options import StoreOptions, opened
from nhc.store.database import Store
from nhc.store.errors import Conflict
from nhc.store.rounds.leader import Leader


class DeepStopOptions(StoreOptions):
    number: int = options.argument("ID", needed=True, number="whole")
    by: str = options.BY
    wait: float = options.duration(
        "--wait", "How long to wait for the process that runs the sweep.", "1m", heading="How it ends"
    )


@click_command
def command(args: DeepStopOptions) -> None:
    """End a sweep: its tests are ended, and what is certain by then is kept.

    The process that runs it sees this at its next look. Where there is none, this command ends the tests itself.
    Exit status: 0 the sweep is stopped, 2 there is no such sweep or it has ended, 3 not stopped yet.
    """
    with opened(args.url) as store:
        try:
            with store.write() as connection:
                deep.ask_to_stop(connection, args.number, f"stopped by {person(args.by)}", time.time())
        except Conflict as error:
            raise CommandError(str(error), EXIT_USAGE) from None
        try:
            _stop(store, args.number, args.wait)
        except (AdapterError, NoAdapter, BadPlan) as error:
            raise CommandError(str(error)) from None


def _stop(store: Store, number: int, wait: float) -> None:
    """Wait for the process that runs the sweep; where nobody does, stop it here."""
    until = time.monotonic() + wait
    leader = Leader(store, name="sweep")
    while True:
        with store.read() as connection:
            row = deep.sweep(connection, number)
        if row is None or row.state != deep.STOPPING:
            click.echo(f"sweep {number} is {row.state if row else 'gone'}")
            return
        if leader.attempt():
            try:
                plan = read(row.plan)
                launcher = launcher_of(row.launcher)(dict(plan.settings))
                Sweeper(store, number, plan, launcher, leader, Surroundings()).stop(row.message)
            finally:
                leader.release()
            continue
        if time.monotonic() >= until:
            raise CommandError(f"sweep {number} is not stopped yet: its process has not answered")
        time.sleep(0.2)
