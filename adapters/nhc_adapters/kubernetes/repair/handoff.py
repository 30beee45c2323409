"""Repairs by another controller of the cluster: requested once, in that controller's own form, and watched to the end.

    [repairers.capi]
    type = "kubernetes-handoff"
    to = "cluster-api"          # metal3, self-node-remediation, fence-agents-remediation, karpenter, kured
    rungs = ["replace"]
    management-kubeconfig = "/etc/nhc/management.kubeconfig"   # where the actor's objects are, if not with the nodes

The module of each actor's name says what it requests, respects and waits for.
"""

from __future__ import annotations

import json
import time
from typing import Callable, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence

from nhc.core.model import printable
from nhc.core.timestamps import from_utc
from nhc.marks.ports.adapter import SettingError
from nhc.marks.ports.part_settings import Given, read
from nhc.marks.ports.repair import Answer, Machine, Order, Progress, Right, Rung, Sent, Sighting, Stage
from nhc_adapters.kubernetes.api.client import namespaced
from nhc_adapters.kubernetes.api.objects import conditions_of, notes_of, texts
from nhc_adapters.kubernetes.api.rights import ClusterRight
from nhc_adapters.kubernetes.repair.actor_kinds import is_host_of
from nhc_adapters.kubernetes.repair.cluster import CONFLICT, KubeNode, Object, RepairCluster
from nhc_adapters.kubernetes.repair.cluster_api import CLOCKS, ClusterApi
from nhc_adapters.kubernetes.repair.handover import (
    Actor,
    ActorSettings,
    HandoffSettings,
    annotate,
    booted,
    is_of,
    order_notes,
)
from nhc_adapters.kubernetes.repair.pinned_job import HandSettings, JobPlace, OrderJobs, job_name, order_text
from nhc_adapters.kubernetes.repair.shown_on_nodes import KURED_LOCK, of_kured
from nhc_adapters.node.repairer import asked_of
from nhc_adapters.repair import LATER, CallFailed, RepairRefused, accepted, send_once

# Metal3 reboots a host whose BareMetalHost is annotated: softly for a reboot, by its power for a power cycle.
#
# `reboot.metal3.io` with `{"mode": "hard"}` is asked for once; the operator takes it off when the host has been off
# [metal3-io/baremetal-operator, apis/metal3.io/v1alpha1/baremetalhost_types.go]. Another's annotation of that prefix,
# `paused` and `detached` are respected.


METAL3_GROUP = "metal3.io"
REBOOT = "reboot.metal3.io"
MODES = {Rung.REBOOT: "soft", Rung.POWER_CYCLE: "hard"}


class Metal3(Actor):
    """Requested by an annotation of a BareMetalHost."""

    rungs: FrozenSet[Rung] = frozenset(MODES)

    def can(self, machine: Machine) -> str:
        if machine.provider_id and not machine.provider_id.startswith("metal3://"):
            return f"{machine.node} is no host of Metal3's ({machine.provider_id})"
        return ""

    def needed(self) -> List[ClusterRight]:
        purpose = "to ask for a host's reboot, and to watch it"
        return [
            ClusterRight(verb, "baremetalhosts", METAL3_GROUP, purpose=purpose) for verb in ("get", "list", "patch")
        ]

    def instance(self, node: KubeNode) -> str:
        host = self._host(node)
        return f"{host['metadata']['namespace']}/{host['metadata']['name']}" if host is not None else ""

    def ask(self, order: Order, node: KubeNode) -> Sent:
        host = self._host(node)
        if host is None:
            raise RepairRefused(f"there is no BareMetalHost for {node.name} ({node.provider_id})")
        meta = host["metadata"]
        what = f"the BareMetalHost {meta['namespace']}/{meta['name']}"
        notes, status = notes_of(host), host.get("status") or {}
        for key in ("paused", "detached"):
            if f"baremetalhost.{METAL3_GROUP}/{key}" in notes:
                raise RepairRefused(f"{what} is {key}")
        asked = [key for key in notes if key.startswith(REBOOT)]
        if asked:
            raise RepairRefused(f"{what} is to be rebooted already ({asked[0]})", LATER)
        if (host.get("spec") or {}).get("online") is False:
            raise RepairRefused(f"{what} is to be off (spec.online)")
        if status.get("operationalStatus") in ("error", "detached"):
            raise RepairRefused(f"{what}: {status.get('errorMessage') or status.get('operationalStatus')}")
        mode = MODES[order.rung]
        change = {**order_notes(order), REBOOT: json.dumps({"mode": mode})}
        annotate(self.objects, self._path(meta["namespace"], meta["name"]), host, change)
        name = f"{meta['namespace']}/{meta['name']}"
        return accepted(f"asked Metal3 for a {mode} reboot of {name}", name)

    def progress(self, order: Order, sent: Sent, before: Sighting, node: Optional[KubeNode]) -> Progress:
        done = booted(before, order, node)
        if done is not None:
            return done
        namespace, _, name = (sent.request_id or before.instance).partition("/")
        host = self.objects.find(self._path(namespace, name)) if name else None
        if host is None or not is_of(host, order):
            return Progress(Stage.WORKING, "no BareMetalHost carries the order")
        status: Mapping[str, object] = host.get("status") or {}
        if status.get("errorType") == "power management error":
            return Progress(Stage.FAILED, f"Metal3: {status.get('errorMessage') or status.get('errorType')}")
        begun = REBOOT not in notes_of(host)
        return Progress(Stage.WORKING, "the host was off, and boots" if begun else "Metal3 has not begun yet")

    def _host(self, node: KubeNode) -> Optional[Object]:
        """The host that the node's providerID names. Raises CallFailed."""
        parts = node.provider_id[len("metal3://") :].strip("/").split("/")
        if len(parts) > 1:
            host = self.objects.find(self._path(parts[0], parts[1]))
            return host if host is not None and is_host_of(host, node) else None
        every = self.objects.items(self._path(""))
        return next((item for item in every if is_host_of(item, node)), None)

    def _path(self, namespace: str, name: str = "") -> str:
        return self.objects.kind(METAL3_GROUP, "baremetalhosts", namespace, name)


