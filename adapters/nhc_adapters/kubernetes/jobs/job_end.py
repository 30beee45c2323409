"""How a job of Kubernetes ended: its pods, their containers' termination states, their logs, and their Events.

Pods are found by the labels that their controllers put on them, so a user only needs the right to read pods, their logs
and Events in the own namespace. The API server keeps Events for an hour (--event-ttl).
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from nhc.core.model import printable
from nhc.core.units import whole_of_digits
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.job_control import JobEndRecord, JobLogText, JobLoss, JobName, LossCause
from nhc_adapters.kubernetes.api.client import Client, namespaced
from nhc_adapters.kubernetes.api.errors import ApiError, Unreachable
from nhc_adapters.kubernetes.api.objects import get, moment
from nhc_adapters.kubernetes.jobs.kinds import JOB, KINDS, MAIL
from nhc_adapters.kubernetes.jobs.view import is_living, losses, nodes_of, over_own_limit

# How a job ended by the Events of the job and its pods, if the pods themselves do not show it. Pure.
#
# An Event names its object exactly; those of pods whose name only begins as the job's are another job's, perhaps.
# Reasons: kube-scheduler (Preempted), pkg/kubelet/eviction (Evicted), pkg/kubelet/preemption (Preempting),
# pkg/controller/tainteviction (TaintManagerEviction), pkg/controller/devicetainteviction (DeviceTaintManagerEviction),
# pkg/controller/job (DeadlineExceeded).


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
    """Its last occurrence, Unix time; 0.0 if it has none. Events of the newer API have `eventTime` alone."""
    series = event.get("series") or {}
    times: List[Optional[float]] = [moment(series.get("lastObservedTime")), moment(event.get("lastTimestamp")),
                                    moment(event.get("eventTime"))]  # fmt: skip
    return next((at for at in times if at is not None), 0.0)


RANKS = ("training.kubeflow.org/replica-index", "batch.kubernetes.io/job-completion-index")
MEMBER = (JOB.label, "training.kubeflow.org/replica-type", *RANKS)
"""The labels that tell the pods of one job apart, if they have a number."""
ACCELERATORS = re.compile(r".+/(?:[gntx]pu|dcu|gaudi|neuron\w*|qaic|mlu\w*|ascend\w*|i915|xe)", re.IGNORECASE)
"""Resources that are whole accelerators, by the device plugins of any vendor: `nvidia.com/gpu`, `google.com/tpu`.
Shares of one (`nvidia.com/mig-1g.10gb`, `nvidia.com/gpumem`) are none.
"""
PODS_READ = 64
"""Pods whose logs are read: those that failed first."""
LOG_BYTES, LOG_LINES = str(4 << 20), "20000"
REFUSED = (401, 403)
"""Who may not read one pod's log may read none of the namespace."""
EVENTS_READ = 2000
"""Events of one reason that are read."""


def read_end(client: Client, name: str, home: str) -> Optional[JobEndRecord]:
    """The record of `KIND/namespace/name`, `namespace/name` or `name` in `home`. Raises AdapterError."""
    parts = name.split("/")
    kind, namespace, plain = ("", home, parts[0]) if len(parts) == 1 else (
        ("", *parts) if len(parts) == 2 else (parts[0], parts[1], parts[2]))  # fmt: skip
    if len(parts) > 3 or (kind and kind not in KINDS) or not plain:
        raise AdapterError(f"{printable(name, 80)!r} is no job: KIND/NAMESPACE/NAME, KIND one of {', '.join(KINDS)}")
    try:
        kinds = [kind] if kind else list(KINDS)
        for candidate in kinds:
            query = f"{KINDS[candidate].label}={plain}"
            pods = list(client.items(namespaced(namespace, "pods"), labelSelector=query))
            if pods:
                return _record(client, JobName(candidate, namespace, plain), pods)
        for candidate in kinds:  # a job whose deadline is over loses its pods
            record = _record(client, JobName(candidate, namespace, plain), ())
            if record.losses:
                return record
    except (ApiError, Unreachable) as error:
        raise AdapterError(f"the pods of {plain}: {error}") from None
    return None


