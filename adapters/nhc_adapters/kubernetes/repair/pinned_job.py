"""A privileged Job that works on one node alone: what a repair's and a suite's have in common. Pure.

Its one pod is put on the node past the scheduler, tolerates all taints, runs once and never again; nobody evicts it.
"""

from __future__ import annotations

import hashlib
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence

from nhc_adapters.repair.settings import AdapterSettings

NAME = "app.kubernetes.io/name"
COMPONENT = "app.kubernetes.io/component"
NODE_LABEL = "nhc/repair-node"

STAYS = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
"""Annotations of the pod: no drain (ours neither) and no autoscaler ends it half way."""

PLACE = ("namespace", "image", "pull-policy", "pull-secret", "service-account", "priority-class", "keep")
"""The settings that `read_place` reads."""


class JobPlace(NamedTuple):
    """What a site says of all such Jobs. `keep` is how many seconds an ended one stays to be seen."""

    namespace: str
    image: str
    pull_policy: str = "IfNotPresent"
    pull_secret: str = ""
    account: str = ""
    priority: str = "system-node-critical"
    keep: int = 86400


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


def read_place(table: AdapterSettings, account: str = "") -> JobPlace:
    """The settings in PLACE; `account` where no service account is named. Raises SettingError."""
    return JobPlace(
        table.text("namespace", "nhc-system"), table.text("image"),
        table.choice("pull-policy", ("IfNotPresent", "Always", "Never")), table.text("pull-secret"),
        table.text("service-account", account), table.text("priority-class", "system-node-critical"),
        whole_seconds(table, "keep", 86400),
    )  # fmt: skip


def whole_seconds(table: AdapterSettings, key: str, default: int) -> int:
    """A number of seconds above 0, as Kubernetes takes them. Raises SettingError."""
    value = int(table.digits(key, str(default), "a number of seconds"))
    if not value:
        raise table.wrong(key, "a number of seconds")
    return value


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
            "activeDeadlineSeconds": job.seconds, "ttlSecondsAfterFinished": place.keep,
            "template": {"metadata": {"labels": labels, "annotations": {**job.notes, **STAYS}}, "spec": spec},
        },
    }  # fmt: skip
