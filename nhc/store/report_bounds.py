"""What is kept of a report at most: no node fills the store, nor makes a row that nobody can read again."""

from __future__ import annotations

from typing import Dict, List, Mapping

from nhc.core.model import CheckResult, DeviceId, Metric, Outcome, Report, printable

KEPT = 4 << 20
"""Bytes of one report as it is kept, before it is packed. One of 500 results with evidence has less than a tenth."""
LABELS = 100
"""Labels of one node. Kubernetes nodes with every discovery add-on have about 80."""
RESULTS = 5000
LINES = 50
"""Lines of evidence, tags and notes, each; metrics of one result four times as many."""
LINE = 1000
NAME = 200


def fitted(report: Report, size: int) -> Report:
    """A report that is too large, cut so that it fits: the worst results first, each with bounded texts.

    `size` is what it had, in bytes, for the note that says what was left out.
    """
    kept: List[CheckResult] = []
    room = KEPT // 5  # characters, of up to four bytes each
    for result in sorted(report.results[: 20 * RESULTS], key=lambda result: -result.verdict)[:RESULTS]:
        cut = _result(result)
        room -= _length(cut)
        if room < 0:
            break
        kept.append(cut)
    note = (
        f"the report was cut as it was kept: {size} bytes, {len(kept)} of {len(report.results)} results, "
        "the worst first, and the beginnings of long texts"
    )
    return report._replace(
        results=tuple(kept), notes=(note, *_lines(report.notes)), labels=bounded_labels(report.labels),
        boot_id=printable(report.boot_id, NAME), version=printable(report.version, NAME),
    )  # fmt: skip


def is_large(report: Report) -> bool:
    """Whether a report is to be cut before it is gone through."""
    return len(report.results) > RESULTS or sum(_length(result) for result in report.results) > KEPT // 5


def bounded_labels(labels: Mapping[str, str]) -> Dict[str, str]:
    """Labels as they are kept: the first by name where there are too many."""
    return {printable(str(name), NAME): printable(str(labels[name]), 500) for name in sorted(labels)[:LABELS]}


def _result(result: CheckResult) -> CheckResult:
    outcome = result.outcome
    shorter = Outcome(
        outcome.verdict, printable(outcome.reason, NAME), printable(outcome.message, 2000),
        printable(outcome.target, 500), action=outcome.action,
        metrics=tuple(Metric(printable(name, NAME), value, printable(unit, NAME))
                      for name, value, unit, *_levels in outcome.metrics[: 4 * LINES]),
        evidence=_lines(outcome.evidence), scope=outcome.scope,
        device=DeviceId(*(printable(name, NAME) for name in outcome.device)),
    )  # fmt: skip
    return result._replace(
        check=printable(result.check, NAME), outcome=shorter, source=printable(result.source, LINE),
        line=printable(result.line, LINE), tags=_lines(result.tags),
    )  # fmt: skip


def _lines(lines: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(printable(line, LINE) for line in lines[:LINES])


def _length(result: CheckResult) -> int:
    """Characters of its texts, and as many again as its names of fields take."""
    outcome = result.outcome
    texts = [result.check, result.source, result.line, *result.tags, outcome.reason, outcome.message, outcome.target]
    texts += [*outcome.device, *outcome.evidence, *(metric.name + metric.unit for metric in outcome.metrics)]
    return 250 + sum(map(len, texts)) + 60 * (len(outcome.metrics) + len(outcome.evidence))
