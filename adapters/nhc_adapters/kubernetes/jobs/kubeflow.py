"""The jobs of Kubeflow's operators that have a table of replicas: PyTorchJob and MPIJob.

Suspending a `kubeflow.org/v1` PyTorchJob (Training Operator 1.7 and later, which have `runPolicy.suspend`) deletes its
pods and counts against no `backoffLimit`; resuming makes them anew from the templates. Suspending a
`kubeflow.org/v2beta1` MPIJob suspends the launcher's Job and deletes the workers; on resuming the operator clears the
launcher's start time and takes over its scheduling. So the affinity of both may be changed.
"""

from __future__ import annotations

from nhc_adapters.kubernetes.jobs.kinds import JobKind, by_conditions, labelled, replica_pods, replica_templates


def _kind(name: str, api: str, plural: str, replicas: str) -> JobKind:
    return JobKind(
        name,
        api,
        plural,
        ("spec", "runPolicy", "suspend"),
        labelled("training.kubeflow.org/job-name"),
        replica_templates("spec", replicas),
        by_conditions(("Succeeded",), ("Failed",)),
        lambda job: "0",
        replica_pods("spec", replicas),
        affinity=True,
        gang=True,
    )


PYTORCH = _kind("PyTorchJob", "apis/kubeflow.org/v1", "pytorchjobs", "pytorchReplicaSpecs")
MPI = _kind("MPIJob", "apis/kubeflow.org/v2beta1", "mpijobs", "mpiReplicaSpecs")
