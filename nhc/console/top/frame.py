"""What `nhc top` shows of a fleet, as rows and lines of text. Pure: the application only paints it."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from nhc.console.fleet_nodes import WORST, NodeRow
from nhc.console.snapshot import FleetProblem, Snapshot, find, fold_causes
from nhc.core.model import Report, Verdict, printable
from nhc.core.units import show_age, show_number

STATES = {
    "c": ("CRIT", "C", "bold red"),
    "u": ("UNKNOWN", "U", "magenta"),
    "w": ("WARN", "w", "yellow"),
    "s": ("stale", "?", "dim"),
    "n": ("never", "-", "dim"),
    "o": ("OK", "·", "green"),
}
"""Of each letter of a snapshot: its word, the sign on the map, its style. No two signs are alike without colour."""

ROWS = 1000
"""Nodes of a list: a table of more makes a terminal wait. What is left out is said."""
PROBLEMS = 200
LINE = 64
"""Nodes of a line of the map, if nothing says how they belong together."""
_SPARKS = " ▁▂▃▄▅▆▇█"


class NodeFilter(NamedTuple):
    """Which nodes are listed: to which this text leads (`find`), with one cause, in one group."""

    text: str = ""
    cause: Tuple[str, str] = ("", "")
    group: Tuple[str, str] = ("", "")


class NodeLine(NamedTuple):
    """A node of the list."""

    node: str
    letter: str
    since: Optional[float]
    reasons: str
    message: str


class MapLine(NamedTuple):
    """A group's nodes, a letter each."""

    group: str
    letters: str
    sick: int


def summary(snapshot: Snapshot) -> str:
    """How many nodes there are, and how many of each state."""
    counts = snapshot.counts()
    states = ", ".join(f"{counts[letter]} {STATES[letter][0]}" for letter in WORST if counts[letter])
    return f"{show_number(len(snapshot.names), 'node')}: {states or 'none has reported'}"


def problems(snapshot: Snapshot) -> Tuple[List[FleetProblem], int]:
    """The problems by cause, the worst first, and how many are left out."""
    causes = fold_causes(snapshot)
    return causes[:PROBLEMS], max(0, len(causes) - PROBLEMS)


