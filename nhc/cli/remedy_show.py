"""`nhc remedy show ID`: one episode with all that was done, seen and decided."""

from __future__ import annotations

from typing import Any, Dict, Optional

import click

from nhc.cli.common_options import FORMAT
from nhc.cli.option_groups import GroupedCommand
from nhc.cli.printing import show, when
from nhc.cli.remedy_options import SETTINGS, STORE, episode_value, opened
from nhc.model import Scope, printable, speaks_of
from nhc.ports.marks import cause_in_words
from nhc.remedy.persons import case_of
from nhc.store import attempts, audit, evidence

LINES = 1000
"""Rows of the audit log shown of one episode."""


@click.command("show", cls=GroupedCommand)
@click.argument("number", type=int, metavar="ID")
@SETTINGS
@STORE
@FORMAT
def command(number: int, settings_path: Optional[str], store_url: Optional[str], form: str) -> None:
    """Show an episode: its faults, each attempt, the evidence, who decided, and every step of the audit log.

    Exit status: 0, 2 there is no such episode, 3 the store cannot be read.
    """
    with opened(settings_path, store_url) as store, store.read() as connection:
        case = case_of(connection, number)
        decisions = attempts.decisions(connection, number)
        pieces = evidence.of_episode(connection, number)
        steps = audit.entries(connection, episode=number, limit=LINES)
    value: Dict[str, Any] = {
        **episode_value(case.episode),
        "attempts": [attempt._asdict() for attempt in case.attempts],
        "approvals": [decision._asdict() for decision in decisions],
        "evidence": [piece._asdict() for piece in pieces],
        "audit": [{"at": step.at, "by": step.actor, "what": step.what, "detail": step.detail} for step in steps],
    }
    if form == "json":
        show(value)
        return
    row = case.episode
    click.echo(f"episode {row.id}: {printable(row.node)} is {row.state}{f' ({row.rung})' if row.rung else ''}")
    click.echo(f"  opened {when(row.opened)}, moved {when(row.updated)}, ended {when(row.ended)}")
    if case.detail.about.known:
        click.echo(f"  about  {speaks_of(Scope.DEVICE, case.detail.about)}")
    if row.outcome or case.detail.waiting:
        click.echo(f"  {printable(row.outcome) if row.outcome else f'waits for {printable(case.detail.waiting)}'}")
    for fault in case.detail.faults:
        cause = cause_in_words(fault.cause)
        click.echo(f"  fault  {printable(cause)}: {printable(fault.message)} [{fault.action.value}]")
    for skipped in case.detail.skipped:
        name = f"{skipped.rung.value}{f' of {skipped.device}' if skipped.device else ''}"
        click.echo(f"  skipped  {name}: {printable(skipped.why)}")
    for attempt in case.attempts:
        how = attempt.outcome or attempt.state
        why = f": {printable(attempt.message)}" if attempt.message else ""
        click.echo(f"  attempt {attempt.number}  {attempt.rung} by {printable(attempt.repairer)}: {how}{why}")
    for decision in decisions:
        why = f": {printable(decision.reason)}" if decision.reason else ""
        click.echo(f"  {decision.decision} by {printable(decision.decided_by)} {when(decision.decided)}{why}")
    for piece in pieces:
        what = f"{piece.size} bytes, {piece.sha256[:12]}{', cut' if piece.cut else ''}" if piece.sha256 else "none"
        click.echo(
            f"  evidence  {printable(piece.name)}: {what}{f', {printable(piece.message)}' if piece.message else ''}"
        )
    for step in steps:
        click.echo(f"  {when(step.at)}  {printable(step.actor)}  {step.what}  {printable(step.detail, 200)}")
