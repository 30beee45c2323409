"""`nhc status|approve|hold|release|abort train`: what persons see of maintenance trains, and decide."""

from __future__ import annotations

import time
from typing import Any, Dict, List, Mapping, Optional, Sequence

import click

from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import BY, FORMAT, GroupedCommand, person, under
from nhc.core.command_line.printing import show, show_table, when
from nhc.core.model import printable
from nhc.core.units import show_number
from nhc.remedy.commands.remedy_options import SETTINGS, STORE, detail_of, opened
from nhc.remedy.commands.train_run import counted
from nhc.remedy.machine import EpisodeState
from nhc.remedy.trains import persons
from nhc.remedy.trains.machine import TrainState, by_state
from nhc.store import trains
from nhc.store.attempts import Attempt, AttemptStatus

NAME = click.argument("name", metavar="NAME")
WHY = under("What is decided")("--why", required=True, metavar="TEXT", help="For everybody who reads the audit log.")


@click.command("status", cls=GroupedCommand)
@click.argument("name", metavar="[NAME]", required=False, default="")
@SETTINGS
@STORE
@FORMAT
def status(name: str, settings_path: Optional[str], store_url: Optional[str], form: str) -> int:
    """List the trains, or show the train NAME node by node, and what holds each.

    Exit status: 0, 1 a train is stopped, held or waits for persons, 2 there is no such train, 3 the store cannot be
    read.
    """
    with opened(settings_path, store_url) as store, store.read() as connection:
        chosen = trains.list_trains(connection)
        if name:
            chosen = [train for train in chosen if train.name == name]
        rows = {train.id: trains.nodes_of(connection, train.id) for train in chosen}
        agreed = {train.id: [by.by for by in trains.approvals_of(connection, train.id)] for train in chosen}
        work = trains.attempts_of(connection, chosen[0].id) if name and chosen else {}
    if name and not chosen:
        raise CommandError(f"there is no train {name}", 2)
    waits = {TrainState.PLANNED.value, TrainState.HELD.value, TrainState.STOPPED.value}
    values: List[Dict[str, Any]] = [{
        "train": train.name, "state": train.state, "why": train.why, "by": train.by, "made": train.made,
        "ended": train.ended, "agreed": agreed[train.id], "nodes": by_state([row.state for row in rows[train.id]]),
    } for train in chosen]  # fmt: skip
    if name:
        values[0]["each"] = [
            {"node": row.node, "wave": row.wave, "state": row.state, "step": _step(work, row.id),
             "outcome": row.outcome, "waiting": detail_of(row).waiting} for row in rows[chosen[0].id]
        ]  # fmt: skip
        values[0]["work"] = [
            {"node": attempt.node, "what": attempt.device or attempt.rung, "by": attempt.repairer,
             "state": attempt.status.value, "message": attempt.message}
            for attempts in work.values() for attempt in attempts
        ]  # fmt: skip
    if form == "json":
        show(values[0] if name else values)
    else:
        lines = [
            [printable(str(train["train"])), str(train["state"]), when(train["made"]), counted(train["nodes"]),
             printable(str(train["why"]))] for train in values
        ]  # fmt: skip
        if name:
            lines += [
                [f"  {printable(row.node)}", row.state, f"wave {row.wave}", f"step {_step(work, row.id)}",
                 printable(row.outcome or detail_of(row).waiting)] for row in rows[chosen[0].id]
            ]  # fmt: skip
        show_table(lines)
        if not lines:
            click.echo("there is no train")
    return 1 if any(train.state in waits for train in chosen) else 0


def _step(work: Mapping[int, Sequence[Attempt]], episode: int) -> int:
    """The step that a node is at, or was at last, counted from 1."""
    some = work.get(episode, ())
    done = sum(attempt.status is AttemptStatus.SUCCEEDED for attempt in some)
    return done if some and done and some[-1].status is AttemptStatus.SUCCEEDED else done + 1


def _change(name: str, to: TrainState, path: Optional[str], url: Optional[str], by: str, why: str) -> None:
    if not why.strip():
        raise CommandError("--why is empty", 2)
    with opened(path, url) as store:
        persons.change(store, name, to, by=person(by), why=why, now=time.time())
        with store.read() as connection:
            train = trains.get(connection, name)
            rows = trains.nodes_of(connection, train.id) if train is not None else []
    at_work = [row for row in rows if row.ended is None and row.state != EpisodeState.PLANNED.value]
    more = f"; still at work: {show_number(len(at_work), 'node')}, which nhc train run finishes" if at_work else ""
    click.echo(f"train {name} is {to.value if to is not TrainState.PLANNED else 'resumed'}{more}")


def _decision(verb: str, to: TrainState, help: str) -> click.Command:
    """The command by which a person brings a train into another state."""

    @click.command(verb, cls=GroupedCommand, help=f"{help}\n\nExit status: 0, 2 there is nothing to {verb}, "
                   "3 the store cannot be used.")  # fmt: skip
    @NAME
    @WHY
    @BY
    @SETTINGS
    @STORE
    def command(name: str, why: str, by: str, settings_path: Optional[str], store_url: Optional[str]) -> None:
        _change(name, to, settings_path, store_url, by, why)

    return command


hold = _decision(
    "hold", TrainState.HELD,
    "Hold the train NAME: no node and no work begins. Work that was begun is finished, verified and put back.",
)  # fmt: skip
resume = _decision(
    "resume", TrainState.PLANNED,
    "Let a train go on that is held, or that was stopped by failures; `nhc train run` carries it out.",
)  # fmt: skip
abort = _decision(
    "abort", TrainState.ABORTING,
    "End the train NAME: no work begins. `nhc train run` finishes nodes that are at work, and puts others back.",
)  # fmt: skip


@click.command("approve", cls=GroupedCommand)
@NAME
@under("What is decided")("--why", default="", metavar="TEXT", help="For everybody who reads the audit log.")
@SETTINGS
@STORE
def approve(name: str, why: str, settings_path: Optional[str], store_url: Optional[str]) -> None:
    """Agree to the train NAME. As many persons must agree as the policy asks for its repairs; who began it is one.

    Exit status: 0, 2 there is no such train, or this person has agreed already, 3 the store cannot be used.
    """
    with opened(settings_path, store_url) as store:
        click.echo(persons.agree(store, name, by=person(), why=why, now=time.time()))
