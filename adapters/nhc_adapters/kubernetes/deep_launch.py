"""Tests of groups of nodes as Kubernetes workloads: an MPIJob or a JobSet if its operator is installed, else a Job.

A test's name is made of its sweep and its key, so that repeated requests create it once. Its output and its completion
marker are the log of its first pod; a pod that was preempted leaves neither. One ConfigMap per sweep owns everything
and takes it along when deleted; if no one deletes it, a time to live cleans up.

    image = "nvcr.io/nvidia/pytorch:26.01-py3"      # holds the tool
    resources = "nvidia.com/gpu=8,rdma/ib=8"        # all that a node has: that makes a test exclusive
    tolerations = "nvidia.com/gpu,dedicated=training:NoSchedule"
"""

from __future__ import annotations

import re
from typing import Any, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.marks.ports.part_settings import read
from nhc.marks.ports.runner import NodeRun, RunPhase, RunState, with_nhc
from nhc_adapters.kubernetes.api.access import ClusterSettings, find
from nhc_adapters.kubernetes.api.client import Client, namespaced
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.api.objects import true_conditions
from nhc_adapters.kubernetes.nodes.adapter import Kubernetes
from nhc_adapters.kubernetes.nodes.pods import has_ended, resources_of, unfinished_pods, workload
from nhc_adapters.kubernetes.nodes.scheduling import takes_pods
from nhc_adapters.kubernetes.nodes.view import hold

EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_RESOURCE = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(f"{printable(text, 60)!r} is not a name of an object (small letters, digits, '-')")
    return text


def _resources(parts: Sequence[str]) -> Dict[str, str]:
    resources: Dict[str, str] = {}
    for part in parts:
        name, _, quantity = part.partition("=")
        if not _RESOURCE.fullmatch(name) or not _QUANTITY.fullmatch(quantity):
            raise ValueError(f"{printable(part, 60)!r} is not NAME=QUANTITY, as nvidia.com/gpu=8")
        resources[name] = quantity
    return resources


def _tolerations(parts: Sequence[str]) -> Tuple[Dict[str, str], ...]:
    """`KEY`, `KEY:EFFECT`, `KEY=VALUE:EFFECT`."""
    tolerations: List[Dict[str, str]] = []
    for part in parts:
        left, _, effect = part.partition(":")
        key, equals, value = left.partition("=")
        if not _RESOURCE.fullmatch(key) or (effect and effect not in EFFECTS):
            forms = f"KEY, KEY:EFFECT or KEY=VALUE:EFFECT ({', '.join(EFFECTS)})"
            raise ValueError(f"{printable(part, 60)!r} is not {forms}")
        toleration = {"key": key, "operator": "Equal" if equals else "Exists"}
        if equals:
            toleration["value"] = value
        if effect:
            toleration["effect"] = effect
        tolerations.append(toleration)
    return tuple(tolerations)


def _none(_value: object) -> str:
    return "[]"


@declared.settings
class DeepSettings(NamedTuple):
    """How tests are put on nodes. `port` is where rank 0 listens (kind job and jobset)."""

    image: str = declared.text("image", declared.NEEDED, "holds the tool", shown='"nvcr.io/nvidia/pytorch:26.01-py3"')
    namespace: str = declared.converted("namespace", _name, "nhc-deep")
    kind: str = declared.word("kind", ("auto", "job", "mpijob", "jobset"))
    resources: Mapping[str, str] = declared.texts(
        "resources", {}, "all of a node's, which makes a test exclusive: nvidia.com/gpu=8,rdma/ib=8", made=_resources,
        show=_none,
    )  # fmt: skip
    tolerations: Tuple[Dict[str, str], ...] = declared.texts(
        "tolerations", (), "KEY, KEY:EFFECT, KEY=VALUE:EFFECT, with commas between them", made=_tolerations, show=_none
    )
    priority_class: str = declared.converted("priority-class", _name, "nhc-deep")
    grace: float = declared.seconds("grace", 5.0, "how long a test has to end when real work takes its node")
    ttl: float = declared.seconds("ttl", 3600.0, "how long its Job, and so its output, is kept")
    cluster: ClusterSettings = declared.part("", ClusterSettings)
    service_account: str = declared.converted("service-account", _name, "")
    pull_secret: str = declared.converted("pull-secret", _name, "")
    host_network: bool = declared.flag("host-network")
    runtime_class: str = declared.converted("runtime-class", _name, "")
    port: int = declared.count("port", 29500, "where rank 0 listens (job, jobset)", least=1, most=65535)
    mpi_args: Tuple[str, ...] = declared.shell_words("mpi-args")

    @property
    def devices(self) -> List[str]:
        """The resources that are devices: a node of which other work has one is not idle."""
        return [name for name in self.resources if "/" in name]