# medik8s fences a node for which a remediation is made: SelfNodeRemediation, or FenceAgentsRemediation.
#
# The remediation is made of the site's template, and bears the node's name, as NodeHealthCheck's do [medik8s,
# selfnoderemediation_types.go, fenceagentsremediation_types.go]. Who made it deletes it: only then its taint goes off
# the node. A node with the label `remediation.medik8s.io/exclude-from-remediation` is left alone.


EXCLUDED = "remediation.medik8s.io/exclude-from-remediation"
FAILED_ID = "failed: "


class Remediation(NamedTuple):
    """One remediator's kind, and its template's."""

    group: str
    kind: str
    plural: str
    templates: str
    rungs: FrozenSet[Rung]


SELF_NODE = Remediation("self-node-remediation.medik8s.io", "SelfNodeRemediation", "selfnoderemediations",
                        "selfnoderemediationtemplates", frozenset({Rung.REBOOT}))  # fmt: skip
FENCE_AGENTS = Remediation("fence-agents-remediation.medik8s.io", "FenceAgentsRemediation", "fenceagentsremediations",
                           "fenceagentsremediationtemplates", frozenset({Rung.REBOOT, Rung.POWER_CYCLE}))  # fmt: skip


class Medik8s(Actor):
    """Requested by a remediation object for the node."""

    def __init__(self, given: ActorSettings, remediation: Remediation) -> None:
        super().__init__(given)
        self.made, self.rungs = remediation, remediation.rungs
        self.namespace, _, self.template = given.own.template.partition("/")
        if not self.template:
            raise SettingError(
                "template", f"{given.own.template!r} is not NAMESPACE/NAME of one of the {remediation.templates}"
            )

    def can(self, machine: Machine) -> str:
        excluded = machine.labels.get(EXCLUDED) == "true"
        return f"{machine.node} is excluded from remediation (label {EXCLUDED})" if excluded else ""

    def needed(self) -> List[ClusterRight]:
        purpose = "to have a node remediated, and to watch it"
        return [
            *(ClusterRight(verb, self.made.plural, self.made.group, self.namespace, purpose=purpose)
              for verb in ("create", "get", "delete")),
            ClusterRight("get", self.made.templates, self.made.group, self.namespace, self.template, purpose),
        ]  # fmt: skip

    def ask(self, order: Order, node: KubeNode) -> Sent:
        if node.labels.get(EXCLUDED) == "true":
            raise RepairRefused(f"{node.name} is excluded from remediation (label {EXCLUDED})")
        templates = self.objects.kind(self.made.group, self.made.templates, self.namespace, self.template)
        template = self.objects.find(templates)
        if template is None:
            raise RepairRefused(f"there is no template {self.namespace}/{self.template} ({self.made.templates})")
        spec = ((template.get("spec") or {}).get("template") or {}).get("spec") or {}
        version = self.objects.version(self.made.group)
        body = {
            "apiVersion": version, "kind": self.made.kind, "spec": spec,
            "metadata": {"name": node.name, "namespace": self.namespace, "annotations": order_notes(order)},
        }  # fmt: skip
        try:
            self.objects.create(self._path(""), body)
        except CallFailed as error:
            if error.code != str(CONFLICT):
                raise
            return self._taken(order, node.name)
        return accepted(f"made the {self.made.kind} {self.namespace}/{node.name}", node.name)

    def _taken(self, order: Order, name: str) -> Sent:
        standing = self.objects.find(self._path(name))
        if standing is not None and is_of(standing, order):
            return accepted(f"the {self.made.kind} {self.namespace}/{name} was made before", name)
        raise CallFailed(Answer.REFUSED, f"{name} has another {self.made.kind} already", retry_after=LATER)

    def progress(self, order: Order, sent: Sent, before: Sighting, node: Optional[KubeNode]) -> Progress:
        done, remediation = booted(before, order, node), self._ours(order)
        if remediation is None:
            if done is not None:
                return done
            if sent.request_id.startswith(FAILED_ID):
                return Progress(Stage.FAILED, f"{self.made.kind}: {sent.request_id[len(FAILED_ID) :]}")
            return Progress(Stage.WORKING, f"there is no {self.made.kind} of this order")
        if remediation["metadata"].get("deletionTimestamp"):
            return Progress(Stage.WORKING, f"the {self.made.kind} is being deleted")
        why = _failure(remediation)
        if why or (done is not None and _ended(remediation)):
            return Progress(Stage.HALFWAY, f"the {self.made.kind} has ended and is to be deleted: {why or 'it booted'}")
        processing: Mapping[str, object] = conditions_of(remediation).get("Processing") or {}
        return Progress(Stage.WORKING, f"the {self.made.kind}: {processing.get('reason') or 'has not begun'}")

    def finish(self, order: Order) -> Sent:
        """Delete the remediation, so that the node's taint goes."""
        remediation = self._ours(order)
        if remediation is None:
            return accepted(f"the {self.made.kind} is gone already", order.machine.node)
        why = _failure(remediation)
        self.objects.delete(self._path(order.machine.node), {"preconditions": {"uid": remediation["metadata"]["uid"]}})
        return accepted(f"deleted the {self.made.kind}", f"{FAILED_ID}{why}" if why else order.machine.node)

    def _ours(self, order: Order) -> Optional[Object]:
        remediation = self.objects.find(self._path(order.machine.node))
        return remediation if remediation is not None and is_of(remediation, order) else None

    def _path(self, name: str) -> str:
        return self.objects.kind(self.made.group, self.made.plural, self.namespace, name)


