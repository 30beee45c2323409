"""What a sweep knows of a node: its report, checked and made safe, or an UNKNOWN report with the reason why not.

A node is not trusted: it may send the report of another node, endless data, or control characters.
"""

from __future__ import annotations

import json
import math
from typing import Any, Dict, NamedTuple, Tuple, Union

from nhc.core.model import CheckResult, DeviceId, Metric, Outcome, Report, Verdict, printable, reason_key, unknown
from nhc.core.render.json import parse, to_dict
from nhc.fleet.clean_report import (
    CLOCK,
    LABELS,
    LARGEST,
    LATEST,
    LINES,
    LONGEST,
    METRICS,
    RESULTS,
    TAGS,
    CleanReport,
    Finding,
    Number,
    bundle_of,
    clean_report,
)
from nhc.fleet.transport import Node, Trouble

REACH = "nhc_fleet"
"""The check under which a node that gave no report is listed."""


class NodeResult(NamedTuple):
    """One node's part in a sweep."""

    node: Node
    report: Union[Report, CleanReport]
    seconds: float = 0.0
    attempts: int = 1
    how: str = ""
    """pushed or installed: whose nhc ran; "" where none did."""
    hostname: str = ""
    python: str = ""
    sent: int = 0
    """Bytes of bundles that went to the node."""


def received(text: str, node: Node, now: float) -> Union[Report, CleanReport]:
    """The report in what a node sent, fit to be shown. Raises Trouble."""
    return clean_report(text, node.name, now) or read_report(text, node, now)


def read_report(text: str, node: Node, now: float) -> Report:
    """The report in what a node sent. Raises Trouble."""
    try:
        report = parse(text)
    except ValueError as error:
        raise Trouble("NotAReport", f"what it sent is not a report: {printable(str(error), 200)}") from None
    if report.host != node.name:
        raise Trouble("AnotherHost", f"its report names another host: {printable(report.host, 100)!r}")
    if len(report.results) > RESULTS:
        raise Trouble("HostileOutput", f"its report has {len(report.results)} results")
    return safe(report, now, live=True)


def safe(report: Report, now: float, live: bool = False) -> Report:
    """The report as it may be shown: printable, finite, bounded. Of a live one the node's clock is compared to ours."""
    started = report.started if math.isfinite(report.started) and abs(report.started) < LATEST else now
    notes = [printable(note, LONGEST) for note in report.notes[:LINES]]
    if live and abs(now - report.elapsed - started) > CLOCK and math.isfinite(report.elapsed):
        notes.append(f"the node's clock differs from this machine's by about {started + report.elapsed - now:+.0f} s")
    prefix = _bundle_prefix(report)
    return Report(
        printable(report.host, 255),
        printable(report.boot_id, 64),
        started,
        _finite(report.elapsed),
        tuple(_safe_result(result, prefix) for result in report.results),
        tuple(notes),
        max(0, min(report.not_run, 1_000_000)),
        printable(report.version, 40),
        {printable(key, 64): printable(value, 255) for key, value in list(report.labels.items())[:LABELS]},
    )


def _finite(value: float) -> float:
    return value if math.isfinite(value) and abs(value) < LARGEST else 0.0


def _bundle_prefix(report: Report) -> str:
    """Where the node keeps the site's files: sources are shown as the site's own paths, without it."""
    return next(filter(None, (bundle_of(result.source) for result in report.results)), "")


def _safe_result(result: CheckResult, prefix: str) -> CheckResult:
    outcome = result.outcome
    return CheckResult(
        printable(result.check, 200) or "unnamed",
        Outcome(
            outcome.verdict,
            reason_key(outcome.reason) if outcome.reason else "",
            printable(outcome.message, LONGEST),
            printable(outcome.target, 255),
            tuple(
                Metric(printable(m.name, 100), float(m.value), printable(m.unit, 20))
                for m in outcome.metrics[:METRICS]
                if _is_number(m.value)
            ),
            outcome.action,
            tuple(printable(line, LONGEST) for line in outcome.evidence[:LINES]),
            outcome.scope,
            DeviceId(*(printable(name, 200) for name in outcome.device)),
        ),
        _finite(result.elapsed),
        printable(result.source.removeprefix(prefix), 500),
        printable(result.line, LONGEST),
        tuple(printable(tag, 64) for tag in result.tags[:TAGS]),
        result.strike,
        result.strikes,
    )


def _is_number(value: Any) -> bool:
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def unreached(node: Node, trouble: Trouble, now: float, attempts: int = 1) -> Report:
    """The report of a node that gave none."""
    message = printable(trouble.message, 600) + (f" (tried {attempts} times)" if attempts > 1 else "")
    outcome = unknown(trouble.reason, message)
    return Report(node.name, "", now, 0.0, (CheckResult(REACH, outcome),))


def was_reached(report: Report) -> bool:
    """Whether the report is the node's own. One of `unreached` says nothing of the node, whatever its reason."""
    return not all(result.check == REACH for result in report.results)


def to_json(result: NodeResult) -> Dict[str, Any]:
    """A report as every reader of reports takes it, with what the sweep adds under `fleet`."""
    node = result.node
    report = result.report
    value = {**report.value} if isinstance(report, CleanReport) else to_dict(report)
    value["fleet"] = {
        "groups": list(node.groups),
        "facts": dict(node.facts),
        "seconds": round(result.seconds, 3),
        "attempts": result.attempts,
        "nhc": result.how,
        "hostname": result.hostname,
        "python": result.python,
        "sent": result.sent,
    }
    return value


def line(result: NodeResult) -> str:
    """The same on one line."""
    return json.dumps(to_json(result), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def findings(report: Union[Report, CleanReport]) -> Tuple[Finding, ...]:
    """What folding needs of a report."""
    if isinstance(report, CleanReport):
        return report.findings
    return tuple(
        (result.check, outcome.target, int(outcome.verdict), outcome.reason,
         *((outcome.message, outcome.action.value) if outcome.verdict > Verdict.OK else ("", "")))
        for result in report.results
        for outcome in [result.outcome]
    )  # fmt: skip


def metrics(report: Union[Report, CleanReport]) -> Tuple[Number, ...]:
    """Every number in a report."""
    if isinstance(report, CleanReport):
        return report.metrics
    return tuple(
        (result.check, result.outcome.target, metric.name, metric.unit, metric.value)
        for result in report.results
        for metric in result.outcome.metrics
    )
