"""`nhc status remedy`, `nhc list episodes`, `nhc show episode`: the loop's state, what holds it, what was done."""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import closing
from typing import Any, Dict, List, Mapping, Optional

import click

from nhc.core.command_line import options
from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import click_command, named_nodes
from nhc.core.command_line.printing import age, show_table, when
from nhc.core.command_line.printing import show as show_value
from nhc.core.exit_status import EXIT_USAGE
from nhc.core.json_values import object_from
from nhc.core.limits import Mode
from nhc.core.model import Scope, printable, scope_text
from nhc.core.plugins import NoAdapter
from nhc.core.timestamps import from_utc
from nhc.core.units import seconds
from nhc.marks.policy.bounds import ACTIONS
from nhc.marks.policy.breaker import NAME
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.marks import cause_in_words
from nhc.remedy.cases import next_repair, standing_cause
from nhc.remedy.commands.remedy_options import ShownRemedyOptions, detail_of, episode_value, opened, settings_of
from nhc.remedy.operators import case_of
from nhc.remedy.remedy_site import verdicts_by_cluster
from nhc.store import attempts, audit, ended_episodes, evidence, holds, nodes
from nhc.store import episodes as rows_of
from nhc.store.rounds.leader import Lead, lead_of
from nhc.store.settings import fleet_store

LINES = 1000
"""Rows of the audit log shown of one episode."""


@click_command
def status(args: ShownRemedyOptions) -> int:
    """Show open episodes, nodes that wait for a person, the breaker, holds, and which actions are enabled.

    Exit status: 0, 1 while the breaker is open or a step is stalled, 2 wrong usage, 3 the store cannot be read.
    """
    settings, now = settings_of(args.settings), time.time()
    with closing(fleet_store(settings.store, create=False)) as store:
        with store.read() as connection:
            rows = rows_of.list_episodes(connection, is_open=True)
            left = ended_episodes.left_to_operators(connection)
            breaker = holds.breaker_of(connection, NAME)
            held = holds.in_force(connection, now)
            verdicts = nodes.counts(connection, now - settings.sources.max_age, now)
        lead = lead_of(store)
    known, elsewhere = "store", ""
    if not verdicts and settings.sources.adapter:
        known = "cluster"
        try:
            verdicts = verdicts_by_cluster(settings, now)
        except (NoAdapter, AdapterError) as error:
            elsewhere = f"the store knows none, and the cluster cannot be asked: {printable(str(error))}"
    states, details = Counter(row.state for row in rows), {row.id: detail_of(row) for row in rows}
    stalled = [row for row in rows if details[row.id].alarmed]
    modes = {action: settings.mode(action) for action in ACTIONS}
    value: Dict[str, Any] = {
        "leader": lead.holder if lead.stands else "", "breaker": breaker._asdict() if breaker.is_open else None,
        "actions": {action: mode.value for action, mode in modes.items()}, "nodes": verdicts,
        "nodes_by": known,
        "episodes": dict(states),
        "stalled": [{"episode": row.id, "node": row.node, "waiting": details[row.id].waiting} for row in stalled],
        "left": [
            {"episode": row.id, "node": row.node, "since": row.ended, "cause": standing_cause(row), "why": row.outcome}
            for row in left
        ],
        "holds": [hold._asdict() for hold in held],
    }  # fmt: skip
    if args.form == "json":
        show_value(value)
        return 1 if breaker.is_open or stalled else 0
    enabled = [action for action, mode in modes.items() if mode is Mode.ON]
    lines: List[List[str]] = [
        ["leader", _led(lead)],
        ["enabled", ", ".join(enabled) or "nothing: nhc serve remedy --dry-run shows what would be done"],
        ["breaker", f"OPEN since {when(breaker.since)} by {printable(breaker.by)}: {printable(breaker.why)}"
         if breaker.is_open else "closed"],
        ["nodes", elsewhere or _counted(verdicts, known)],
        ["episodes", ", ".join(f"{count} {state}" for state, count in states.items()) or "none is open"],
    ]  # fmt: skip
    for row in stalled:
        what = f"episode {row.id} {printable(row.node)} {row.state} for {age(row.updated)}"
        lines.append(["stalled", f"{what}: {printable(details[row.id].waiting)}"])
    for row in left:
        what = f"episode {row.id} {printable(row.node)} {row.state} {age(row.ended or row.updated)} ago"
        why = f"{printable(cause_in_words(standing_cause(row)))}: {printable(row.outcome)}"
        lines.append(["a person", f"{what}: {why}: nhc release remedy {printable(row.node)}"])
    lines += [["hold", f"{hold.name or 'fleet'} by {hold.by} until {when(hold.until)}: {hold.why}"] for hold in held]
    show_table(lines)
    return 1 if breaker.is_open or stalled else 0


def _led(lead: Lead) -> str:
    """Who leads; if no one does, who led last."""
    if not lead.holder:
        return "nobody has led this store yet"
    return printable(lead.holder) if lead.stands else f"nobody: {printable(lead.holder)} was the last, and has ended"


def _counted(verdicts: Mapping[str, int], known: str) -> str:
    """The nodes by verdict, and whose view that is if it is not the store's."""
    counts = ", ".join(f"{count} {verdict or 'without a report'}" for verdict, count in sorted(verdicts.items()))
    if counts and known == "cluster":
        return f"{counts} (by the cluster: the store has none)"
    return counts or "none is known"


