"""The kinds of jobs that are not in Kubernetes itself, for a test's plane: their API, and what their operators do.

The CustomResourceDefinitions are the published ones; what besides them a project's webhook refuses, a policy refuses.
`Operator` plays a kind's controller as its source describes: pods from the templates while the job is not suspended,
none while it is. It plays the kubelets as well: kwok would end the pods of a Job as soon as they run.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from typing import Any, Callable, Dict, List, Mapping, Set, Tuple

from nhc_adapters.kubernetes.api.client import MERGE_PATCH, Client, namespaced
from nhc_adapters.kubernetes.api.errors import ApiError
from tests.support.published import install as install_definitions
from tests.support.published import published
from tests.support.waiting import until

KINDS: Dict[str, Tuple[str, str, str]] = {
    "PyTorchJob": ("kubeflow.org", "v1", "pytorchjobs"),
    "MPIJob": ("kubeflow.org", "v2beta1", "mpijobs"),
    "JobSet": ("jobset.x-k8s.io", "v1alpha2", "jobsets"),
    "TrainJob": ("trainer.kubeflow.org", "v1alpha1", "trainjobs"),
    "VolcanoJob": ("batch.volcano.sh", "v1alpha1", "jobs"),
    "Command": ("bus.volcano.sh", "v1alpha1", "commands"),
    "Workload": ("kueue.x-k8s.io", "v1beta2", "workloads"),
}


def _same_but(new: str, old: str, *free: str) -> str:
    """Two tables of the API are equal in all but these fields."""
    names = "[" + ", ".join(f"'{one}'" for one in free) + "]"
    return (f"{new}.all(k, k in {names} || (k in {old} && {new}[k] == {old}[k])) && "
            f"{old}.all(k, k in {names} || k in {new})")  # fmt: skip


def _each(fields: str, rule: str) -> str:
    """A rule for every row `n` and its row `o` of before."""
    return (f"object.spec.{fields}.size() == oldObject.spec.{fields}.size() && object.spec.{fields}.all(n, "
            f"oldObject.spec.{fields}.exists(o, o.name == n.name && {rule}))")  # fmt: skip


SUSPENDED = "[object, oldObject].exists(one, has(one.spec.suspend) && one.spec.suspend)"
"""Before the change or after it."""
_POD = "template.spec.template"
RULES: Dict[str, str] = {
    # pkg/webhooks/jobset_webhook.go, ValidateUpdate (0.10 to 0.12).
    "JobSet": _each("replicatedJobs", " && ".join((
        _same_but("n", "o", "template"), _same_but("n.template", "o.template", "spec"),
        _same_but("n.template.spec", "o.template.spec", "template"),
        _same_but(f"n.{_POD}", f"o.{_POD}", "spec", "metadata"),
        f"(has(n.{_POD}.metadata) == has(o.{_POD}.metadata))",
        f"(n.{_POD} == o.{_POD} || ({SUSPENDED} && "
        + _same_but(f"n.{_POD}.spec", f"o.{_POD}.spec", "nodeSelector", "tolerations", "schedulingGates") + "))",
    ))),
    # pkg/runtime/framework/plugins/jobset/jobset.go, checkRuntimePatchesImmutability (2.2 and later).
    "TrainJob": f"{SUSPENDED} || (has(object.spec.runtimePatches) == has(oldObject.spec.runtimePatches) && "
                "(!has(object.spec.runtimePatches) || object.spec.runtimePatches == oldObject.spec.runtimePatches))",
    # pkg/webhooks/admission/jobs/validate/admit_job.go, validateJobUpdate (1.15).
    "VolcanoJob": _same_but("object.spec", "oldObject.spec", "minAvailable", "priorityClassName", "tasks") + " && "
                  + _each("tasks", _same_but("n", "o", "replicas", "minAvailable")),
}  # fmt: skip
JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
REFUSED = "the project's own webhook refuses this change"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
POD = {"spec": {"containers": [{"name": "c", "image": "none"}]}}
FORBIDDEN: Dict[str, Tuple[Dict[str, Any], Dict[str, Any]]] = {
    "JobSet": ({"replicatedJobs": [{"name": "w", "template": {"spec": {"template": POD}}}]}, {"replicatedJobs": []}),
    "TrainJob": ({"runtimeRef": {"name": "torch"}}, {"runtimePatches": [{"manager": "a/b"}]}),
    "VolcanoJob": ({"tasks": [{"name": "w", "replicas": 1, "template": POD}]}, {"maxRetry": 9}),
}
"""For each rule an object, and a change of it that is refused."""
ENFORCED: Set[str] = set()
"""The servers that have the rules."""


def api(name: str) -> Tuple[str, str]:
    """A kind's group path and plural."""
    group, version, plural = KINDS[name]
    return f"apis/{group}/{version}", plural


def install(client: Client, namespace: str) -> None:
    """Have the API server serve all of them, with their webhooks' rules in force; returns once both are so."""
    install_definitions(client, [published(f"{plural}.{group}") for group, _version, plural in KINDS.values()])
    if client.access.server not in ENFORCED:
        for name in RULES:
            _enforce(client, name)
        for name in RULES:
            _await_refusal(client, namespace, name)
        ENFORCED.add(client.access.server)