def _ended(remediation: Object) -> bool:
    """Whether the remediator says that it is through with it. Both conditions are medik8s' own for all of them."""
    conditions = conditions_of(remediation)
    return all((conditions.get(kind) or {}).get("status") == status for kind, status in
               (("Processing", "False"), ("Succeeded", "True")))  # fmt: skip


def _failure(remediation: Object) -> str:
    """Why the remediator has given it up, "" if it has not."""
    conditions = conditions_of(remediation)
    succeeded: Mapping[str, object] = conditions.get("Succeeded") or {}
    if succeeded.get("status") != "False" or (conditions.get("Processing") or {}).get("status") != "False":
        return ""
    return str(succeeded.get("message") or succeeded.get("reason") or "it failed")


# kured reboots a node whose sentinel file is there: in its own windows, one node at a time, after its own drain.
#
# The file is made by a Job on the node (`repairer`), since kured looks nowhere else. kured's lock, windows and blockers
# decide when it reboots: allow for them in `effect.reboot`.


KURED_HAND = HandSettings(deadline=300)
"""A file is made: minutes, not the twenty of a repair."""


class Kured(Actor):
    """Requested by a file on the node."""

    rungs: FrozenSet[Rung] = frozenset({Rung.REBOOT})

    def __init__(self, given: ActorSettings) -> None:
        super().__init__(given)
        own = given.own
        self.sentinel = own.sentinel
        self.place = JobPlace(own.namespace, own.image)
        self.orders = OrderJobs(self.nodes, self.place, KURED_HAND)
        self.where, _, self.daemonset = own.daemonset.partition("/")
        if not self.sentinel.startswith("/"):
            raise SettingError("sentinel", f"{own.sentinel!r} is not a path on the node")
        if not self.daemonset:
            raise SettingError("daemonset", f"{own.daemonset!r} is not NAMESPACE/NAME of kured's DaemonSet")

    def can(self, machine: Machine) -> str:
        return "" if self.place.image else "no image is set up for the Job that makes the sentinel (image)"

    def needed(self) -> List[ClusterRight]:
        here = self.place.namespace
        return [
            *(ClusterRight(verb, "jobs", "batch", here, purpose="to make kured's sentinel on the node")
              for verb in ("create", "get")),
            ClusterRight("list", "pods", "", here, purpose="to read what became of that"),
            ClusterRight("get", "daemonsets", "apps", self.where, self.daemonset, "to see kured and its lock"),
        ]  # fmt: skip

    def ask(self, order: Order, node: KubeNode) -> Sent:
        if not node.ready:
            raise RepairRefused(f"the kubelet of {node.name} is not ready: neither a Job nor kured would run", LATER)
        if self._kured() is None:
            raise RepairRefused(f"there is no DaemonSet {self.where}/{self.daemonset}: nobody would reboot the node")
        machine = order.machine._replace(boot_id=order.machine.boot_id or node.boot)
        asked = asked_of(order._replace(machine=machine), (), (), "", 0.0)
        self.orders.create(order, ("sentinel", order_text(asked), self.sentinel))
        name = job_name(order.key)
        return accepted(f"the Job {self.place.namespace}/{name} makes {self.sentinel} for kured", name)

    def progress(self, order: Order, sent: Sent, before: Sighting, node: Optional[KubeNode]) -> Progress:
        done = booted(before, order, node)
        if done is not None:
            return done
        seen = self.orders.seen(order)
        if seen is None:
            return Progress(Stage.WORKING, "the Job that makes the sentinel is not there (yet)")
        if seen.ended and seen.text("stage") != "done":
            why = seen.text("message") or seen.text("problem") or seen.why
            return Progress(Stage.FAILED, f"the sentinel was not made: {why}")
        if not seen.ended:
            return Progress(Stage.WORKING, seen.why or "the sentinel is being made")
        kured = self._kured()
        if kured is not None and of_kured(kured, order.machine.node):
            return Progress(Stage.WORKING, f"kured has its lock for the node ({KURED_LOCK})")
        return Progress(Stage.WORKING, "kured has not rebooted the node yet")

    def _kured(self) -> Optional[Object]:
        return self.nodes.find(namespaced(self.where, "daemonsets", self.daemonset, "apis/apps/v1"))


