"""Conditions read back: what a node's object says of its health, as a Report that nhc's policy understands.

Pure. The rules are a list of Faults (a type, the status that is bad, for how long), from vocabularies or given
in draino's own words (`GpuXid`, `GpuCount=True,10m`). Silence is not health: a node whose conditions nobody
renews is UNKNOWN, and an UNKNOWN node is left as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, List, Mapping, Optional, Sequence, Tuple

from nhc.model import Action, CheckResult, Report, crit, named, ok, unknown, warn
from nhc.ports import TAG, read_mark_text
from nhc.units import seconds
from nhc_adapters.kubernetes.conditions import TRUE, UNKNOWN, Condition, read_conditions
from nhc_adapters.kubernetes.vocabulary import Fault

_CHECK = re.compile(r"(check_\w+): (?=\S)")

SILENT_AFTER = 900.0
"""Seconds without a heartbeat after which nothing a node said counts: three heartbeats."""


@dataclass(frozen=True)
class Judgement:
    """What a node's conditions come to. `again` is when to look anew though nothing changes (Unix time)."""

    report: Report
    reasons: Tuple[str, ...] = ()
    types: Tuple[str, ...] = ()
    again: Optional[float] = None
    silent: bool = False
    """Whether it is UNKNOWN because the condition that is renewed by the agent's life is not."""


def parse_fault(text: str) -> Fault:
    """`Type`, `Type=Status` or `Type=Status,duration`: draino's arguments. Raises ValueError."""
    head, comma, lasting = text.partition(",")
    kind, equals, status = head.partition("=")
    if not kind or not kind.isprintable() or " " in kind:
        raise ValueError(f"{text!r} names no condition (expected Type, Type=Status or Type=Status,duration)")
    status = status if equals else TRUE
    if status not in (TRUE, "False", UNKNOWN):
        raise ValueError(f"{text!r}: status {status!r} is not True, False or Unknown")
    return Fault(kind, status, seconds(lasting.strip()) if comma else 0.0)


def judge(
    node: Mapping[str, Any],
    faults: Sequence[Fault],
    now: float,
    *,
    verdict: str = "",
    silent_after: float = SILENT_AFTER,
    expected: Sequence[Tuple[str, int]] = (),
) -> Judgement:
    """Judge one node object.

    `verdict` names the condition whose heartbeat says that the agent lives. `expected` are accelerators that
    must be allocatable.
    """
    conditions = read_conditions(node)
    results: List[CheckResult] = []
    reasons: List[str] = []
    types: List[str] = []
    times: List[float] = []
    for fault in faults:
        condition = conditions.get(fault.type)
        if condition is None:
            continue
        result, at = _judge_one(condition, fault, now)
        if at is not None:
            times.append(at)
        results.append(result)
        if result.outcome.reason and result.verdict == 4:
            reasons.append(condition.reason or fault.type)
            types.append(fault.type)
    offered = _allocatable(node, expected)
    if offered is not None:
        results.append(offered)
        if offered.outcome.reason:
            reasons.append(offered.outcome.reason)
            types.append("Allocatable")
    voice = conditions.get(verdict) if verdict else None
    silent = voice is not None and now - voice.seen > silent_after
    if silent and voice is not None:
        said = f"nothing heard from the node's agent for {now - voice.seen:.0f} s"
        results = [_result(verdict, unknown("NoReport", said))]
    elif voice is not None:
        times.append(voice.seen + silent_after)
    ready = conditions.get("Ready")
    if ready is not None and ready.status == UNKNOWN and not any(r.verdict == 4 for r in results):
        results.append(_result("Ready", unknown("NodeStatusUnknown", ready.message or "the kubelet stopped reporting")))
    report = Report(str(node.get("metadata", {}).get("name", "")), _boot(node), now, 0.0, tuple(results))
    upcoming = [at for at in times if at > now]
    return Judgement(report, tuple(reasons), tuple(types), min(upcoming) if upcoming else None, silent)


