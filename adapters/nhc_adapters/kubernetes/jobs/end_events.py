"""What the Events of a job and of its pods say of its end, where the pods themselves do not. Pure.

An Event names its object exactly; those of pods whose name only begins as the job's are another job's, perhaps.
Reasons: kube-scheduler (Preempted), pkg/kubelet/eviction (Evicted), pkg/kubelet/preemption (Preempting),
pkg/controller/tainteviction (TaintManagerEviction), pkg/controller/devicetainteviction (DeviceTaintManagerEviction),
pkg/controller/job (DeadlineExceeded).
"""

from __future__ import annotations

from typing import Any, Iterable, List, Mapping, Optional, Sequence

from nhc.core.model import printable
from nhc.marks.ports.jobs import JobLoss, JobName, LossCause
from nhc_adapters.kubernetes.api.objects import get, moment
from nhc_adapters.kubernetes.jobs.pods import losses, over_own_limit

POD_CAUSES = {"Preempted": LossCause.PREEMPTED, "Preempting": LossCause.PREEMPTED, "Evicted": LossCause.EVICTED,
              "TaintManagerEviction": LossCause.EVICTED, "DeviceTaintManagerEviction": LossCause.EVICTED}  # fmt: skip
"""Reasons after which a pod does not go on."""
NO_END = "Cancelling deletion"
"""What both taint managers say, under the same reason, of a pod that stays."""


def event_selectors(job: JobName, pods: Sequence[Mapping[str, Any]]) -> List[str]:
    """Field selectors of the Events that can tell more than the pods do: one a reason, however many pods there are."""
    about_job = f"involvedObject.kind={job.kind},involvedObject.name={job.name},reason=DeadlineExceeded"
    about_pods = [f"involvedObject.kind=Pod,reason={reason}" for reason in POD_CAUSES]
    return [about_job, *(about_pods if any(map(_unexplained, pods)) else ())]


def event_losses(job: JobName, pods: Sequence[Mapping[str, Any]], events: Iterable[Mapping[str, Any]]) -> List[JobLoss]:
    """The losses that Events tell, by time: of the job itself, and of pods whose status says no more than an exit."""
    known = {str(get(pod, "metadata", "uid") or ""): pod for pod in pods}
    lost: List[JobLoss] = []
    for event in events:
        about = event.get("involvedObject") or {}
        reason, message = str(event.get("reason") or ""), str(event.get("message") or "")
        at = _when(event)
        pod = known.get(str(about.get("uid") or "-")) if about.get("kind") == "Pod" else None
        if (about.get("kind"), about.get("name")) == (job.kind, job.name) and reason == "DeadlineExceeded":
            lost.append(JobLoss("", LossCause.LIMIT, printable(f"it reached its deadline: {message}", 200), at))
        elif pod is not None and reason in POD_CAUSES and NO_END not in message and _unexplained(pod):
            cause = LossCause.LIMIT if reason == "Evicted" and over_own_limit(message) else POD_CAUSES[reason]
            node = str(get(pod, "spec", "nodeName") or "")
            lost.append(JobLoss(node, cause, printable(f"{reason}: {message}".rstrip(": "), 200), at))
    return sorted(lost, key=lambda loss: loss.at)


def _unexplained(pod: Mapping[str, Any]) -> bool:
    """Whether the pod did not end well, or is about to end, and its status gives no other reason than an exit."""
    own = losses([pod])
    leaving = bool(get(pod, "metadata", "deletionTimestamp"))
    return all(loss.cause is LossCause.EXIT for loss in own) and bool(own or leaving)


def _when(event: Mapping[str, Any]) -> float:
    """Its last occurrence, Unix time; 0.0 where it has none. Events of the newer API have `eventTime` alone."""
    series = event.get("series") or {}
    times: List[Optional[float]] = [moment(series.get("lastObservedTime")), moment(event.get("lastTimestamp")),
                                    moment(event.get("eventTime"))]  # fmt: skip
    return next((at for at in times if at is not None), 0.0)
