"""Rows of the tables: what a fleet's values look like in cells."""

from __future__ import annotations

from typing import List, Sequence

from rich.text import Text

from nhc.console.snapshot import FleetProblem
from nhc.model import printable
from nhc.top.frame import STATES, NodeLine, age, trend
from nhc.top.repairs import RepairLine
from nhc.top.tables import Columns, Row

PROBLEMS: Columns = (("", 8), ("nodes", 6), ("reason", 24), ("check", 24), ("since", 6), ("hour", 12), ("which", None))
NODES: Columns = (("node", 24), ("", 8), ("since", 6), ("reasons", 32), ("message", None))
REPAIRS: Columns = (("episode", 8), ("node", 20), ("state", 18), ("repair", 14), ("cause", 40), ("waits for", None))
_STYLES = {word: style for word, _sign, style in STATES.values()}


def of_problems(found: Sequence[FleetProblem], now: float) -> List[Row]:
    """A row a cause; its key is the check and the reason, a line each."""
    return [
        (f"{one.check}\n{one.reason}", [
            Text(one.verdict, _STYLES.get(one.verdict, "")), Text(str(one.affected), justify="right"),
            Text(one.reason), Text(one.check), Text(age(now, one.began)), Text(trend(one.trend)), Text(_which(one)),
        ])
        for one in found
    ]  # fmt: skip


def of_nodes(found: Sequence[NodeLine], now: float) -> List[Row]:
    """A row a node, whose name is its key."""
    return [
        (line.node, [
            Text(line.node), Text(STATES[line.letter][0], STATES[line.letter][2]), Text(age(now, line.since)),
            Text(printable(line.reasons)), Text(printable(line.message)),
        ])
        for line in found
    ]  # fmt: skip


def of_repairs(found: Sequence[RepairLine]) -> List[Row]:
    """A row an episode, whose number is its key."""
    return [
        (str(line.number), [
            Text(str(line.number)), Text(line.node), Text(line.state, "bold yellow" if line.asks else ""),
            Text(line.rung), Text(printable(line.cause)), Text(printable(line.waiting)),
        ])
        for line in found
    ]  # fmt: skip


def _which(one: FleetProblem) -> str:
    shares = ", ".join(f"{hit} of {of} of {fact} {group}" for fact, group, hit, of in one.shares[:2])
    return printable(f"{shares}: {one.nodes}" if shares else one.nodes)
