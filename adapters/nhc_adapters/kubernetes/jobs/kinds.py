"""The kinds of jobs in Kubernetes, and how they differ: which field suspends each, how it ends, which label finds its
pods.
"""

from __future__ import annotations

import copy
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.json_values import whole_of
from nhc.marks.ports.job_control import Phase
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, Client, namespaced
from nhc_adapters.kubernetes.api.objects import Object, get, moment, name_of, true_conditions

WISH = "nhc/restart"
"""Annotation of a job's user: restart it after infrastructure faults, at most so often ("3"; "" or "true": the site's
number)."""
CHECKPOINT = "nhc/checkpoint"
MAIL = "nhc/mail"
"""Annotation of a job's user, on its pods: where they are written to about why the job failed."""
NUMBER = "nhc/restarts"
"""Annotation of ours: the number of our newest restart."""
HELD = "nhc/held"
"""Annotation of ours, while we hold it: why."""
AVOIDS = "nhc/avoids"
"""Annotation of ours: the nodes that we have put into its affinity, so that they, and nothing else, are taken out."""
RELEASED = "nhc/released"
"""Annotation of ours: when we let it start (Unix seconds). Pods that were lost before belong to an older run."""
NOTE = "nhc/note"

HYPERPOD = "sagemaker.amazonaws.com/enable-job-auto-resume"

Path = Tuple[str, ...]


class JobEnding(NamedTuple):
    """How a job ended, by its own status. `limit`: by a limit of its own."""

    phase: Phase
    at: Optional[float]
    detail: str
    limit: bool = False


class JobKind(NamedTuple):
    """One kind. `api` is its group's path (`apis/batch/v1`); `suspend` the path of its switch, () if it has none.

    `label` names the job on its pods; `templates` are the pod templates in its spec. `counter` is the number of a job's
    run, if its controller counts them. `affinity` says that the templates may be changed while it is suspended. `gang`:
    its pods are useless without one another.
    """

    kind: str
    api: str
    plural: str
    suspend: Path
    label: str
    templates: Callable[[Object], List[Path]]
    ending: Callable[[Object], Optional[JobEnding]]
    pods: Callable[[Object], int]
    affinity: bool
    gang: bool = True
    counter: Callable[[Object], str] = lambda job: "0"
    uid_label: str = ""
    """The label with the job's uid on its pods, if they have one: an earlier job may have had the same name."""
    clear_start: bool = False
    """Its scheduling can be changed only once its status has no start time (`batch/v1`)."""
    child_jobs: bool = False
    """It runs as the Jobs of a JobSet of its name, whose scheduling can be changed in its stead."""

    @property
    def name(self) -> str:
        """As its API calls it: Volcano's kind is a Job, too."""
        return "Job" if self.kind == "VolcanoJob" else self.kind

    def selector(self, job: Object) -> str:
        """What finds the pods of a job."""
        if self.uid_label:
            return f"{self.uid_label}={get(job, 'metadata', 'uid')}"
        return f"{self.label}={name_of(job)}"


def count(value: object, default: int = 0) -> int:
    """A whole number of an object, the default where it is none."""
    whole = whole_of(value)
    return default if whole is None else whole


def by_conditions(good: Sequence[str], bad: Sequence[str]) -> Callable[[Object], Optional[JobEnding]]:
    """The ending of a kind that says it in conditions of these types."""

    def ending(value: Object) -> Optional[JobEnding]:
        conditions = true_conditions(value)
        for kind in bad:
            if kind in conditions:
                reason = str(conditions[kind].get("reason") or "")
                text = ": ".join(part for part in (reason, str(conditions[kind].get("message") or "")) if part)
                limit = "deadline" in reason.lower()
                return JobEnding(Phase.FAILED, moment(conditions[kind].get("lastTransitionTime")), text or kind, limit)
        for kind in good:
            if kind in conditions:
                return JobEnding(Phase.SUCCEEDED, moment(conditions[kind].get("lastTransitionTime")), "")
        return None

    return ending


JOB = JobKind(
    "Job",
    "apis/batch/v1",
    "jobs",
    ("spec", "suspend"),
    "batch.kubernetes.io/job-name",
    lambda job: [("spec", "template")],
    by_conditions(("Complete", "SuccessCriteriaMet"), ("Failed",)),
    lambda job: count(get(job, "spec", "parallelism"), 1),
    affinity=True,
    gang=False,
    uid_label="batch.kubernetes.io/controller-uid",
    clear_start=True,
)
"""Suspending deletes its pods and counts no failure; a Job that has Failed stays so.

Its pods may be independent of one another, so a pod that its controller replaces is no failure of the Job: only the
Job's own end is. Scheduling may be changed while it is suspended and its status has no start time (KEP-2926).
"""


def _jobset_templates(job: Object) -> List[Path]:
    replicated = get(job, "spec", "replicatedJobs")
    return [("spec", "replicatedJobs", str(at), "template", "spec", "template") for at in range(len(replicated or ()))]


def _jobset_pods(job: Object) -> int:
    return sum(
        count(get(replicated, "replicas"), 1) * count(get(replicated, "template", "spec", "parallelism"), 1)
        for replicated in get(job, "spec", "replicatedJobs") or ()
    )


