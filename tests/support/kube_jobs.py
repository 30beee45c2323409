"""The kinds of jobs that are not in Kubernetes itself, for a test's plane: their API, and what their operators do.

Each CustomResourceDefinition holds the fields that nhc reads or writes, with the rules that the published ones and
their webhooks have about changing them; pod templates keep whatever is in them. `Operator` plays a kind's controller as
its source describes: pods from the templates while the job is not suspended, none while it is. It plays the kubelets as
well: kwok would end the pods of a Job as soon as they run.
"""

from __future__ import annotations

import contextlib
import copy
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Tuple

from nhc_adapters.kubernetes.api.client import MERGE_PATCH, namespaced
from nhc_adapters.kubernetes.api.errors import ApiError

ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

FROZEN = {"rule": "self == oldSelf", "message": "Value is immutable"}


def _object(**properties: Any) -> Dict[str, Any]:
    return {"type": "object", "properties": properties}


def _replicas() -> Dict[str, Any]:
    return {"type": "object", "additionalProperties": _object(
        replicas={"type": "integer"}, restartPolicy={"type": "string"}, template=ANY)}  # fmt: skip


RUN_POLICY = _object(suspend={"type": "boolean"}, backoffLimit={"type": "integer"}, cleanPodPolicy={"type": "string"})
JOBSET_SPEC = _object(
    suspend={"type": "boolean"},
    failurePolicy={**_object(maxRestarts={"type": "integer"}, rules={"type": "array", "items": ANY}),
                   "x-kubernetes-validations": [FROZEN]},
    replicatedJobs={"type": "array", "items": _object(
        name={"type": "string"}, replicas={"type": "integer"}, template=ANY)},
)  # fmt: skip
JOBSET_RULE = {
    "rule": "self.replicatedJobs == oldSelf.replicatedJobs", "message": "replicatedJobs: field is immutable",
}  # fmt: skip
"""The webhook takes some other scheduling while it is suspended, but no affinity: nhc changes nothing there at all."""

DEFINITIONS: Dict[str, Tuple[str, str, str, Dict[str, Any]]] = {
    "PyTorchJob": ("kubeflow.org", "v1", "pytorchjobs", _object(
        runPolicy=RUN_POLICY, pytorchReplicaSpecs=_replicas())),
    "MPIJob": ("kubeflow.org", "v2beta1", "mpijobs", _object(
        runPolicy=RUN_POLICY, slotsPerWorker={"type": "integer"}, mpiReplicaSpecs=_replicas())),
    "JobSet": ("jobset.x-k8s.io", "v1alpha2", "jobsets", {
        **JOBSET_SPEC, "x-kubernetes-validations": [JOBSET_RULE]}),
    "TrainJob": ("trainer.kubeflow.org", "v1alpha1", "trainjobs", {
        **_object(suspend={"type": "boolean"}, runtimeRef=ANY, trainer=ANY,
                  runtimePatches={"type": "array", "items": ANY}),
        "x-kubernetes-validations": [{
            "rule": "self.trainer == oldSelf.trainer && self.runtimeRef == oldSelf.runtimeRef",
            "message": "field is immutable"}]}),
    "VolcanoJob": ("batch.volcano.sh", "v1alpha1", "jobs", {
        **_object(tasks={"type": "array", "items": ANY}, maxRetry={"type": "integer", "default": 3},
                  minAvailable={"type": "integer"}),
        "x-kubernetes-validations": [{
            "rule": "self.tasks == oldSelf.tasks && self.maxRetry == oldSelf.maxRetry",
            "message": "job updates may not change fields other than `minAvailable`, `tasks[*].replicas`"}]}),
    "Command": ("bus.volcano.sh", "v1alpha1", "commands", {}),
    "Workload": ("kueue.x-k8s.io", "v1beta2", "workloads", _object(
        active={"type": "boolean", "default": True}, queueName={"type": "string"},
        podSets={"type": "array", "items": ANY})),
}  # fmt: skip


def definition(name: str) -> Dict[str, Any]:
    """The CustomResourceDefinition of a kind."""
    group, version, plural, spec = DEFINITIONS[name]
    kind = "Job" if name == "VolcanoJob" else name
    schema: Dict[str, Any] = {"type": "object", "properties": {"spec": spec, "status": ANY}}
    if name == "Command":
        schema = _object(action={"type": "string"}, target=ANY, reason={"type": "string"}, message={"type": "string"})
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}",
                     "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"}},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": name.lower(), "listKind": f"{kind}List"},
            "versions": [{
                "name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema},
                **({} if name == "Command" else {"subresources": {"status": {}}}),
            }],
        },
    }  # fmt: skip


def api(name: str) -> Tuple[str, str]:
    """A kind's group path and plural."""
    group, version, plural, _spec = DEFINITIONS[name]
    return f"apis/{group}/{version}", plural


