"""The terms in which a node's health is written and read: conditions, taints, labels and annotations, as data.

A vocabulary is a JSON file (`nhc_adapters/data/kubernetes/*.json`, or one of your own): how a report becomes
conditions, which conditions mean a fault, what a node carries in each state (`faulty`, `healthy`, `checking` ...), and
how marks of others are recognised. Several can be active at once.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Dict, List, Mapping, Sequence, Tuple

from nhc.core.model import Action, CheckResult, Report, Verdict, describe, printable
from nhc.core.timestamps import utc
from nhc.marks.ports.adapter import Mark
from nhc_adapters.kubernetes.nodes.conditions import FALSE, MESSAGE_LIMIT, TRUE, UNKNOWN, Condition
from nhc_adapters.kubernetes.nodes.device_tags import device_tags

LABEL_LIMIT = 63
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_NOT_LABEL = re.compile(r"[^A-Za-z0-9_.-]+")
PLACE = re.compile(r"\{(\w+)\}")
KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


@dataclass(frozen=True)
class NodeTaint:
    key: str
    value: str = ""
    effect: str = "NoSchedule"

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"

    def manifest(self) -> Dict[str, str]:
        return {"key": self.key, "effect": self.effect, **({"value": self.value} if self.value else {})}


def read_taint(entry: Mapping[str, object]) -> NodeTaint:
    """A taint of a node object."""
    return NodeTaint(str(entry.get("key", "")), str(entry.get("value") or ""), str(entry.get("effect", "")))


def parse_taint(text: str) -> NodeTaint:
    """`key=value:Effect` or `key:Effect`. Raises ValueError."""
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    if effect not in EFFECTS or not KEY.fullmatch(key):
        raise ValueError(f"{text!r} is not a taint (expected key=value:Effect, Effect one of {', '.join(EFFECTS)})")
    return NodeTaint(key, value, effect)


@dataclass(frozen=True)
class ConditionRule:
    """How one condition is made from a report.

    A result belongs to it when its check or its reason matches, and also its action if `actions` names some. `bad` is
    the status that means a problem. A CRIT result sets it; a WARN does if one of `lines` matches a line of its
    evidence, because the condition's own detector reports that line as the problem.
    """

    type: str
    bad: str
    checks: Tuple[str, ...]
    reasons: Tuple[str, ...]
    excluded: Tuple[str, ...]
    actions: Tuple[str, ...]
    good_reason: str
    good_message: str
    bad_reason: str = ""
    lines: Tuple[str, ...] = ()

    def good(self) -> Condition:
        """The condition of a node without the problem."""
        return Condition(self.type, TRUE if self.bad == FALSE else FALSE, self.good_reason, self.good_message)

    def is_bad(self, result: CheckResult) -> bool:
        """Whether a result that it covers means the problem."""
        if result.verdict is Verdict.CRIT:
            return True
        return result.verdict is Verdict.WARN and any(_matches(line, self.lines) for line in result.outcome.evidence)

    def covers(self, result: CheckResult) -> bool:
        outcome = result.outcome
        if self.actions and outcome.action.value not in self.actions:
            return False
        if _matches(result.check, self.checks) and not _matches(result.check, self.excluded):
            return True
        return bool(outcome.reason) and _matches(outcome.reason, self.reasons)


@dataclass(frozen=True)
class Fault:
    """A condition that takes a node out: its type, the bad status, for how long, and its repair."""

    type: str
    status: str = TRUE
    lasting: float = 0.0
    action: Action = Action.INSPECT


@dataclass(frozen=True)
class Foreign:
    """How somebody else's mark is recognised: by a taint, a label with certain values, or an annotation."""

    owner: str
    taint: str = ""
    label: str = ""
    annotation: str = ""
    values: Tuple[str, ...] = ()


@dataclass(frozen=True)
class StateFields:
    """The marks on a node in one state. Values may contain placeholders such as {reason}."""

    taints: Tuple[NodeTaint, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Vocabulary:
    name: str
    summary: str
    conditions: Tuple[ConditionRule, ...]
    faults: Tuple[Fault, ...]
    states: Mapping[str, StateFields]
    foreign: Tuple[Foreign, ...]
    triggers: Mapping[str, str]
    verdict: str = ""
    """The condition whose heartbeat says that the agent lives."""

    def trigger(self, repair: str = "") -> str:
        """The value that asks the platform for a repair; the plain one without."""
        return self.triggers.get(repair) or self.triggers.get("", "")


def conditions_of(report: Report, rules: Sequence[ConditionRule]) -> List[Condition]:
    """The conditions that a report asks for. UNKNOWN if a covered check had no result, and nothing is CRIT.

    A condition without a result in the report is left out, since it was not judged.
    """
    results = [result for result in report.results if result.verdict is not Verdict.SKIP]
    conditions = []
    for rule in rules:
        covered = [result for result in results if rule.covers(result)]
        if covered or any(_judges(rule, result) for result in results):
            conditions.append(_condition(rule, covered))
    return conditions


def _judges(rule: ConditionRule, result: CheckResult) -> bool:
    """Whether this result judges the condition although it belongs to none of its reasons.

    A condition known by reasons alone (an Xid, a read-only file system) is judged by the checks that read the kernel
    log, whose good outcome has no reason.
    """
    return not rule.checks and result.check.startswith(("check_kmsg", "check_kernel", "check_log", "check_dmesg"))


def _condition(rule: ConditionRule, covered: Sequence[CheckResult]) -> Condition:
    bad = [result for result in covered if rule.is_bad(result)]
    problems = bad or [result for result in covered if result.verdict is Verdict.UNKNOWN]
    if not problems:
        return rule.good()
    worst = max(problems, key=lambda result: result.verdict)
    message = printable(describe(worst)) + (f" (and {len(problems) - 1} more)" if len(problems) > 1 else "")
    if not bad:
        return Condition(rule.type, UNKNOWN, worst.outcome.reason or "Unknown", message)
    tags = device_tags(bad)
    if worst.outcome.action is not Action.NONE:
        tags += f" [action: {worst.outcome.action.value}]"
    message = printable(message, MESSAGE_LIMIT - len(tags)) + tags
    return Condition(rule.type, rule.bad, rule.bad_reason or worst.outcome.reason or "CheckFailed", message)


def fill(text: str, mark: Mark, trigger: str, reasons: Sequence[str], types: Sequence[str]) -> str:
    """A value with its places filled in."""
    since = mark.since or 0.0
    values = {
        "why": mark.why,
        "reason": reasons[0] if reasons else "Unhealthy",
        # Two conditions of one fault have one reason, and it is said once.
        "reasons": "_".join(dict.fromkeys(reasons)) or "Unhealthy",
        "types": "_".join(dict.fromkeys(types)) or "Unhealthy",
        "action": mark.action.value,
        "trigger": trigger,
        "since": utc(since),
        "compact": utc(since).replace(":", "-"),
        "details": json.dumps(
            [
                {"timestamp": utc(since), "type": kind, "reason": reason, "message": mark.why}
                for kind, reason in zip(types or ["Unhealthy"], reasons or ["Unhealthy"])
            ]
        ),
    }
    return PLACE.sub(lambda place: values[place[1]], text)


def label_value(text: str) -> str:
    """Text as a label's value may be: 63 characters of a small alphabet, a letter or digit at both ends."""
    return _NOT_LABEL.sub("-", text)[:LABEL_LIMIT].strip("-_.")


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
