"""A node's report that already has the form in which a sweep passes reports on: taken as it is, in one pass.

Nearly all are of this form, since nhc wrote them. To read them into values and write them again would be a tenth of a
node's cost at the client. Anything unusual (a character that cannot be printed, a text that is too long, a number that
is not one) goes to `nhc.fleet.node_result.read_report`, which checks the report in full.
"""

from __future__ import annotations

import math
import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from nhc.core.model import SCHEMA, Action, Verdict, reason_key
from nhc.core.system.bounded_read import parse_json
from nhc.core.timestamps import utc_milliseconds

RESULTS = 5000
LINES = 50
"""Notes of a report, and lines of evidence of a result."""
LONGEST = 1000
"""Characters of a message, a note or a line."""
METRICS, TAGS, LABELS = 200, 32, 64
CLOCK = 120.0
"""Seconds that a node's clock may differ from ours before the report says so."""
LATEST, LARGEST = 1e11, 1e15
"""What a time in seconds since 1970, and a number of seconds, stay below."""

Finding = Tuple[str, str, int, str, str, str]
"""Check, target, verdict, reason, message and suggested action (both "" where all is well)."""
Number = Tuple[str, str, str, str, float]
"""Check, target, name, unit, value."""

_REPORT = ("schema", "version", "host", "boot_id", "started", "started_at", "elapsed", "verdict", "notes", "not_run",
           "labels", "results")  # fmt: skip
_REPORT_TYPES = (int, str, str, str, float, str, float, str, list, int, dict, list)
_RESULT = ("check", "verdict", "reason", "message", "target", "action", "metrics", "evidence", "elapsed", "source",
           "line", "tags", "strike", "strikes")  # fmt: skip
_RESULT_TYPES = (str, str, str, str, str, str, list, list, float, str, str, list, int, int)
_METRIC = ("name", "value", "unit")
_VERDICTS = {verdict.name: int(verdict) for verdict in Verdict}
_NAMES = {int(verdict): verdict.name for verdict in Verdict}
_ACTIONS = frozenset(action.value for action in Action)
_ESCAPES = re.compile(r"\\(.)", re.DOTALL)
"""JSON's escapes, one after the other: a backslash that is escaped itself begins none."""
_PLAIN_ESCAPES = frozenset('"\\/')
"""Those that stand for a character that can be printed, whatever follows."""
_DIGEST = re.compile(r"/[0-9a-f]{64}(?=/|$)")


class CleanReport(NamedTuple):
    """A report as it is passed on: `value` in JSON's own types, and what folding needs of it."""

    value: Dict[str, Any]
    verdict: int
    findings: Tuple[Finding, ...]
    metrics: Tuple[Number, ...]

    @property
    def labels(self) -> Dict[str, str]:
        labels: Dict[str, str] = self.value["labels"]
        return labels


def clean_report(text: str, host: str, now: float) -> Optional[CleanReport]:
    """The report of this host in what it sent, None where it is to be looked at more closely."""
    # A line break is never within a text of JSON's: its reader refuses that.
    if not text.replace("\n", "").isprintable() or not _PLAIN_ESCAPES.issuperset(_ESCAPES.findall(text)):
        return None
    try:
        value = parse_json(text)
    except ValueError:
        return None
    if type(value) is not dict or tuple(value) != _REPORT or tuple(map(type, value.values())) != _REPORT_TYPES:
        return None
    started, elapsed, results = value["started"], value["elapsed"], value["results"]
    if not (
        value["schema"] == SCHEMA and value["host"] == host and len(host) <= 255 and len(value["boot_id"]) <= 64
        and len(value["version"]) <= 40 and abs(started) < LATEST and abs(elapsed) < LARGEST
        and abs(now - elapsed - started) <= CLOCK and 0 <= value["not_run"] <= 1_000_000
        and _texts(value["notes"], LINES, LONGEST) and _texts(list(value["labels"]), LABELS, 64)
        and _texts(list(value["labels"].values()), LABELS, 255) and len(results) <= RESULTS
    ):  # fmt: skip
        return None
    findings: List[Finding] = []
    metrics: List[Number] = []
    prefix, worst = "", -1
    for result in results:
        if type(result) is not dict or not _is_clean(result):
            return None
        source = result["source"]
        prefix = prefix or bundle_of(source)
        verdict = _VERDICTS[result["verdict"]]
        worst = max(worst, verdict)
        findings.append(_finding(result, verdict))
        if result["metrics"] and not _take_metrics(result, metrics):
            return None
    for result in results:
        result["source"] = result["source"].removeprefix(prefix)
        result["elapsed"] = round(result["elapsed"], 6)
    if worst in (-1, int(Verdict.SKIP)):
        worst = int(Verdict.UNKNOWN)
    value["started_at"], value["verdict"] = utc_milliseconds(started), _NAMES[worst]
    value["elapsed"] = round(elapsed, 6)
    return CleanReport(value, worst, tuple(findings), tuple(metrics))


def _is_clean(result: Dict[str, Any]) -> bool:
    """Whether a result has the fields that ours have, of their types and within their bounds."""
    if tuple(result) != _RESULT or tuple(map(type, result.values())) != _RESULT_TYPES:
        return False
    reason = result["reason"]
    return (
        result["verdict"] in _VERDICTS and result["action"] in _ACTIONS and 0 < len(result["check"]) <= 200
        and len(result["message"]) <= LONGEST and len(result["target"]) <= 255 and len(result["source"]) <= 500
        and len(result["line"]) <= LONGEST and _texts(result["evidence"], LINES, LONGEST)
        and _texts(result["tags"], TAGS, 64) and abs(result["elapsed"]) < LARGEST
        and (not reason or reason_key(reason) == reason)
    )  # fmt: skip


def _texts(values: List[Any], most: int, longest: int) -> bool:
    return not values or (len(values) <= most and all(type(value) is str and len(value) <= longest for value in values))


def _finding(result: Dict[str, Any], verdict: int) -> Finding:
    bad = verdict > Verdict.OK
    message, action = (result["message"], result["action"]) if bad else ("", "")
    return result["check"], result["target"], verdict, result["reason"], message, action


def _take_metrics(result: Dict[str, Any], metrics: List[Number]) -> bool:
    """Add a result's numbers. False where one is out of the ordinary."""
    if len(result["metrics"]) > METRICS:
        return False
    for metric in result["metrics"]:
        if type(metric) is not dict or tuple(metric) != _METRIC:
            return False
        name, value, unit = metric.values()
        if type(name) is not str or type(unit) is not str or len(name) > 100 or len(unit) > 20:
            return False
        if type(value) is int and abs(value) <= 1 << 64:
            value = metric["value"] = float(value)
        if type(value) is not float or not math.isfinite(value):
            return False
        metrics.append((result["check"], result["target"], name, unit, value))
    return True


def bundle_of(source: str) -> str:
    """Where the node keeps the site's files, "" for a source of the node's own: it is shown as the site's own path."""
    match = _DIGEST.search(source)
    return source[: match.end()] if match else ""
