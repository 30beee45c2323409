"""Nodes whose numbers are far from their peers', even where every threshold holds.

Peers are the nodes of one type. Far is measured robustly: the distance from the median in units of the median
absolute deviation (scaled by 1.4826, so that a unit is a standard deviation where numbers are normally
distributed), the modified z-score of Iglewicz and Hoaglin (1993), who call more than 3.5 an outlier. Numbers that
are the same almost everywhere have a deviation of 0, so a least deviation of a share of the median is assumed.
"""

from __future__ import annotations

from array import array
from statistics import median
from typing import Any, Dict, Iterable, List, NamedTuple, Sequence, Tuple

from nhc.core.units import show_kb, show_seconds

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
