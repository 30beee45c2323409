"""`nhc status job` and `nhc job forget`: the jobs that are watched, their restarts, and which nodes failed them."""

from __future__ import annotations

import time
from typing import Dict, List, Sequence

import click

from nhc.core.command_line import options
from nhc.core.command_line.common_options import click_command, person
from nhc.core.command_line.printing import show
from nhc.core.model import printable
from nhc.core.timestamps import utc
from nhc.jobs.commands.job_options import JobOptions, opened, the_job
from nhc.store import job_restarts
from nhc.store.database import Store
from nhc.store.job_restarts import JobNodePair, JobRestart, WatchedJob

RECENT = 7 * 86400.0


class JobStatusOptions(JobOptions, options.Formatted):
    job: str = options.argument("[JOB]")
    everything: bool = options.flag("--all", "Jobs that have ended as well.", heading="What is shown")


@click_command
def status(args: JobStatusOptions) -> None:
    """Show the jobs that are watched; of one JOB (17, team/llama) every restart, and the nodes it is kept off.

    Exit status: 0, 1 there is no such job, 2 wrong usage, 3 the store cannot be used.
    """
    with opened(args.settings) as store:
        if args.job:
            _show_job(store, the_job(store, args.job), args.form)
        else:
            _show_jobs(store, args.everything, args.form)


def _show_jobs(store: Store, everything: bool, form: str) -> None:
    with store.read() as connection:
        rows = job_restarts.list_jobs(connection, is_open=None if everything else True)
        used = {row.id: job_restarts.restarts(connection, row.id) for row in rows}
        worst = job_restarts.offenders(connection, time.time() - RECENT)
    if form == "json":
        value = {
            "jobs": [job_value(row, used[row.id], []) for row in rows],
            "nodes": [{"node": node, "jobs": count} for node, count in worst],
        }
        show(value)
        return
    for row in rows:
        click.echo(printable(line(row, used[row.id])))
    if not rows:
        click.echo("no job is watched")
    for node, count in worst[:10]:
        if count > 1:
            click.echo(printable(f"{node} failed {count} jobs within 7 days"))


def _show_job(store: Store, row: WatchedJob, form: str) -> None:
    with store.read() as connection:
        used, off = job_restarts.restarts(connection, row.id), job_restarts.pairs(connection, row.id)
        ends = job_restarts.ends(connection, row.id)
    if form == "json":
        value = {**job_value(row, used, off), "ends": [failed._asdict() for failed in ends]}
        show(value)
        return
    click.echo(printable(line(row, used)))
    if row.checkpoint:
        click.echo(printable(f"  checkpoint: {row.checkpoint}"))
    for failed in ends:
        click.echo(printable(f"  run {failed.run} failed  {utc(failed.ended)}  {failed.why}"))
    for restart in used:
        ended = (
            f"{restart.outcome} {utc(restart.ended)}"
            if restart.ended
            else f"{restart.state} since {utc(restart.updated)}"
        )
        click.echo(printable(f"  restart {restart.number}  {utc(restart.written)}  {ended}  {restart.why}"))
        if restart.message:
            click.echo(printable(f"    {restart.message}"))
    for pair in off:
        click.echo(printable(f"  failed on {pair.node}  {utc(pair.at)}  {pair.why}"))


def line(row: WatchedJob, used: List[JobRestart]) -> str:
    """One job in one line."""
    under_way = next(
        (f"; restart {entry.number} {entry.state}" for entry in used if entry.state != job_restarts.ENDED), ""
    )
    phase = "ended" if row.ended else row.phase
    message = f"; {row.logged}" if row.logged else ""
    return f"{row.text()}  {phase}  {len(used)} of {row.max_restarts} restarts{under_way}  {row.nodes or '-'}{message}"


def job_value(row: WatchedJob, used: List[JobRestart], off: List[JobNodePair]) -> Dict[str, object]:
    """A job as JSON."""
    return {
        "controller": row.controller, "job": row.text(), "uid": row.uid, "user": row.user, "phase": row.phase,
        "nodes": list(row.node_names), "max_restarts": row.max_restarts, "checkpoint": row.checkpoint,
        "logged": row.logged, "seen": row.seen, "ended": row.ended,
        "restarts": [
            {
                "number": entry.number, "state": entry.state, "outcome": entry.outcome, "why": entry.why,
                "nodes": entry.nodes.split(), "avoids": entry.exclude.split(), "message": entry.message,
                "written": entry.written, "ended": entry.ended,
            }
            for entry in used
        ],
        "failed_on": [{"node": entry.node, "at": entry.at, "why": entry.why} for entry in off],
    }  # fmt: skip


class ForgetOptions(JobOptions):
    job: str = options.argument("JOB", needed=True)
    nodes: Sequence[str] = options.arguments("[NODES]...")
    by: str = options.BY


@click_command
def forget(args: ForgetOptions) -> None:
    """Forget that NODES (none named: all) failed JOB: its next restart no longer avoids them.

    Exit status: 0, 1 there is no such job, 2 wrong usage, 3 the store cannot be used.
    """
    with opened(args.settings) as store:
        row = the_job(store, args.job)
        with store.write() as connection:
            count = job_restarts.forget_pairs(connection, row, args.nodes, time.time(), person(args.by))
    click.echo(f"{row.text()}: {count} nodes forgotten")
