"""`kubeflow.org/v1` PyTorchJob of the Training Operator (1.7 and later, which have `runPolicy.suspend`).

Suspending deletes the pods and counts against no `backoffLimit`; resuming makes them anew from the templates.
"""

from __future__ import annotations

from nhc_adapters.kubernetes.jobs.kinds import JobKind, by_conditions, labelled, replica_pods, replica_templates

KIND = JobKind(
    "PyTorchJob",
    "apis/kubeflow.org/v1",
    "pytorchjobs",
    ("spec", "runPolicy", "suspend"),
    labelled("training.kubeflow.org/job-name"),
    replica_templates("spec", "pytorchReplicaSpecs"),
    by_conditions(("Succeeded",), ("Failed",)),
    lambda job: "0",
    replica_pods("spec", "pytorchReplicaSpecs"),
    affinity=True,
    gang=True,
)