# Karpenter replaces an instance whose NodeClaim is deleted: it drains the node, and starts another for what waits.
#
# `karpenter.sh/do-not-disrupt` on the node or its claim is respected. Another instance comes when pods need one: until
# then there is none to prove [kubernetes-sigs/karpenter, pkg/apis/v1/nodeclaim_status.go, labels.go].


KARPENTER = "karpenter.sh"
KARPENTER_POOL = f"{KARPENTER}/nodepool"
KARPENTER_KEEP = f"{KARPENTER}/do-not-disrupt"


class Karpenter(Actor):
    """Requested by deleting a NodeClaim."""

    rungs: FrozenSet[Rung] = frozenset({Rung.REPLACE})

    def can(self, machine: Machine) -> str:
        if machine.labels and KARPENTER_POOL not in machine.labels:
            return f"{machine.node} is of no NodePool (label {KARPENTER_POOL})"
        return ""

    def needed(self) -> List[ClusterRight]:
        purpose = "to have an instance replaced, and to watch it"
        return [ClusterRight(verb, "nodeclaims", KARPENTER, purpose=purpose) for verb in ("list", "delete")]

    def instance(self, node: KubeNode) -> str:
        """KARPENTER_POOL/CLAIM."""
        claim = self._claim(node)
        return f"{node.labels.get(KARPENTER_POOL, '')}/{claim['metadata']['name']}" if claim is not None else ""

    def ask(self, order: Order, node: KubeNode) -> Sent:
        claim = self._claim(node)
        if claim is None:
            raise RepairRefused(f"{node.name} has no NodeClaim")
        meta = claim["metadata"]
        if "true" in (node.annotations.get(KARPENTER_KEEP), notes_of(claim).get(KARPENTER_KEEP)):
            raise RepairRefused(f"{node.name} is not to be disrupted (annotation {KARPENTER_KEEP})")
        if meta.get("deletionTimestamp"):
            raise RepairRefused(f"the NodeClaim {meta['name']} is being deleted already", LATER)
        self.objects.delete(self._path(meta["name"]), {"preconditions": {"uid": meta["uid"]}})
        pool = texts(meta.get("labels")).get(KARPENTER_POOL, "")
        return accepted(f"deleted the NodeClaim {meta['name']}: Karpenter replaces it", f"{pool}/{meta['name']}")

    def progress(self, order: Order, sent: Sent, before: Sighting, node: Optional[KubeNode]) -> Progress:
        pool, _, name = (sent.request_id or before.instance).partition("/")
        every = self.objects.items(self._path())
        old = next((claim for claim in every if claim["metadata"]["name"] == name), None)
        if not name or (old is not None and not old["metadata"].get("deletionTimestamp")):
            return Progress(Stage.WORKING, f"the NodeClaim {name} stands")
        if old is not None:
            return Progress(Stage.WORKING, f"Karpenter drains and removes {name}")
        for claim in every:
            if texts(claim["metadata"].get("labels")).get(KARPENTER_POOL) != pool or not _ready(claim):
                continue
            if from_utc(claim["metadata"].get("creationTimestamp"), 0.0) >= before.at - CLOCKS:
                there = str(claim["status"].get("nodeName") or "")
                return Progress(Stage.DONE, f"{name} is gone; {claim['metadata']['name']} is ready", there)
        return Progress(Stage.WORKING, f"{name} is gone; Karpenter starts another in {pool} when pods need one")

    def _claim(self, node: KubeNode) -> Optional[Object]:
        """The claim of this node's instance. Raises CallFailed."""
        for claim in self.objects.items(self._path()):
            status = claim.get("status") or {}
            if status.get("nodeName") == node.name and status.get("providerID") in ("", None, node.provider_id):
                return claim
        return None

    def _path(self, name: str = "") -> str:
        return self.objects.kind(KARPENTER, "nodeclaims", "", name)


