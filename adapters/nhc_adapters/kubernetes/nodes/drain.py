"""Drain a node through the Eviction API: budgets are honoured, and what blocks the drain is reported.

A drain leaves the kubelet's own pods (mirror pods) alone, and those of a DaemonSet, which would be recreated at once.
It evicts a pod that has no controller, or keeps data in an emptyDir, only when asked for (`force`, `empty_dir`); an
emptyDir that the pod itself names in `cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes` may be lost. It
never evicts a pod with `cluster-autoscaler.kubernetes.io/safe-to-evict: "false"` or with a protected annotation.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from nhc.core.json_values import objects_of, text_of
from nhc.core.model import DeviceId
from nhc.core.settings import declared
from nhc.marks.ports.adapter import AdapterError
from nhc_adapters.kubernetes.api.client import Client, namespaced
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.api.objects import controller_of, get, true_conditions
from nhc_adapters.kubernetes.nodes.accelerators import is_accelerator
from nhc_adapters.kubernetes.nodes.conditions import read_conditions
from nhc_adapters.kubernetes.nodes.device_tags import read_device_tags
from nhc_adapters.kubernetes.nodes.evidence import read_sources
from nhc_adapters.kubernetes.nodes.own_marks import COLLECTS
from nhc_adapters.kubernetes.nodes.pods import MIRROR, has_ended, pod_name, pods_on, resources_of
from nhc_adapters.kubernetes.nodes.slurm_nodes import runs_jobs

# Which pods hold a device of a node that is at fault: so that only they are moved, and the others work on.
#
# The kubelet says in each pod's status which devices its containers have been given (KEP-4680,
# allocatedResourcesStatus; on by default from Kubernetes 1.36), with device plugins too. NVIDIA's name a GPU by its
# UUID, with `::N` behind it where it is shared. Pure.


def devices_at_fault(node: Mapping[str, Any]) -> Tuple[DeviceId, ...]:
    """The devices for which our mark is on a node; none if one of its sources concerns the node itself."""
    conditions = read_conditions(node)
    found: Dict[str, DeviceId] = {}
    for source in read_sources(node):
        kind, is_condition, bad = source.partition("=")
        condition = conditions.get(kind)
        if not is_condition or condition is None:
            return ()
        if condition.status != bad:
            continue  # it has ended
        tags = read_device_tags(condition.message)[1]
        if not tags or not all(tag.device.uuid for tag in tags):
            return ()
        found.update((tag.device.uuid, tag.device) for tag in tags)
    return tuple(found.values())


def may_hold(pod: Mapping[str, Any], devices: Sequence[DeviceId]) -> bool:
    """Whether a pod holds one of these devices, or asks for accelerators and nothing says which it has."""
    held = _held(pod)
    if not held:
        return any(map(is_accelerator, resources_of(pod))) or bool(get(pod, "spec", "resourceClaims"))
    return any(device.uuid and device.uuid == name for device in devices for name in held)


def _held(pod: Mapping[str, Any]) -> List[str]:
    """The devices that a pod's containers have, as their plugins name them; none where a claim's are among them: a DRA
    driver's names are no UUIDs.
    """
    status = get(pod, "status") or {}
    containers = (*objects_of(get(status, "initContainerStatuses")), *objects_of(get(status, "containerStatuses")))
    entries = [entry for one in containers for entry in objects_of(one.get("allocatedResourcesStatus"))]
    if any(text_of(entry.get("name")).startswith("claim:") for entry in entries):
        return []
    return [text_of(one.get("resourceID")).partition("::")[0]
            for entry in entries if is_accelerator(text_of(entry.get("name")))
            for one in objects_of(entry.get("resources"))]  # fmt: skip


# EvictionRequests: a pod's own responders are asked to let it go, before it is evicted (KEP-4563, lifecycle.k8s.io).
#
# Kubernetes 1.37 serves the kind behind the gate EvictionRequestAPI, in alpha (k8s.io/api/lifecycle/v1alpha1). Its
# controller turns requests into Evictions and, if no responder acts, evicts by itself. If nobody has looked at
# a request for UNSEEN seconds, or it has failed, the caller evicts as ever: a drain does not hang on what is not
# installed.


API = "apis/lifecycle.k8s.io/v1alpha1"
REQUESTER = "nhc/drain"

UNSEEN = 60.0
"""Seconds within which a controller that is there has looked at a request."""

ASKED = "its responders are asked to let it go (EvictionRequest)"


class _Request(NamedTuple):
    path: str
    since: float


class EvictionRequests:
    """The requests of one drain. They are withdrawn with it: that cancels what has not been done."""

    def __init__(self, client: Client, unseen: float = UNSEEN) -> None:
        self.client, self.unseen = client, unseen
        self._made: Dict[str, _Request] = {}
        self._over: Set[str] = set()
        """Pods that are to be evicted as ever, by uid."""
        self._none = False
        """Whether the cluster has no such kind, or does not let us."""

    def ask(self, pod: Mapping[str, Any], now: float) -> str:
        """Why a pod is waited for, "" if it is to be evicted. `now` is of a steady clock. Raises AdapterError."""
        uid = str(get(pod, "metadata", "uid"))
        # Pods of a PodGroup are no target of a request.
        if self._none or uid in self._over or get(pod, "spec", "schedulingGroup"):
            return ""
        if uid not in self._made:
            return ASKED if self._create(pod, uid, now) else ""
        made = self._made[uid]
        request = self.client.find(made.path)
        seen = get(request, "status", "observedGeneration") is not None
        failed = "Failed" in true_conditions(request or {})
        if request is None or failed or (not seen and now - made.since >= self.unseen):
            self._over.add(uid)
            return ""
        return ASKED

    def _create(self, pod: Mapping[str, Any], uid: str, now: float) -> bool:
        """Whether the request is active."""
        namespace, name = str(pod["metadata"]["namespace"]), f"nhc-{uid}"
        path = namespaced(namespace, "evictionrequests", group=API)
        target = {"pod": {"name": pod["metadata"]["name"], "uid": uid}}
        body = {
            "apiVersion": API.partition("/")[2], "kind": "EvictionRequest", "metadata": {"name": name},
            "spec": {"target": target, "requester": REQUESTER, "intent": "Eviction"},
        }  # fmt: skip
        try:
            self.client.post(path, body, retry=False)
        except ApiError as error:
            if error.status != 409:  # that one is there: another leader's, of the same drain
                self._none |= error.status in (403, 404)
                self._over.add(uid)
                return False
        self._made[uid] = _Request(f"{path}/{name}", now)
        return True

    def withdraw(self) -> None:
        """Take all requests back. Never raises AdapterError: those of pods that are gone are collected with them."""
        made, self._made = self._made, {}
        for request in made.values():
            try:
                self.client.delete(request.path)
            except AdapterError:
                continue


DEADLINE = 1800.0
"""Seconds after which a drain is given up; the result names what is left."""

BUDGET_WAIT = 5.0
"""Seconds between two tries of an eviction that a budget forbids: kubectl's and draino's pause."""

POLL = 1.0

SLURM_JOBS = "runs Slurm's jobs, which end by themselves"
"""Why a slurmd pod is waited for."""

ENDING = "because it is being terminated"
"""The server's words (403) for a namespace that is being deleted: its pods go by themselves."""

SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SAFE_VOLUMES = f"{SAFE}-local-volumes"
"""The cluster autoscaler's annotation that names a pod's volumes whose data may be lost, with commas."""


@declared.settings
class DrainRules(NamedTuple):
    """What a drain may do.

    `grace` is the longest grace period allowed to a pod (seconds), None for the pod's own. `selector` limits the pods
    by label; `protected` are `key` or `key=value` annotations that protect a pod. `waits` are patterns of namespaces
    whose work ends by itself: its pods are waited for, and never evicted.
    """

    grace: Optional[int] = declared.own(
        "grace", None, lambda table, key, usual: int(table.seconds(key, 0.0)) if key in table else usual,
        "longest grace period for a pod; unset: the pod's own", form="duration", shown='"30s"',
    )  # fmt: skip
    deadline: float = declared.seconds("deadline", DEADLINE)
    force: bool = declared.flag("force", False, "evict pods that nothing would start again")
    empty_dir: bool = declared.flag("empty-dir", False, "evict pods that keep data in an emptyDir")
    protected: Tuple[str, ...] = declared.texts("protected", (f"{SAFE}=false",), "annotations that protect a pod")
    namespaces: Tuple[str, ...] = declared.texts("namespaces", (), "only pods of these; none: of all")
    selector: str = declared.text("selector", "", "only pods with these labels")
    holders: bool = declared.flag(
        "only-holders", False,
        "where a mark is for single devices, evict only the pods that hold one of them (Kubernetes 1.36)",
    )  # fmt: skip
    requests: bool = declared.flag(
        "eviction-requests", False,
        "ask by EvictionRequests first, where the cluster has them (Kubernetes 1.37, alpha)",
    )  # fmt: skip
    waits: Tuple[str, ...] = ()


RULES = DrainRules()