def _enforce(client: Client, name: str) -> None:
    group, version, plural = KINDS[name]
    rule = {"apiGroups": [group], "apiVersions": [version], "operations": ["UPDATE"], "resources": [plural]}
    named = {"name": f"webhook-of-{plural}.{group}"}
    spec = {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": RULES[name], "message": REFUSED}]}  # fmt: skip
    client.post(f"{ADMISSION}/validatingadmissionpolicies", {"metadata": named, "spec": spec})
    bound = {"policyName": named["name"], "validationActions": ["Deny"]}
    client.post(f"{ADMISSION}/validatingadmissionpolicybindings", {"metadata": named, "spec": bound})


def _await_refusal(client: Client, namespace: str, name: str) -> None:
    """Until a change that the rule forbids is refused: a policy is in force some moments after it was made."""
    spec, forbidden = FORBIDDEN[name]
    group, plural = api(name)
    path = namespaced(namespace, plural, group=group)
    kind = "Job" if name == "VolcanoJob" else name
    client.post(path, {"apiVersion": group[5:], "kind": kind, "metadata": {"name": "probe"}, "spec": spec})
    until(lambda: _is_refused(client, f"{path}/probe", {"spec": forbidden}), 60)
    client.delete(f"{path}/probe")


def _is_refused(client: Client, path: str, change: Dict[str, Any]) -> bool:
    try:
        client.patch(path, change, MERGE_PATCH, dryRun="All")
    except ApiError as error:
        if REFUSED not in error.message:
            raise
        return True
    return False


def owner_of(job: Dict[str, Any]) -> Dict[str, Any]:
    """An owner reference to a job, as its controller would write it."""
    meta = job["metadata"]
    return {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": meta["name"], "uid": meta["uid"],
            "controller": True}  # fmt: skip


class Operator:
    """Plays the kubelets of a namespace and, of the `kinds`, the controllers: a pod a replica, none while suspended."""

    def __init__(self, client: Any, namespace: str) -> None:
        self.client, self.namespace = client, namespace
        self.kinds = False
        self.runtime: Dict[str, Any] = POD
        """The pod template of the runtime that TrainJobs name."""
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.problems: List[str] = []

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join(60)

    def _run(self) -> None:
        while not self.stopping.wait(0.1):
            with contextlib.suppress(ApiError):  # a pod may be gone by now
                self._kubelets()
            for name, work in self._work().items() if self.kinds else ():
                try:
                    group, plural = api(name)
                    kind = "Job" if name == "VolcanoJob" else name
                    for job in list(self.client.items(namespaced(self.namespace, plural, group=group))):
                        work({"apiVersion": group[5:], "kind": kind, **job})
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
        """pkg/controllers/jobset_controller.go: a Job for each replica, suspended and resumed with the JobSet.

        A Job that is resumed keeps its affinity, as in resumeJob. What depends on another is not made here.
        """
        name, suspend = job["metadata"]["name"], bool(job["spec"].get("suspend"))
        path = namespaced(self.namespace, "jobs", group="apis/batch/v1")
        found = {one["metadata"]["name"]: one
                 for one in self.client.items(path, labelSelector=f"{JOBSET_NAME}={name}")}  # fmt: skip
        for one in found.values():
            if one["metadata"]["ownerReferences"][0]["uid"] != job["metadata"]["uid"]:  # the garbage collector's part
                self.client.delete(f"{path}/{one['metadata']['name']}", {"propagationPolicy": "Background"})
        if job["metadata"].get("deletionTimestamp"):
            return
        for row in job["spec"]["replicatedJobs"]:
            for number in range(row.get("replicas", 1) if not row.get("dependsOn") else 0):
                child = found.get(f"{name}-{row['name']}-{number}")
                if child is None:
                    self._child_job(job, row, number, suspend)
                elif bool(child["spec"].get("suspend")) != suspend:
                    mine = f"{path}/{child['metadata']['name']}"
                    if not suspend and child["status"].get("startTime"):
                        self.client.patch(f"{mine}/status", {"status": {"startTime": None}}, MERGE_PATCH)
                    self.client.patch(mine, {"spec": {"suspend": suspend}}, MERGE_PATCH)

    def _child_job(self, job: Dict[str, Any], row: Dict[str, Any], number: int, suspend: bool) -> None:
        name = job["metadata"]["name"]
        labels = {JOBSET_NAME: name, "jobset.sigs.k8s.io/replicatedjob-name": row["name"]}
        spec = copy.deepcopy(row["template"]["spec"])
        spec["suspend"] = suspend
        spec["template"].setdefault("metadata", {}).setdefault("labels", {}).update(labels)
        metadata = {"name": f"{name}-{row['name']}-{number}", "labels": labels, "ownerReferences": [owner_of(job)]}
        with contextlib.suppress(ApiError):  # one of its name may still be going
            self.client.post(namespaced(self.namespace, "jobs", group="apis/batch/v1"),
                             {"metadata": metadata, "spec": spec})  # fmt: skip

    def _trainjob(self, job: Dict[str, Any]) -> None:
        """pkg/runtime/framework/plugins/jobset: a JobSet of its name, suspended and resumed with it."""
        name, suspend = job["metadata"]["name"], bool(job["spec"].get("suspend"))
        group, plural = api("JobSet")
        path = namespaced(self.namespace, plural, group=group)
        found = next((one for one in self.client.items(path) if one["metadata"]["name"] == name), None)
        count = job["spec"]["trainer"]["numNodes"]
        if found is None:
            inner = {"parallelism": count, "completions": count, "template": self.runtime}
            self.client.post(path, {
                "apiVersion": group[5:], "kind": "JobSet",
                "metadata": {"name": name, "ownerReferences": [owner_of(job)]},
                "spec": {"suspend": suspend, "replicatedJobs": [{"name": "node", "template": {"spec": inner}}]},
            })  # fmt: skip
        elif found["metadata"]["ownerReferences"][0]["uid"] != job["metadata"]["uid"]:
            self.client.delete(f"{path}/{name}", {"propagationPolicy": "Background"})
        elif bool(found["spec"].get("suspend")) != suspend:
            self.client.patch(f"{path}/{name}", {"spec": {"suspend": suspend}}, MERGE_PATCH)

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
