"""A privileged Job that works on one node alone: what a repair's and a suite's have in common. Pure.

Its one pod is put on the node past the scheduler, tolerates all taints, runs once and never again; nobody evicts it.
"""

from __future__ import annotations

import hashlib
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence

from nhc.core.settings import declared

NAME = "app.kubernetes.io/name"
COMPONENT = "app.kubernetes.io/component"
NODE_LABEL = "nhc/repair-node"

STAYS = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
"""Annotations of the pod: no drain (ours neither) and no autoscaler ends it half way."""


@declared.settings
class JobPlace(NamedTuple):
    """What a site says of all such Jobs. `keep` is how many seconds an ended one stays to be seen."""

    namespace: str = declared.text("namespace", "nhc-system")
    image: str = declared.text("image", "", "which has nhc and what the work needs")
    pull_policy: str = declared.word("pull-policy", ("IfNotPresent", "Always", "Never"))
    pull_secret: str = declared.text("pull-secret")
    account: str = declared.text("service-account")
    priority: str = declared.text("priority-class", "system-node-critical")
    keep: float = declared.seconds("keep", 86400.0, "how long an ended Job stays to be seen", least=1.0)


class PinnedJob(NamedTuple):
    """One Job. `component` says what it is for; `notes` are annotations of it and of its pod.

    `seconds` is how long it may run; `ending` how long its program has to end its work after the signal.
    """

    name: str
    node: str
    component: str
    notes: Mapping[str, str]
    seconds: int
    ending: int


def label_of(node: str) -> str:
    """A node's name as a label's value: names may be four times as long as values."""
    return node if len(node) <= 63 else hashlib.sha256(node.encode()).hexdigest()[:40]


def labels_of(component: str, node: str) -> Dict[str, str]:
    """What the Jobs of one component on one node are found by."""
    return {NAME: "nhc", COMPONENT: component, NODE_LABEL: label_of(node)}


def pinned_job(
    job: PinnedJob, place: JobPlace, container: Mapping[str, object], pod: Mapping[str, object],
    volumes: Sequence[Mapping[str, Any]],
) -> Dict[str, Any]:  # fmt: skip
    """The manifest. `container` and `pod` are what this Job's have beside the common."""
    labels = labels_of(job.component, job.node)
    containers: List[Dict[str, Any]] = [{
        "image": place.image, "imagePullPolicy": place.pull_policy,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {"privileged": True, "runAsUser": 0, "runAsNonRoot": False, "readOnlyRootFilesystem": True},
        **container,
    }]  # fmt: skip
    spec: Dict[str, Any] = {
        "nodeName": job.node,  # past the scheduler: the node is cordoned, and this pod is for no other
        "restartPolicy": "Never", "hostPID": True, "enableServiceLinks": False,
        "terminationGracePeriodSeconds": job.ending, "tolerations": [{"operator": "Exists"}],
        "containers": containers, "volumes": list(volumes), **pod,
    }  # fmt: skip
    if place.priority:
        spec["priorityClassName"] = place.priority
    if place.account:
        spec["serviceAccountName"] = place.account
    if place.pull_secret:
        spec["imagePullSecrets"] = [{"name": place.pull_secret}]
    return {
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": job.name, "namespace": place.namespace, "labels": labels, "annotations": dict(job.notes),
        },
        "spec": {
            "completions": 1, "parallelism": 1, "backoffLimit": 0, "podReplacementPolicy": "Failed",
            "activeDeadlineSeconds": job.seconds, "ttlSecondsAfterFinished": round(place.keep),
            "template": {"metadata": {"labels": labels, "annotations": {**job.notes, **STAYS}}, "spec": spec},
        },
    }  # fmt: skip
