"""What the pods of a job say of its end: which were lost with their nodes, which ended by themselves. Pure."""

from __future__ import annotations

from typing import Any, List, Mapping, Optional, Sequence, Tuple

from nhc.core.model import printable
from nhc.marks.ports.job_control import JobLoss, LossCause
from nhc_adapters.kubernetes.api.objects import get, moment, true_conditions

NODE_REASONS = frozenset({
    "NodeLost", "NodeShutdown", "NodeAffinity", "Shutdown", "Terminated", "UnexpectedAdmissionError", "NodeFailure",
    "DeletionByPodGC", "TerminationByKubelet",
})  # fmt: skip
"""Reasons of a pod's end that are its node's: the kubelet's (pkg/kubelet), and of the condition DisruptionTarget."""
TAKEN_AWAY = frozenset({"DeletionByTaintManager", "DeletionByDeviceTaintManager", "EvictionByEvictionAPI"})
PREEMPTED = frozenset({"PreemptionByScheduler", "Preempting", "Preempted"})
OWN = ("ephemeral local storage", "ephemeral-storage", "exceeds the limit", "exceeded its local")
"""What the kubelet says of a pod that it evicts for going over a limit of its own."""


def nodes_of(pods: Sequence[Mapping[str, Any]]) -> Tuple[str, ...]:
    """The nodes of pods, each once, in order."""
    names = (str(get(pod, "spec", "nodeName") or "") for pod in pods)
    return tuple(sorted({node for node in names if node}))


def is_living(pod: Mapping[str, object]) -> bool:
    """Whether it runs, or is about to."""
    phase = get(pod, "status", "phase")
    return phase in ("Pending", "Running") and not get(pod, "metadata", "deletionTimestamp")


def leaves(pod: Mapping[str, object]) -> bool:
    """Whether it is still there and ends."""
    return bool(get(pod, "metadata", "deletionTimestamp")) and get(pod, "status", "phase") in ("Pending", "Running")


def losses(pods: Sequence[Mapping[str, Any]]) -> List[JobLoss]:
    """What became of each pod that did not end well, by time."""
    lost = [loss for loss in map(_loss, pods) if loss is not None]
    return sorted(lost, key=lambda loss: loss.at)


def _loss(pod: Mapping[str, object]) -> Optional[JobLoss]:
    target = true_conditions(pod).get("DisruptionTarget")
    reason, message = str(get(pod, "status", "reason") or ""), str(get(pod, "status", "message") or "")
    failed = get(pod, "status", "phase") == "Failed"
    node = str(get(pod, "spec", "nodeName") or "")
    ended = [end for end in _terminated(pod) if end.get("exitCode") not in (0, None)]
    at = _when(pod, ended, target)
    if target is not None:
        why = str(target.get("reason") or "")
        text = printable(f"{why}: {target.get('message') or ''}".rstrip(": "), 200)
        if why in PREEMPTED:
            return JobLoss(node, LossCause.PREEMPTED, text, at)
        if why == "TerminationByKubelet" and over_own_limit(message):
            return JobLoss(node, LossCause.LIMIT, printable(message, 200), at)
        cause = LossCause.EVICTED if why in TAKEN_AWAY or reason == "Evicted" else LossCause.NODE
        return JobLoss(node, cause, text, at)
    if get(pod, "metadata", "deletionTimestamp") and reason == "NodeLost":
        return JobLoss(node, LossCause.NODE, "its node was lost", at)
    if not failed:
        return None
    if reason == "Evicted":
        cause = LossCause.LIMIT if over_own_limit(message) else LossCause.EVICTED
        return JobLoss(node, cause, printable(message or reason, 200), at)
    if reason in PREEMPTED:
        return JobLoss(node, LossCause.PREEMPTED, reason, at)
    if reason == "DeadlineExceeded":
        return JobLoss(node, LossCause.LIMIT, "it reached its deadline", at)
    if reason in NODE_REASONS or reason.startswith("OutOf"):
        return JobLoss(node, LossCause.NODE, printable(f"{reason}: {message}".rstrip(": "), 200), at)
    return _ended_itself(pod, node, ended, at)


def _ended_itself(pod: Mapping[str, object], node: str, ended: Sequence[Mapping[str, Any]], at: float) -> JobLoss:
    name = str(get(pod, "metadata", "name") or "")
    if any(end.get("reason") == "OOMKilled" for end in ended):
        return JobLoss(node, LossCause.LIMIT, f"{name} used more memory than its limit", at)
    if not ended:
        return JobLoss(node, LossCause.UNKNOWN, f"{name} failed, and nothing says why", at)
    first = min(ended, key=lambda end: str(end.get("finishedAt") or ""))
    signal = first.get("signal")
    how = f"was ended by signal {signal}" if signal else f"ended with exit status {first.get('exitCode')}"
    return JobLoss(node, LossCause.EXIT, f"{name} {how}", at)


def over_own_limit(message: str) -> bool:
    return any(phrase in message for phrase in OWN)


def _terminated(pod: Mapping[str, object]) -> List[Mapping[str, Any]]:
    rows = [*(get(pod, "status", "initContainerStatuses") or ()), *(get(pod, "status", "containerStatuses") or ())]
    states = (get(row, "state", "terminated") for row in rows)
    return [row for row in states if isinstance(row, Mapping)]


def _when(pod: Mapping[str, object], ended: Sequence[Mapping[str, Any]], target: Optional[Mapping[str, Any]]) -> float:
    times = [moment(end.get("finishedAt")) for end in ended]
    times.append(moment(target.get("lastTransitionTime")) if target is not None else None)
    known = [at for at in times if at is not None]
    if known:
        return min(known)
    for text in (get(pod, "metadata", "deletionTimestamp"), get(pod, "metadata", "creationTimestamp")):
        at = moment(text)
        if at is not None:
            return at
    return 0.0
