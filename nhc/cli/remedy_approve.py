"""`nhc remedy approve ID`: agree to a repair that waits for a person, or refuse it."""

from __future__ import annotations

import time
from typing import Optional

import click

from nhc.cli.command_error import CommandError
from nhc.cli.common_options import person
from nhc.cli.option_groups import GroupedCommand, under
from nhc.cli.remedy_options import SETTINGS, STORE, carried_out, opened
from nhc.remedy.persons import RequestRefused, decide
from nhc.store.errors import Conflict


@click.command("approve", cls=GroupedCommand)
@click.argument("number", type=int, metavar="ID")
@under("What is decided")("--refuse", is_flag=True, help="Refuse it: the episode is escalated.")
@under("What is decided")("--why", default="", metavar="TEXT", help="For everybody who reads the audit log.")
@SETTINGS
@STORE
def command(number: int, refuse: bool, why: str, settings_path: Optional[str], store_url: Optional[str]) -> None:
    """Agree to the next repair of episode ID. Where the policy asks for two persons, each gives this command.

    A person is the user, or the user behind sudo. Everything is read again before the repair is sent. Exit status: 0,
    2 it waits for nobody, or this person has decided already, 3 the store cannot be used.
    """
    carried_out("approve", lambda: _approve(number, refuse, why, person(), settings_path, store_url))


def _approve(number: int, refuse: bool, why: str, by: str, path: Optional[str], url: Optional[str]) -> int:
    if refuse and not why.strip():
        raise CommandError("--refuse needs --why", 2)
    store = opened(path, url)
    try:
        click.echo(decide(store, number, by=by, agree=not refuse, why=why, now=time.time()))
    except (RequestRefused, Conflict) as error:
        raise CommandError(str(error), 2) from None
    finally:
        store.close()
    return 0
