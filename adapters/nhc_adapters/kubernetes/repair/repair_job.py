"""The Job that repairs a node from a pod on it: what it is made of, and what is read from it.

The program is the one that runs over SSH (`nhc_adapters.node.hand`); it writes the order down on the node's own disk
before it begins, so that a second start of the same Job (Kubernetes does not promise one pod a Job) does nothing.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from nhc.core.json_values import parse_object
from nhc.core.model import printable
from nhc.marks.ports.repair import Order
from nhc_adapters.kubernetes.api.objects import true_conditions
from nhc_adapters.kubernetes.repair.cluster import RepairCluster
from nhc_adapters.kubernetes.repair.pinned_job import JobPlace, PinnedJob, pinned_job

COMPONENT = CONTAINER = "repair"
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
    job = PinnedJob(name, order.machine.node, COMPONENT, notes, hand.deadline, ENDING)
    return hand_job(job, place, hand, args)


def hand_job(job: PinnedJob, place: JobPlace, hand: HandSettings, args: Sequence[str]) -> Dict[str, Any]:
    """A Job in which the program on the node does what it is asked."""
    options = ["--root", HOST, "--enter", hand.enter, "--result", RESULT, "--wait"]
    options += ["--path", hand.path] if hand.path else []
    container = {
        "name": CONTAINER, "command": ["python3", "-I", "-m", "nhc_adapters.node.hand"],
        "args": [*options, *(arg.replace("$", "\\u0024") if arg.startswith("{") else arg for arg in args)],
        "terminationMessagePath": RESULT,
        "resources": {"requests": {"cpu": "10m", "memory": "48Mi"}, "limits": {"memory": "512Mi"}},
        "volumeMounts": [{"name": "host", "mountPath": HOST, "mountPropagation": "HostToContainer"}],
    }  # fmt: skip
    volumes = [{"name": "host", "hostPath": {"path": "/", "type": "Directory"}}]
    return pinned_job(job, place, container, {"automountServiceAccountToken": False}, volumes)


# What is read from a Job and its pods.


class JobSeen(NamedTuple):
    """A Job as it is now. `answer` is the program's, None where it gave none.

    `started` says whether a container may have run, `why` what holds it up, or how it ended.
    """

    ended: bool
    complete: bool
    started: bool
    answer: Optional[Mapping[str, object]]
    why: str

    def text(self, name: str) -> str:
        return printable(str((self.answer or {}).get(name, "")), 900)


def read_job(job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> JobSeen:
    """What a Job and its pods say. A Job that ran out of time has deleted its pod: then its own count tells of it."""
    status: Mapping[str, Any] = job.get("status") or {}
    conditions = true_conditions(job)
    complete, over = "Complete" in conditions, conditions.get("Failed")
    started, answer = bool(status.get("failed") or status.get("succeeded")), None
    reasons: List[str] = []
    for pod in sorted(pods, key=lambda pod: str(pod.get("metadata", {}).get("creationTimestamp", ""))):
        for container in (pod.get("status") or {}).get("containerStatuses") or ():
            state: Mapping[str, Any] = container.get("state") or {}
            ended: Mapping[str, Any] = state.get("terminated") or {}
            started = started or bool(ended) or "running" in state
            answer = _answer(str(ended.get("message") or "")) or answer
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
    return JobSeen(not is_active(job), complete, started, answer, printable("; ".join(reasons), 400))


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
        """The Job of an order and its pods, None where it is not there. Raises CallFailed."""
        name = job_name(order.key, restore)
        job = self.cluster.job(self.place.namespace, name)
        return None if job is None else read_job(job, self.cluster.pods_of(self.place.namespace, name))
