"""What is normal among nodes of one kind: the median and the median absolute deviation of what they reached. Pure.

Iglewicz and Hoaglin (How to Detect and Handle Outliers, 1993) give the robust z: 0.6745 (x - median) / MAD. Microsoft's
AI infrastructure guide looks at nodes below -2 and takes those below -3 out, from ten nodes on. Figures within
MARGIN of the median always pass: a spread that is no wider than that is normal between runs.
"""

from __future__ import annotations

import math
from statistics import median
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

from nhc.node.facts.expected import UNITS, Expected

LEAST = 10
"""Nodes of a kind from which on their distribution says something."""
LOOK, OUT = -2.0, -3.0
MARGIN = 0.05
"""Share of the median: so far may a healthy device be off by itself (gpu-fryer: 5 percent is usual)."""
SCALE = 0.6745
FLOOR_TOLERANCE, MOST_TOLERANCE = 0.05, 0.5


class Sample(NamedTuple):
    """One figure that one node reached. `target` is the device; `at` is Unix time."""

    node: str
    kind: str
    metric: str
    unit: str
    value: float
    target: str = ""
    at: float = 0.0


class Norm(NamedTuple):
    """What the nodes of a kind reach: how many there were, the median, and the median absolute deviation."""

    nodes: int
    figures: int
    median: float
    mad: float
    least: float
    most: float


def norm(samples: Iterable[Sample]) -> Optional[Norm]:
    """What these samples of one kind and metric say; None where none of them is a number."""
    kept = [sample for sample in samples if math.isfinite(sample.value)]
    if not kept:
        return None
    values = [sample.value for sample in kept]
    middle = median(values)
    mad = median([abs(value - middle) for value in values])
    return Norm(len({sample.node for sample in kept}), len(values), middle, mad, min(values), max(values))


def place(value: float, peers: Optional[Norm], at_least: bool = True) -> str:
    """Where a figure stands among its peers: "well", "look" or "out"; "unknown" for too few peers, or no number."""
    if peers is None or peers.nodes < LEAST or not math.isfinite(value):
        return "unknown"
    spread = max(peers.mad / SCALE, abs(peers.median) * MARGIN / -OUT)
    if spread == 0:  # its peers all reached 0
        return "unknown"
    z = (value - peers.median) / spread * (1 if at_least else -1)
    return "out" if z < OUT else "look" if z < LOOK else "well"


def latest(samples: Iterable[Sample]) -> List[Sample]:
    """The newest figure of each node, metric and target."""
    newest: Dict[Tuple[str, str, str, str], Sample] = {}
    for sample in samples:
        key = (sample.node, sample.kind, sample.metric, sample.target)
        if key not in newest or sample.at >= newest[key].at:
            newest[key] = sample
    return list(newest.values())


class Proposal(NamedTuple):
    """What `nhc deep calibrate` proposes: rows, and remarks on what was left out and why."""

    rows: Tuple[Expected, ...]
    remarks: Tuple[str, ...]


def propose(samples: Iterable[Sample], when: str, least: int = LEAST) -> Proposal:
    """Expected figures from nodes that are taken to be healthy, by kind and metric.

    Expected is the median. The tolerance covers three robust deviations, 5 percent at least. A node that stands out
    among them is named and left out of the figure; a kind of fewer than `least` nodes gets no row.
    """
    groups: Dict[Tuple[str, str, str], List[Sample]] = {}
    for sample in latest(samples):
        if sample.kind and sample.unit in UNITS and not sample.metric.endswith("_threshold"):
            groups.setdefault((sample.kind, sample.metric, sample.unit), []).append(sample)
    rows: List[Expected] = []
    remarks: List[str] = []
    for (kind, metric, unit), figures in sorted(groups.items()):
        at_least = unit != "us"
        first = norm(figures)
        odd = [figure for figure in figures if place(figure.value, first, at_least) == "out"]
        for figure in odd:
            device = f"{figure.node} {figure.target}".rstrip()
            remarks.append(f"{kind}: {device}: {metric} {figure.value:g} {unit} stands out and is left out")
        kept = norm(figure for figure in figures if figure not in odd)
        if kept is None or kept.nodes < least or kept.median <= 0:
            nodes = kept.nodes if kept else 0
            remarks.append(f"{kind}: {metric}: {nodes} healthy nodes, {least} are needed: no row")
            continue
        share = 3 * kept.mad / SCALE / kept.median
        tolerance = min(max(FLOOR_TOLERANCE, math.ceil(share * 100) / 100), MOST_TOLERANCE)
        source = f"calibrated {when} on {kept.nodes} nodes, {kept.figures} figures"
        spread = round(min((kept.most - kept.least) / kept.median, 0.99), 3)
        expected = float(f"{kept.median:.4g}")
        rows.append(Expected(kind, metric, at_least, expected, unit, tolerance, 0, source, spread))
    return Proposal(tuple(rows), tuple(remarks))
