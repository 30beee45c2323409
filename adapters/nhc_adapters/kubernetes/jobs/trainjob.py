"""`trainer.kubeflow.org/v1alpha1` TrainJob. Its pods are those of a JobSet of its name; it has no retries of its own.

Suspending it suspends the JobSet. `runtimePatches` may be changed then, but the JobSet takes no other affinity from
them once it exists: the JobSet's Jobs are kept off a node by name (`child_jobs`).
"""

from __future__ import annotations

from nhc_adapters.kubernetes.jobs.kinds import JobKind, by_conditions, count, get, labelled

KIND = JobKind(
    "TrainJob",
    "apis/trainer.kubeflow.org/v1alpha1",
    "trainjobs",
    ("spec", "suspend"),
    labelled("jobset.sigs.k8s.io/jobset-name"),
    lambda job: [],
    by_conditions(("Complete",), ("Failed",)),
    lambda job: "0",
    lambda job: count(get(job, "spec", "trainer", "numNodes"), 1),
    affinity=False,
    gang=True,
    child_jobs=True,
)
