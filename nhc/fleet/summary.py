"""A sweep as text and JSON. What must stay small while it runs is a Picture; reports wait in the history."""

from __future__ import annotations

import json
import time
from typing import Dict, Iterable, List, Mapping, Sequence, TextIO, Tuple

from nhc.core.matching.node_ranges import fold
from nhc.core.model import Verdict, printable
from nhc.core.timestamps import utc_milliseconds
from nhc.core.units import show_number
from nhc.fleet.clean_report import Finding
from nhc.fleet.fold import Folder, counted, show_by_check, show_by_node
from nhc.fleet.history import Sweep, SweepHistory
from nhc.fleet.node_result import findings, metrics
from nhc.fleet.node_sources import group_of, kind_of
from nhc.fleet.outliers import Numbers, Outlier, outliers
from nhc.fleet.transport import Node

SHOWN = 20
"""Outliers shown as text; JSON has them all."""


class Picture:
    """Counts, folds and numbers of a sweep, without its reports."""

    def __init__(self, nodes: Sequence[Node], started: float, group_by: str = "") -> None:
        self.nodes, self.started, self.ended = nodes, started, started
        self.group_by = group_by
        self.not_judged: List[str] = []
        """Nodes that an interrupted sweep did not come to, where their names are known."""
        self.missing = 0
        """How many they are, where only that is known."""
        self.names = [node.name for node in nodes]
        self.folder = Folder(self.names)
        self.numbers = Numbers()

    def add(
        self, index: int, verdict: int, findings: Iterable[Finding],
        numbers: Iterable[Tuple[str, str, str, str, float]], labels: Mapping[str, str],
    ) -> None:  # fmt: skip
        node = self.nodes[index]
        self.folder.add(index, verdict, findings)
        self.numbers.add(index, kind_of(dict(node.facts), node.groups, dict(labels), node.name), numbers)

    def outliers(self) -> List[Outlier]:
        return outliers(self.numbers, self.names)

    def end(self, ended: float, not_judged: Sequence[str] = (), missing: int = 0) -> None:
        """The sweep is over, at this Unix time; `not_judged` are nodes by name, `missing` counts unnamed ones."""
        self.ended, self.not_judged, self.missing = ended, list(not_judged), missing

    def group(self, node: Node) -> str:
        return group_of(node, self.group_by)


def picture_of(history: SweepHistory, sweep: Sweep, group_by: str = "") -> Picture:
    """The picture of a sweep that the history keeps. Raises HistoryError."""
    nodes: List[Node] = []
    picture = Picture(nodes, sweep.started, group_by)
    for report, extra in history.reports(sweep.id):
        groups, facts = extra.get("groups", ()), extra.get("facts", {})
        nodes.append(
            Node(
                report.host,
                groups=tuple(printable(str(group), 100) for group in groups) if isinstance(groups, list) else (),
                facts={printable(str(key)): printable(str(value), 100) for key, value in facts.items()}
                if isinstance(facts, dict)
                else {},
            )
        )
        picture.names.append(report.host)
        picture.add(len(nodes) - 1, int(report.verdict), findings(report), metrics(report), report.labels)
    picture.end(sweep.ended or sweep.started, missing=max(0, sweep.asked - len(nodes)))
    return picture


def text(picture: Picture, far: Sequence[Outlier], by: str, colour: bool, quiet: bool, skipped: bool = False) -> str:
    """The folded results, outliers, and one line of summary."""
    folder = picture.folder
    if by == "check":
        lines = show_by_check(folder.by_check(), colour, quiet, skipped)
    else:
        lines = show_by_node(folder.by_node(), colour, quiet)
    if far:
        lines += "Outliers, under every threshold or not:\n"
        lines += "".join(f"    {outlier.node}: {outlier.show()}\n" for outlier in far[:SHOWN])
        if len(far) > SHOWN:
            lines += f"    and {len(far) - SHOWN} more (--format json has them)\n"
    seconds = picture.ended - picture.started
    left = len(picture.not_judged) or picture.missing
    interrupted = f", {left} not judged (interrupted)" if left else ""
    total = show_number(folder.total, "node")
    return f"{lines}{total}: {counted(folder.counts, colour)}{interrupted} in {seconds:.1f} s\n"


def write_json(file: TextIO, picture: Picture, history: SweepHistory, sweep: int, far: Sequence[Outlier]) -> None:
    """One document, written piece by piece: its `reports` are what `nhc sync slurm -r` and others read."""
    folder = picture.folder
    head = {
        "schema": 1,
        "started": picture.started,
        "started_at": utc_milliseconds(picture.started),
        "elapsed": round(picture.ended - picture.started, 3),
        "verdict": folder.worst().name,
        "counts": {verdict.name: count for verdict, count in folder.counts.items()},
        "folded": [[fact.to_json() for fact in group] for group in folder.by_node()],
        "checks": [fact.to_json() for fact in folder.by_check()],
        "outliers": [outlier.to_json() for outlier in far],
        "not_judged": fold(picture.not_judged),
    }
    beginning = json.dumps(head, indent=1, ensure_ascii=False, allow_nan=False)
    file.write(beginning[: beginning.rindex("\n")] + ',\n "reports": [')
    comma = "\n"
    for _node, line in history.lines(sweep):
        file.write(comma + line)
        comma = ",\n"
    file.write("\n]}\n")


def sweep_line(sweep: Sweep) -> str:
    """A line of `nhc fleet report --list`."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(sweep.started))
    counts: Dict[Verdict, int] = {Verdict(v): sweep.counts.get(v, 0) for v in sorted(Verdict, reverse=True)}
    done = sum(sweep.counts.values())
    took = "broken off" if sweep.ended is None else f"{sweep.ended - sweep.started:.1f} s"
    if sweep.interrupted:
        took += f", interrupted: {sweep.asked - done} of {sweep.asked} not judged"
    return f"{sweep.id:5}  {when}  {show_number(done, 'node')}: {counted(counts)}  {took}  {sweep.command}"
