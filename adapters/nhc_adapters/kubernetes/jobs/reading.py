"""What is read of jobs in Kubernetes: the jobs themselves, their pods and Workloads, and the nodes that they fit on."""

from __future__ import annotations

import json
from typing import FrozenSet, List, Mapping, Optional, Sequence, Tuple

from nhc.core.model import printable
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.job_control import JobName, JobOrder, JobView, Wish
from nhc_adapters.kubernetes.api.client import Client, namespaced, node_path
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.api.objects import Object, conditions_of, controller_of, get, is_ready, notes_of
from nhc_adapters.kubernetes.jobs import child_jobs, kueue
from nhc_adapters.kubernetes.jobs.kinds import HELD, KINDS, JobKind
from nhc_adapters.kubernetes.jobs.manifest import remembered
from nhc_adapters.kubernetes.jobs.placement import at, avoided, fitting
from nhc_adapters.kubernetes.jobs.view import Seen, number_of, view, wish_of
from nhc_adapters.kubernetes.nodes.own_marks import read_own_mark


class JobReader:
    """Reads the jobs of one cluster: those of these kinds, in these namespaces (none: in all)."""

    def __init__(self, client: Client, kinds: Sequence[JobKind], namespaces: Sequence[str]) -> None:
        self.client, self.kinds, self.namespaces = client, kinds, namespaces

    def jobs(self) -> Sequence[JobView]:
        """The jobs that ask for it by annotation, and those that show a restart of ours. Raises AdapterError."""
        views = []
        for kind in self.kinds:
            for job in self._objects(kind):
                wish = wish_of(job)
                if (wish is not None or number_of(job)) and not controller_of(job):
                    views.append(view(self._seen(kind, job), wish or Wish(0)))
        return views

    def _objects(self, kind: JobKind) -> List[Object]:
        named = [namespaced(namespace, kind.plural, group=kind.api) for namespace in self.namespaces]
        paths = named or [f"/{kind.api}/{kind.plural}"]
        objects: List[Object] = []
        for path in paths:
            try:
                objects += self.client.items(path)
            except ApiError as error:
                if error.status != 404:  # the cluster does not serve this kind
                    raise
        return objects

    def _seen(self, kind: JobKind, job: Object) -> Seen:
        path = namespaced(str(get(job, "metadata", "namespace")), "pods")
        pods = list(self.client.items(path, labelSelector=kind.selector(job)))
        managed = kueue.workload(self.client, job) if kueue.is_managed(job) else None
        placeable = (
            kind.child_jobs and HELD in notes_of(job) and child_jobs.can_be_placed(child_jobs.read(self.client, job))
        )
        return Seen(kind, job, pods, managed[1] if managed is not None else None, placeable)

    def look(self, job: JobName) -> Optional[JobView]:
        """One job, None where it is gone, or another of its name stands there. Raises AdapterError."""
        kind, item = self.get(job)
        if item is None:
            return None
        return view(self._seen(kind, item), wish_of(item) or Wish(0))

    def get(self, job: JobName) -> Tuple[JobKind, Optional[Object]]:
        """The job's kind, and the job as the API has it; None where it is gone. Raises AdapterError."""
        kind = KINDS.get(job.kind)
        if kind is None:
            raise AdapterError(f"{printable(job.kind, 60)} is no kind of job that nhc knows")
        item = self.client.find(namespaced(job.namespace, kind.plural, job.name, kind.api))
        if item is not None and job.uid and get(item, "metadata", "uid") != job.uid:
            return kind, None  # another of its name
        return kind, item

    def manifest(self, job: JobView) -> str:
        """The job as its user wrote it, to be made anew. Raises AdapterError."""
        kind, item = self.get(job.job)
        if item is None:
            raise AdapterError(f"{job.job.text()} is gone")
        return json.dumps(remembered(kind, item), separators=(",", ":"))

    def nodes(self) -> List[Object]:
        """All nodes. Raises AdapterError."""
        return list(self.client.items("/api/v1/nodes"))

    def healthy(self, order: JobOrder) -> FrozenSet[str]:
        """The nodes in service that the first of the job's pod templates fits on. Raises AdapterError."""
        kind, job = self.get(order.job.job)
        whole: Optional[Object] = json.loads(order.manifest) if order.manifest else job
        if whole is None:
            raise AdapterError(f"{order.job.job.text()} is gone")
        template, ours = self._template(kind, whole, is_there=not order.manifest)
        return fitting(self.nodes(), template if isinstance(template, Mapping) else {}, ours)

    def _template(self, kind: JobKind, job: Object, is_there: bool) -> Tuple[object, List[str]]:
        """The first of a job's pod templates, and the nodes that we have put into it; a TrainJob's is in its Jobs."""
        places = kind.templates(job)
        if places:
            return at(job, places[0]), avoided(job)
        for child in child_jobs.read(self.client, job).jobs if kind.child_jobs and is_there else ():
            return get(child, "spec", "template"), avoided(child)
        return {}, []

    def node_faults(self, names: Sequence[str]) -> Mapping[str, str]:
        """Nodes that are gone or not Ready, and those that nhc has marked. Raises AdapterError."""
        faults = {}
        for name in names:
            node = self.client.find(node_path(name))
            why = _fault(node) if node is not None else "the node is gone"
            if why:
                faults[name] = why
        return faults


def _fault(node: Object) -> str:
    """Why a node is no place for a job, by its own status; what an operator cordoned is no fault."""
    mark = read_own_mark(node)
    if mark is not None:
        return f"taken out of service: {mark.why}"
    if is_ready(node):
        return ""
    ready = conditions_of(node).get("Ready", {})
    return f"not Ready: {printable(str(ready.get('message') or 'its kubelet says nothing'), 200)}"
