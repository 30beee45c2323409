"""Jobs in Kubernetes, restarted after infrastructure faults: Job, JobSet, TrainJob, PyTorchJob, MPIJob, Volcano's Job.

    [controllers.kubernetes]
    kubeconfig = "/etc/nhc/kubeconfig"   # in a pod its own account is used
    context = "train"
    namespaces = "team-a,team-b"         # default: all
    kinds = "PyTorchJob,JobSet"          # default: all that the cluster serves

HOLD suspends the job: its controller deletes its pods and counts no failure. RELEASE resumes it, with the nodes to
avoid in its pods' affinity, or in that of its Jobs, if its kind takes that. Each step is one patch under the
resourceVersion that was read, so that a second one changes nothing. A job that ended for good is deleted and created
again from its own specification.

Users submit jobs so that infrastructure faults do not use up their retries. A pod that is taken away with its node
carries the condition DisruptionTarget. A Job ignores the failure of this pod by a rule of its podFailurePolicy. A
JobSet fails the Job by the same kind of rule, and restarts itself without counting by a rule of its own.
"""

from __future__ import annotations

import json
import time
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.job_control import JobEndRecord, JobName, JobOrder, JobView, Submission, Submitted, Wish
from nhc.marks.ports.part_settings import Given, read
from nhc.marks.ports.repair import Answer, Sent
from nhc_adapters.kubernetes.api.access import ClusterSettings
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, Client, namespaced, node_path
from nhc_adapters.kubernetes.api.errors import ApiError, Unreachable
from nhc_adapters.kubernetes.api.objects import Object, conditions_of, controller_of, get, is_ready, name_of, notes_of
from nhc_adapters.kubernetes.jobs import child_jobs, kueue, volcano
from nhc_adapters.kubernetes.jobs.job_end import read_end
from nhc_adapters.kubernetes.jobs.kinds import (
    CHECKPOINT,
    HELD,
    KINDS,
    NOTE,
    NUMBER,
    RELEASED,
    VOLCANO,
    WISH,
    JobKind,
    annotate,
    change,
    path_of,
)
from nhc_adapters.kubernetes.jobs.placement import (
    PlaceOrder,
    at,
    avoid,
    avoided,
    fitting,
    hostnames_of,
    made_anew,
    put,
    remembered,
)
from nhc_adapters.kubernetes.jobs.view import Seen, number_of, view, wish_of
from nhc_adapters.kubernetes.nodes.own_marks import read_own_mark
from nhc_adapters.kubernetes.nodes.scheduling import takes_pods


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
        """One job, None if it is gone, or if another job has its name. Raises AdapterError."""
        kind, item = self.get(job)
        if item is None:
            return None
        return view(self._seen(kind, item), wish_of(item) or Wish(0))

    def get(self, job: JobName) -> Tuple[JobKind, Optional[Object]]:
        """The job's kind, and the job as the API has it; None if it is gone. Raises AdapterError."""
        kind = KINDS.get(job.kind)
        if kind is None:
            raise AdapterError(f"{printable(job.kind, 60)} is no kind of job that nhc knows")
        item = self.client.find(namespaced(job.namespace, kind.plural, job.name, kind.api))
        if item is not None and job.uid and get(item, "metadata", "uid") != job.uid:
            return kind, None  # another of its name
        return kind, item

    def manifest(self, job: JobView) -> str:
        """The job as its user wrote it, to be created again. Raises AdapterError."""
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


def _kinds(words: Sequence[str]) -> Tuple[str, ...]:
    for word in words:
        if word not in KINDS:
            raise ValueError(f"{printable(word, 60)!r} is not one of {', '.join(KINDS)}")
    return tuple(words) or tuple(KINDS)


@declared.settings
class KubernetesJobSettings(NamedTuple):
    """The table [controllers.kubernetes] of jobs.toml."""

    cluster: ClusterSettings = declared.part("", ClusterSettings)
    namespaces: Tuple[str, ...] = declared.texts("namespaces", (), "with commas between them; none: all")
    kinds: Tuple[str, ...] = declared.texts("kinds", tuple(KINDS), "with commas between them; none: all", made=_kinds)


