"""The MPI operator and JobSet for tests: their kinds as published, and what their controllers make of them.

What is created follows kubeflow/mpi-operator (v2beta1) and kubernetes-sigs/jobset (v1alpha2): an MPIJob becomes
workers, which run sshd where they name no command, and a launcher that starts once they run; its status gets Succeeded
or Failed. A JobSet becomes Jobs by the names SET-JOB-INDEX and a headless Service of its own name; its status gets
Completed or Failed.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Dict, List

from nhc_adapters.kubernetes.api.client import MERGE_PATCH, Client
from nhc_adapters.kubernetes.api.errors import ApiError

DEFINITIONS = ("mpijobs.kubeflow.org", "jobsets.jobset.x-k8s.io")


class Operators:
    """Both controllers, for one namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client, self.base = client, f"namespaces/{namespace}"
        self.problems: List[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            for path, tend in (
                (f"/apis/kubeflow.org/v2beta1/{self.base}/mpijobs", self._mpijob),
                (f"/apis/jobset.x-k8s.io/v1alpha2/{self.base}/jobsets", self._jobset),
            ):
                try:
                    for one in list(self.client.items(path)):
                        if not one["metadata"].get("deletionTimestamp"):
                            tend(path, one)
                except ApiError as error:
                    if error.status not in (404, 409):
                        self.problems.append(str(error))

    def _create(self, resource: str, body: Dict[str, Any], group: str = "api/v1") -> None:
        try:
            self.client.post(f"/{group}/{self.base}/{resource}", body)
        except ApiError as error:
            if error.status != 409:
                raise

    def _status(self, path: str, one: Dict[str, Any], kind: str) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        conditions = [{"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": now}]
        self.client.patch(
            f"{path}/{one['metadata']['name']}/status", {"status": {"conditions": conditions}}, MERGE_PATCH
        )

    def _mpijob(self, path: str, one: Dict[str, Any]) -> None:
        name, specs = one["metadata"]["name"], one["spec"]["mpiReplicaSpecs"]
        if any(c["type"] in ("Succeeded", "Failed") for c in one.get("status", {}).get("conditions", ())):
            return
        pods = {pod["metadata"]["name"]: pod for pod in self.client.items(f"/api/v1/{self.base}/pods")}
        for number in range(specs["Worker"]["replicas"]):
            if f"{name}-worker-{number}" not in pods:
                template = specs["Worker"]["template"]
                template["spec"]["containers"][0].setdefault("command", ["sleep-worker"])  # instead of sshd
                self._create("pods", _pod(one, f"{name}-worker-{number}", template))
        workers = [pod for key, pod in pods.items() if key.startswith(f"{name}-worker-")]
        ready = sum(pod["status"].get("phase") == "Running" for pod in workers) == specs["Worker"]["replicas"]
        launcher = pods.get(f"{name}-launcher")
        if launcher is None:
            if ready:
                self._create("pods", _pod(one, f"{name}-launcher", specs["Launcher"]["template"]))
            return
        phase = launcher["status"].get("phase")
        if phase in ("Succeeded", "Failed"):
            self._status(path, one, phase)
            for pod in workers:  # cleanPodPolicy Running
                self.client.delete(f"/api/v1/{self.base}/pods/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})

    def _jobset(self, path: str, one: Dict[str, Any]) -> None:
        name = one["metadata"]["name"]
        if any(c["type"] in ("Completed", "Failed") for c in one.get("status", {}).get("conditions", ())):
            return
        ended = []
        for job in one["spec"]["replicatedJobs"]:
            template = job["template"]
            spec = template["spec"]
            spec["template"]["spec"]["subdomain"] = name
            self._create("services", {"metadata": _metadata(one, name), "spec": {"clusterIP": "None"}})
            self._create("jobs", {
                "metadata": {**_metadata(one, f"{name}-{job['name']}-0"), "labels": template["metadata"]["labels"]},
                "spec": spec,
            }, "apis/batch/v1")  # fmt: skip
            made = self.client.get(f"/apis/batch/v1/{self.base}/jobs/{name}-{job['name']}-0")
            ended += [c["type"] for c in made.get("status", {}).get("conditions") or () if c["status"] == "True"]
        if "Complete" in ended:
            self._status(path, one, "Completed")
        elif "Failed" in ended:
            self._status(path, one, "Failed")


def _metadata(one: Dict[str, Any], name: str) -> Dict[str, Any]:
    metadata = one["metadata"]
    return {"name": name, "ownerReferences": [{"apiVersion": one["apiVersion"], "kind": one["kind"], "controller": True,
                                               "name": metadata["name"], "uid": metadata["uid"]}]}  # fmt: skip


def _pod(one: Dict[str, Any], name: str, template: Dict[str, Any]) -> Dict[str, Any]:
    return {"metadata": {**_metadata(one, name), "labels": template["metadata"]["labels"]}, "spec": template["spec"]}
