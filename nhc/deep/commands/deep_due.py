"""`nhc deep due`: which nodes need a deep check before they join a large job."""

from __future__ import annotations

import os
import time
from typing import Sequence, Tuple

import click

from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import DURATION, FORMAT, GroupedCommand, named_nodes, under
from nhc.core.command_line.on_unknown import ADMIT, REFUSE
from nhc.core.command_line.printing import show
from nhc.core.exit_status import EXIT_HEALTHY, EXIT_UNHEALTHY, EXIT_USAGE
from nhc.core.model import printable
from nhc.core.plugins import NoAdapter
from nhc.marks.plugins import open_adapter
from nhc.marks.policy.deep_due import DeepRule, Due, due
from nhc.marks.ports.adapter import AdapterError, JobMessages
from nhc.store.commands.store_options import URL, opened
from nhc.store.errors import StoreError

SHOWN = 3
"""Nodes that the owner of a job is shown; the others are counted."""
ANSWER_WITHIN = 10.0
"""Seconds that one command of Slurm may take that tells a job's owner."""

_rule = under("What is asked for")
_hook = under("As a hook of the scheduler")


@click.command("due", cls=GroupedCommand)
@under("Which nodes")("-w", "--nodes", "node_set", metavar="SET", default="",
                      help="The nodes: gpu[001-064]. Default: those of the job, $SLURM_JOB_NODELIST.")  # fmt: skip
@_rule("--younger-than", type=DURATION, default="7d", show_default=True, metavar="TIME",
       help="A good verdict must be younger than this.")  # fmt: skip
@_rule("--more-than", type=click.IntRange(0), default=0, show_default=True, metavar="NODES",
       help="Ask only where there are more nodes than this.")  # fmt: skip
@_rule("--suite", "suites", multiple=True, metavar="NAME",
       help="Only verdicts of this suite count: quick, sweep. Repeatable.")  # fmt: skip
@_hook("--on-unknown", "choice", type=click.Choice(["tell", ADMIT, REFUSE]), default="tell", show_default=True,
       help="What a store that does not answer does: tell (exit status 3), admit (0) or refuse (1).")  # fmt: skip
@_hook("--tell-job", is_flag=True,
       help="Where some are due, say so in the AdminComment of the job $SLURM_JOB_ID, and to its srun.")  # fmt: skip
@URL
@FORMAT
def command(
    node_set: str, younger_than: float, more_than: int, suites: Tuple[str, ...], choice: str, tell_job: bool,
    url: str, form: str,
) -> int:  # fmt: skip
    """Show the nodes that have no good deep verdict young enough.

    For a job of more than so many nodes: as PrologSlurmctld, or by hand before a large run. Exit status: 0 none is due,
    1 some are, 2 wrong usage, 3 the store does not answer.
    """
    nodes = named_nodes(node_set) or named_nodes(os.environ.get("SLURM_JOB_NODELIST", ""), "SLURM_JOB_NODELIST")
    if not nodes:
        raise CommandError("no nodes: give --nodes gpu[001-064], or run it in a job's prolog", EXIT_USAGE)
    job = os.environ.get("SLURM_JOB_ID", "")
    if tell_job and not job:
        raise CommandError("--tell-job is for a hook of Slurm: there is no SLURM_JOB_ID", EXIT_USAGE)
    rule = DeepRule(younger_than, more_than, suites)
    if not rule.asks(nodes):  # most jobs are small: the store's library is not even loaded for them
        click.echo("[]" if form == "json" else "", nl=form == "json")
        return EXIT_HEALTHY
    try:
        late = _late(nodes, rule, url)
    except StoreError as error:
        if choice == "tell":
            raise
        what = "let in" if choice == ADMIT else "not let in"
        click.echo(f"nhc deep due: could not tell: {printable(str(error))}: {what} (--on-unknown {choice})", err=True)
        return EXIT_HEALTHY if choice == ADMIT else EXIT_UNHEALTHY
    if form == "json":
        show([entry._asdict() for entry in late])
    else:
        for entry in late:
            click.echo(f"{entry.node} {entry.why}")
    if late and tell_job:
        _tell(job, late)
    return EXIT_UNHEALTHY if late else EXIT_HEALTHY


def _late(nodes: Sequence[str], rule: DeepRule, url: str) -> Tuple[Due, ...]:
    """The nodes that are due. Raises StoreError."""
    from nhc.store import deep

    with opened(url) as store, store.read() as connection:
        return due(nodes, deep.last_conclusive(connection, nodes, rule.suites), rule, time.time())


def _tell(job: str, late: Sequence[Due]) -> None:
    """Say where the job's owner looks why it waits; that this fails changes nothing of the answer."""
    named = "; ".join(f"{entry.node} {entry.why}" for entry in late[:SHOWN])
    more = f" (and {len(late) - SHOWN} more nodes)" if len(late) > SHOWN else ""
    try:
        adapter = open_adapter("slurm", {"NHC_RM_PATH": os.environ.get("NHC_RM_PATH", "")}, os.environ, ANSWER_WITHIN)
        if isinstance(adapter, JobMessages):
            adapter.tell_job(job, printable(f"NHC: the job waits for deep checks: {named}{more}"))
    except (NoAdapter, AdapterError) as error:
        click.echo(f"nhc deep due: the job's owner could not be told: {printable(str(error))}", err=True)
