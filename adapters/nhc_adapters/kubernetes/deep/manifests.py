"""The objects of one test: a Job with a headless Service, an MPIJob, or a JobSet. Pure.

Every kind has one pod a node, held to the test's nodes by name and kept apart from one another, with all of the
node's devices, and a negative priority: real work takes the node from it. Nothing is tried twice: a test that fails or
is preempted is the sweep's to repeat. Fields as in batch/v1, kubeflow.org/v2beta1 and jobset.x-k8s.io/v1alpha2.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from nhc.marks.ports.group_launch import GroupOrder
from nhc_adapters.kubernetes.deep.settings import DeepSettings

SWEEP, TEST, ROLE = "nhc/sweep", "nhc/test", "nhc/deep-role"
"""Labels of everything that belongs to a test. `ROLE` is `first` on the pod whose output is the test's."""
FIRST, OTHER = "first", "other"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
END = "nhc-deep-end"
"""The word before a test's token and status, on the last line of its output."""
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


def manifests(
    kind: WorkloadKind, settings: DeepSettings, sweep: str, order: GroupOrder, belongs: Mapping[str, Any]
) -> List[Manifest]:
    """What is created for a test, in this order. `belongs` is the ConfigMap as the server has it."""
    made = _Making(settings, sweep, order, belongs)
    if kind is MPIJOB:
        return [Manifest(kind.group, kind.resource, made.mpijob())]
    if kind is JOBSET:
        return [Manifest(kind.group, kind.resource, made.jobset())]
    return [Manifest("api/v1", "services", made.service()), Manifest(kind.group, kind.resource, made.job())]


class _Making:
    def __init__(self, settings: DeepSettings, sweep: str, order: GroupOrder, belongs: Mapping[str, Any]) -> None:
        self.settings, self.sweep, self.order = settings, sweep, order
        self.name = name_of(sweep, order.key)
        self.labels = {SWEEP: sweep, TEST: order.key}
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
        spec["ttlSecondsAfterFinished"] = self.settings.ttl
        return {"apiVersion": JOB.version, "kind": "Job", "metadata": self._metadata(), "spec": spec}

    def jobset(self) -> Dict[str, Any]:
        # The pods' names and the Service are JobSet's: NAME-JOB-INDEX-POD below a subdomain of the set's name.
        template = {"metadata": {"labels": self.labels}, "spec": self._job_spec(f"{self.name}-t-0-0.{self.name}", "")}
        return {
            "apiVersion": JOBSET.version, "kind": "JobSet", "metadata": self._metadata(),
            "spec": {
                "replicatedJobs": [{"name": "t", "replicas": 1, "template": template}],
                "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
                "failurePolicy": {"maxRestarts": 0}, "ttlSecondsAfterFinished": self.settings.ttl,
            },
        }  # fmt: skip

    def mpijob(self) -> Dict[str, Any]:
        count, settings = len(self.order.nodes), self.settings
        argv = ("mpirun", "--allow-run-as-root", "-np", str(count * self.order.tasks), "--map-by",
                f"ppr:{self.order.tasks}:node", "--bind-to", "none", *settings.mpi_args, *self.order.argv)  # fmt: skip
        small = {"cpu": "100m", "memory": "256Mi"}
        launcher = self._pod({ROLE: FIRST}, self._container(_watched(argv), small), apart=False)
        # Without a command: the operator has its workers run sshd as the implementation needs it.
        worker = self._pod({ROLE: OTHER}, self._container((), settings.resources), apart=True)
        return {
            "apiVersion": MPIJOB.version, "kind": "MPIJob", "metadata": self._metadata(),
            "spec": {
                "slotsPerWorker": self.order.tasks, "mpiImplementation": "OpenMPI",
                "launcherCreationPolicy": "WaitForWorkersReady",
                "runPolicy": {
                    "cleanPodPolicy": "Running", "ttlSecondsAfterFinished": settings.ttl, "backoffLimit": 0,
                    "activeDeadlineSeconds": self._limit(),
                },
                "mpiReplicaSpecs": {
                    "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": launcher},
                    "Worker": {"replicas": count, "restartPolicy": "Never", "template": worker},
                },
            },
        }  # fmt: skip

    def _job_spec(self, first: str, subdomain: str) -> Dict[str, Any]:
        count, settings = len(self.order.nodes), self.settings
        rank = {"fieldRef": {"fieldPath": f"metadata.annotations['{COMPLETION_INDEX}']"}}
        env: List[Dict[str, Any]] = [
            {"name": "NODE_RANK", "valueFrom": rank},
            {"name": "NNODES", "value": str(count)}, {"name": "NPROC_PER_NODE", "value": str(self.order.tasks)},
            {"name": "MASTER_ADDR", "value": first}, {"name": "MASTER_PORT", "value": str(settings.port)},
        ]  # fmt: skip
        env += [{**variable, "name": f"{TORCHRUN}{variable['name']}"} for variable in env]
        pod = self._pod({}, self._container(_watched(self.order.argv), settings.resources, env), apart=True)
        if subdomain:
            pod["spec"]["subdomain"] = subdomain
        return {
            "completionMode": "Indexed", "completions": count, "parallelism": count, "backoffLimit": 0,
            "activeDeadlineSeconds": self._limit(), "template": pod,
            # With Ignore the Job would put the pod back and preempt nobody for hours: preempted is over.
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
                for node in self.order.nodes
            ]
        }}}  # fmt: skip
        if apart:
            affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [{
                "labelSelector": {"matchLabels": {**self.labels, **more}}, "topologyKey": "kubernetes.io/hostname",
            }]}  # fmt: skip
        spec: Dict[str, Any] = {
            "restartPolicy": "Never", "priorityClassName": settings.priority_class,
            "terminationGracePeriodSeconds": settings.grace, "enableServiceLinks": False,
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
        own = [{"name": "NHC_TOKEN", "value": self.sweep}, {"name": "NHC_NODES", "value": " ".join(self.order.nodes)},
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
        return int(self.order.seconds) + SPARE

    def _metadata(self) -> Dict[str, Any]:
        return {"name": self.name, "labels": self.labels, "ownerReferences": [self.owner]}


def _watched(argv: Tuple[str, ...]) -> Tuple[str, ...]:
    return ("/bin/sh", "-c", SCRIPT, "nhc", *argv)
