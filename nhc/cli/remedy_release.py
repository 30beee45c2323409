"""`nhc remedy release NAME`: end a hold, give a node back to the loop, or close the breaker."""

from __future__ import annotations

import time
from typing import Optional

import click

from nhc.cli.command_error import CommandError
from nhc.cli.common_options import BY, person
from nhc.cli.option_groups import GroupedCommand, under
from nhc.cli.remedy_options import SETTINGS, STORE, carried_out, opened
from nhc.remedy.persons import close_breaker, hold_scope, release
from nhc.store import holds


@click.command("release", cls=GroupedCommand)
@click.argument("name", metavar="NODE|KIND=GROUP|fleet|breaker")
@under("What is decided")("--why", default="", metavar="TEXT", help="For everybody who reads the audit log.")
@BY
@SETTINGS
@STORE
def command(name: str, why: str, by: str, settings_path: Optional[str], store_url: Optional[str]) -> None:
    """End the hold on a node, a group or the fleet; or close the breaker.

    A node that an episode left to a person is proved first, as after a repair, and put back if it is healthy and the
    mark is ours. Exit status: 0, 2 there was nothing to release, 3 the store cannot be used.
    """
    carried_out("release", lambda: _release(name, why, person(by), settings_path, store_url))


def _release(name: str, why: str, by: str, path: Optional[str], url: Optional[str]) -> int:
    store, now = opened(path, url), time.time()
    try:
        if name == "breaker":
            if not why.strip():
                raise CommandError("the breaker is closed with a reason: --why", 2)
            if not close_breaker(store, by=by, why=why, now=now):
                raise CommandError("the breaker is not open", 2)
            click.echo(f"the breaker is closed by {by}")
            return 0
        scope = hold_scope(name)
        if scope == "node":
            done = release(store, name, by=by, why=why, now=now)
            if done.episode:
                click.echo(f"episode {done.episode} proves {name} and brings it back")
            elif not done.holds:
                raise CommandError(f"{name} is neither held nor left to a person", 2)
            if done.holds:
                click.echo(f"{name} is no longer held")
            return 0
        with store.write() as connection:
            ended = holds.release(connection, scope, "" if scope == "fleet" else name, by=by, now=now, why=why)
        if not ended:
            raise CommandError(f"{name} is not held", 2)
        click.echo(f"{name} is no longer held")
        return 0
    finally:
        store.close()
