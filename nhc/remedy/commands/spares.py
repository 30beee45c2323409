"""`nhc status spares` and `nhc spares verify|swap`: spare nodes, how verified they are, and which goes in for which."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any, Dict, Iterator, List, Tuple

import click

from nhc.core.command_line import options
from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import click_command
from nhc.core.command_line.printing import show, show_table
from nhc.core.exit_status import EXIT_USAGE
from nhc.core.model import printable
from nhc.marks.ports.adapter import AdapterError, Effect
from nhc.remedy.commands.remedy_options import ShownRemedyOptions, site_of
from nhc.remedy.remedy_site import RemedySite
from nhc.remedy.spares.settings import PATH, load
from nhc.remedy.spares.swap import PoolRound, Pools, SpareDone, open_pool, round_of
from nhc.remedy.spares.swap_decision import unverified
from nhc.store.commands.store_options import note_stand_in
from nhc.store.rounds.leader import Leader


@contextlib.contextmanager
def opened(path: str, settings: str, look: bool = True) -> Iterator[Tuple[RemedySite, Pools]]:
    """What the settings name, closed at the end. `look`: nothing is changed. Raises as `site_of`."""
    pools = load(path or PATH)
    try:
        keepers = [(pool, open_pool(pool)) for pool in pools]
    except AdapterError as error:
        raise CommandError(str(error), EXIT_USAGE) from None
    with site_of(settings, look=look) as site:
        note_stand_in("spares", site.store)
        yield site, keepers


def _problems(rounds: List[PoolRound], site: RemedySite) -> bool:
    """Say what is to be said of the reports and of each pool; whether anything could not be read."""
    for note in site.notes:
        print(f"nhc spares: {note}", file=sys.stderr)
    for entry in rounds:
        if entry.problem:
            print(f"nhc spares: {entry.pool.name}: {printable(entry.problem)}", file=sys.stderr)
    return any(entry.problem for entry in rounds)


class SparesOptions(ShownRemedyOptions):
    pools: str = options.settings_file("spares.toml", flags="--pools", needed=True, heading="Where")


@click_command
def status(args: SparesOptions) -> int:
    """Show each pool: the spares that wait, those in service and for whom, and who waits for one.

    Exit status: 0, 1 a pool could not be read, 2 wrong settings, 3 the store cannot be used.
    """
    with opened(args.pools, args.settings) as (site, pools):
        return _status(site, pools, args.form, judged=False)


@click_command
def verify(args: SparesOptions) -> int:
    """Say of each spare whether it may be trusted with work: a fresh healthy report, and the deep suite of its pool.

    Exit status: 0 each pool has as many verified spares as it wants, 1 one has fewer, or could not be read, 2 wrong
    settings, 3 the store cannot be used.
    """
    with opened(args.pools, args.settings) as (site, pools):
        return _status(site, pools, args.form, judged=True)


def _status(site: RemedySite, pools: Pools, form: str, judged: bool) -> int:
    rounds = round_of(site, pools, apply=False, now=time.time())
    failed = _problems(rounds, site)
    values: List[Dict[str, Any]] = []
    lines: List[List[str]] = []
    for entry in rounds:
        if entry.view is None:
            continue
        doubts = {node: unverified(entry.view, node) for node in entry.view.waiting}
        good = [node for node, why in doubts.items() if not why]
        few = len(good) + entry.view.addable + len(entry.view.in_use) < entry.pool.size
        failed = failed or (judged and few)
        values.append({
            "pool": entry.pool.name, "wanted": entry.pool.size, "verified": len(good), "waiting": doubts,
            "addable": entry.view.addable,
            "in_use": [row._asdict() for row in entry.view.in_use],
            "waits": [wait._asdict() for wait in entry.decision.waits],
        })  # fmt: skip
        there = (
            f"{entry.view.addable} may be added to {entry.view.adds}" if entry.view.adds else f"{len(good)} verified"
        )
        lines.append([entry.pool.name, f"{there} of {entry.pool.size} wanted", "", ""])
        lines += [[f"  {node}", "waits", "", printable(why or "verified")] for node, why in doubts.items()]
        lines += [[f"  {row.node}", row.state, f"for {printable(row.stands_for)}", printable(row.why)]
                  for row in entry.view.in_use]  # fmt: skip
        others = [wait for wait in entry.decision.waits if wait.node not in doubts]
        lines += [[f"  {printable(wait.node)}", "has no spare", "", printable(wait.why)] for wait in others]
    if form == "json":
        show(values)
    else:
        show_table(lines)
    return 1 if failed else 0


class SwapOptions(SparesOptions):
    pools: str = options.settings_file("spares.toml", flags="--pools", needed=True, checked=True, heading="Where")
    apply: bool = options.flag(
        "--apply", "Do it. Without this it is shown, and nothing is done.", heading="What is done"
    )


@click_command
def swap(args: SwapOptions) -> int:
    """Let verified spares stand in for nodes that are out for too long, and bring spares back. One round: for cron.

    Exit status: 0 done, or nothing was to be done, 1 a step failed, or a pool could not be read, 2 wrong settings, 3
    the store or the lead cannot be had.
    """
    with opened(args.pools, args.settings, look=not args.apply) as (site, pools):
        return _swap(site, pools, args.apply, args.form)


def _swap(site: RemedySite, pools: Pools, apply: bool, form: str) -> int:
    leader = Leader(site.store, name="spares")
    try:
        if apply and not leader.attempt():
            raise CommandError(f"another process swaps spares in this store: {leader.last()}")
        fence = leader.sure() if apply else None
        rounds = round_of(
            site, pools, apply=apply, now=time.time(), fence=fence, publish=lambda swapped: tell(swapped, form)
        )
    finally:
        leader.release()
    failed = _problems(rounds, site)
    if form == "json":
        show([{
            "pool": entry.pool.name, "problem": entry.problem,
            "steps": [step._replace(row=None)._asdict() for step in entry.decision.steps],
            "done": [{"spare": done.step.spare, "effect": done.applied.effect.value, "message": done.applied.message}
                     for done in entry.done],
            "waits": [wait._asdict() for wait in entry.decision.waits],
        } for entry in rounds])  # fmt: skip
    else:
        for entry in rounds:
            for step in () if apply else entry.decision.steps:
                click.echo(f"would {step.action}  {printable(step.spare)}  for {printable(step.stands_for)}: "
                           f"{printable(step.why)}")  # fmt: skip
            for wait in entry.decision.waits:
                click.echo(f"waits  {printable(wait.node)}  {printable(wait.why)}")
        if not apply:
            click.echo("dry run: nothing was done; --apply does it", err=True)
    bad = [done for entry in rounds for done in entry.done if done.applied.effect is Effect.FAILED]
    return 1 if failed or bad else 0


def tell(swapped: SpareDone, form: str = "text") -> None:
    """A step that was done."""
    if form == "text":
        message = f": {printable(swapped.applied.message)}" if swapped.applied.message else ""
        step = swapped.step
        click.echo(f"{step.action}  {printable(step.spare)}  for {printable(step.stands_for)}  "
                   f"{swapped.applied.effect.value}{message}")  # fmt: skip
