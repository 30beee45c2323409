"""`nhc simulate remedy`: what another policy would have done with recorded history."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any, Dict, List, Sequence

import click

from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import DURATION, FORMAT, GroupedCommand, under
from nhc.core.command_line.printing import show, when
from nhc.core.model import printable
from nhc.lab.simulate import OURS, Assumed, PolicyCost, PolicyDifference, PolicyReplay, differences, play
from nhc.remedy.commands.remedy_options import SETTINGS, settings_of
from nhc.remedy.recorded_events import BadHistory, FleetHistory, joined, of_files, of_store
from nhc.remedy.remedy_file import load
from nhc.remedy.settings import RemedySettings
from nhc.store.settings import fleet_store

LINES = 50
"""Bounds shown as text; JSON has all."""


@click.command("simulate", cls=GroupedCommand)
@under("What is compared")("--policy", required=True, metavar="FILE", help="The other settings (TOML).")
@SETTINGS
@under("What is played")("-r", "--report", "reports", multiple=True, metavar="FILE",
                         help="Recorded reports as JSON; a directory's *.json. Repeatable.")  # fmt: skip
@under("What is played")("--events", multiple=True, metavar="FILE", help="An event log of the agent. Repeatable.")
@under("What is played")("--since", type=DURATION, default="7d", show_default=True, metavar="TIME",
                         help="How much of the store's history, where no file is named.")  # fmt: skip
@under("What is assumed")("--step", type=DURATION, default="5m", show_default=True, metavar="TIME",
                          help="The pause between two rounds.")  # fmt: skip
@under("What is assumed")("--repair-takes", type=DURATION, default="10m", show_default=True, metavar="TIME",
                          help="How long a repair takes.")  # fmt: skip
@under("What is assumed")("--drain", type=DURATION, default="0s", show_default=True, metavar="TIME",
                          help="How long work still runs on a marked node.")  # fmt: skip
@under("What is assumed")("--repairs", type=click.Choice(["cure", "fail"]), default="cure", show_default=True,
                          help="Whether repairs help.")  # fmt: skip
@under("What is assumed")("--enable", is_flag=True, help="Take what is on dry-run as enabled, in both.")
@FORMAT
def command(**options: Any) -> int:
    """Play recorded history against --policy and against the settings in force; show what they do differently.

    The loop itself decides, over a store of its own; nothing outside is asked and nothing is done. Persons are taken to
    agree at once. Exit status: 0 no difference, 1 there is one, 2 wrong usage, 3 the history cannot be read.
    """
    before = settings_of(options["settings_path"])
    after = load(options["policy"])
    assumed = Assumed(
        max(options["step"], 1.0), options["repair_takes"], options["drain"], options["repairs"] == "cure",
        bool(options["enable"]),
    )  # fmt: skip
    past = _past(options, before)
    for line in past.unread:
        click.echo(f"nhc simulate remedy: left out: {printable(line)}", err=True)
    if not past.reports:
        raise CommandError("there is no history to play: no problem was recorded in this time")
    old, new = play(past, before, assumed), play(past, after, assumed)
    otherwise = differences(old, new)
    if options["form"] == "json":
        show({
            "history": {"nodes": len(past.groups), "reports": len(past.reports), "began": past.began},
            "before": _value(old), "after": _value(new), "differences": [row._asdict() for row in otherwise],
        })  # fmt: skip
    else:
        _text(past, old, new, otherwise)
    return 1 if otherwise else 0


def _past(options: Dict[str, Any], settings: RemedySettings) -> FleetHistory:
    if options["reports"] or options["events"]:
        try:
            return of_files(options["reports"], options["events"])
        except BadHistory as error:
            raise CommandError(str(error)) from None
    with closing(fleet_store(settings.store, create=False)) as store:
        now = time.time()
        return joined([of_store(store, now - options["since"], now)])


def _value(played: PolicyReplay) -> Dict[str, Any]:
    return {
        "cost": played.cost._asdict(),
        "actions": [entry._asdict() for entry in played.done],
        "held": [entry._asdict() for entry in played.waits if entry.bound not in OURS],
        "rounds": played.rounds,
    }


def _text(past: FleetHistory, old: PolicyReplay, new: PolicyReplay, differences: Sequence[PolicyDifference]) -> None:
    click.echo(f"{len(past.reports)} reports of {len(past.groups)} nodes since {when(past.began)}")
    click.echo(f"in force: {_counts(old)}")
    click.echo(f"--policy: {_counts(new)}")
    _costs(old.cost, new.cost)
    for difference in differences:
        click.echo(f"{printable(difference.node)}")
        click.echo(f"  - {_line(difference.before, difference.held_before)}")
        click.echo(f"  + {_line(difference.after, difference.held_after)}")
    held = [wait for wait in new.waits if wait.bound not in OURS]
    for wait in held[:LINES]:
        click.echo(f"held by --policy  {printable(wait.node)}  {printable(wait.bound)}  {wait.seconds / 60:.0f} min")
    if len(held) > LINES:
        click.echo(f"... and {len(held) - LINES} more: --format json has them all")
    click.echo(f"{len(differences)} nodes are treated otherwise" if differences else "no node is treated otherwise")


def _costs(old: PolicyCost, new: PolicyCost) -> None:
    """What --policy saves and costs beside the settings in force."""
    names = {"node_hours_out": "node-hours out", "repairs": "repairs", "escalations": "escalations"}
    for key, name in names.items():
        before, after = getattr(old, key), getattr(new, key)
        click.echo(f"{name}: {before:g} in force, {after:g} with --policy ({after - before:+g})")
    if new.borrowed:
        click.echo(f"{new.borrowed} faults ended with --policy only because the node was really repaired at that time")


def _counts(played: PolicyReplay) -> str:
    counts: Dict[str, int] = {}
    for entry in played.done:
        counts[entry.action] = counts.get(entry.action, 0) + 1
    return ", ".join(f"{count} {action}" for action, count in counts.items()) or "nothing is done"


def _line(actions: Sequence[str], held: Sequence[str]) -> str:
    parts: List[str] = [", ".join(actions) or "nothing"]
    if held:
        parts.append(f"(held by {', '.join(held)})")
    return " ".join(parts)
