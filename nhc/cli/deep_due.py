"""`nhc deep due`: which nodes need a deep check before they join a large job."""

from __future__ import annotations

import json
import os
import time
from typing import Tuple

import click

from nhc.cli.durations import DURATION
from nhc.cli.option_groups import GroupedCommand, under
from nhc.cli.store import FORM, SETTINGS, URL, found, guarded
from nhc.deep.due import DeepRule, due
from nhc.exit_status import EXIT_HEALTHY, EXIT_UNHEALTHY, EXIT_USAGE
from nhc.matching.nodeset import expand
from nhc.model import printable
from nhc.store import deep
from nhc.store.settings import opened

_rule = under("What is asked for")


@click.command("due", cls=GroupedCommand)
@under("Which nodes")("-n", "--nodes", "node_set", metavar="SET", default="",
                      help="The nodes: gpu[001-064]. Default: those of the job, $SLURM_JOB_NODELIST.")  # fmt: skip
@_rule("--younger-than", type=DURATION, default="7d", show_default=True, metavar="TIME",
       help="A good verdict must be younger than this.")  # fmt: skip
@_rule("--more-than", type=click.IntRange(0), default=0, show_default=True, metavar="NODES",
       help="Ask only where there are more nodes than this.")  # fmt: skip
@_rule("--suite", "suites", multiple=True, metavar="NAME",
       help="Only verdicts of this suite count: quick, sweep. Repeatable.")  # fmt: skip
@SETTINGS
@URL
@FORM
def command(
    node_set: str, younger_than: float, more_than: int, suites: Tuple[str, ...], path: str, url: str, form: str
) -> None:
    """Show the nodes that have no good deep verdict young enough.

    For a job of more than so many nodes: as PrologSlurmctld, or by hand before a large run. Exit status: 0 none is due,
    1 some are, 2 wrong usage, 3 the store does not answer.
    """
    text = node_set or os.environ.get("SLURM_JOB_NODELIST", "")
    try:
        nodes = expand(text)
    except ValueError as error:
        click.echo(f"nhc deep due: {printable(str(error))}", err=True)
        raise SystemExit(EXIT_USAGE) from None
    if not nodes:
        click.echo("nhc deep due: no nodes: give --nodes gpu[001-064], or run it in a job's prolog", err=True)
        raise SystemExit(EXIT_USAGE)

    def run() -> int:
        store = opened(found(path, url), create=False)
        with store.read() as connection:
            told = deep.last_told(connection, nodes, suites)
        late = due(nodes, told, DeepRule(younger_than, more_than, suites), time.time())
        if form == "json":
            click.echo(json.dumps([one._asdict() for one in late], indent=2, ensure_ascii=False))
        else:
            for one in late:
                click.echo(f"{one.node} {one.why}")
        return EXIT_UNHEALTHY if late else EXIT_HEALTHY

    guarded(run)