# The objects of one test: a Job with a headless Service, an MPIJob, or a JobSet. Pure.
#
# Every kind has one pod a node, held to the test's nodes by name and kept apart from one another, with all of the
# node's devices, and a negative priority: real work takes the node from it. Nothing is tried twice: a test that fails
# or is preempted is the sweep's to repeat. Fields as in batch/v1, kubeflow.org/v2beta1 and jobset.x-k8s.io/v1alpha2.


SWEEP, TEST, ROLE = "nhc/sweep", "nhc/test", "nhc/deep-role"
"""Labels of everything that belongs to a test. `ROLE` is `first` on the pod whose output is the test's."""
FIRST, OTHER = "first", "other"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
END = "nhc-deep-end"
"""The prefix of a test's token and status, on the last line of its output."""
CONTAINER = "test"
TORCHRUN = "PET_"
"""What torchrun puts before an option's name: the variable that it takes its value from (torch/distributed/run.py and
argparse_util.py: `PET_NNODES`). Other launchers read the plain names."""
SPARE = 60
"""Seconds over a test's own limit after which Kubernetes ends it, with the sweep or without."""

SCRIPT = f"""\
trap 'trap "" TERM; kill $tool 2>/dev/null; wait $tool; exit 143' TERM
"$@" 2>&1 &
tool=$!
wait $tool
status=$?
printf '\\n{END} %s %s\\n' "$NHC_TOKEN" "$status"
exit $status
"""
"""What pid 1 does: the marker is written where the tool has ended by itself, and nowhere else."""


class WorkloadKind(NamedTuple):
    """A kind of object that carries a test."""

    word: str
    group: str
    resource: str

    @property
    def version(self) -> str:
        """Its apiVersion."""
        return self.group.partition("/")[2]


JOB = WorkloadKind("job", "apis/batch/v1", "jobs")
MPIJOB = WorkloadKind("mpijob", "apis/kubeflow.org/v2beta1", "mpijobs")
JOBSET = WorkloadKind("jobset", "apis/jobset.x-k8s.io/v1alpha2", "jobsets")
KINDS = {kind.word: kind for kind in (JOB, MPIJOB, JOBSET)}


def name_of(sweep: str, key: str) -> str:
    """A test's name, the same each time: what is there already is not made again. At most 45 characters."""
    return f"nhc-{sweep[:16]}-{key[:24]}".lower()


def owner_name(sweep: str) -> str:
    """The ConfigMap that all objects of a sweep belong to."""
    return f"nhc-sweep-{sweep}".lower()


def owner(sweep: str) -> Dict[str, Any]:
    """That ConfigMap: who deletes it deletes all that belongs to the sweep."""
    return {
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"sweep": sweep},
        "metadata": {"name": owner_name(sweep), "labels": {SWEEP: sweep}},
    }  # fmt: skip


class Manifest(NamedTuple):
    """An object, and the collection that it is posted to."""

    group: str
    resource: str
    body: Dict[str, Any]


