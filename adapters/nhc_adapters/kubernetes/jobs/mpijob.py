"""`kubeflow.org/v2beta1` MPIJob. Suspending suspends the launcher's Job and deletes the workers.

On resuming the operator clears the launcher's start time and takes over its scheduling, so affinity may be changed.
"""

from __future__ import annotations

from nhc_adapters.kubernetes.jobs.kinds import JobKind, by_conditions, labelled, replica_pods, replica_templates

KIND = JobKind(
    "MPIJob",
    "apis/kubeflow.org/v2beta1",
    "mpijobs",
    ("spec", "runPolicy", "suspend"),
    labelled("training.kubeflow.org/job-name"),
    replica_templates("spec", "mpiReplicaSpecs"),
    by_conditions(("Succeeded",), ("Failed",)),
    lambda job: "0",
    replica_pods("spec", "mpiReplicaSpecs"),
    affinity=True,
    gang=True,
)
