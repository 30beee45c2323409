"""A job that ended for good, as it is made anew: what its user wrote, without what the cluster has put in. Pure."""

from __future__ import annotations

import copy
import time
from typing import Any, Dict, Mapping, Sequence

from nhc.core.model import printable
from nhc.marks.ports.job_control import JobOrder
from nhc_adapters.kubernetes.api.objects import Object, get
from nhc_adapters.kubernetes.jobs import kueue
from nhc_adapters.kubernetes.jobs.kinds import HELD, NOTE, NUMBER, RELEASED, JobKind
from nhc_adapters.kubernetes.jobs.placement import PlaceOrder, avoid, avoided, hostnames_of, put

DROPPED_NOTES = (HELD, NOTE, "kubectl.kubernetes.io/last-applied-configuration", "batch.kubernetes.io/job-tracking")
POD_LABELS = ("controller-uid", "batch.kubernetes.io/controller-uid", "job-name", "batch.kubernetes.io/job-name")
"""Labels that the Job controller puts into a Job's own pod template; it refuses those of another Job's."""


def remembered(kind: JobKind, job: Object) -> Dict[str, Any]:
    """The job without its status, its identity, and what its controller generated."""
    meta: Mapping[str, Any] = job.get("metadata") or {}
    made: Dict[str, Any] = {
        "apiVersion": job.get("apiVersion") or kind.api.partition("/")[2],
        "kind": job.get("kind") or kind.name,
        "metadata": {name: copy.deepcopy(meta[name]) for name in ("name", "namespace", "labels") if meta.get(name)},
        "spec": copy.deepcopy(dict(job.get("spec") or {})),
    }
    notes = {key: text for key, text in (meta.get("annotations") or {}).items() if key not in DROPPED_NOTES}
    if notes:
        made["metadata"]["annotations"] = notes
    if kind.kind == "Job":
        labelled = [made]
        if not made["spec"].get("manualSelector"):
            made["spec"].pop("selector", None)
            labelled.append(get(made, "spec", "template"))
        for part in labelled:
            labels = get(part, "metadata", "labels") or {}
            for name in POD_LABELS:
                labels.pop(name, None)
    return made


def made_anew(kind: JobKind, job: Dict[str, Any], order: JobOrder, nodes: Sequence[Object]) -> Dict[str, Any]:
    """The job to create: kept off the nodes to avoid, and showing the number of its restart."""
    exclude = list(order.exclude) if kind.templates(job) else []
    avoid(kind, job, avoided(job), PlaceOrder(exclude, hostnames_of(nodes)))
    if kind.suspend:
        inner: Dict[str, Any] = job
        for name in kind.suspend[:-1]:
            inner = inner.setdefault(name, {})
        inner.pop(kind.suspend[-1], None)
    notes = job["metadata"].setdefault("annotations", {})
    if order.exclude and kind.child_jobs and not kind.templates(job) and not kueue.is_managed(job):
        # Its Jobs are made from another object's template: the next RELEASE keeps them off.
        put(job, kind.suspend, True)
        notes[HELD] = printable(order.because, 300)
    notes.update({NUMBER: str(order.number), RELEASED: f"{time.time():.3f}"})
    return job