def _record(client: Client, job: JobName, pods: Sequence[Mapping[str, Any]]) -> JobEndRecord:
    lost, unread = _losses(client, job, pods)
    running = any(is_living(pod) for pod in pods)
    phases = sorted({str(get(pod, "status", "phase") or "") for pod in pods})
    started = [at for at in (moment(get(pod, "status", "startTime")) for pod in pods) if at is not None]
    logs, missing = _logs(client, job.namespace, pods)
    mail = next((str(to) for pod in pods for to in [get(pod, "metadata", "annotations", MAIL)] if to), "")
    missing += unread + ([] if pods else ["its pods are gone, and their logs with them"])
    return JobEndRecord(job, "/".join(phases), nodes_of(pods), min(started, default=None),
                        None if running else max((loss.at for loss in lost), default=None), tuple(lost), tuple(logs),
                        "", 0, running, tuple(missing), _gpus(pods), mail)  # fmt: skip


def _losses(client: Client, job: JobName, pods: Sequence[Mapping[str, Any]]) -> Tuple[List[JobLoss], List[str]]:
    """What the pods and the Events say, by time, and what could not be read."""
    lost, missing = losses(pods), []
    events: List[Mapping[str, Any]] = []
    for selector in event_selectors(job, pods):
        try:  # a namespace may have a hundred thousand Events of other reasons and jobs
            batch = list(islice(client.items(namespaced(job.namespace, "events"), fieldSelector=selector), EVENTS_READ))
        except (ApiError, Unreachable) as error:
            return lost, [f"its Events: {error}"]
        if len(batch) == EVENTS_READ:
            missing.append(f"its Events: more than {EVENTS_READ} in its namespace with {selector}")
        events += batch
    return sorted([*lost, *event_losses(job, pods, events)], key=lambda loss: loss.at), missing


def _logs(client: Client, namespace: str, pods: Sequence[Mapping[str, Any]]) -> Tuple[List[JobLogText], List[str]]:
    texts: List[JobLogText] = []
    missing: Dict[str, None] = {}
    ordered = sorted(pods, key=lambda pod: (get(pod, "status", "phase") != "Failed", str(get(pod, "metadata", "name"))))
    read = 0
    for pod in ordered[:PODS_READ]:
        name, node = str(get(pod, "metadata", "name") or ""), str(get(pod, "spec", "nodeName") or "")
        for container in [str(entry.get("name")) for entry in get(pod, "spec", "containers") or ()]:
            path = f"{namespaced(namespace, 'pods', name)}/log"
            try:
                text = client.text(path, retry=False, container=container, limitBytes=LOG_BYTES, tailLines=LOG_LINES)
            except (ApiError, Unreachable) as error:
                missing[f"the log of {name}: {error}"] = None
                if isinstance(error, Unreachable) or error.status in REFUSED:
                    return texts, [*list(missing)[:20], *_unread(len(ordered) - read - 1)]
                continue
            texts.append(JobLogText(f"{name}/{container}", "", text, _rank(pod), node))
        read += 1
    return texts, [*list(missing)[:20], *_unread(len(ordered) - read)]


def _unread(count: int) -> List[str]:
    return [f"the logs of {count} more pods were not read"] if count else []


def _gpus(pods: Sequence[Mapping[str, Any]]) -> int:
    """The GPUs of all pods that make the job; one that was recreated counts once."""
    members: Dict[Tuple[str, ...], int] = {}
    for pod in pods:
        labels, name = get(pod, "metadata", "labels") or {}, str(get(pod, "metadata", "name") or "")
        member = (
            tuple(str(labels.get(label, "")) for label in MEMBER) if any(item in labels for item in RANKS) else (name,)
        )
        members[member] = sum(
            _count(get(item, "resources", "limits") or {}) for item in get(pod, "spec", "containers") or ()
        )
    return sum(members.values())


def _count(limits: Mapping[str, Any]) -> int:
    return sum(whole_of_digits(count) or 0 for name, count in limits.items() if ACCELERATORS.fullmatch(name))


def _rank(pod: Mapping[str, Any]) -> int:
    """The rank of a pod with one process, -1 where nothing says it."""
    for container in get(pod, "spec", "containers") or ():
        for row in container.get("env") or ():
            rank = whole_of_digits(row.get("value")) if row.get("name") == "RANK" else None
            if rank is not None:
                return rank
    labels = get(pod, "metadata", "labels") or {}
    index = whole_of_digits(next((labels[name] for name in RANKS if name in labels), ""))
    return -1 if index is None else index
