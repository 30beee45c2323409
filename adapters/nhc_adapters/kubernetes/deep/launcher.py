"""Tests of groups of nodes as Kubernetes workloads: an MPIJob or a JobSet where there is its operator, else a Job.

A test's name comes from its sweep and its key, so that it is made once however often it is asked for. Its output and
its completion marker are the log of its first pod; a pod that was preempted leaves neither. Everything belongs to one
ConfigMap a sweep, is gone with it, and is cleaned by its own time to live where nobody deletes that.
"""

from __future__ import annotations

from typing import Any, Dict, FrozenSet, List, Mapping, Optional, Sequence

from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.group_launch import GroupJob, GroupOrder, GroupOutput
from nhc_adapters.kubernetes.api.access import find
from nhc_adapters.kubernetes.api.client import Client, namespaced
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.api.objects import true_conditions
from nhc_adapters.kubernetes.deep import settings as deep_settings
from nhc_adapters.kubernetes.deep.manifests import (
    COMPLETION_INDEX,
    CONTAINER,
    END,
    FIRST,
    JOB,
    JOBSET,
    KINDS,
    MPIJOB,
    ROLE,
    SWEEP,
    TEST,
    WorkloadKind,
    manifests,
    name_of,
    owner,
    owner_name,
)
from nhc_adapters.kubernetes.nodes.adapter import Kubernetes
from nhc_adapters.kubernetes.nodes.pods import has_ended, resources_of, unfinished_pods, workload
from nhc_adapters.kubernetes.nodes.scheduling import takes_pods
from nhc_adapters.kubernetes.nodes.view import hold

BUSY_BY_NODE = 20
"""Up to so many nodes, pods are asked for node by node; above it, all at once: a sweep asks for most of a cluster."""
OUTPUT_LIMIT = 32 << 20
"""Bytes of a pod's log that are asked for. kubelet keeps 10 MiB by default (containerLogMaxSize)."""
BACKGROUND = {"propagationPolicy": "Background"}
Pod = Mapping[str, Any]


