"""Programs on a node by a Job that is pinned to it, as `nhc.marks.ports.runner` says: nhc in a pod, without SSH.

    [verify.job]
    image = "registry.example.com/nhc@sha256:..."   # this nhc with the suite's tools
    namespace = "nhc-system"                        # must allow privileged pods
    runtime-class = "nvidia"

The Job's name is made of the run's key: it is created once, and a repeated request reads the existing one. The output
is the pod's log: a termination message is too small.

The pod is the gate's (adapters/kubernetes/overlays/gate): privileged, with the node's processes and network, and with
the node's own /var/lib/nhc, where `nhc deep run` keeps its reports. The pod sees all GPUs of the node, and tests one by
its UUID: the GPU's rule keeps work away from it. With a claim the pod would wait for the scheduler and for the DRA
driver.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from nhc.core.settings import declared
from nhc.core.settings.settings_file import Table
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.part_settings import Given, read
from nhc.marks.ports.repair import Answer, Right
from nhc.marks.ports.runner import NodeRun, NotStarted, RunPhase, RunState, with_nhc
from nhc_adapters.kubernetes.api.access import ClusterSettings
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, namespaced
from nhc_adapters.kubernetes.api.objects import notes_of, true_conditions
from nhc_adapters.kubernetes.api.rights import ClusterRight
from nhc_adapters.kubernetes.repair.cluster import JOBS, Object, RepairCluster
from nhc_adapters.kubernetes.repair.pinned_job import (
    JobPlace,
    PinnedJob,
    is_active,
    pinned_job,
    read_job,
)
from nhc_adapters.node.runner import only_machine
from nhc_adapters.repair import CallFailed, RepairRefused

COMPONENT = CONTAINER = "suite"
RUN, STOPPED = "nhc/run", "nhc/stopped"
"""Annotations: the key of the run that a Job is, and that it was stopped by `stop`."""
STARTING = 300
"""Seconds for what comes before the program: the image is pulled (a vendor's image with CUDA has gigabytes)."""
ENDING = 60
"""Seconds that the program has to end its tools, as for a gate."""
LOG = 10 << 20
"""Bytes of a log that are asked for at most: kubelet keeps 10 MiB of it (containerLogMaxSize)."""


class JobProgram(NamedTuple):
    """What runs in the pod: the image's nhc, and the pod's RuntimeClass if it needs one."""

    nhc: str = "nhc"
    runtime_class: str = ""


def job_name(run: NodeRun) -> str:
    """The Job of a run."""
    return f"nhc-run-{run.key.lower()}"[:63].rstrip("-")


def manifest(run: NodeRun, place: JobPlace, program: JobProgram) -> Dict[str, Any]:
    """The Job of a run. Raises NotStarted."""
    node = only_machine(run).node
    notes = {RUN: run.key, "nhc/node": node, "nhc/because": run.why}
    env: List[Dict[str, Any]] = [
        # Else the node would count as busy because of this very pod.
        {"name": "NHC_KUBE_OWN_POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        {"name": "NHC_RM", "value": "kubernetes"},
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        {"name": "TMPDIR", "value": "/var/lib/nhc"},
    ]
    container = {
        "name": CONTAINER, "env": env,
        # $(NAME) would be a variable of the container's (Kubernetes, "Define a command and arguments").
        "command": [word.replace("$(", "$$(") for word in with_nhc(run.argv, program.nhc)],
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
    seconds = round(run.limits.seconds) + STARTING + ENDING
    job = PinnedJob(job_name(run), node, COMPONENT, notes, seconds, ENDING)
    return pinned_job(job, place, container, pod, volumes)


@declared.settings
class JobRunnerSettings(NamedTuple):
    """The table [verify.job]."""

    place: JobPlace = declared.part(
        "", JobPlace, default=JobPlace(account="nhc-remedy-suite"),
        account=declared.text("service-account", "nhc-remedy-suite"),
    )  # fmt: skip
    cluster: ClusterSettings = declared.part("", ClusterSettings)
    runtime_class: str = declared.text("runtime-class")
    nhc: str = declared.text("nhc", "nhc", "the image's nhc")

    def checked(self, table: Table) -> JobRunnerSettings:
        """The same. Raises SettingsError."""
        if not self.place.image:
            raise table.error("image", "missing: which image has nhc and the suite's tools?")
        return self


class JobRunner:
    """One Job a run. Safe to use from several threads."""

    SETTINGS = JobRunnerSettings

    def __init__(self, settings: Mapping[str, str], environ: Given = None, timeout: float = 30.0) -> None:
        own = read(JobRunnerSettings, settings)
        self.place = own.place
        self.program = JobProgram(own.nhc, own.runtime_class)
        self.cluster = RepairCluster.of(own.cluster, environ, timeout)

    def start(self, run: NodeRun) -> str:
        """The Job's name, created now or before by whomever. Raises NotStarted, AdapterError."""
        name = f"{self.place.namespace}/{job_name(run)}"
        try:
            if self._own(run) is None:
                # The machine's boot is another than the one that was judged: the repair came in between.
                self.cluster.compare_ready(only_machine(run)._replace(boot_id=""))
                self.cluster.create_once(manifest(run, self.place, self.program), (RUN, run.key))
        except RepairRefused as error:
            raise NotStarted(str(error), later=error.retry_after > 0) from None
        except CallFailed as error:
            if error.answer is Answer.REFUSED:
                raise NotStarted(str(error), later=error.retry_after > 0, right=error.right) from None
            raise
        return name

    def poll(self, runs: Sequence[NodeRun]) -> Mapping[str, RunState]:
        """One look each. A Job that cannot be read leaves its run UNKNOWN."""
        states: Dict[str, RunState] = {}
        for run in runs:
            try:
                states[run.key] = self._state(run)._replace(name=f"{self.place.namespace}/{job_name(run)}")
            except AdapterError as error:
                states[run.key] = RunState(RunPhase.UNKNOWN, why=str(error))
        return states

    def stop(self, run: NodeRun) -> None:
        """Shorten the Job's own deadline: it ends its pod, and stays to be seen. Raises AdapterError."""
        job = self._own(run)
        if job is not None and is_active(job):
            body = {"metadata": {"annotations": {STOPPED: "true"}}, "spec": {"activeDeadlineSeconds": 1}}
            self.cluster.patch(namespaced(self.place.namespace, "jobs", job_name(run), JOBS), body, MERGE_PATCH)

    def _own(self, run: NodeRun) -> Optional[Object]:
        return self.cluster.own_job(self.place.namespace, job_name(run), (RUN, run.key))

    def _state(self, run: NodeRun) -> RunState:
        """Raises AdapterError where the API server does not give what it has."""
        job = self._own(run)
        if job is None:
            return RunState(RunPhase.ABSENT)
        seen = read_job(job, self.cluster.pods_of(self.place.namespace, job_name(run)))
        if not seen.ended:
            return RunState(RunPhase.RUNNING if seen.started else RunPhase.WAITING, why=seen.why)
        if STOPPED in notes_of(job):
            return RunState(RunPhase.STOPPED, why="it was stopped")
        late = (true_conditions(job).get("Failed") or {}).get("reason") == "DeadlineExceeded"
        if seen.status is None or late:
            return RunState(RunPhase.LOST, why=seen.why or "nothing of it is left")
        limit = min(run.limits.output, LOG)
        log = self.cluster.log(self.place.namespace, seen.pod, CONTAINER, limit).encode()
        output = log[:limit].decode("utf-8", "replace")
        return RunState(RunPhase.ENDED, seen.status, output, len(log) >= limit, seen.why)

    def rights(self) -> Sequence[Right]:
        """Its rights, each asked of the API server. Raises AdapterError."""
        return self.cluster.rights(needed(self.place.namespace))

    def close(self) -> None:
        """End its connections."""
        self.cluster.close()


def needed(namespace: str) -> List[ClusterRight]:
    """What it must be allowed to do."""
    return [
        ClusterRight("get", "nodes", purpose="to compare the machine"),
        *(ClusterRight(verb, "jobs", "batch", namespace, purpose="to run a suite by a Job, to follow and to stop it")
          for verb in ("create", "get", "patch")),
        ClusterRight("list", "pods", "", namespace, purpose="to see how a suite ended"),
        ClusterRight("get", "pods/log", "", namespace, purpose="to read a suite's report"),
    ]  # fmt: skip
