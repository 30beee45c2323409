"""`jobset.x-k8s.io/v1alpha2` JobSet. Its own failure policy restarts it; `status.restarts` names its run.

While it is suspended its webhook lets node selectors, tolerations, labels and annotations of pods change, and no
affinity: its Jobs are kept off a node by name (`child_jobs`), and the template of one that is made anew.
"""

from __future__ import annotations

from typing import List

from nhc_adapters.kubernetes.jobs.kinds import JobKind, Object, Path, by_conditions, count, get, labelled


def _templates(job: Object) -> List[Path]:
    replicated = get(job, "spec", "replicatedJobs")
    return [("spec", "replicatedJobs", str(at), "template", "spec", "template") for at in range(len(replicated or ()))]


def _pods(job: Object) -> int:
    return sum(
        count(get(replicated, "replicas"), 1) * count(get(replicated, "template", "spec", "parallelism"), 1)
        for replicated in get(job, "spec", "replicatedJobs") or ()
    )


KIND = JobKind(
    "JobSet",
    "apis/jobset.x-k8s.io/v1alpha2",
    "jobsets",
    ("spec", "suspend"),
    labelled("jobset.sigs.k8s.io/jobset-name"),
    _templates,
    by_conditions(("Completed",), ("Failed",)),
    lambda job: str(count(get(job, "status", "restarts"))),
    _pods,
    affinity=False,
    gang=True,
    child_jobs=True,
)
