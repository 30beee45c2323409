"""`nhc remedy abort ID`: stop an episode where it is."""

from __future__ import annotations

import time
from typing import Optional

import click

from nhc.cli.command_error import CommandError
from nhc.cli.common_options import BY, person
from nhc.cli.option_groups import GroupedCommand, under
from nhc.cli.remedy_options import SETTINGS, STORE, carried_out, opened
from nhc.remedy.persons import RequestRefused, abort


@click.command("abort", cls=GroupedCommand)
@click.argument("number", type=int, metavar="ID")
@under("What is decided")("--why", required=True, metavar="TEXT", help="For everybody who reads the audit log.")
@BY
@SETTINGS
@STORE
def command(number: int, why: str, by: str, settings_path: Optional[str], store_url: Optional[str]) -> None:
    """Stop episode ID. The node stays as it is; what was sent is not taken back.

    `nhc remedy release NODE` proves the node and brings it back. Exit status: 0, 2 there is no such open episode, 3 the
    store cannot be used.
    """
    carried_out("abort", lambda: _abort(number, why, person(by), settings_path, store_url))


def _abort(number: int, why: str, by: str, path: Optional[str], url: Optional[str]) -> int:
    store = opened(path, url)
    try:
        click.echo(abort(store, number, by=by, why=why, now=time.time()))
    except RequestRefused as error:
        raise CommandError(str(error), 2) from None
    finally:
        store.close()
    return 0
