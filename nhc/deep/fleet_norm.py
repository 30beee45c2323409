"""What is normal among nodes of one kind: the median and the median absolute deviation of what they reached. Pure.

Iglewicz and Hoaglin (How to Detect and Handle Outliers, 1993) give the robust z: 0.6745 (x - median) / MAD. Microsoft's
AI infrastructure guide looks at nodes below -2 and takes those below -3 out, from ten nodes on. Figures within
MARGIN of the median always pass: a spread that is no wider than that is normal between runs.
"""

from __future__ import annotations

import math
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from nhc.facts.expected import UNITS, Expected

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


class FigureStanding(NamedTuple):
    """Where one figure stands: its robust z, negative for worse, and "well", "look", "out" or "unknown"."""

    z: float
    verdict: str
    why: str


def median(values: Sequence[float]) -> float:
    """The middle value. Raises ValueError for none."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def norm(samples: Iterable[Sample]) -> Optional[Norm]:
    """What these samples of one kind and metric say; None where none of them is a number."""
    kept = [sample for sample in samples if math.isfinite(sample.value)]
    if not kept:
        return None
    values = [sample.value for sample in kept]
    middle = median(values)
    mad = median([abs(value - middle) for value in values])
    return Norm(len({sample.node for sample in kept}), len(values), middle, mad, min(values), max(values))


def place(value: float, found: Optional[Norm], at_least: bool = True) -> FigureStanding:
    """Judge one figure by its peers. With too few of them, or no number, it is unknown."""
    if found is None or found.nodes < LEAST:
        return FigureStanding(0.0, "unknown", f"{found.nodes if found else 0} nodes of its kind, {LEAST} are needed")
    if not math.isfinite(value):
        return FigureStanding(0.0, "unknown", "no number")
    spread = max(found.mad / SCALE, abs(found.median) * MARGIN / -OUT)
    if spread == 0:
        return FigureStanding(0.0, "unknown", "its peers all reached 0")
    z = (value - found.median) / spread * (1 if at_least else -1)
    verdict = "out" if z < OUT else "look" if z < LOOK else "well"
    return FigureStanding(z, verdict, f"{value:g}, its {found.nodes} peers {found.median:g}")


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
    for (kind, metric, unit), found in sorted(groups.items()):
        at_least = unit != "us"
        first = norm(found)
        odd = [one for one in found if place(one.value, first, at_least).verdict == "out"]
        remarks += [
            f"{kind}: {one.node} {one.target}: {metric} {one.value:g} {unit} stands out and is left out".replace(
                " :", ":"
            )
            for one in odd
        ]
        kept = norm(one for one in found if one not in odd)
        if kept is None or kept.nodes < least or kept.median <= 0:
            nodes = kept.nodes if kept else 0
            remarks.append(f"{kind}: {metric}: {nodes} healthy nodes, {least} are needed: no row")
            continue
        share = 3 * kept.mad / SCALE / kept.median
        tolerance = min(max(FLOOR_TOLERANCE, math.ceil(share * 100) / 100), MOST_TOLERANCE)
        source = f"calibrated {when} on {kept.nodes} nodes, {kept.figures} figures"
        spread = round(min((kept.most - kept.least) / kept.median, 0.99), 3)
        rows.append(Expected(kind, metric, at_least, _rounded(kept.median), unit, tolerance, 0, source, spread))
    return Proposal(tuple(rows), tuple(remarks))


def _rounded(value: float) -> float:
    """Four significant digits."""
    return float(f"{value:.4g}")