@dataclass(frozen=True)
class DrainProgress:
    """How far a drain has come. `blocked` gives the reason of each pod that cannot go. `left` is -1 where pods cannot
    be read.
    """

    node: str
    evicted: int
    left: int
    elapsed: float
    blocked: Mapping[str, str] = field(default_factory=dict)
    done: bool = False
    error: str = ""

    @property
    def clean(self) -> bool:
        """Whether everything that had to go is gone."""
        return self.done and not self.left and not self.error

    def line(self) -> str:
        return self._line(f" after {self.elapsed:.0f} s")

    def state(self) -> str:
        """The line without the time: it differs once anything has changed."""
        return self._line("")

    def _line(self, after: str) -> str:
        if self.left < 0:
            return f"{self.node}: {self.evicted} evicted, the rest cannot be seen{after}; {self.error}"
        text = f"{self.node}: {self.evicted} evicted, {self.left} left{after}"
        if self.blocked:
            name, why = min(self.blocked.items())
            more = f" (and {len(self.blocked) - 1} more)" if len(self.blocked) > 1 else ""
            text += f"; waits for {name}: {why}{more}"
        return text + (f"; {self.error}" if self.error else "")


@dataclass(frozen=True)
class Sorted:
    """The pods of a node: to evict, to leave alone, and those that block the drain (each with the reason)."""

    evict: Tuple[Mapping[str, Any], ...]
    leave: Mapping[str, str]
    block: Mapping[str, str]


def sort_pods(pods: Sequence[Mapping[str, Any]], rules: DrainRules, devices: Sequence[DeviceId] = ()) -> Sorted:
    """What a drain would do to each of these pods; with `devices`, of those alone that may hold one of them. Pure."""
    evict: List[Mapping[str, Any]] = []
    leave: Dict[str, str] = {}
    block: Dict[str, str] = {}
    for pod in pods:
        name = pod_name(pod)
        metadata = pod.get("metadata", {})
        annotations = metadata.get("annotations") or {}
        controller, finished = controller_of(pod), has_ended(pod)
        if rules.namespaces and metadata.get("namespace") not in rules.namespaces:
            leave[name] = "its namespace is left out"
        elif MIRROR in annotations:
            leave[name] = "the kubelet's own"
        elif COLLECTS in annotations:
            leave[name] = "ours, and only reads"
        elif devices and not may_hold(pod, devices):
            leave[name] = "holds none of the devices at fault"
        elif runs_jobs(pod) and not finished:
            block[name] = SLURM_JOBS
        elif controller.get("kind") == "DaemonSet" and not finished:
            leave[name] = f"of DaemonSet {controller.get('name')}"
        elif any(fnmatchcase(str(metadata.get("namespace")), pattern) for pattern in rules.waits) and not finished:
            block[name] = "ends by itself: the work of its namespace is waited for"
        elif any(_annotated(annotations, wanted) for wanted in rules.protected) and not finished:
            block[name] = "protected by its annotation"
        elif not controller and not finished and not rules.force:
            block[name] = "nothing would start it again (force it to go)"
        elif _has_empty_dir(pod) and not finished and not rules.empty_dir:
            block[name] = "keeps data in an emptyDir (say that it may be lost)"
        else:
            evict.append(pod)
    return Sorted(tuple(evict), leave, block)


