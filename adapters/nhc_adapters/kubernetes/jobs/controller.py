"""Jobs in Kubernetes, restarted after infrastructure faults: Job, JobSet, TrainJob, PyTorchJob, MPIJob, Volcano's Job.

    [controllers.kubernetes]
    kubeconfig = "/etc/nhc/kubeconfig"   # in a pod its own account is used
    context = "train"
    namespaces = "team-a,team-b"         # default: all
    kinds = "PyTorchJob,JobSet"          # default: all that the cluster serves

HOLD suspends the job: its controller deletes its pods and counts no failure. RELEASE resumes it, with the nodes to
avoid in its pods' affinity, or in that of its Jobs, where its kind takes that. Each step is one patch under the
resourceVersion that was read, so that a second one changes nothing. A job that ended for good is deleted, and made anew
from what it was.
"""

from __future__ import annotations

import json
import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.job_ends import JobEndRecord
from nhc.marks.ports.jobs import JobName, JobOrder, Submission, Submitted
from nhc.marks.ports.part_settings import Given, read
from nhc.marks.ports.repair import Answer, Sent
from nhc_adapters.kubernetes.api.access import ClusterSettings
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, Client, namespaced
from nhc_adapters.kubernetes.api.errors import ApiError, Unreachable
from nhc_adapters.kubernetes.api.objects import Object, get, name_of, notes_of
from nhc_adapters.kubernetes.jobs import child_jobs, kueue, volcano
from nhc_adapters.kubernetes.jobs.job_end import read_end
from nhc_adapters.kubernetes.jobs.kinds import HELD, KINDS, NOTE, NUMBER, RELEASED, VOLCANO, JobKind
from nhc_adapters.kubernetes.jobs.manifest import made_anew
from nhc_adapters.kubernetes.jobs.patching import annotate, change, path_of
from nhc_adapters.kubernetes.jobs.placement import PlaceOrder, avoid, avoided, hostnames_of, put
from nhc_adapters.kubernetes.jobs.reading import JobReader
from nhc_adapters.kubernetes.jobs.submit import kind_of, wished
from nhc_adapters.kubernetes.jobs.view import number_of
from nhc_adapters.kubernetes.nodes.scheduling import takes_pods


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
        """Resume the job, or make it anew, kept off the nodes to avoid where its kind takes that."""
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
    """Put the nodes to avoid in place of those of before, where it takes that, and the notes; resume it."""
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
