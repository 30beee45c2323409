"""`nhc status fleet`: how often nodes fail, by what they are made of, and whether that is better since a date."""

from __future__ import annotations

import time
from typing import List, Optional, Sequence

import click

from nhc.core.command_line import options
from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import click_command, named_nodes
from nhc.core.command_line.printing import show, show_table, when
from nhc.core.exit_status import EXIT_UNKNOWN, EXIT_USAGE
from nhc.core.model import printable
from nhc.core.timestamps import from_utc
from nhc.core.units import seconds, show_seconds
from nhc.store.commands.store_options import StoreOptions, opened
from nhc.store.fleet_rates import DAY, FACTS, MEASURES, RateRatio, RateRow, rates

TITLES = {"faults": "faults", "failed_proofs": "failed proofs", "days_out": "time out"}


class FleetStatusOptions(StoreOptions, options.Formatted):
    fact: str = options.choice(
        "--by", FACTS, "A row for each value. Default: the fleet as one.", heading="What is counted"
    )
    date: str = options.text(
        "--since", "TIME", "Compare the time from then on with as long a time before: 14d, or 2026-11-01T06:00:00Z."
    )
    within: float = options.duration(
        "--within", "How far back to look, and at most so far to both sides of --since.", "30d", none=False
    )
    node_set: str = options.text("-w --nodes", "SET", "Only these nodes: gpu[001-064].")


@click_command
def command(args: FleetStatusOptions) -> int:
    """Show how often nodes fail: faults, failed proofs and time out of service, each for a hundred node-days.

    With --since: whether that is less than before. `x0.5 (0.3 to 0.8) less` is half as often, and with 95 % certainty
    between 0.3 and 0.8 times; where that range holds 1, no difference is shown, whatever the ratio. With --by alone
    each value is compared with all other nodes. Exit status: 0, 2 wrong usage, 3 nothing is known of that time.
    """
    now = time.time()
    at = _date(args.date, now) if args.date else None
    span = args.within if at is None else min(args.within, now - at)
    began = now - args.within if at is None else at - span
    ended = now if at is None else at + span
    names = named_nodes(args.node_set) if args.node_set else None
    with opened(args.url) as store, store.read() as connection:
        rows = rates(connection, began, ended, [args.fact], date=at, names=names)[args.fact]
    if args.form == "json":
        show({"began": began, "date": at, "ended": ended, "by": args.fact, "rows": [row.value_of() for row in rows]})
    else:
        _print(rows, args.fact, at, span)
    return 0 if any(row.rate.node_days for row in rows) else EXIT_UNKNOWN


def _date(text: str, now: float) -> float:
    """The moment of --since. Raises CommandError."""
    try:
        at = now - seconds(text)
    except ValueError:
        at = from_utc(text)
    if not 0 < at < now - DAY:
        expected = "a duration such as 14d, or a time such as 2026-11-01T06:00:00Z, at least a day ago"
        raise CommandError(f"--since: {text!r} is not {expected}", EXIT_USAGE)
    return at


def _print(rows: Sequence[RateRow], fact: str, at: Optional[float], span: float) -> None:
    against = f"the {show_seconds(round(span))} from {when(at)} on against as long before" if at is not None else (
        "each value against all other nodes" if fact else ""
    )  # fmt: skip
    click.echo(f"for 100 node-days{f'; {against}' if against else ''}")
    lines: List[List[str]] = [[fact or "fleet", "nodes", "node-days", *(TITLES[name] for name in MEASURES)]]
    for row in rows:
        cells = [_cell(row, name) for name in MEASURES]
        known = printable(row.value) or ("not known" if fact else "all")
        lines.append([known, str(row.rate.nodes), f"{row.rate.node_days:.0f}", *cells])
    show_table(lines, "nothing is known: no node has reported twice in this time")


def _cell(row: RateRow, measure: str) -> str:
    rate = row.rate.per_node_day(measure)
    if rate is None:
        return "-"
    amount = f"{100 * rate:.2f} d" if measure == "days_out" else f"{100 * rate:.2f}"
    other = row.other.per_node_day(measure)
    return amount if other is None else f"{amount}, {_compared(row.ratios[measure])}"


def _compared(ratio: Optional[RateRatio]) -> str:
    if ratio is None:
        return "too little to compare"
    return f"x{ratio.ratio:.2g} ({ratio.low:.2g} to {ratio.high:.2g}) {ratio.shown or 'no difference shown'}"