def install(client: Any) -> None:
    """Install all of them, and wait until they are served."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for name in DEFINITIONS:
        with contextlib.suppress(ApiError):
            client.post(path, definition(name))
    deadline = time.monotonic() + 30
    for name in DEFINITIONS:
        group, plural = api(name)
        while True:
            try:
                client.get(f"/{group}/{plural}")
                break
            except ApiError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


class Operator:
    """Plays the kubelets of a namespace and, of the `kinds`, the controllers: a pod a replica, none while suspended."""

    def __init__(self, client: Any, namespace: str) -> None:
        self.client, self.namespace = client, namespace
        self.kinds = False
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.problems: List[str] = []

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join(10)

    def _run(self) -> None:
        while not self.stopping.wait(0.1):
            with contextlib.suppress(ApiError):  # a pod may be gone by now
                self._kubelets()
            for name, work in self._work().items() if self.kinds else ():
                try:
                    group, plural = api(name)
                    for job in list(self.client.items(namespaced(self.namespace, plural, group=group))):
                        work(job)
                except Exception as error:
                    self.problems.append(f"{name}: {error}")

    def _kubelets(self) -> None:
        path = namespaced(self.namespace, "pods")
        for pod in list(self.client.items(path)):
            if not pod["spec"].get("nodeName"):
                continue
            mine = f"{path}/{pod['metadata']['name']}"
            if pod["metadata"].get("deletionTimestamp"):
                if pod["status"]["phase"] in ("Pending", "Running"):  # a kubelet says how it ended before it goes
                    self.client.patch(f"{mine}/status", {"status": {"phase": "Failed"}}, MERGE_PATCH)
                self.client.delete(mine, {"gracePeriodSeconds": 0})
            elif pod["status"]["phase"] == "Pending":
                ready = [{"type": "Ready", "status": "True"}]
                self.client.patch(f"{mine}/status", {"status": {"phase": "Running", "conditions": ready}}, MERGE_PATCH)

    def _work(self) -> Mapping[str, Callable[[Dict[str, Any]], None]]:
        return {
            "PyTorchJob": lambda job: self._replicated(job, "pytorchReplicaSpecs", "training.kubeflow.org/job-name"),
            "MPIJob": lambda job: self._replicated(job, "mpiReplicaSpecs", "training.kubeflow.org/job-name"),
            "JobSet": self._jobset, "TrainJob": self._trainjob, "VolcanoJob": self._volcano, "Command": self._command,
        }  # fmt: skip

    def _replicated(self, job: Dict[str, Any], specs: str, label: str) -> None:
        suspended = bool(job["spec"].get("runPolicy", {}).get("suspend"))
        wanted = [
            (f"{role.lower()}-{number}", one["template"])
            for role, one in job["spec"][specs].items() for number in range(one.get("replicas", 1))
        ]  # fmt: skip
        self._pods(job, label, wanted, suspended)

    def _jobset(self, job: Dict[str, Any]) -> None:
        wanted = [
            (f"{one['name']}-{number}", one["template"]["spec"]["template"])
            for one in job["spec"]["replicatedJobs"] for number in range(one.get("replicas", 1))
        ]  # fmt: skip
        self._pods(job, "jobset.sigs.k8s.io/jobset-name", wanted, bool(job["spec"].get("suspend")))

    def _trainjob(self, job: Dict[str, Any]) -> None:
        template = {"spec": {"containers": [{"name": "c", "image": "none"}]}}
        wanted = [(f"node-{number}", template) for number in range(job["spec"]["trainer"]["numNodes"])]
        self._pods(job, "jobset.sigs.k8s.io/jobset-name", wanted, bool(job["spec"].get("suspend")))

    def _volcano(self, job: Dict[str, Any]) -> None:
        phase = job.get("status", {}).get("state", {}).get("phase")
        wanted = [
            (f"{one['name']}-{number}", one["template"])
            for one in job["spec"]["tasks"] for number in range(one["replicas"])
        ]  # fmt: skip
        self._pods(job, "volcano.sh/job-name", wanted, phase == "Aborted")

    def _command(self, command: Dict[str, Any]) -> None:
        """`pkg/controllers/job`: the Command is deleted first, then carried out; a resumption counts as a retry."""
        group, plural = api("VolcanoJob")
        path = namespaced(self.namespace, plural, command["target"]["name"], group)
        self.client.delete(namespaced(self.namespace, "commands", command["metadata"]["name"], api("Command")[0]))
        status = copy.deepcopy(self.client.get(path).get("status", {}))
        if command["action"] == "AbortJob":
            status["state"] = {"phase": "Aborted"}
        elif command["action"] == "ResumeJob" and status.get("state", {}).get("phase") == "Aborted":
            status.update(state={"phase": "Pending"}, retryCount=status.get("retryCount", 0) + 1)
        self.client.patch(f"{path}/status", {"status": status}, MERGE_PATCH)

    def _pods(self, job: Dict[str, Any], label: str, wanted: List[Tuple[str, Dict[str, Any]]], suspended: bool) -> None:
        name = job["metadata"]["name"]
        path = namespaced(self.namespace, "pods")
        mine = {pod["metadata"]["name"]: pod for pod in self.client.items(path, labelSelector=f"{label}={name}")}
        ended = any(one["type"] in ("Failed", "Succeeded", "Completed", "Complete") and one["status"] == "True"
                    for one in job.get("status", {}).get("conditions", []))  # fmt: skip
        if suspended or job["metadata"].get("deletionTimestamp"):
            for one in mine.values():
                if not one["metadata"].get("deletionTimestamp"):
                    self.client.delete(f"{path}/{one['metadata']['name']}")
            return
        for suffix, template in wanted:
            full = f"{name}-{suffix}"
            if full in mine or ended:
                continue
            with contextlib.suppress(ApiError):
                self.client.post(path, {
                    "apiVersion": "v1", "kind": "Pod",
                    "metadata": {"name": full, "labels": {**template.get("metadata", {}).get("labels", {}),
                                                          label: name}},
                    "spec": {"terminationGracePeriodSeconds": 0, **template["spec"]},
                })  # fmt: skip
