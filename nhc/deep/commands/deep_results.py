"""`nhc status deep`, `show` and `history`: what sweeps and deep checks have found, from the store."""

from __future__ import annotations

import json
import time
from typing import Any, Dict, List

import click

from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import FORMAT, GroupedCommand, under
from nhc.core.command_line.printing import age, show_table, when
from nhc.core.command_line.printing import show as show_value
from nhc.core.exit_status import EXIT_HEALTHY, EXIT_UNHEALTHY, EXIT_UNKNOWN, EXIT_USAGE
from nhc.core.model import printable
from nhc.store import deep
from nhc.store.commands.store_options import SETTINGS, URL, opened
from nhc.store.database import Store
from nhc.store.deep import MeasuredRate, StoredSweep, SweepTest, rates

SHOWN = 20


@click.command("status", cls=GroupedCommand)
@SETTINGS
@URL
@FORMAT
@under("What is shown")("--older-than", type=float, default=0.0, metavar="DAYS",
                        help="Only verdicts of at least this age.")  # fmt: skip
def status(path: str, url: str, form: str, older_than: float) -> None:
    """Show the newest sweeps, and for each node the last verdict of each suite with its age."""
    now = time.time()
    with opened(path, url) as store, store.read() as connection:
        newest = deep.newest_sweeps(connection, SHOWN)
        counts = {row.id: _counts(deep.tests_of(connection, row.id)) for row in newest if row.state == deep.OPEN}
        last = [verdict for verdict in deep.last_verdicts(connection) if verdict.age(now) >= older_than * 86400]
    if form == "json":
        show_value({
            "sweeps": [_sweep(row) for row in newest],
            "nodes": [{**verdict._asdict(), "age": round(verdict.age(now))} for verdict in last],
        })  # fmt: skip
        return
    rows = [[str(row.id), row.state, when(row.began), row.by, counts.get(row.id, _summary(row))] for row in newest]
    show_table([["sweep", "state", "began", "by", ""], *rows])
    click.echo()
    show_table([["node", "suite", "verdict", "age"],
                *([row.node, row.suite, row.verdict, age(row.at)] for row in last)])  # fmt: skip


@click.command("show", cls=GroupedCommand)
@click.argument("number", type=int, metavar="ID")
@SETTINGS
@URL
@FORMAT
def show(number: int, path: str, url: str, form: str) -> int:
    """Show a sweep: whom it blames, and the tests that speak for it.

    Exit status: 0 nobody is to blame and all were tested, 1 somebody is, 2 there is no such sweep, 3 could not tell.
    """
    with opened(path, url) as store:
        return show_sweep(store, number, form)


def show_sweep(store: Store, number: int, form: str) -> int:
    """Print a sweep; its exit status. Raises StoreError, CommandError."""
    with store.read() as connection:
        row = deep.sweep(connection, number)
        tests = deep.tests_of(connection, number)
    if row is None:
        raise CommandError(f"there is no sweep {number}", EXIT_USAGE)
    findings = json.loads(row.findings)
    blames: List[Dict[str, Any]] = findings.get("blames", [])
    nodes: Dict[str, str] = findings.get("nodes", {})
    if form == "json":
        tested = [test._asdict() for test in tests]
        show_value({**_sweep(row), **findings, "tests": tested})
    else:
        click.echo(f"sweep {row.id}: {row.state}, begun {when(row.began)} by {row.by}: {_counts(tests)}")
        by_name = {test.name: test for test in tests}
        for blame in blames:
            click.echo(f"{blame['culprit']:<8} {printable(blame['message'])}")
            for name in blame["tests"]:
                test = by_name.get(name)
                if test is not None:
                    click.echo(f"         {name}: {printable(test.why)}")
        for state in sorted(set(nodes.values())):
            members = [node for node, standing in nodes.items() if standing == state]
            names = " ".join(members[:SHOWN]) + (" ..." if len(members) > SHOWN else "")
            click.echo(f"{len(members)} {state}: {names}")
        if row.message:
            click.echo(row.message)
    if any(blame["culprit"] in ("node", "link", "leaf", "rail", "path", "scale") for blame in blames):
        return EXIT_UNHEALTHY
    return EXIT_HEALTHY if row.state == deep.DONE and set(nodes.values()) == {"passed"} else EXIT_UNKNOWN


@click.command("history", cls=GroupedCommand)
@click.argument("node", default="")
@SETTINGS
@URL
@FORMAT
@under("What is shown")(
    "--serial",
    default="",
    metavar="NUMBER",
    help="Only the board with this serial number; without NODE on whatever node it was.",
)
@under("What is shown")(
    "--rates", "folded", is_flag=True, help="How each measured value went, a row for each of a GPU."
)
@under("What is shown")("--last", type=click.IntRange(1, 10_000), default=50, show_default=True, help="So many.")
def history(node: str, path: str, url: str, form: str, serial: str, folded: bool, last: int) -> None:
    """Show what deep checks and sweeps found of a node or a GPU, the newest first."""
    if not (node or serial):
        raise click.UsageError("name a node, or a board with --serial")
    with opened(path, url) as store, store.read() as connection:
        rows = deep.history(connection, node, last, serial)
    if folded:
        _show_rates(rates(rows), form)
    elif form == "json":
        show_value([row._asdict() for row in rows])
    else:
        cells = [
            [when(row.at), row.node, row.suite, row.test, row.device, row.serial, row.verdict,
             f"{row.value:g} {row.unit}" if row.value is not None else "", row.message]
            for row in rows
        ]  # fmt: skip
        show_table([["at", "node", "suite", "test", "device", "serial", "verdict", "value", ""], *cells])


def _show_rates(found_rates: List[MeasuredRate], form: str) -> None:
    if form == "json":
        show_value([{**rate._asdict(), "median": rate.middle, "last": rate.last} for rate in found_rates])
        return
    cells = [
        [rate.node, rate.device, rate.serial, rate.test, str(len(rate.values)),
         f"{min(value for _, value in rate.values):g}", f"{rate.middle:g}", f"{rate.last:g} {rate.unit}",
         f"{rate.change:+.1f} %", when(rate.values[-1][0])]
        for rate in found_rates
    ]  # fmt: skip
    heads = ["node", "device", "serial", "test", "runs", "lowest", "median", "last", "from median", "at"]
    show_table([heads, *cells])


def _counts(tests: List[SweepTest]) -> str:
    """How many tests are in each state, and of which round."""
    states = sorted({test.state for test in tests})
    turn = max((test.turn for test in tests), default=0)
    return f"round {turn}, " + ", ".join(f"{sum(t.state == state for t in tests)} {state}" for state in states)


def _summary(row: StoredSweep) -> str:
    blames = json.loads(row.findings).get("blames", [])
    return row.message or "; ".join(printable(blame["message"]) for blame in blames[:3]) or "nobody is to blame"


def _sweep(row: StoredSweep) -> Dict[str, Any]:
    value = row._asdict()
    value.pop("findings")
    return {**value, "plan": json.loads(row.plan)}
