"""Where a job may run: nodes kept out of its pods' affinity by name, and the nodes in service that fit it. Pure."""

from __future__ import annotations

import copy
import json
import time
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Sequence

from nhc.core.json_values import texts_of
from nhc.core.model import printable
from nhc.core.system.bounded_read import parse_json
from nhc.marks.ports.job_control import JobOrder
from nhc_adapters.kubernetes.api.objects import Object, get, name_of, notes_of
from nhc_adapters.kubernetes.jobs import kueue
from nhc_adapters.kubernetes.jobs.kinds import AVOIDS, HELD, NOTE, NUMBER, RELEASED, JobKind
from nhc_adapters.kubernetes.nodes.scheduling import REQUIRED, chooses, takes_pods

HOSTNAME = "kubernetes.io/hostname"


def without(affinity: object, ours: Iterable[str], hostnames: Mapping[str, str]) -> Any:
    """An affinity without the nodes that we have put in, as its user wrote it; None if nothing is left."""
    row = _row(ours, hostnames)
    if not isinstance(affinity, Mapping) or not row["values"]:
        return affinity
    changed: Dict[str, Any] = copy.deepcopy(dict(affinity))
    terms = get(changed, "nodeAffinity", REQUIRED, "nodeSelectorTerms")
    if terms == [{"matchExpressions": [row]}]:
        del changed["nodeAffinity"][REQUIRED]
        if not changed["nodeAffinity"]:
            del changed["nodeAffinity"]
        return changed or None
    for term in terms if isinstance(terms, list) else []:
        rows = term.get("matchExpressions") or []
        if row in rows:  # an equal term that its user wrote comes before ours
            del rows[len(rows) - 1 - rows[::-1].index(row)]
            if not rows:
                del term["matchExpressions"]
    return changed


def _row(nodes: Iterable[str], hostnames: Mapping[str, str]) -> Dict[str, Any]:
    """Our condition, always in the same words."""
    return {"key": HOSTNAME, "operator": "NotIn", "values": sorted({hostnames.get(node, node) for node in nodes})}


def keep_off(affinity: object, nodes: Sequence[str], hostnames: Mapping[str, str]) -> Any:
    """An affinity that keeps pods off these nodes as well. Terms are alternatives: each gets the condition, but for an
    empty one, which chooses no node, and would choose nearly all.
    """
    if not nodes:
        return affinity
    changed: Dict[str, Any] = copy.deepcopy(dict(affinity)) if isinstance(affinity, Mapping) else {}
    required = changed.setdefault("nodeAffinity", {}).setdefault(REQUIRED, {})
    terms = required.setdefault("nodeSelectorTerms", [])
    if not terms:
        terms.append({"matchExpressions": [_row(nodes, hostnames)]})
        return changed
    for term in terms:
        if term.get("matchExpressions") or term.get("matchFields"):
            term.setdefault("matchExpressions", []).append(_row(nodes, hostnames))
    return changed


class PlaceOrder(NamedTuple):
    """Nodes to keep a job off, and the hostname label of every node."""

    exclude: Sequence[str]
    hostnames: Mapping[str, str]


def avoid(kind: JobKind, job: Dict[str, Any], before: Sequence[str], order: PlaceOrder) -> None:
    """Keep every pod of the job off these nodes instead of the earlier ones; an annotation names them."""
    for path in kind.templates(job):
        spec = at(job, path).setdefault("spec", {})
        affinity = keep_off(without(spec.get("affinity"), before, order.hostnames), order.exclude, order.hostnames)
        if affinity:
            spec["affinity"] = affinity
        else:
            spec.pop("affinity", None)
    job["metadata"].setdefault("annotations", {})[AVOIDS] = json.dumps(list(order.exclude))


def avoided(job: Object) -> List[str]:
    """The nodes that we have put into its affinity."""
    try:
        return texts_of(parse_json(notes_of(job).get(AVOIDS, "[]")))
    except ValueError:
        return []


def at(value: Any, path: Sequence[str]) -> Any:
    """The value at a path, through tables and lists."""
    for name in path:
        value = value[int(name)] if isinstance(value, list) else value[name]
    return value


def put(value: Dict[str, Any], path: Sequence[str], what: object) -> None:
    """Set the value at a path; missing tables are created."""
    for name in path[:-1]:
        value = value.setdefault(name, {})
    value[path[-1]] = what


def hostnames_of(nodes: Sequence[Mapping[str, Any]]) -> Dict[str, str]:
    """The hostname label of each node, which need not be its name."""
    return {name_of(node): str(get(node, "metadata", "labels", HOSTNAME) or name_of(node)) for node in nodes}


def fitting(nodes: Sequence[Mapping[str, Any]], pod: Mapping[str, object], ours: Iterable[str]) -> FrozenSet[str]:
    """The nodes in service that a pod's selector, affinity and tolerations allow; `ours` in its affinity aside."""
    spec = dict(get(pod, "spec") or {})
    spec["affinity"] = without(spec.get("affinity"), ours, hostnames_of(nodes))
    tolerations = spec.get("tolerations") or ()
    return frozenset(name_of(node) for node in nodes if takes_pods(node, tolerations) and chooses(spec, node))


# The new version of a job that ended for good: what its user wrote, without the fields that the cluster added. Pure.


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
