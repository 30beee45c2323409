"""What is normal among nodes of one kind: the median and the median absolute deviation of what they reached. Pure.

Iglewicz and Hoaglin (How to Detect and Handle Outliers, 1993) give the robust z: 0.6745 (x - median) / MAD. Microsoft's
AI infrastructure guide looks at nodes below -2 and takes those below -3 out, from ten nodes on. Figures within
MARGIN of the median always pass: a spread that is no wider than that is normal between runs.
"""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from nhc.core.model import Report
from nhc.core.system.bounded_read import parse_json, read_text
from nhc.marks.policy.reconcile import BadReports, ReportFiles, load_reports
from nhc.node.checks.deep import SLOW
from nhc.node.facts.expected import COLUMNS, UNITS, Expected, format_row

if TYPE_CHECKING:
    from nhc.store.deep import DeepResult


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
    """The norm of these samples of one kind and metric; None if none of them is a number."""
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


# From the reports of healthy nodes to a table of expected figures.


LARGEST = 64 << 20
UNFINISHED = ("NotRun", "DeepNodeBusy")
"""Reasons of results of a run that did not come to its end."""


class BadInput(ValueError):
    """A file is no report: one line naming it."""


def reports(paths: Sequence[str]) -> ReportFiles:
    """The reports in these files and directories. Raises BadInput."""
    try:
        return load_reports(paths, lambda path: read_text(path, LARGEST))
    except BadReports as error:
        raise BadInput(str(error)) from None


def _left_out(report: Report) -> str:
    """Why the figures of a report are not used, "" where they are: numbers that are wrong, or a run without its end.

    Speeds that were called bad are figures like any other, or a floor that is wrong would stay.
    """
    bad = [result.outcome for result in report.failures() if result.outcome.reason != SLOW]
    if bad:
        return f"not healthy: {bad[0].message or bad[0].reason}"
    cut_short = [result.outcome for result in report.results if result.outcome.reason in UNFINISHED]
    if cut_short or report.not_run:
        return f"its run has no end: {cut_short[0].message if cut_short else f'{report.not_run} checks did not run'}"
    return ""


def samples(listed: Iterable[Report]) -> Tuple[List[Sample], List[str]]:
    """The figures of nodes that are not faulty, and a remark on each report that is left out.

    A node that was called slow is not left out: among its peers it stands out, or the floor was wrong.
    """
    kept: List[Sample] = []
    remarks: List[str] = []
    for report in listed:
        why = _left_out(report)
        if why:
            remarks.append(f"{report.host}: left out, {why}"[:200])
            continue
        kind = report.labels.get("kind", "")
        if not kind:
            remarks.append(f"{report.host}: its report does not say what kind of node it is: left out")
            continue
        kept += [
            Sample(report.host, kind, metric.name, metric.unit, metric.value, result.outcome.target, report.started)
            for result in report.results
            if result.check.startswith("check_deep_")
            for metric in result.outcome.metrics
        ]
    return kept, remarks


def samples_of(rows: Iterable[DeepResult]) -> Tuple[List[Sample], List[str]]:
    """The same of a store's rows: each run of a suite by itself."""
    runs: Dict[Tuple[str, str, float], List[Tuple[DeepResult, Dict[str, str]]]] = {}
    for row in rows:
        runs.setdefault((row.node, row.suite, row.at), []).append((row, _about(row)))
    kept: List[Sample] = []
    remarks: List[str] = []
    for (node, _suite, at), results in runs.items():
        bad = [row for row, about in results if row.verdict == "CRIT" and about.get("reason") != SLOW]
        cut_short = [row for row, about in results if about.get("reason") in UNFINISHED]
        kind = next((about["kind"] for _row, about in results if about.get("kind")), "")
        if bad or cut_short or not kind:
            why = (
                f"not healthy: {bad[0].message}" if bad
                else f"its run has no end: {cut_short[0].message}" if cut_short
                else "its result does not say what kind of node it is"
            )  # fmt: skip
            remarks.append(f"{node}: left out, {why}"[:200])
            continue
        for row, _ in results:
            check, colon, metric = row.test.partition(":")
            if colon and check.startswith("check_deep_") and row.value is not None:
                kept.append(Sample(node, kind, metric, row.unit, row.value, row.device, at))
    return kept, list(dict.fromkeys(remarks))


def _about(row: DeepResult) -> Dict[str, str]:
    """What a row says of its node's kind and its verdict's reason."""
    try:
        values = parse_json(row.versions)
    except ValueError:
        return {}
    return {str(name): str(value) for name, value in values.items()} if isinstance(values, dict) else {}


def calibration_table(proposal: Proposal) -> str:
    """The proposal as a file for /etc/nhc/deep-expected.tsv."""
    lines = ["# Proposed by nhc deep calibrate: look at it before you use it. Columns, with tabs between them:",
             f"# {' '.join(COLUMNS)}"]  # fmt: skip
    lines += [f"# left out: {remark}" for remark in proposal.remarks]
    return "\n".join([*lines, *(format_row(row) for row in proposal.rows)]) + "\n"