class Drain:
    """One node's drain, advanced a step at a time so that a caller can show progress, persist it, or stop."""

    def __init__(
        self,
        client: Client,
        node: str,
        rules: DrainRules = RULES,
        *,
        budget_wait: float = BUDGET_WAIT,
        elapsed: float = 0.0,
        allowed: Callable[[], bool] = lambda: True,
        devices: Sequence[DeviceId] = (),
    ) -> None:
        """`elapsed` is how many seconds ago the drain was begun, by another leader perhaps: the deadline is its own.
        `allowed` says whether a pod may be evicted at this moment. It is asked for each pod. `devices`: only
        what may hold one of them goes.
        """
        self.client, self.node, self.rules, self.allowed, self.devices = client, node, rules, allowed, devices
        self._budget_wait = budget_wait
        self._begin = time.monotonic() - elapsed
        self._refused: Dict[str, str] = {}  # uid to why the server will never evict it for us
        self._evicted: Dict[str, str] = {}  # uid to name, of evictions that the server accepted
        self._again: Dict[str, float] = {}  # uid to when the next try is due
        self._waits: Dict[str, str] = {}
        self._requests = EvictionRequests(client) if rules.requests else None

    def step(self) -> DrainProgress:
        """Look at the node, evict what can go now, and report the progress. Never raises AdapterError."""
        elapsed = time.monotonic() - self._begin
        late = elapsed >= self.rules.deadline
        try:
            pods = sort_pods(pods_on(self.client, self.node, self.rules.selector), self.rules, self.devices)
            for pod in pods.evict if not late else ():
                self._evict(pod)
        except AdapterError as error:
            # No right to see pods: waiting would not bring it. All else may pass.
            over = late or (isinstance(error, ApiError) and error.status in (401, 403))
            return DrainProgress(self.node, len(self._evicted), -1, elapsed, {}, over, str(error))
        pods = self._without_refused(pods)
        present = {_uid(pod) for pod in pods.evict}
        gone = sum(1 for uid in self._evicted if uid not in present)
        waits = {pod_name(pod): self._waits[uid] for pod in pods.evict if (uid := _uid(pod)) in self._waits}
        left = len(pods.evict) + len(pods.block)
        waited_for = pods.evict or SLURM_JOBS in pods.block.values()
        done = late or not waited_for
        error_text = ""
        if left:
            error_text = f"{left} may not be evicted" if not waited_for else "deadline passed" if late else ""
        return DrainProgress(self.node, gone, left, elapsed, {**pods.block, **waits}, done, error_text)

    def run(self, stop: Optional[threading.Event] = None, poll: float = POLL) -> Iterator[DrainProgress]:
        """Every step until it is done, or `stop` is set."""
        stop = stop or threading.Event()
        try:
            while True:
                progress = self.step()
                yield progress
                if progress.done or stop.wait(poll):
                    return
        finally:
            self.withdraw()

    def withdraw(self) -> None:
        """The drain has ended or was given up: withdraw all requests."""
        if self._requests is not None:
            self._requests.withdraw()

    def _without_refused(self, pods: Sorted) -> Sorted:
        """A pod whose eviction the server refuses for good is in the way: no waiting helps."""
        evict = tuple(pod for pod in pods.evict if _uid(pod) not in self._refused)
        refused = {pod_name(pod): self._refused[_uid(pod)] for pod in pods.evict if _uid(pod) in self._refused}
        return Sorted(evict, pods.leave, {**pods.block, **refused})

    def _evict(self, pod: Mapping[str, Any]) -> None:
        metadata, uid = pod["metadata"], _uid(pod)
        if metadata.get("deletionTimestamp"):
            self._evicted.setdefault(uid, pod_name(pod))
            self._waits[uid] = "is ending"
            return
        now = time.monotonic()
        if uid in self._evicted or uid in self._refused or now < self._again.get(uid, now) or not self.allowed():
            return
        if self._requests is not None and (why := self._requests.ask(pod, now)):
            self._again[uid], self._waits[uid] = now + self._budget_wait, why
            return
        path, body = eviction_of(pod)
        if self.rules.grace is not None:
            asked = pod.get("spec", {}).get("terminationGracePeriodSeconds", self.rules.grace)
            body["deleteOptions"]["gracePeriodSeconds"] = min(self.rules.grace, int(asked))
        try:
            self.client.post(path, body, retry=False)
        except ApiError as error:
            if error.status in (404, 409):  # gone, or replaced by another of its name
                self._evicted.setdefault(uid, pod_name(pod))
            elif error.status == 429:
                self._again[uid] = now + max(error.retry_after, self._budget_wait)
                self._waits[uid] = error.message or "a disruption budget"
            elif error.status >= 500 or ENDING in error.message:  # as when two budgets cover one pod
                self._again[uid] = now + self._budget_wait
                self._waits[uid] = error.message
            else:
                # 403: the rule for pods/eviction is missing, or a webhook says no. The other pods can still go.
                self._refused[uid] = f"the server refuses its eviction: {error.message or error.reason}"
        else:
            self._evicted[uid] = pod_name(pod)
            self._waits[uid] = "is ending"


def eviction_of(pod: Mapping[str, Any]) -> Tuple[str, Dict[str, Any]]:
    """The path to which a pod's eviction is posted, and its body."""
    metadata = pod["metadata"]
    body: Dict[str, Any] = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        # Not another pod that took its name in between.
        "deleteOptions": {"preconditions": {"uid": _uid(pod)}},
    }
    return f"{namespaced(metadata['namespace'], 'pods', metadata['name'])}/eviction", body


def _uid(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"].get("uid"))


def _annotated(annotations: Mapping[str, str], wanted: str) -> bool:
    key, separator, value = wanted.partition("=")
    return key in annotations and (not separator or annotations[key] == value)


def _has_empty_dir(pod: Mapping[str, Any]) -> bool:
    # One in memory is lost at every restart anyway, but its loss still surprises: kubectl counts it too.
    annotations = pod.get("metadata", {}).get("annotations") or {}
    safe = {name.strip() for name in str(annotations.get(SAFE_VOLUMES, "")).split(",")}
    volumes = pod.get("spec", {}).get("volumes") or ()
    return any("emptyDir" in volume and volume.get("name") not in safe for volume in volumes)