class KubernetesJobController(JobReader):
    """The jobs of one cluster."""

    SETTINGS = KubernetesJobSettings

    def __init__(
        self, settings: Given = None, environ: Given = None, timeout: float = 30.0, client: Optional[Client] = None
    ) -> None:
        own = read(KubernetesJobSettings, settings, "controllers.kubernetes")
        if client is None:
            client = Client(own.cluster.find(environ), retry_for=5.0, read_timeout=timeout)
        super().__init__(client, [KINDS[kind] for kind in own.kinds], own.namespaces)
        self._home = next(iter(own.namespaces), client.access.namespace)

    def end(self, job: str) -> Optional[JobEndRecord]:
        """How a job ended, by its pods and their logs. Raises AdapterError."""
        return read_end(self.client, job, self._home)

    def hold(self, order: JobOrder) -> Sent:
        """Suspend the job; take it away where it ended for good."""
        return _answered(lambda: self._hold(order))

    def _hold(self, order: JobOrder) -> str:
        kind, job = self.get(order.job.job)
        if job is None:
            return "it is gone"
        if order.manifest:
            if not get(job, "metadata", "deletionTimestamp"):
                body = {"propagationPolicy": "Foreground", "preconditions": {"uid": get(job, "metadata", "uid")}}
                self.client.delete(path_of(kind, job), body)
            return "deleted"
        notes = {NUMBER: str(order.number), HELD: printable(order.because, 300)}
        if kueue.is_managed(job):
            return self._hold_workload(kind, job, notes)
        if kind.kind == VOLCANO.kind:
            annotate(self.client, kind, job, notes)
            self._command(volcano.command(job, "AbortJob", order.key, printable(order.because, 200)))
            return "aborted"

        def suspend(now: Dict[str, Any]) -> None:
            put(now, kind.suspend, True)
            now["metadata"].setdefault("annotations", {}).update(notes)

        change(self.client, kind, job, suspend)
        return "suspended"

    def _hold_workload(self, kind: JobKind, job: Object, notes: Mapping[str, str]) -> str:
        workload = self._workload(job)
        annotate(self.client, kind, job, notes)
        kueue.set_active(self.client, *workload, active=False)
        return "its Workload is inactive"

    def _workload(self, job: Object) -> Tuple[str, Object]:
        workload = kueue.workload(self.client, job)
        if workload is None:
            raise AdapterError("Kueue has no Workload for it")
        return workload

    def release(self, order: JobOrder) -> Sent:
        """Resume the job, or create it again, kept off the nodes to avoid if its kind supports that."""
        return _answered(lambda: self._release(order))

    def _release(self, order: JobOrder) -> str:
        kind, job = self.get(order.job.job._replace(uid="") if order.manifest else order.job.job)
        nodes = self.nodes()
        if order.manifest and job is None:
            whole = made_anew(kind, json.loads(order.manifest), order, nodes)
            namespace = str(get(whole, "metadata", "namespace"))
            self.client.post(namespaced(namespace, kind.plural, group=kind.api), whole)
            return "made anew"
        if job is None:
            raise AdapterError("it is gone")
        if number_of(job) != order.number or HELD not in notes_of(job):
            return "it is released already"
        gone: Dict[str, Optional[str]] = {HELD: None, RELEASED: f"{time.time():.3f}"}
        where = PlaceOrder(order.exclude, hostnames_of(nodes))
        if kind.kind == VOLCANO.kind and not kueue.is_managed(job):
            self._command(volcano.command(job, "ResumeJob", order.key, ""))
            annotate(self.client, kind, job, gone)
            return "resumed"
        if kind.child_jobs:
            self._place_children(job, where, nodes)
        if kind.clear_start and get(job, "status", "startTime"):
            job = self.client.patch(f"{path_of(kind, job)}/status", {"status": {"startTime": None}}, MERGE_PATCH)
        if not kueue.is_managed(job):
            change(self.client, kind, job, lambda now: _resume(kind, now, where, gone, suspended=False))
            return "resumed"
        workload = self._workload(job)
        if kind.affinity:
            change(self.client, kind, job, lambda now: _resume(kind, now, where, {}, suspended=True))
        kueue.set_active(self.client, *workload, active=True)
        annotate(self.client, kind, job, gone)
        return "its Workload is active"

    def _place_children(self, job: Object, where: PlaceOrder, nodes: Sequence[Object]) -> None:
        """Keep the job's Jobs off the nodes to avoid. Those that are out of service need it not."""
        children = child_jobs.read(self.client, job)
        if child_jobs.can_be_placed(children):
            child_jobs.keep_off(self.client, children, where)
        elif any(name_of(node) in where.exclude and takes_pods(node) for node in nodes):
            raise AdapterError("its Jobs are not all there and suspended, so it cannot be kept off nodes yet")

    def _command(self, body: Dict[str, Any]) -> None:
        path = namespaced(body["metadata"]["namespace"], "commands", group=volcano.COMMANDS)
        try:
            self.client.post(path, body)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

    def note(self, job: JobName, text: str) -> None:
        """A line in an annotation of the job. Raises AdapterError."""
        kind, item = self.get(job)
        if item is not None and notes_of(item).get(NOTE) != text:
            annotate(self.client, kind, item, {NOTE: printable(text, 500)})

    def submit(self, submission: Submission) -> Submitted:
        """Create the objects of manifests, one after another; each job with what was wished for."""
        import yaml

        try:
            prepared = [self._prepared(each, submission) for each in yaml.safe_load_all(submission.manifests) if each]
        except (yaml.YAMLError, RecursionError) as error:
            return Submitted((), f"the manifests are no YAML: {printable(' '.join(str(error).split()), 200)}")
        except AdapterError as error:
            return Submitted((), str(error))
        if not prepared:
            return Submitted((), "the manifests hold nothing")
        if submission.dry_run:
            return Submitted((), rendered=yaml.safe_dump_all([job for _kind, job in prepared], sort_keys=False))
        made: List[str] = []
        try:
            for kind, job in prepared:
                namespace = job["metadata"]["namespace"]
                self.client.post(namespaced(namespace, kind.plural, group=kind.api), job, retry=False)
                made.append(f"{kind.kind}/{namespace}/{name_of(job)}")
        except AdapterError as error:
            return Submitted(tuple(made), str(error), ambiguous=isinstance(error, Unreachable))
        return Submitted(tuple(made))

    def _prepared(self, document: Object, submission: Submission) -> Tuple[JobKind, Dict[str, Any]]:
        """A job of the manifests as it is sent. Raises AdapterError for anything else."""
        kind = kind_of(document, KINDS)
        if kind is None:
            known = ", ".join(KINDS)
            raise AdapterError(
                f"{printable(str(get(document, 'kind')), 60)} is no kind of job that nhc knows ({known})"
            )
        job = wished(document, kind, submission.wish)
        job["metadata"]["namespace"] = submission.namespace or str(
            get(job, "metadata", "namespace") or self.client.access.namespace
        )
        return kind, job


