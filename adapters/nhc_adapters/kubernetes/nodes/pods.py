"""The pods of nodes: which there are, what they ask for, and which of them are work."""

from __future__ import annotations

import time
from typing import Any, Dict, FrozenSet, List, Mapping, Sequence

from nhc.core.model import printable
from nhc.core.timestamps import from_utc
from nhc.marks.ports.job_control import WorkItem, WorkList
from nhc_adapters.kubernetes.api.client import Client
from nhc_adapters.kubernetes.api.objects import controller_of, get
from nhc_adapters.kubernetes.nodes.own_marks import COLLECTS

MIRROR = "kubernetes.io/config.mirror"
"""The annotation of the kubelet's own pods."""


def pods_on(client: Client, node: str, selector: str = "") -> List[Dict[str, Any]]:
    """The pods of one node. Raises AdapterError."""
    query = {"labelSelector": selector} if selector else {}
    return list(client.items("/api/v1/pods", fieldSelector=f"spec.nodeName={node}", **query))


def unfinished_pods(client: Client, node: str = "") -> List[Dict[str, Any]]:
    """The pods of one node, or of all, that have not ended. Raises AdapterError."""
    fields = "status.phase!=Succeeded,status.phase!=Failed"
    return list(client.items("/api/v1/pods", fieldSelector=f"{fields},spec.nodeName={node}" if node else fields))


def pod_name(pod: Mapping[str, Any]) -> str:
    metadata = pod.get("metadata", {})
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"


def has_ended(pod: Mapping[str, Any]) -> bool:
    return get(pod, "status", "phase") in ("Succeeded", "Failed")


def resources_of(pod: Mapping[str, Any]) -> FrozenSet[str]:
    """The resources that its containers ask for."""
    containers = (*(get(pod, "spec", "initContainers") or ()), *(get(pod, "spec", "containers") or ()))
    parts = (get(container, "resources", part) for container in containers for part in ("limits", "requests"))
    return frozenset(name for part in parts for name in part or ())


def workload(pods: Sequence[Mapping[str, Any]], dead: FrozenSet[str] = frozenset()) -> List[Mapping[str, Any]]:
    """The pods that are work: not finished, no DaemonSet's, not the kubelet's own, and none of ours that only reads.

    On `dead` nodes a pod whose time to end is over is none either: no kubelet will ever say that it has ended.
    """
    working, now = [], time.time()
    for pod in pods:
        metadata = pod.get("metadata", {})
        if has_ended(pod) or controller_of(pod).get("kind") == "DaemonSet":
            continue
        if {MIRROR, COLLECTS} & set(metadata.get("annotations") or {}):
            continue
        ends = metadata.get("deletionTimestamp")
        if ends and str(pod.get("spec", {}).get("nodeName") or "") in dead and from_utc(ends) <= now:
            continue
        working.append(pod)
    return working


JOBSET = "jobset.sigs.k8s.io/jobset-name"
"""The label of a JobSet's pods, which Jobs of it own; a TrainJob runs as the JobSet of its name."""


def list_work(pods: Sequence[Mapping[str, Any]]) -> WorkList:
    """The pods of a node that are work. The others that have not ended are counted."""
    living = [pod for pod in pods if not has_ended(pod)]
    work = workload(living)
    left = len(living) - len(work)
    note = f"Not listed: pods of DaemonSets, of the kubelet itself or of nhc ({left})" if left else ""
    return WorkList(tuple(map(_work_item, work)), note)


def _work_item(pod: Mapping[str, Any]) -> WorkItem:
    metadata, status = pod.get("metadata", {}), pod.get("status") or {}
    namespace, name = str(metadata.get("namespace") or ""), str(metadata.get("name") or "")
    owner = controller_of(pod)
    kind, of = str(owner.get("kind") or ""), str(owner.get("name") or "")
    if str(owner.get("apiVersion") or "").startswith("batch.volcano.sh/"):
        kind = "VolcanoJob"
    jobset = (metadata.get("labels") or {}).get(JOBSET)
    jobs = [f"{kind}/{namespace}/{of}"] if of else []
    jobs += [f"{owner_kind}/{namespace}/{jobset}" for owner_kind in ("JobSet", "TrainJob") if jobset]
    state = "Terminating" if metadata.get("deletionTimestamp") else str(status.get("phase") or "Unknown")
    started = from_utc(status.get("startTime")) or None
    owner_text = printable(f"{kind}/{of}", 200) if of else ""
    return WorkItem(f"{namespace}/{name}", owner_text, namespace, printable(state, 60), started, tuple(jobs))
