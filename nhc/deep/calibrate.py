"""From the reports of healthy nodes to a table of expected figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Iterable, List, Sequence, Tuple

from nhc.core.model import Report
from nhc.core.system.bounded_read import parse_json, read_text
from nhc.deep.fleet_norm import Proposal, Sample
from nhc.marks.policy.reconcile import BadReports, ReportFiles, load_reports
from nhc.node.checks.deep import SLOW
from nhc.node.facts.expected import COLUMNS, format_row

if TYPE_CHECKING:
    from nhc.store.deep import DeepResult

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


def table(proposal: Proposal) -> str:
    """The proposal as a file for /etc/nhc/deep-expected.tsv."""
    lines = ["# Proposed by nhc deep calibrate: look at it before you use it. Columns, with tabs between them:",
             f"# {' '.join(COLUMNS)}"]  # fmt: skip
    lines += [f"# left out: {remark}" for remark in proposal.remarks]
    return "\n".join([*lines, *(format_row(row) for row in proposal.rows)]) + "\n"