def manifests(kind: WorkloadKind, settings: DeepSettings, run: NodeRun, belongs: Mapping[str, Any]) -> List[Manifest]:
    """What is created for a test, in this order. `belongs` is the ConfigMap as the server has it."""
    made = _Making(settings, run, belongs)
    if kind is MPIJOB:
        return [Manifest(kind.group, kind.resource, made.mpijob())]
    if kind is JOBSET:
        return [Manifest(kind.group, kind.resource, made.jobset())]
    return [Manifest("api/v1", "services", made.service()), Manifest(kind.group, kind.resource, made.job())]


class _Making:
    def __init__(self, settings: DeepSettings, run: NodeRun, belongs: Mapping[str, Any]) -> None:
        self.settings, self.run = settings, run
        self.argv = with_nhc(run.argv)
        self.name = name_of(run.group, run.key)
        self.labels = {SWEEP: run.group, TEST: run.key}
        self.owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": belongs["metadata"]["name"],
                      "uid": belongs["metadata"]["uid"]}  # fmt: skip

    def service(self) -> Dict[str, Any]:
        """So that the pods find the first by name, ready or not."""
        return {
            "apiVersion": "v1", "kind": "Service", "metadata": self._metadata(),
            "spec": {"clusterIP": "None", "selector": self.labels, "publishNotReadyAddresses": True},
        }  # fmt: skip

    def job(self) -> Dict[str, Any]:
        spec = self._job_spec(f"{self.name}-0.{self.name}", self.name)
        spec["ttlSecondsAfterFinished"] = round(self.settings.ttl)
        return {"apiVersion": JOB.version, "kind": "Job", "metadata": self._metadata(), "spec": spec}

    def jobset(self) -> Dict[str, Any]:
        # The pods' names and the Service are JobSet's: NAME-JOB-INDEX-POD below a subdomain of the set's name.
        template = {"metadata": {"labels": self.labels}, "spec": self._job_spec(f"{self.name}-t-0-0.{self.name}", "")}
        return {
            "apiVersion": JOBSET.version, "kind": "JobSet", "metadata": self._metadata(),
            "spec": {
                "replicatedJobs": [{"name": "t", "replicas": 1, "template": template}],
                "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
                "failurePolicy": {"maxRestarts": 0}, "ttlSecondsAfterFinished": round(self.settings.ttl),
            },
        }  # fmt: skip

    def mpijob(self) -> Dict[str, Any]:
        count, settings = len(self.run.nodes), self.settings
        argv = ("mpirun", "--allow-run-as-root", "-np", str(count * self.run.tasks), "--map-by",
                f"ppr:{self.run.tasks}:node", "--bind-to", "none", *settings.mpi_args, *self.argv)  # fmt: skip
        small = {"cpu": "100m", "memory": "256Mi"}
        launcher = self._pod({ROLE: FIRST}, self._container(_watched(argv), small), apart=False)
        # Without a command: the operator has its workers run sshd as the implementation needs it.
        worker = self._pod({ROLE: OTHER}, self._container((), settings.resources), apart=True)
        return {
            "apiVersion": MPIJOB.version, "kind": "MPIJob", "metadata": self._metadata(),
            "spec": {
                "slotsPerWorker": self.run.tasks, "mpiImplementation": "OpenMPI",
                "launcherCreationPolicy": "WaitForWorkersReady",
                "runPolicy": {
                    "cleanPodPolicy": "Running", "ttlSecondsAfterFinished": round(settings.ttl), "backoffLimit": 0,
                    "activeDeadlineSeconds": self._limit(),
                },
                "mpiReplicaSpecs": {
                    "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": launcher},
                    "Worker": {"replicas": count, "restartPolicy": "Never", "template": worker},
                },
            },
        }  # fmt: skip

    def _job_spec(self, first: str, subdomain: str) -> Dict[str, Any]:
        count, settings = len(self.run.nodes), self.settings
        rank = {"fieldRef": {"fieldPath": f"metadata.annotations['{COMPLETION_INDEX}']"}}
        env: List[Dict[str, Any]] = [
            {"name": "NODE_RANK", "valueFrom": rank},
            {"name": "NNODES", "value": str(count)}, {"name": "NPROC_PER_NODE", "value": str(self.run.tasks)},
            {"name": "MASTER_ADDR", "value": first}, {"name": "MASTER_PORT", "value": str(settings.port)},
        ]  # fmt: skip
        env += [{**variable, "name": f"{TORCHRUN}{variable['name']}"} for variable in env]
        pod = self._pod({}, self._container(_watched(self.argv), settings.resources, env), apart=True)
        if subdomain:
            pod["spec"]["subdomain"] = subdomain
        return {
            "completionMode": "Indexed", "completions": count, "parallelism": count, "backoffLimit": 0,
            "activeDeadlineSeconds": self._limit(), "template": pod,
            # With Ignore the Job would recreate the pod and preempt nothing for hours: a preempted test has ended.
            "podFailurePolicy": {
                "rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
            },
        }  # fmt: skip

    def _pod(self, more: Mapping[str, str], container: Mapping[str, object], *, apart: bool) -> Dict[str, Any]:
        settings = self.settings
        affinity: Dict[str, Any] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            # Terms are alternatives; one field takes one name (API validation of matchFields).
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
                for node in self.run.nodes
            ]
        }}}  # fmt: skip
        if apart:
            affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [{
                "labelSelector": {"matchLabels": {**self.labels, **more}}, "topologyKey": "kubernetes.io/hostname",
            }]}  # fmt: skip
        spec: Dict[str, Any] = {
            "restartPolicy": "Never", "priorityClassName": settings.priority_class,
            "terminationGracePeriodSeconds": round(settings.grace), "enableServiceLinks": False,
            "automountServiceAccountToken": False, "affinity": affinity, "tolerations": list(settings.tolerations),
            "containers": [container], "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
        }  # fmt: skip
        if settings.service_account:
            spec["serviceAccountName"] = settings.service_account
        if settings.pull_secret:
            spec["imagePullSecrets"] = [{"name": settings.pull_secret}]
        if settings.host_network:
            spec.update(hostNetwork=True, dnsPolicy="ClusterFirstWithHostNet")
        if settings.runtime_class:
            spec["runtimeClassName"] = settings.runtime_class
        return {"metadata": {"labels": {**self.labels, **more}}, "spec": spec}

    def _container(
        self, command: Tuple[str, ...], resources: Mapping[str, str], env: Sequence[Dict[str, Any]] = ()
    ) -> Dict[str, Any]:
        own = [{"name": "NHC_TOKEN", "value": self.run.group}, {"name": "NHC_NODES", "value": " ".join(self.run.nodes)},
               {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]  # fmt: skip
        return {
            **({"command": list(command)} if command else {}),
            "name": CONTAINER, "image": self.settings.image, "env": [*own, *env],
            "resources": {"requests": dict(resources), "limits": dict(resources)},
            # RDMA registers memory; NCCL's rings within a node lie in /dev/shm.
            "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
            "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108 (the pod's own)
        }  # fmt: skip

    def _limit(self) -> int:
        return int(self.run.limits.seconds) + SPARE

    def _metadata(self) -> Dict[str, Any]:
        return {"name": self.name, "labels": self.labels, "ownerReferences": [self.owner]}


def _watched(argv: Tuple[str, ...]) -> Tuple[str, ...]:
    return ("/bin/sh", "-c", SCRIPT, "nhc", *argv)


BUSY_BY_NODE = 20
"""Up to so many nodes, pods are asked for node by node; above it, all at once: a sweep asks for most of a cluster."""
MARKER = 256
"""Bytes that a completion marker takes at most."""
BACKGROUND = {"propagationPolicy": "Background"}
Pod = Mapping[str, Any]


class KubernetesLauncher:
    """Creates and deletes workloads; looks at them and at their pods."""

    SETTINGS = DeepSettings

    def __init__(self, settings: Mapping[str, str], client: Optional[Client] = None) -> None:
        self.settings = read(DeepSettings, settings)
        cluster = self.settings.cluster
        self.client = client or Client(find(cluster.kubeconfig, cluster.context), agent="nhc-deep")
        self._cluster = Kubernetes(self.client)
        self._kind: Optional[WorkloadKind] = None
        self._owners: Dict[str, Dict[str, Any]] = {}

    # What there is.

    def idle(self, nodes: Sequence[str]) -> FrozenSet[str]:
        """Ready nodes that take pods, and whose devices no pod has or waits for."""
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

    def poll(self, runs: Sequence[NodeRun]) -> Mapping[str, RunState]:
        """Their workloads and pods; the log of the first pod of each that has ended."""
        group = runs[0].group if runs else ""
        by_test: Dict[str, List[Pod]] = {}
        for pod in self.client.items(self._path("pods"), labelSelector=f"{SWEEP}={group}"):
            by_test.setdefault(str(pod["metadata"]["labels"].get(TEST, "")), []).append(pod)
        kind = self._chosen()
        items: Dict[str, Mapping[str, Any]] = {}
        for item in self.client.items(self._path(kind.resource, kind.group), labelSelector=f"{SWEEP}={group}"):
            items[str(item["metadata"]["labels"].get(TEST, ""))] = item
        return {run.key: self._state(kind, run, items.get(run.key), by_test.get(run.key, [])) for run in runs}

    def _state(
        self, kind: WorkloadKind, run: NodeRun, item: Optional[Mapping[str, Any]], pods: Sequence[Pod]
    ) -> RunState:
        name = f"{kind.word}/{name_of(run.group, run.key)}"
        first = next((pod for pod in pods if has_ended(pod) and _is_first(pod)), None)
        if first is not None:
            ended = self._ended(run, first)
            if ended is not None:
                return ended._replace(name=name)
        if item is None and not pods:
            return RunState(RunPhase.ABSENT)
        if item is None or item["metadata"].get("deletionTimestamp") or _over(item):
            return RunState(RunPhase.LOST, name=name)
        running = first is not None or _expected(kind, item) <= sum(_phase(pod) == "Running" for pod in pods)
        return RunState(RunPhase.RUNNING if running else RunPhase.WAITING, name=name)

    def _ended(self, run: NodeRun, pod: Pod) -> Optional[RunState]:
        """What a test left whose first pod has ended, None if its log does not end with the marker."""
        path, most = f"{self._path('pods')}/{pod['metadata']['name']}/log", run.limits.output
        try:
            text = self.client.text(path, container=CONTAINER, limitBytes=str(most + MARKER))
            body, _, last = text.rstrip("\n").rpartition("\n")
            if len(text.encode()) >= most + MARKER:
                end = self.client.text(path, container=CONTAINER, tailLines="1")
                body, last = text, end.rstrip("\n").rpartition("\n")[2]
        except ApiError as error:
            if error.status in (401, 403):
                return RunState(RunPhase.UNKNOWN, why=str(error))
            return None  # the node went away, and the log with it: that is no result
        fields = last.split()
        if len(fields) != 3 or fields[:2] != [END, run.group] or not fields[2].isdigit():
            return None
        output = body.encode()
        return RunState(RunPhase.ENDED, int(fields[2]), output[:most].decode("utf-8", "replace"), len(output) > most)

    # What is done.

    def start(self, run: NodeRun) -> str:
        """Create a test's objects; those that are there already are the test."""
        kind = self._chosen()
        for manifest in manifests(kind, self.settings, run, self._owner(run.group)):
            self._create(self._path(manifest.resource, manifest.group), manifest.body)
        return f"{kind.word}/{name_of(run.group, run.key)}"

    def stop(self, run: NodeRun) -> None:
        """Delete a workload, its pods after it; one that is gone is none of our errors."""
        kind = self._chosen()
        self._delete(f"{self._path(kind.resource, kind.group)}/{name_of(run.group, run.key)}")

    def finish(self, group: str) -> None:
        """Delete all that belongs to a sweep."""
        self._owners.pop(group, None)
        self._delete(f"{self._path('configmaps')}/{owner_name(group)}")

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