def _judge_one(condition: Condition, fault: Fault, now: float) -> Tuple[CheckResult, Optional[float]]:
    said = condition.message or condition.reason or condition.type
    if condition.status == fault.status:
        mark = read_mark_text(f"{TAG} {said}")
        why = mark.why if mark is not None else said
        action = mark.action if mark is not None and mark.action is not Action.NONE else fault.action
        due = condition.since + fault.lasting
        if now >= due:
            # Our own conditions say which check it was; the mark says so too, as Slurm's does.
            check = _CHECK.match(why)
            name, why = (check[1], why[check.end() :]) if check else (fault.type, why)
            return _result(name, crit(condition.reason or fault.type, why, action=action)), None
        waits = warn(condition.reason or fault.type, f"{why} (counts after {fault.lasting:.0f} s)")
        return _result(fault.type, waits), due
    if condition.status == UNKNOWN:
        return _result(fault.type, unknown(condition.reason or "Unknown", said)), None
    return _result(fault.type, ok(condition.message)), None


def _allocatable(node: Mapping[str, Any], expected: Sequence[Tuple[str, int]]) -> Optional[CheckResult]:
    """CRIT where fewer accelerators can be given out than should be, OK where all can, None where that is not known.

    Judged on a node whose kubelet is Ready only: while it restarts, or before the device plugin has spoken,
    allocatable says nothing (a plugin that never spoke shows no capacity at all).
    """
    ready = read_conditions(node).get("Ready")
    if not expected or ready is None or ready.status != TRUE:
        return None
    allocatable = node.get("status", {}).get("allocatable") or {}
    judged = False
    for resource, count in expected:
        if resource not in allocatable:
            continue
        try:
            found = int(str(allocatable[resource]))
        except ValueError:
            continue
        judged = True
        if found < count:
            text = f"{found} of {count} {resource} can be given out"
            return _result("kubernetes_allocatable", crit("AllocatableBelowExpected", text))
    return _result("kubernetes_allocatable", ok("all accelerators can be given out")) if judged else None


def expected_accelerators(
    node: Mapping[str, Any], configured: Mapping[str, Mapping[str, int]]
) -> List[Tuple[str, int]]:
    """How many accelerators a node should have: by its instance type as configured, else as it shows itself.

    A device that its plugin finds unhealthy leaves `allocatable` and stays in `capacity`; the count that GPU
    feature discovery wrote is believed where it is higher.
    """
    labels = node.get("metadata", {}).get("labels") or {}
    chosen = configured.get(labels.get("node.kubernetes.io/instance-type", "")) or configured.get("*")
    if chosen:
        return list(chosen.items())
    found = []
    for resource, count in (node.get("status", {}).get("capacity") or {}).items():
        if "/" not in resource or not is_accelerator(resource) or not str(count).isdigit():
            continue
        wanted = int(str(count))
        if resource == "nvidia.com/gpu" and str(labels.get("nvidia.com/gpu.count", "")).isdigit():
            # With sharing, one GPU is given out several times; then capacity is the larger number.
            wanted = max(wanted, int(labels["nvidia.com/gpu.count"]))
        found.append((resource, wanted))
    return sorted(found)


def is_accelerator(resource: str) -> bool:
    domain, _, name = resource.partition("/")
    return (domain in {
        "nvidia.com", "amd.com", "gpu.intel.com", "habana.ai", "google.com", "huawei.com",
    } and not name.startswith("hostdev")) or resource in {
        "aws.amazon.com/neuron", "aws.amazon.com/neuroncore", "aws.amazon.com/neurondevice",
    }  # fmt: skip


def _result(check: str, outcome: Any) -> CheckResult:
    return CheckResult(check, named(outcome))  # another agent's condition has whatever reason that agent chose


def _boot(node: Mapping[str, Any]) -> str:
    return str(((node.get("status") or {}).get("nodeInfo") or {}).get("bootID") or "")
