"""`nhc deep due`: which nodes need a deep check before they join a large job."""

from __future__ import annotations

import os
import time
from typing import Sequence, Tuple

import click

from nhc.core.command_line import options
from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import click_command, named_nodes
from nhc.core.command_line.on_unknown import ADMIT, REFUSE
from nhc.core.command_line.printing import show
from nhc.core.exit_status import EXIT_HEALTHY, EXIT_UNHEALTHY, EXIT_USAGE
from nhc.core.model import printable
from nhc.core.plugins import NoAdapter
from nhc.marks.plugins import open_adapter
from nhc.marks.policy.deep_due import DeepRule, Due, due
from nhc.marks.ports.adapter import AdapterError, JobMessages
from nhc.store.commands.store_options import StoreOptions, opened
from nhc.store.errors import StoreError

SHOWN = 3
"""Nodes that the owner of a job is shown; the others are counted."""
ANSWER_WITHIN = 10.0
"""Seconds that one command of Slurm may take that tells a job's owner."""


class DeepDueOptions(StoreOptions, options.Formatted):
    node_set: str = options.text(
        "-w --nodes", "SET", "The nodes: gpu[001-064]. Default: those of the job, $SLURM_JOB_NODELIST.",
        heading="Which nodes",
    )  # fmt: skip
    younger_than: float = options.duration(
        "--younger-than", "A good verdict must be younger than this.", "7d", heading="What is asked for"
    )
    more_than: int = options.whole("--more-than", "NODES", "Ask only where there are more nodes than this.", 0, least=0)
    suites: Tuple[str, ...] = options.texts(
        "--suite", "NAME", "Only verdicts of this suite count: quick, sweep. Repeatable."
    )
    choice: str = options.choice(
        "--on-unknown", ["tell", ADMIT, REFUSE], "What a store that does not answer does: tell (exit status 3), admit "
        "(0) or refuse (1).", "tell", heading="As a hook of the scheduler",
    )  # fmt: skip
    tell_job: bool = options.flag(
        "--tell-job", "Where some are due, say so in the AdminComment of the job $SLURM_JOB_ID, and to its srun."
    )


@click_command
def command(args: DeepDueOptions) -> int:
    """Show the nodes that have no good deep verdict young enough.

    For a job of more than so many nodes: as PrologSlurmctld, or by hand before a large run. Exit status: 0 none is due,
    1 some are, 2 wrong usage, 3 the store does not answer.
    """
    nodes = named_nodes(args.node_set) or named_nodes(os.environ.get("SLURM_JOB_NODELIST", ""), "SLURM_JOB_NODELIST")
    if not nodes:
        raise CommandError("no nodes: give --nodes gpu[001-064], or run it in a job's prolog", EXIT_USAGE)
    job = os.environ.get("SLURM_JOB_ID", "")
    if args.tell_job and not job:
        raise CommandError("--tell-job is for a hook of Slurm: there is no SLURM_JOB_ID", EXIT_USAGE)
    rule = DeepRule(args.younger_than, args.more_than, args.suites)
    if not rule.asks(nodes):  # most jobs are small: the store's library is not even loaded for them
        click.echo("[]" if args.form == "json" else "", nl=args.form == "json")
        return EXIT_HEALTHY
    try:
        late = _late(nodes, rule, args.url)
    except StoreError as error:
        if args.choice == "tell":
            raise
        what = "let in" if args.choice == ADMIT else "not let in"
        click.echo(
            f"nhc deep due: could not tell: {printable(str(error))}: {what} (--on-unknown {args.choice})", err=True
        )
        return EXIT_HEALTHY if args.choice == ADMIT else EXIT_UNHEALTHY
    if args.form == "json":
        show([entry._asdict() for entry in late])
    else:
        for entry in late:
            click.echo(f"{entry.node} {entry.why}")
    if late and args.tell_job:
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