def trend(parts: Sequence[int]) -> str:
    """How many nodes got a problem in each part of the last hour, as one character each."""
    most = max(parts, default=0)
    return "".join(_SPARKS[-(-part * (len(_SPARKS) - 1) // most) if most else 0] for part in parts)


def facts(snapshot: Snapshot) -> List[str]:
    """The facts by which the nodes can be grouped: the rack first, if they have one."""
    names = sorted({fact for row in snapshot.nodes.values() for fact in row.groups})
    return sorted(names, key=lambda fact: fact != "rack")


def map_lines(snapshot: Snapshot, fact: str) -> List[MapLine]:
    """The map: a line a group, in places that do not change while the nodes are the same."""
    groups: Dict[str, List[str]] = {}
    for place, (name, letter) in enumerate(zip(snapshot.names, snapshot.letters)):
        group = snapshot.nodes[name].groups.get(fact, "") if fact else snapshot.names[place - place % LINE]
        groups.setdefault(group, []).append(letter)
    lines = [MapLine(group, "".join(letters), sum(map(letters.count, "cuw"))) for group, letters in groups.items()]
    return sorted(lines, key=lambda line: line.group) if fact else lines


def cells(letters: str, width: int) -> str:
    """As many letters as there is room for: if there are more nodes, a place shows the worst of its share."""
    if len(letters) <= width:
        return letters
    edges = [place * len(letters) // width for place in range(width + 1)]
    return "".join(
        min(letters[begin:end], key=WORST.index) for begin, end in zip(edges, edges[1:])
    )  # fmt: skip


def node_lines(snapshot: Snapshot, wanted: NodeFilter) -> Tuple[List[NodeLine], int]:
    """The nodes that are wanted, the worst first, and how many are left out."""
    of: Dict[str, List[Tuple[int, str, str]]] = {}
    chosen = set()
    for problem in snapshot.problems:
        if problem.ended is None:
            verdict = Verdict[problem.verdict].value if problem.verdict in Verdict.__members__ else 0
            of.setdefault(problem.node, []).append((-int(verdict), problem.reason, problem.message))
            if wanted.cause == (problem.check, problem.reason):
                chosen.add(problem.node)
    lines = []
    found = find(snapshot, wanted.text).nodes
    for name, letter in zip(snapshot.names, snapshot.letters):
        row = snapshot.nodes[name]
        causes = sorted(of.get(name, ()))
        if name in found and _is_in_group(row, wanted) and (not wanted.cause[0] or name in chosen):
            reasons = ", ".join(dict.fromkeys(reason for _verdict, reason, _message in causes))
            lines.append(NodeLine(name, letter, row.since, reasons, causes[0][2] if causes else ""))
    lines.sort(key=lambda line: (WORST.index(line.letter), line.node))
    return lines[:ROWS], max(0, len(lines) - ROWS)


def describe(wanted: NodeFilter) -> str:
    """What the list is narrowed to, "" for nothing."""
    group = "=".join(wanted.group) if wanted.group[0] else ""
    return ", ".join(part for part in (wanted.text, wanted.cause[1], group) if part)


def _is_in_group(row: NodeRow, wanted: NodeFilter) -> bool:
    return not wanted.group[0] or row.groups.get(wanted.group[0], "") == wanted.group[1]


def node_text(snapshot: Snapshot, name: str, report: Optional[Report]) -> List[str]:
    """All that is known of a node, in lines."""
    row = snapshot.nodes.get(name)
    if row is None:
        return [f"no node is called {name}"]
    letter = snapshot.letters[snapshot.names.index(name)]
    lines = [f"{name}  {STATES[letter][0]}{f' since {age(snapshot.at, row.since)}' if row.since else ''}"]
    reported = f"reported {age(snapshot.at, row.reported_at)} ago" if row.reported_at else "has never reported"
    lines.append(f"{reported}{f' by {row.source}' if row.source else ''}{f', {row.kind}' if row.kind else ''}")
    if row.groups:
        lines.append("  ".join(f"{fact}={value}" for fact, value in sorted(row.groups.items())))
    standing = [problem for problem in snapshot.problems if problem.node == name and problem.ended is None]
    for problem in sorted(standing, key=lambda problem: problem.reason):
        advice = f"  → {problem.action}" if problem.action not in ("", "none") else ""
        since = f" ({age(snapshot.at, problem.began)})" if problem.began else ""
        target = f" {problem.target}" if problem.target else ""
        lines.append(f"{problem.verdict} {problem.check}{target}: {problem.reason}{since}{advice}")
        lines.append(f"    {problem.message}")
        lines += [f"    {problem.about}"] if problem.about else []
        lines += [f"    | {line}" for line in _evidence(report, problem.check, problem.reason, problem.target)]
    if report is not None:
        fine = sum(result.verdict is Verdict.OK for result in report.results)
        lines.append(f"{fine} of {len(report.results)} results of its latest report are OK")
    return [printable(line) for line in lines]


def _evidence(report: Optional[Report], check: str, reason: str, target: str) -> Sequence[str]:
    for result in report.results if report else ():
        if (result.check, result.outcome.reason, result.outcome.target) == (check, reason, target):
            return result.outcome.evidence[:10]
    return ()


def plain(snapshot: Snapshot, width: int) -> List[str]:
    """One view of the fleet as lines of text, for output without a terminal."""
    causes, left_out = problems(snapshot)
    lines = [summary(snapshot), *snapshot.notes]
    for cause in causes:
        shares = "".join(f"  {fact} {group}: {hit} of {of}" for fact, group, hit, of in cause.shares[:2])
        line = f"{cause.verdict} {cause.affected} {cause.reason} ({cause.check}) {cause.nodes}{shares}: {cause.message}"
        lines.append(line if len(line) <= width else line[: width - 1] + "…")
    if left_out:
        lines.append(f"and {left_out} causes more")
    return [printable(line) for line in lines]


def age(now: float, then: Optional[float]) -> str:
    """How long ago, in the largest unit that fits; "" if unknown."""
    return show_age(now - then) if then else ""