def _resume(
    kind: JobKind, now: Dict[str, Any], order: PlaceOrder, notes: Mapping[str, Optional[str]], suspended: bool
) -> None:
    """Replace the nodes to avoid, if the job's kind supports that, and the notes; resume it."""
    if kind.affinity:
        avoid(kind, now, avoided(now), order)
    if not suspended:
        put(now, kind.suspend, False)
    annotations = now["metadata"].setdefault("annotations", {})
    for key, value in notes.items():
        annotations.pop(key, None) if value is None else annotations.update({key: value})


def _answered(work: Callable[[], str]) -> Sent:
    """The result of a call: a refusal by the server proves that nothing was begun, silence proves nothing."""
    try:
        return Sent(Answer.ACCEPTED, work())
    except Unreachable as error:
        return Sent(Answer.AMBIGUOUS, str(error))
    except ApiError as error:
        uncertain = error.status >= 500 or error.status == 408
        return Sent(Answer.AMBIGUOUS if uncertain else Answer.REFUSED, str(error), retry_after=error.retry_after)
    except AdapterError as error:
        return Sent(Answer.REFUSED, str(error))


DISRUPTED = [{"type": "DisruptionTarget"}]
RULE = "nhcInfrastructure"
VARIABLE = "NHC_CHECKPOINT"