JOBSET = JobKind(
    "JobSet",
    "apis/jobset.x-k8s.io/v1alpha2",
    "jobsets",
    ("spec", "suspend"),
    "jobset.sigs.k8s.io/jobset-name",
    _jobset_templates,
    by_conditions(("Completed",), ("Failed",)),
    _jobset_pods,
    affinity=False,
    counter=lambda job: str(count(get(job, "status", "restarts"))),
    child_jobs=True,
)
"""Its own failure policy restarts it; `status.restarts` names its run.

While it is suspended its webhook lets node selectors, tolerations, labels and annotations of pods change, and no
affinity: `child_jobs` keeps its Jobs off a node by name; if it is created again, its template does.
"""

TRAINJOB = JobKind(
    "TrainJob",
    "apis/trainer.kubeflow.org/v1alpha1",
    "trainjobs",
    ("spec", "suspend"),
    JOBSET.label,
    lambda job: [],
    by_conditions(("Complete",), ("Failed",)),
    lambda job: count(get(job, "spec", "trainer", "numNodes"), 1),
    affinity=False,
    child_jobs=True,
)
"""Its pods are those of a JobSet of its name; it has no retries of its own.

Suspending it suspends the JobSet. `runtimePatches` may be changed then, but the JobSet takes no other affinity from
them once it exists: the JobSet's Jobs are kept off a node by name (`child_jobs`).
"""


def _of_training_operator(name: str, api: str, plural: str, replicas: str) -> JobKind:
    """The jobs of Kubeflow's operators that have a table of replicas.

    Suspending a `kubeflow.org/v1` PyTorchJob (Training Operator 1.7 and later, which have `runPolicy.suspend`) deletes
    its pods and counts against no `backoffLimit`; resuming recreates them from the templates. Suspending a
    `kubeflow.org/v2beta1` MPIJob suspends the launcher's Job and deletes the workers; on resuming the operator clears
    the launcher's start time and takes over its scheduling. So the affinity of both may be changed.
    """

    def table(job: Object) -> Mapping[str, Object]:
        specs = get(job, "spec", replicas)
        return specs if isinstance(specs, Mapping) else {}

    return JobKind(
        name,
        api,
        plural,
        ("spec", "runPolicy", "suspend"),
        "training.kubeflow.org/job-name",
        lambda job: [("spec", replicas, str(role), "template") for role in table(job)],
        by_conditions(("Succeeded",), ("Failed",)),
        lambda job: sum(count(get(row, "replicas"), 1) for row in table(job).values()),
        affinity=True,
    )


PYTORCH = _of_training_operator("PyTorchJob", "apis/kubeflow.org/v1", "pytorchjobs", "pytorchReplicaSpecs")
MPI = _of_training_operator("MPIJob", "apis/kubeflow.org/v2beta1", "mpijobs", "mpiReplicaSpecs")


def _volcano_templates(job: Object) -> List[Path]:
    return [("spec", "tasks", str(at), "template") for at in range(len(get(job, "spec", "tasks") or ()))]


def _volcano_ending(job: Object) -> Optional[JobEnding]:
    state = get(job, "status", "state") or {}
    phase, at = state.get("phase"), moment(state.get("lastTransitionTime"))
    text = ": ".join(str(state[name]) for name in ("reason", "message") if state.get(name))
    if phase == "Completed":
        return JobEnding(Phase.SUCCEEDED, at, "")
    if phase in ("Failed", "Terminated"):
        return JobEnding(Phase.FAILED, at, text or f"Volcano says {phase}")
    return None


VOLCANO = JobKind(
    "VolcanoJob",
    "apis/batch.volcano.sh/v1alpha1",
    "jobs",
    (),
    "volcano.sh/job-name",
    _volcano_templates,
    _volcano_ending,
    lambda job: sum(count(get(task, "replicas")) for task in get(job, "spec", "tasks") or ()),
    affinity=False,
    counter=lambda job: str(count(get(job, "status", "retryCount"))),
)
"""It has no switch, and is stopped by a Command (`volcano`). Its webhook takes no other pod template: it cannot be kept
off a node by name."""

KINDS: Dict[str, JobKind] = {kind.kind: kind for kind in (JOB, JOBSET, TRAINJOB, PYTORCH, MPI, VOLCANO)}


# Changes of a job's object, each one patch under the version that was read.


def path_of(kind: JobKind, job: Object) -> str:
    """The object's path."""
    return namespaced(str(get(job, "metadata", "namespace")), kind.plural, name_of(job), kind.api)


def change(client: Client, kind: JobKind, job: Object, make: Callable[[Dict[str, Any]], None]) -> None:
    """One patch of spec and annotations; built again if somebody wrote first. Raises ApiError, Unreachable."""

    def plan(seen: Object) -> List[Dict[str, Any]]:
        now: Dict[str, Any] = copy.deepcopy(dict(seen))
        make(now)
        meta = now["metadata"]
        return [
            {"op": "test", "path": "/metadata/uid", "value": meta["uid"]},
            {"op": "test", "path": "/metadata/resourceVersion", "value": meta["resourceVersion"]},
            {"op": "replace", "path": "/spec", "value": now["spec"]},
            {"op": "add", "path": "/metadata/annotations", "value": meta.get("annotations", {})},
        ]

    client.change(path_of(kind, job), plan, job)


def annotate(client: Client, kind: JobKind, job: Object, notes: Mapping[str, Optional[str]]) -> None:
    """Set annotations, and take away those that are None. Raises ApiError, Unreachable."""
    client.patch(path_of(kind, job), {"metadata": {"annotations": dict(notes)}}, MERGE_PATCH)