def _ready(claim: Object) -> bool:
    conditions = conditions_of(claim)
    return any((conditions.get(kind) or {}).get("status") == "True" for kind in ("Ready", "Initialized"))


ACTORS: Dict[str, Callable[[ActorSettings], Actor]] = {
    "cluster-api": ClusterApi, "metal3": Metal3, "karpenter": Karpenter, "kured": Kured,
    "self-node-remediation": lambda given: Medik8s(given, SELF_NODE),
    "fence-agents-remediation": lambda given: Medik8s(given, FENCE_AGENTS),
}  # fmt: skip


class KubernetesHandoff:
    """As `nhc.marks.ports.repair.Repairer`, Completes."""

    SETTINGS = HandoffSettings

    def __init__(self, settings: Given = None, environ: Given = None, timeout: float = 30.0) -> None:
        own = read(HandoffSettings, settings)
        self.to = own.to
        if self.to not in ACTORS:
            raise SettingError("to", f"{printable(self.to, 60)!r} is not one of {', '.join(ACTORS)}")
        self.nodes = RepairCluster.of(own.cluster, environ, timeout)
        management = own.management_kubeconfig
        self.objects = RepairCluster(management, own.management_context, timeout) if management else self.nodes
        self.actor = ACTORS[self.to](ActorSettings(self.nodes, self.objects, own))

    def can(self, machine: Machine, rung: Rung, device: str = "") -> str:
        """Why this rung is not possible, "" if it is. Sends no request."""
        if rung not in self.actor.rungs:
            return f"{self.to} cannot {rung.value}"
        if not (machine.provider_id or machine.boot_id):
            return f"nothing is known by which {machine.node} could be told from another machine of that name"
        return self.actor.can(machine)

    def look(self, machine: Machine) -> Sighting:
        """The node, and the actor's object for it. Raises AdapterError."""
        seen = self.nodes.sighting(machine.node)
        node = self.nodes.node(machine.node)
        instance = self.actor.instance(node) if node is not None else ""
        return seen._replace(at=time.time(), instance=instance or seen.instance)

    def send(self, order: Order) -> Sent:
        """Ask the actor, once. Never raises."""
        why = self.can(order.machine, order.rung, order.device)
        if why:
            return Sent(Answer.REFUSED, f"not sent: {why}")
        return send_once(lambda: self.nodes.compare(order.machine), lambda node: self.actor.ask(order, node))

    def complete(self, order: Order, sent: Sent) -> Sent:
        """Take back what the actor leaves for who asked. Never raises."""
        return send_once(lambda: self.actor, lambda actor: actor.finish(order))

    def progress(self, order: Order, sent: Sent, before: Sighting) -> Progress:
        """What the node and the actor's object show. Raises AdapterError."""
        return self.actor.progress(order, sent, before, self.nodes.node(order.machine.node))

    def rights(self) -> Sequence[Right]:
        """Its rights, in both clusters. Raises AdapterError."""
        purpose = "to compare the machine, and to see its boot id"
        own = self.nodes.rights([ClusterRight("get", "nodes", purpose=purpose)])
        return [*own, *self.objects.rights(self.actor.needed())]