def wished(document: Mapping[str, object], kind: JobKind, wish: Optional[Wish]) -> Dict[str, Any]:
    """The job with what was wished for, if anything: our annotations, the checkpoint in its containers, rules for
    disruptions.

    Raises AdapterError for a job that is no such thing.
    """
    job: Dict[str, Any] = dict(document)
    if not isinstance(job.get("spec"), dict) or not get(job, "metadata", "name"):
        raise AdapterError(f"the {kind.kind} has no metadata.name or no spec")
    if wish is None:
        return job
    notes = job["metadata"].setdefault("annotations", {})
    notes[WISH] = "" if wish.max_restarts is None else str(wish.max_restarts)
    if wish.checkpoint:
        notes[CHECKPOINT] = wish.checkpoint
        _pass_on(job, kind, wish.checkpoint)
    if kind.kind in RULES:
        RULES[kind.kind](job)
    return job


def _pass_on(job: Dict[str, Any], kind: JobKind, checkpoint: str) -> None:
    variable = {"name": VARIABLE, "value": checkpoint}
    if kind.kind == "TrainJob":
        _set(job["spec"].setdefault("trainer", {}).setdefault("env", []), variable)
    for path in kind.templates(job):
        for container in get(at(job, path), "spec", "containers") or ():
            _set(container.setdefault("env", []), variable)


def _set(variables: List[Dict[str, Any]], variable: Dict[str, Any]) -> None:
    if all(other.get("name") != variable["name"] for other in variables):
        variables.append(variable)


def _job(job: Dict[str, Any]) -> None:
    """Disrupted pods count against no backoffLimit. The API takes such rules only where pods are never restarted."""
    if get(job, "spec", "template", "spec", "restartPolicy") == "Never":
        _first(job["spec"], {"action": "Ignore", "onPodConditions": DISRUPTED})


def _jobset(job: Dict[str, Any]) -> None:
    changed = False
    for row in get(job, "spec", "replicatedJobs") or ():
        inner = get(row, "template", "spec") or {}
        if get(inner, "template", "spec", "restartPolicy") == "Never":
            _first(inner, {"action": "FailJob", "onPodConditions": DISRUPTED})
            changed = True
    rules: List[Dict[str, Any]] = job["spec"].setdefault("failurePolicy", {}).setdefault("rules", []) if changed else []
    if changed and all(rule.get("name") != RULE for rule in rules):
        action = {
            "name": RULE,
            "action": "RestartJobSetAndIgnoreMaxRestarts",
            "onJobFailureReasons": ["PodFailurePolicy"],
        }
        rules.insert(0, action)


def _first(spec: Dict[str, Any], rule: Dict[str, Any]) -> None:
    rules: List[Dict[str, Any]] = spec.setdefault("podFailurePolicy", {}).setdefault("rules", [])
    if all(other.get("onPodConditions") != DISRUPTED for other in rules):
        rules.insert(0, rule)


RULES: Mapping[str, Callable[[Dict[str, Any]], None]] = {"Job": _job, "JobSet": _jobset}


def kind_of(document: object, kinds: Mapping[str, JobKind]) -> Optional[JobKind]:
    """The kind of a document, None for one that is no job."""
    version, name = str(get(document, "apiVersion") or ""), str(get(document, "kind") or "")
    return next((kind for kind in kinds.values() if kind.api == f"apis/{version}" and name == kind.name), None)
