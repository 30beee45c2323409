"""Rows of the tables: what a fleet's values look like in cells."""

from __future__ import annotations

from typing import List, Sequence

from rich.text import Text

from nhc.console.snapshot import FleetProblem
from nhc.console.top.frame import STATES, NodeLine, age, trend
from nhc.console.top.repairs import RepairLine
from nhc.console.top.tables import Columns, Row
from nhc.core.model import printable

PROBLEMS: Columns = (("", 8), ("nodes", 6), ("reason", 24), ("check", 24), ("since", 6), ("hour", 12), ("which", None))
NODES: Columns = (("node", 24), ("", 8), ("since", 6), ("reasons", 32), ("message", None))
REPAIRS: Columns = (("episode", 8), ("node", 20), ("state", 18), ("repair", 14), ("cause", 40), ("waits for", None))
_STYLES = {name: style for name, _sign, style in STATES.values()}


def of_problems(causes: Sequence[FleetProblem], now: float) -> List[Row]:
    """A row a cause; its key is the check and the reason, a line each."""
    return [
        (f"{cause.check}\n{cause.reason}", [
            Text(cause.verdict, _STYLES.get(cause.verdict, "")), Text(str(cause.affected), justify="right"),
            Text(cause.reason), Text(cause.check), Text(age(now, cause.began)), Text(trend(cause.trend)),
            Text(_which(cause)),
        ])
        for cause in causes
    ]  # fmt: skip


def of_nodes(lines: Sequence[NodeLine], now: float) -> List[Row]:
    """A row a node, whose name is its key."""
    return [
        (line.node, [
            Text(line.node), Text(STATES[line.letter][0], STATES[line.letter][2]), Text(age(now, line.since)),
            Text(printable(line.reasons)), Text(printable(line.message)),
        ])
        for line in lines
    ]  # fmt: skip


def of_repairs(lines: Sequence[RepairLine]) -> List[Row]:
    """A row an episode, whose number is its key."""
    return [
        (str(line.number), [
            Text(str(line.number)), Text(line.node), Text(line.state, "bold yellow" if line.asks else ""),
            Text(line.rung), Text(printable(line.cause)), Text(printable(line.waiting)),
        ])
        for line in lines
    ]  # fmt: skip


def _which(cause: FleetProblem) -> str:
    shares = ", ".join(f"{hit} of {of} of {fact} {group}" for fact, group, hit, of in cause.shares[:2])
    return printable(f"{shares}: {cause.nodes}" if shares else cause.nodes)
