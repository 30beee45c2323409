"""A job in Kubernetes as `nhc.marks.ports.job_control.JobView`: object, pods, and Workload under Kueue. Pure."""

from __future__ import annotations

import re
from typing import Any, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.model import printable
from nhc.marks.ports.job_control import JobLoss, JobName, JobView, LossCause, Phase, Wish
from nhc_adapters.kubernetes.api.objects import Object, controller_of, get, moment, name_of, notes_of, true_conditions
from nhc_adapters.kubernetes.jobs import kueue, volcano
from nhc_adapters.kubernetes.jobs.kinds import (
    CHECKPOINT,
    HELD,
    HYPERPOD,
    NUMBER,
    RELEASED,
    VOLCANO,
    WISH,
    JobEnding,
    JobKind,
)

# What the pods of a job say of its end: which were lost with their nodes, which ended by themselves. Pure.


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


class Seen(NamedTuple):
    """What was read of one job. `workload` is Kueue's, None if it has made none.

    `placeable`: it is kept off nodes through its child Jobs, and they accept that now.
    """

    kind: JobKind
    job: Object
    pods: Sequence[Object]
    workload: Optional[Object] = None
    placeable: bool = False


def wish_of(job: Object) -> Optional[Wish]:
    """What its user asked for by annotations, None for nothing."""
    notes = notes_of(job)
    if WISH not in notes:
        return None
    text = notes[WISH].strip().lower()
    if text in ("false", "no", "off"):
        return None
    most = int(text) if re.fullmatch(r"[0-9]{1,6}", text) else None
    return Wish(most, printable(notes.get(CHECKPOINT, ""), 500))


def number_of(job: Object) -> int:
    """The number of our newest restart that it shows."""
    text = notes_of(job).get(NUMBER, "")
    return int(text) if re.fullmatch(r"[0-9]{1,6}", text) else 0


def is_suspended(seen: Seen) -> bool:
    """Whether it is stopped, by whomever."""
    if seen.kind.kind == VOLCANO.kind:
        return volcano.is_stopped(seen.job)
    return get(seen.job, *seen.kind.suspend) is True


def is_held(seen: Seen) -> bool:
    """Whether it is stopped, by us."""
    if HELD not in notes_of(seen.job):
        return False
    if kueue.is_managed(seen.job):
        return seen.workload is not None and not kueue.is_active(seen.workload)
    return is_suspended(seen)


def view(seen: Seen, wish: Wish) -> JobView:
    """The value that the rest of nhc sees."""
    job, kind = seen.job, seen.kind
    meta: Mapping[str, object] = job.get("metadata") or {}
    released = float(notes_of(job).get(RELEASED) or 0.0) if _is_number(notes_of(job).get(RELEASED)) else 0.0
    started = max(moment(get(job, "status", "startTime")) or 0.0, released)
    pods = [pod for pod in seen.pods if (moment(get(pod, "metadata", "creationTimestamp")) or 0.0) >= int(released)]
    ending = kind.ending(job)
    phase = _phase(seen, ending, pods)
    nodes = nodes_of(pods) if phase is not Phase.HELD else ()
    return JobView(
        JobName(kind.kind, str(meta.get("namespace") or ""), name_of(job), str(meta.get("uid") or "")),
        f"{kind.counter(job)}.{number_of(job)}",
        phase,
        nodes,
        len(nodes),
        "",
        started or None,
        ending.at if ending is not None else None,
        _losses(seen, ending, phase, pods),
        wish,
        number_of(job),
        is_held(seen) and phase is Phase.HELD,
        ending is not None and ending.phase is Phase.FAILED,
        kind.affinity or seen.placeable,
        _untouchable(seen, phase),
    )


def _is_number(text: Optional[str]) -> bool:
    return bool(re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,9})?", text or ""))


def _phase(seen: Seen, ending: Optional[JobEnding], pods: Sequence[Object]) -> Phase:
    if get(seen.job, "metadata", "deletionTimestamp"):
        return Phase.ENDING
    if ending is not None:
        return ending.phase
    if is_suspended(seen):
        return Phase.ENDING if any(is_living(pod) or leaves(pod) for pod in seen.pods) else Phase.HELD
    return Phase.RUNNING if any(get(pod, "spec", "nodeName") and is_living(pod) for pod in pods) else Phase.PENDING


def _losses(seen: Seen, ending: Optional[JobEnding], phase: Phase, pods: Sequence[Object]) -> Tuple[JobLoss, ...]:
    """The losses of a job that has failed; of a gang that runs, those that its controller has not replaced."""
    lost = losses(pods)
    if phase is Phase.FAILED and ending is not None:
        at = ending.at if ending.at is not None else 0.0
        if ending.limit:
            return (JobLoss("", LossCause.LIMIT, printable(ending.detail, 200), at),)
        return tuple(lost) or (JobLoss("", LossCause.EXIT, printable(ending.detail, 200), at),)
    living = sum(1 for pod in pods if is_living(pod))
    if phase in (Phase.RUNNING, Phase.PENDING) and seen.kind.gang and living < seen.kind.pods(seen.job):
        return tuple(lost)
    return ()


def _untouchable(seen: Seen, phase: Phase) -> str:
    job = seen.job
    owner = controller_of(job)
    if owner:
        return f"it belongs to {owner.get('kind')} {owner.get('name')}"
    if notes_of(job).get(HYPERPOD, "").lower() == "true":
        return "HyperPod resumes it"
    if phase is Phase.HELD and not is_held(seen):
        return "somebody else has suspended it"
    if kueue.is_managed(job) and seen.workload is None:
        return "Kueue has no Workload for it"
    if seen.kind.kind == VOLCANO.kind and not is_held(seen):
        return volcano.spent(job)
    return ""
