"""A sweep as text and JSON. What must stay small while it runs is a Picture; reports wait in the history."""

from __future__ import annotations

import json
import time
from array import array
from statistics import median
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Sequence, TextIO, Tuple

from nhc.core.matching.node_ranges import fold
from nhc.core.model import Verdict, printable
from nhc.core.timestamps import utc_milliseconds
from nhc.core.units import show_kb, show_number, show_seconds
from nhc.fleet.clean_report import Finding
from nhc.fleet.fold import Folder, counted, show_by_check, show_by_node
from nhc.fleet.history import Sweep, SweepHistory
from nhc.fleet.node_result import findings, metrics
from nhc.fleet.node_sources import group_of, kind_of
from nhc.fleet.transport import Node

# Nodes whose numbers are far from their peers', even where every threshold holds.
#
# Peers are the nodes of one type. Far is measured robustly: the distance from the median in units of the median
# absolute deviation (scaled by 1.4826, so that a unit is a standard deviation where numbers are normally
# distributed), the modified z-score of Iglewicz and Hoaglin (1993), who call more than 3.5 an outlier. Numbers that
# are the same almost everywhere have a deviation of 0, so a least deviation of a share of the median is assumed.


FAR = 6.0
"""Deviations beyond which a node is listed. 3.5 would list one healthy node in every 2,000 per metric."""
PEERS = 8
"""Nodes of a type that must have the metric."""
FLOOR = 0.02
"""Least deviation, as a share of the median: what nobody cares about."""
SPREAD = 0.25
"""Where more than this share of the peers would be listed, the numbers have no centre, and none is."""

Metric = Tuple[str, str, str, str]
"""Check, target, name, unit."""


class Outlier(NamedTuple):
    node: str
    kind: str
    metric: Metric
    value: float
    median: float
    deviations: float
    peers: int

    def show(self) -> str:
        check, target, name, unit = self.metric
        where = f"{check} {target}" if target else check
        side = "above" if self.value > self.median else "below"
        return (
            f"{where} {name}={show_value(self.value, unit)}: {abs(self.deviations):.0f} deviations {side} the median "
            f"{show_value(self.median, unit)} of {self.peers} {self.kind} nodes"
        )

    def to_page(self) -> Dict[str, str]:
        """What the page shows, in the terminal's words."""
        check, target, name, unit = self.metric
        return {
            "node": self.node, "metric": " ".join(part for part in (check, target, name) if part),
            "value": show_value(self.value, unit), "median": show_value(self.median, unit),
            "deviations": f"{self.deviations:+.1f}",
        }  # fmt: skip

    def to_json(self) -> Dict[str, Any]:
        check, target, name, unit = self.metric
        return {
            "node": self.node, "type": self.kind, "check": check, "target": target, "metric": name, "unit": unit,
            "value": self.value, "median": self.median, "deviations": round(self.deviations, 2), "peers": self.peers,
        }  # fmt: skip


def show_value(value: float, unit: str) -> str:
    """A number with its unit as nhc shows sizes and durations everywhere: `1536MB`, `4m10s`, `1980MHz`."""
    kilobytes = {"B": value / 1024, "kB": value}.get(unit, 0.0)
    if abs(kilobytes) >= 1:
        return show_kb(kilobytes) if kilobytes > 0 else f"-{show_kb(-kilobytes)}"
    if unit == "s" and value >= 0:
        return show_seconds(value)
    return f"{value:.4g}{unit}" if abs(value) < 1e4 else f"{value:,.0f}{unit}"


class Numbers:
    """Every metric of a sweep, as two arrays each: whose, and how much."""

    def __init__(self) -> None:
        self.values: Dict[Tuple[str, Metric], Tuple[array[int], array[float]]] = {}

    def add(self, index: int, kind: str, metrics: Iterable[Tuple[str, str, str, str, float]]) -> None:
        for check, target, name, unit, value in metrics:
            key = (kind, (check, target, name, unit))
            kept = self.values.get(key)
            if kept is None:
                kept = self.values[key] = (array("I"), array("d"))
            kept[0].append(index)
            kept[1].append(value)


def outliers(numbers: Numbers, names: Sequence[str], far: float = FAR, peers: int = PEERS) -> List[Outlier]:
    """Every node and metric that stands out, the farthest first."""
    far_off: List[Outlier] = []
    for (kind, metric), (indices, values) in numbers.values.items():
        if len(values) < peers:
            continue
        centre = median(values)
        deviation = 1.4826 * median(abs(value - centre) for value in values)
        deviation = max(deviation, FLOOR * abs(centre))
        if deviation == 0:
            continue  # all but a few are 0: a count of events, which a check judges
        here = [
            Outlier(names[index], kind, metric, value, centre, (value - centre) / deviation, len(values))
            for index, value in zip(indices, values)
            if abs(value - centre) > far * deviation
        ]
        if len(here) <= SPREAD * len(values):
            far_off += here
    return sorted(far_off, key=lambda outlier: (-abs(outlier.deviations), outlier.node, outlier.metric))


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