class KubernetesLauncher:
    """Creates and deletes workloads; looks at them and at their pods."""

    def __init__(self, settings: Mapping[str, str], client: Optional[Client] = None) -> None:
        self.settings = deep_settings.read(settings)
        self.client = client or Client(find(self.settings.kubeconfig, self.settings.context), agent="nhc-deep")
        self._cluster = Kubernetes(self.client)
        self._kind: Optional[WorkloadKind] = None
        self._owners: Dict[str, Dict[str, Any]] = {}
        self._ended: Dict[str, Pod] = {}
        """The first pods that have ended, by test: what `jobs` saw last."""

    # What there is.

    def idle(self, nodes: Sequence[str]) -> FrozenSet[str]:
        """Ready nodes that take pods, of whose devices nobody has or waits for one."""
        wanted = set(nodes)
        objects = self._cluster.objects(list(nodes) if len(nodes) <= BUSY_BY_NODE else None)
        free = [node for node in objects if takes_pods(node, self.settings.tolerations) and not hold(node)]
        candidates = wanted.intersection(str(node["metadata"]["name"]) for node in free)
        return frozenset(candidates - self._taken(sorted(candidates)))

    def _taken(self, nodes: Sequence[str]) -> FrozenSet[str]:
        each = nodes if len(nodes) <= BUSY_BY_NODE else ("",)
        pods = [pod for name in each for pod in unfinished_pods(self.client, name)]
        busy = [pod for pod in workload(pods) if self._works(pod)]
        return frozenset(str(pod.get("spec", {}).get("nodeName")
                             or pod.get("status", {}).get("nominatedNodeName") or "") for pod in busy)  # fmt: skip

    def _works(self, pod: Pod) -> bool:
        """Whether a pod has devices of the kinds that a test asks for; where it asks for none, any pod counts."""
        devices = set(self.settings.devices)
        return not devices or bool(devices & resources_of(pod) or pod.get("spec", {}).get("resourceClaims"))

    def jobs(self, sweep: str) -> Dict[str, GroupJob]:
        """The workloads of a sweep that have not ended."""
        jobs: Dict[str, GroupJob] = {}
        by_test: Dict[str, List[Pod]] = {}
        for pod in self.client.items(self._path("pods"), labelSelector=f"{SWEEP}={sweep}"):
            by_test.setdefault(str(pod["metadata"]["labels"].get(TEST, "")), []).append(pod)
        ended = [pod for pods in by_test.values() for pod in pods if has_ended(pod)]
        self._ended = {str(pod["metadata"]["labels"].get(TEST, "")): pod for pod in ended if _is_first(pod)}
        kind = self._chosen()
        for item in self.client.items(self._path(kind.resource, kind.group), labelSelector=f"{SWEEP}={sweep}"):
            metadata = item["metadata"]
            if metadata.get("deletionTimestamp") or _over(item):
                continue
            key = str(metadata["labels"].get(TEST, ""))
            running = _expected(kind, item) <= sum(_phase(pod) == "Running" for pod in by_test.get(key, ()))
            jobs[key] = GroupJob(f"{kind.word}/{metadata['name']}", running or key in self._ended)
        return jobs

    def finished(self, sweep: str, key: str) -> Optional[GroupOutput]:
        """The log of the test's first pod, where it ends with the marker."""
        pod = self._ended.get(key)
        if pod is None:
            return None
        path = f"{self._path('pods')}/{pod['metadata']['name']}/log"
        try:
            text = self.client.text(path, container=CONTAINER, limitBytes=str(OUTPUT_LIMIT))
        except ApiError as error:
            if error.status in (401, 403):
                raise
            return None  # the node went away, and the log with it: that is no result
        body, _, last = text.rstrip("\n").rpartition("\n")
        fields = last.split()
        if len(fields) != 3 or fields[:2] != [END, sweep] or not fields[2].isdigit():
            return None
        return GroupOutput(int(fields[2]), body)

    # What is done.

    def launch(self, sweep: str, order: GroupOrder) -> str:
        """Create a test's objects; those that are there already are the test."""
        kind = self._chosen()
        for manifest in manifests(kind, self.settings, sweep, order, self._owner(sweep)):
            self._create(self._path(manifest.resource, manifest.group), manifest.body)
        return f"{kind.word}/{name_of(sweep, order.key)}"

    def failure(self, sweep: str, key: str) -> str:
        """Nothing: what the cluster says of a pod that has gone would decide nothing."""
        return ""

    def end(self, handle: str) -> None:
        """Delete a workload, its pods after it; one that is gone is none of our errors."""
        kind_name, _, name = handle.partition("/")
        kind = KINDS.get(kind_name)
        if kind is None or not name:
            raise AdapterError(f"{handle!r} is no test of this launcher")
        self._delete(f"{self._path(kind.resource, kind.group)}/{name}")

    def finish(self, sweep: str) -> None:
        """Delete all that belongs to a sweep."""
        self._owners.pop(sweep, None)
        self._delete(f"{self._path('configmaps')}/{owner_name(sweep)}")

    def _owner(self, sweep: str) -> Dict[str, Any]:
        if sweep not in self._owners:
            path = self._path("configmaps")
            self._create(path, owner(sweep))
            self._owners[sweep] = self.client.get(f"{path}/{owner_name(sweep)}")
        return self._owners[sweep]

    def _create(self, path: str, body: Mapping[str, Any]) -> None:
        try:
            self.client.request("POST", path, body=body, query={"fieldValidation": "Strict"})
        except ApiError as error:
            if error.status != 409:
                raise

    def _delete(self, path: str) -> None:
        try:
            self.client.delete(path, BACKGROUND)
        except ApiError as error:
            if error.status != 404:
                raise

    def _chosen(self) -> WorkloadKind:
        """The kind that the settings name, else the first of which the cluster has the operator."""
        if self._kind is None:
            named = KINDS.get(self.settings.kind)
            self._kind = named or next(kind for kind in (MPIJOB, JOBSET, JOB) if self._serves(kind))
        return self._kind

    def _serves(self, kind: WorkloadKind) -> bool:
        if kind is JOB:
            return True
        served = self.client.find(f"/{kind.group}") or {}
        return any(entry.get("name") == kind.resource for entry in served.get("resources") or ())

    def _path(self, resource: str, group: str = "api/v1") -> str:
        return namespaced(self.settings.namespace, resource, group=group)


def _phase(pod: Pod) -> str:
    return str(pod.get("status", {}).get("phase", ""))


def _is_first(pod: Pod) -> bool:
    """Whether a pod's output is its test's: MPI's launcher, or index 0."""
    metadata = pod["metadata"]
    role = metadata["labels"].get(ROLE)
    return bool(role == FIRST if role else (metadata.get("annotations") or {}).get(COMPLETION_INDEX) == "0")


def _expected(kind: WorkloadKind, item: Mapping[str, Any]) -> int:
    """How many pods run where a test runs."""
    spec = item["spec"]
    if kind is MPIJOB:
        return 1 + int(spec["mpiReplicaSpecs"]["Worker"]["replicas"])
    if kind is JOBSET:
        return int(spec["replicatedJobs"][0]["template"]["spec"]["completions"])
    return int(spec["completions"])


ENDS = frozenset(["Complete", "Failed", "Succeeded", "Completed", "FailureTarget", "SuccessCriteriaMet"])
"""Conditions of Jobs, MPIJobs (Succeeded, Failed) and JobSets (Completed, Failed) that say that it is over."""


def _over(item: Mapping[str, Any]) -> bool:
    return not ENDS.isdisjoint(true_conditions(item))
