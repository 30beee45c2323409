"""Privileged Jobs on one node: their specification, their results, and how each is created only once.

The Job's one pod bypasses the scheduler, tolerates all taints, runs only once, and is not evicted. The pod of a repair
runs the program that also runs over SSH (`nhc_adapters.node.hand`); it writes the order down on the node's own disk
before it begins, so that a second start of the same Job (Kubernetes does not promise one pod a Job) does nothing.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from nhc.core.json_values import parse_object
from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.marks.ports.repair import Order
from nhc_adapters.kubernetes.api.objects import true_conditions
from nhc_adapters.kubernetes.repair.cluster import RepairCluster

NAME = "app.kubernetes.io/name"
COMPONENT = "app.kubernetes.io/component"
NODE_LABEL = "nhc/repair-node"

STAYS = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
"""Annotations of the pod: no drain (ours neither) and no autoscaler ends it half way."""


@declared.settings
class JobPlace(NamedTuple):
    """A site's settings for all these Jobs. `keep` is how many seconds an ended one stays visible."""

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


# Jobs that repair.


REPAIR = "repair"
"""The component of repairs, and the name of their container."""
ORDER = "nhc/order"
"""Annotation: the key of the order that a Job carries out."""

ENTER = "nsenter --target 1 --mount --uts --ipc --net --pid --"
"""How a command of the node's is run from the pod: in the namespaces of the node's first process."""

RESULT = "/dev/termination-log"
HOST = "/host"
ENDING = 150
"""Seconds that the program has to put back what it took away, after the signal to end."""


class HandSettings(NamedTuple):
    """How the program on the node works. `deadline` is how many seconds a Job of it may run."""

    enter: str = ENTER
    path: str = ""
    deadline: int = 1200


def job_name(key: str, restore: bool = False) -> str:
    """The Job of an order; one that puts back what a killed repair has left has a name of its own."""
    return f"nhc-{'restore' if restore else 'repair'}-{key.lower()}"


def manifest(
    order: Order, place: JobPlace, hand: HandSettings, args: Sequence[str], restore: bool = False
) -> Dict[str, Any]:
    """The Job of an order; `args` are what the program is asked."""
    notes = {
        ORDER: order.key, "nhc/node": order.machine.node, "nhc/episode": order.episode, "nhc/rung": order.rung.value,
        "nhc/because": printable(order.because, 300),
    }  # fmt: skip
    name = job_name(order.key, restore)
    job = PinnedJob(name, order.machine.node, REPAIR, notes, hand.deadline, ENDING)
    return hand_job(job, place, hand, args)


def hand_job(job: PinnedJob, place: JobPlace, hand: HandSettings, args: Sequence[str]) -> Dict[str, Any]:
    """A Job in which the program on the node does what it is asked."""
    options = ["--root", HOST, "--enter", hand.enter, "--result", RESULT, "--wait"]
    options += ["--path", hand.path] if hand.path else []
    container = {
        "name": REPAIR, "command": ["python3", "-I", "-m", "nhc_adapters.node.hand"],
        "args": [*options, *(arg.replace("$", "\\u0024") if arg.startswith("{") else arg for arg in args)],
        "terminationMessagePath": RESULT,
        "resources": {"requests": {"cpu": "10m", "memory": "48Mi"}, "limits": {"memory": "512Mi"}},
        "volumeMounts": [{"name": "host", "mountPath": HOST, "mountPropagation": "HostToContainer"}],
    }  # fmt: skip
    volumes = [{"name": "host", "hostPath": {"path": "/", "type": "Directory"}}]
    return pinned_job(job, place, container, {"automountServiceAccountToken": False}, volumes)


# What is read from a Job and its pods.


class JobSeen(NamedTuple):
    """A Job as it is now. `answer` is the program's, None if it gave none.

    `started` says whether a container may have run, `why` what delays it, or how it ended. `pod` and `status` are the
    pod that ended and its program's exit status, of several (Kubernetes does not promise one a Job) the first that
    ended with 0 or 1; "" and None if none is there.
    """

    ended: bool
    complete: bool
    started: bool
    answer: Optional[Mapping[str, object]]
    why: str
    pod: str = ""
    status: Optional[int] = None

    def text(self, name: str) -> str:
        return printable(str((self.answer or {}).get(name, "")), 900)


def read_job(job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> JobSeen:
    """What a Job and its pods say. A Job that ran out of time has deleted its pod: then its own count tells of it."""
    status: Mapping[str, Any] = job.get("status") or {}
    conditions = true_conditions(job)
    complete, over = "Complete" in conditions, conditions.get("Failed")
    started, answer = bool(status.get("failed") or status.get("succeeded")), None
    ran, code = "", None
    reasons: List[str] = []
    for pod in sorted(pods, key=lambda pod: str(pod.get("metadata", {}).get("creationTimestamp", ""))):
        for container in (pod.get("status") or {}).get("containerStatuses") or ():
            state: Mapping[str, Any] = container.get("state") or {}
            ended: Mapping[str, Any] = state.get("terminated") or {}
            started = started or bool(ended) or "running" in state
            answer = _answer(str(ended.get("message") or "")) or answer
            if isinstance(ended.get("exitCode"), int) and code not in (0, 1):
                ran, code = str(pod.get("metadata", {}).get("name", "")), int(ended["exitCode"])
            waiting: Mapping[str, Any] = state.get("waiting") or {}
            reasons += [f"{waiting.get('reason', 'waits')}: {waiting.get('message', '')}"] if waiting else []
            reasons += [f"its pod ended with {ended.get('exitCode')}: {ended.get('message') or ended.get('reason')}"] \
                if ended and answer is None else []  # fmt: skip
        reason = (pod.get("status") or {}).get("reason")
        reasons += [f"its pod: {reason}: {(pod.get('status') or {}).get('message', '')}"] if reason else []
    if over is not None:
        reasons.append(f"{over.get('reason')}: {over.get('message')}")
    elif not pods and not complete:
        reasons.append("no pod of it is there yet")
    return JobSeen(not is_active(job), complete, started, answer, printable("; ".join(reasons), 400), ran, code)


def _answer(message: str) -> Optional[Mapping[str, object]]:
    try:
        return parse_object(message)
    except ValueError:
        return None


def is_active(job: Mapping[str, Any]) -> bool:
    """Whether a Job may still do something."""
    return not {"Complete", "Failed"} & set(true_conditions(job))


def order_text(asked: Mapping[str, object]) -> str:
    """An order as the program reads it."""
    return json.dumps(asked, sort_keys=True)


def seen_job(cluster: RepairCluster, namespace: str, name: str) -> Optional[JobSeen]:
    """A Job and its pods, None if it is not there. Raises CallFailed."""
    job = cluster.job(namespace, name)
    return None if job is None else read_job(job, cluster.pods_of(namespace, name))


class OrderJobs(NamedTuple):
    """The Jobs that carry out orders: where they are, and how their program works. Each is created once, and is found
    again by the order's key.
    """

    cluster: RepairCluster
    place: JobPlace
    hand: HandSettings

    def create(self, order: Order, args: Sequence[str], restore: bool = False) -> bool:
        """Whether it was created now; else the same order was sent before. Raises CallFailed."""
        body = manifest(order, self.place, self.hand, args, restore)
        return self.cluster.create_once(body, (ORDER, order.key))[1]

    def seen(self, order: Order, restore: bool = False) -> Optional[JobSeen]:
        """The Job of an order and its pods, None if it is not there. Raises CallFailed."""
        return seen_job(self.cluster, self.place.namespace, job_name(order.key, restore))
