"""The Jobs of a JobSet, through which it is kept off nodes by name. A TrainJob has a JobSet of its own name.

A JobSet's webhook refuses a changed affinity, suspended or not. Each of its Jobs accepts one while it is suspended, and
keeps it on resumption: the controller merges labels, annotations, node selectors and tolerations into a Job, and
nothing else [kubernetes-sigs/jobset, pkg/controllers/jobset_controller.go, resumeJob]. A restart by the JobSet's
failure policy recreates the Jobs from its template, without that affinity: this will happen to Jobs that are missing or
failed.
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence

from nhc_adapters.kubernetes.api.client import MERGE_PATCH, Client, namespaced
from nhc_adapters.kubernetes.api.objects import Object, get, name_of, notes_of, true_conditions
from nhc_adapters.kubernetes.jobs.kinds import AVOIDS, JOB, JOBSET, change, count, path_of
from nhc_adapters.kubernetes.jobs.placement import PlaceOrder, avoid, avoided

OF_ROW = "jobset.sigs.k8s.io/replicatedjob-name"


class ChildJobs(NamedTuple):
    """A JobSet and its Jobs; `jobset` None if there is none."""

    jobset: Optional[Object]
    jobs: Sequence[Object]


def read(client: Client, job: Object) -> ChildJobs:
    """The Jobs of a JobSet or a TrainJob. Raises AdapterError."""
    namespace, name = str(get(job, "metadata", "namespace")), name_of(job)
    owner = client.find(namespaced(namespace, JOBSET.plural, name, JOBSET.api))
    if owner is None:
        return ChildJobs(None, ())
    path = namespaced(namespace, JOB.plural, group=JOB.api)
    uid = get(owner, "metadata", "uid")
    owned = [child for child in client.items(path, labelSelector=f"{JOBSET.label}={name}") if _is_of(child, uid)]
    return ChildJobs(owner, owned)


def _is_of(job: Object, uid: object) -> bool:
    owners = get(job, "metadata", "ownerReferences") or ()
    return any(owner.get("uid") == uid for owner in owners) and not get(job, "metadata", "deletionTimestamp")


def can_be_placed(children: ChildJobs) -> bool:
    """Whether all Jobs are there, and those that are not done are suspended: what is put into them will hold."""
    if children.jobset is None:
        return False
    for row in get(children.jobset, "spec", "replicatedJobs") or ():
        mine = [child for child in children.jobs if get(child, "metadata", "labels", OF_ROW) == row.get("name")]
        if len(mine) < count(row.get("replicas"), 1):
            return False
    waiting = (job for job in children.jobs if not _is_done(job))
    return all(get(job, "spec", "suspend") is True and "Failed" not in true_conditions(job) for job in waiting)


def keep_off(client: Client, children: ChildJobs, order: PlaceOrder) -> None:
    """Put the nodes to avoid into every Job that will run, in place of the earlier ones. Raises AdapterError."""
    ours = avoided(children.jobset or {})
    for child in (child for child in children.jobs if not _is_done(child)):
        job = child
        before = avoided(job) if AVOIDS in notes_of(job) else ours  # made from the template, which may hold some
        if get(job, "status", "startTime"):
            job = client.patch(f"{path_of(JOB, job)}/status", {"status": {"startTime": None}}, MERGE_PATCH)
        change(client, JOB, job, lambda now, before=before: avoid(JOB, now, before, order))  # type: ignore[misc]


def _is_done(job: Object) -> bool:
    return "Complete" in true_conditions(job)