class EpisodesOptions(ShownRemedyOptions):
    node: str = options.text(
        "-w --nodes", "SET", "Only those of these nodes (n7, n[1-8]), ended ones too.", heading="Which"
    )
    ended: Optional[str] = options.text(
        "--ended", "[TIME]", "Also those that have ended, or that ended within this time.", None, bare="all"
    )
    since: Optional[str] = options.text(
        "--since", "TIME", "Only those that were open since then, ended ones too: 12h, or 2026-12-01T22:00:00Z.", None
    )
    limit: int = options.whole("--limit", "N", "At most so many.", 200, least=1)


@click_command
def episodes(args: EpisodesOptions) -> None:
    """List episodes, the newest last, with the repairs that were tried: what was done to n7 last night is
    `nhc list episodes -w n7 --since 12h`. Exit status: 0, 2 wrong usage, 3 the store cannot be read.
    """
    now = time.time()
    within = _since(args.ended, now, "--ended") if args.ended is not None and args.ended != "all" else None
    begun = _since(args.since, now, "--since") if args.since is not None else None
    names = named_nodes(args.node) or [""]
    both = bool(args.node) or args.ended is not None or begun is not None
    earliest = max((at for at in (within, begun) if at is not None), default=None)
    with opened(args.settings) as store, store.read() as connection:
        rows = [row for name in names for row in rows_of.list_episodes(connection, node=name, is_open=True)]
        for name in names if both else ():
            rows += rows_of.list_episodes(connection, node=name, is_open=False, ended_since=earliest, limit=args.limit)
        rows = sorted(rows, key=lambda row: row.id)[-args.limit :]
        tried = {row.id: attempts.attempts_of(connection, row.id) for row in rows}
    done = {number: [f"{one.rung} {one.outcome or one.state}" for one in some] for number, some in tried.items()}
    if args.form == "json":
        show_value([{**episode_value(row), "done": done[row.id]} for row in rows])
        return
    lines: List[List[str]] = [["ID", "NODE", "STATE", "RUNG", "OPENED", "MOVED", "DONE", "WHY"]]
    for row in rows:
        why = row.outcome or detail_of(row).waiting
        about = cause_in_words(standing_cause(row))
        lines.append([
            str(row.id), printable(row.node), row.state, next_repair(row) or "-", f"{age(row.opened)} ago",
            f"{age(row.updated)} ago", ", ".join(done[row.id]) or "-",
            printable(f"{about}: {why}" if why else about),
        ])  # fmt: skip
    show_table(lines, "no episode")


def _since(text: str, now: float, option: str) -> float:
    """The moment that `12h` or a time names. Raises CommandError."""
    try:
        return now - seconds(text)
    except ValueError:
        at = from_utc(text)
    if not at:
        expected = "a duration such as 12h, or a time such as 2026-12-01T22:00:00Z"
        raise CommandError(f"{option}: {text!r} is not {expected}", EXIT_USAGE)
    return at


def _in_words(detail: str) -> str:
    """A row's detail as the console has it: `because: no work runs on it; rung: reboot`, without what is empty."""
    parts: List[str] = []
    for key, value in object_from(detail).items():
        text = value if isinstance(value, str) else "" if value is None else json.dumps(value)
        if key == "seen" and isinstance(value, (int, float)):
            text = when(value)
        elif key == "cause":
            text = cause_in_words(text)
        if text:
            parts.append(f"{key}: {text}")
    return "; ".join(parts)


class RemedyShowOptions(ShownRemedyOptions):
    number: int = options.argument("ID", needed=True, number="whole")


@click_command
def show(args: RemedyShowOptions) -> None:
    """Show an episode: its faults, each attempt, the evidence, who decided, and every step of the audit log.

    Exit status: 0, 2 there is no such episode, 3 the store cannot be read.
    """
    with opened(args.settings) as store, store.read() as connection:
        case = case_of(connection, args.number)
        decisions = attempts.decisions(connection, args.number)
        pieces = evidence.of_episode(connection, args.number)
        steps = audit.entries(connection, episode=args.number, limit=LINES)
    value: Dict[str, Any] = {
        **episode_value(case.episode),
        "attempts": [attempt._asdict() for attempt in case.attempts],
        "approvals": [decision._asdict() for decision in decisions],
        "evidence": [piece._asdict() for piece in pieces],
        "audit": [{"at": step.at, "by": step.actor, "what": step.what, "detail": step.detail} for step in steps],
    }
    if args.form == "json":
        show_value(value)
        return
    row = case.episode
    click.echo(f"episode {row.id}: {printable(row.node)} is {row.state}{f' ({row.rung})' if row.rung else ''}")
    click.echo(f"  opened {when(row.opened)}, moved {when(row.updated)}, ended {when(row.ended)}")
    if case.detail.about.known:
        click.echo(f"  about  {scope_text(Scope.DEVICE, case.detail.about)}")
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
        told = printable(_in_words(step.detail), 200)
        click.echo(f"  {when(step.at)}  {printable(step.actor)}  {step.what}{f'  {told}' if told else ''}")
