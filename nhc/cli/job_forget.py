"""`nhc job forget JOB [NODE...]`: a job may use the nodes again that failed it."""

from __future__ import annotations

import time
from typing import Optional, Sequence

import click

from nhc.cli.carried_out import end
from nhc.cli.common_options import BY
from nhc.cli.job_options import SETTINGS, STORE_URL, opened, the_job
from nhc.cli.option_groups import GroupedCommand
from nhc.store import jobs


@click.command("forget", cls=GroupedCommand)
@click.argument("job")
@click.argument("nodes", nargs=-1)
@SETTINGS
@STORE_URL
@BY
def command(job: str, nodes: Sequence[str], settings_path: Optional[str], store_url: Optional[str], by: str) -> None:
    """Forget that NODES (none named: all) failed JOB: its next restart no longer avoids them.

    Exit status: 0, 1 there is no such job, 2 wrong usage, 3 the store cannot be used.
    """
    end("job forget", lambda: _forget(job, nodes, settings_path, store_url, by))


def _forget(name: str, nodes: Sequence[str], path: Optional[str], url: Optional[str], by: str) -> int:
    from nhc.cli.common_options import person

    store = opened(path, url)
    try:
        row = the_job(store, name)
        with store.write() as connection:
            count = jobs.forget_pairs(connection, row, nodes, time.time(), person(by))
    finally:
        store.close()
    click.echo(f"{row.text()}: {count} nodes forgotten")
    return 0
