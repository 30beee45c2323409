"""The Job that runs a suite of deep checks, or proves a GPU, on a node: what it is made of, what is read from it. Pure.

The pod is the gate's (adapters/kubernetes/overlays/gate): privileged, with the node's processes and network, and with
the node's own /var/lib/nhc, where `nhc deep run` keeps its reports. The pod sees all GPUs of the node, and proves one
by its UUID: its rule keeps work away from it. With a claim it would wait for the scheduler and for the DRA driver.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Union

from nhc.marks.ports.suites import PROOF, DeviceProof, SuiteOrder
from nhc_adapters.kubernetes.repair.jobs import read_job
from nhc_adapters.kubernetes.repair.pinned_job import JobPlace, PinnedJob, pinned_job
from nhc_adapters.node.suite import InstalledNhc, suite_words

COMPONENT = CONTAINER = "suite"
ORDER = "nhc/suite-order"
"""Annotation: which run a Job is. The name has a part of its hash only."""
STARTING = 300
"""Seconds for what comes before the program: the image is pulled (a vendor's image with CUDA has gigabytes)."""
ENDING = 60
"""Seconds that the program has to end its tools, as for a gate."""


SuiteJobOrder = Union[SuiteOrder, DeviceProof]


class SuiteProgram(NamedTuple):
    """What runs the suite: the command in the image, and the pod's RuntimeClass where it needs one."""

    nhc: str = "nhc"
    runtime_class: str = ""


def name_of(order: SuiteJobOrder) -> str:
    """What is run."""
    return order.suite if isinstance(order, SuiteOrder) else PROOF


def order_key(order: SuiteJobOrder) -> str:
    """The same for the same run: who asks again, after a restart too, finds the Job that is there."""
    which = f"{order.since:.3f}" if isinstance(order, SuiteOrder) else f"{order.device}\n{order.seed}"
    text = f"{order.machine.node}\n{name_of(order)}\n{which}"
    return hashlib.sha256(text.encode()).hexdigest()


def job_name(order: SuiteJobOrder, number: int) -> str:
    """The Job of a run; `number` counts those that could not tell."""
    return f"nhc-suite-{order_key(order)[:24]}-{number}"


def command(order: SuiteJobOrder, nhc: str) -> List[str]:
    """What the container runs. Raises AdapterError."""
    if isinstance(order, SuiteOrder):
        return [nhc, *suite_words(order, "--adapter", "kubernetes")]
    return ["/bin/sh", "-c", InstalledNhc(nhc).proof(order)]


def manifest(order: SuiteJobOrder, place: JobPlace, program: SuiteProgram, number: int) -> Dict[str, Any]:
    """The Job of a run. Raises AdapterError."""
    node = order.machine.node
    notes = {ORDER: order_key(order), "nhc/node": node, "nhc/suite": name_of(order)}
    env: List[Dict[str, Any]] = [
        # Else the node would count as busy because of this very pod.
        {"name": "NHC_KUBE_OWN_POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        {"name": "TMPDIR", "value": "/var/lib/nhc"},
    ]
    container = {
        "name": CONTAINER, "env": env,
        "command": command(order, program.nhc),
        "volumeMounts": [
            {"name": "state", "mountPath": "/var/lib/nhc"}, {"name": "run", "mountPath": "/run/nhc"},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 (collectives within the node)
        ],
    }  # fmt: skip
    pod: Dict[str, Any] = {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if program.runtime_class:
        pod["runtimeClassName"] = program.runtime_class
    volumes = [
        {"name": "state", "hostPath": {"path": "/var/lib/nhc", "type": "DirectoryOrCreate"}},
        {"name": "run", "hostPath": {"path": "/run/nhc", "type": "DirectoryOrCreate"}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]
    seconds = round(order.seconds) + STARTING + ENDING
    job = PinnedJob(job_name(order, number), node, COMPONENT, notes, seconds, ENDING)
    return pinned_job(job, place, container, pod, volumes)


class SuiteEnd(NamedTuple):
    """How a Job ended: the pod, and its program's exit status, None where neither is there any more."""

    pod: str
    status: Optional[int]
    why: str


def read_end(job: Mapping[str, object], pods: Sequence[Mapping[str, Any]]) -> SuiteEnd:
    """How an ended Job ended; of several pods (Kubernetes does not promise one a Job) the first that gave a verdict."""
    why = read_job(job, pods).why
    end = SuiteEnd("", None, why)
    for pod in sorted(pods, key=lambda pod: str(pod.get("metadata", {}).get("creationTimestamp", ""))):
        for container in (pod.get("status") or {}).get("containerStatuses") or ():
            status = ((container.get("state") or {}).get("terminated") or {}).get("exitCode")
            if isinstance(status, int) and (end.status is None or end.status not in (0, 1)):
                end = SuiteEnd(str(pod["metadata"]["name"]), status, why)
    return end


def report_in(log: str) -> str:
    """The last whole report in a pod's log, "" where there is none: what the program said besides stands around it."""
    report, at, decoder = "", 0, json.JSONDecoder()
    while at < len(log):
        if log[at] == "{":
            try:
                value, end = decoder.raw_decode(log, at)
            except (ValueError, RecursionError):
                value, end = None, at
            if isinstance(value, dict) and "host" in value:
                report = log[at:end]
            at = max(end, at)
        line = log.find("\n", at)
        at = len(log) if line < 0 else line + 1
    return report
