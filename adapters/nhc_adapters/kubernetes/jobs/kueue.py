"""Jobs that Kueue admits. Kueue owns their `suspend`: nhc stops them by their Workload's `active`, never against Kueue.

An inactive Workload is evicted and loses its place in the queue; when active again, it is queued and admitted normally.
A suspended job may get another affinity: Kueue compares a job's pods with its Workload's only by number, containers and
tolerations, and restores no affinity when it stops a job [kubernetes-sigs/kueue 0.10 to 0.18, pkg/util/equality and
pkg/podset]. The Workload keeps the affinity that it was made with, by which Kueue chooses a flavor.
"""

from __future__ import annotations

from typing import Optional, Tuple

from nhc_adapters.kubernetes.api.client import MERGE_PATCH, Client, namespaced
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.api.objects import Object, get, name_of

QUEUE = "kueue.x-k8s.io/queue-name"
JOB_UID = "kueue.x-k8s.io/job-uid"
VERSIONS = ("apis/kueue.x-k8s.io/v1beta2", "apis/kueue.x-k8s.io/v1beta1")


def is_managed(job: Object) -> bool:
    """Whether the job is in one of Kueue's queues."""
    return bool(get(job, "metadata", "labels", QUEUE))


def workload(client: Client, job: Object) -> Optional[Tuple[str, Object]]:
    """The job's Workload, with the version of the API that serves it; None if Kueue has made none yet."""
    meta = job["metadata"]
    for version in VERSIONS:
        path = namespaced(meta["namespace"], "workloads", group=version)
        try:
            workloads = list(client.items(path, labelSelector=f"{JOB_UID}={meta['uid']}"))
        except ApiError as error:
            if error.status == 404:
                continue
            raise
        return (version, workloads[0]) if workloads else None
    return None


def is_active(workload: Object) -> bool:
    """Whether Kueue may admit it."""
    return get(workload, "spec", "active") is not False


def set_active(client: Client, version: str, workload: Object, active: bool) -> None:
    """Evict a Workload and keep it out, or let Kueue queue it again. Raises ApiError, Unreachable."""
    path = namespaced(str(get(workload, "metadata", "namespace")), "workloads", name_of(workload), group=version)
    client.patch(path, {"spec": {"active": active}}, MERGE_PATCH)
