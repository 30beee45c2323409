"""Repairs that another controller of the cluster carries out: asked for in its own words, once, and watched to the end.

    [repairers.capi]
    type = "kubernetes-handoff"
    to = "cluster-api"          # metal3, self-node-remediation, fence-agents-remediation, karpenter, kured
    rungs = ["replace"]
    management-kubeconfig = "/etc/nhc/management.kubeconfig"   # where the actor's objects are, if not with the nodes

What each asks, respects and waits for stands in the module of its name.
"""

from __future__ import annotations

import time
from typing import Callable, Dict, Sequence

from nhc.marks.ports.repair import Answer, Machine, Order, Progress, Right, Rung, Sent, Sighting
from nhc_adapters.kubernetes.api.rights import ClusterRight
from nhc_adapters.kubernetes.repair.cluster import RepairCluster
from nhc_adapters.kubernetes.repair.cluster_api import ClusterApi
from nhc_adapters.kubernetes.repair.handover import Actor, ActorSettings
from nhc_adapters.kubernetes.repair.karpenter import Karpenter
from nhc_adapters.kubernetes.repair.kured import Kured
from nhc_adapters.kubernetes.repair.medik8s import FENCE_AGENTS, SELF_NODE, Medik8s
from nhc_adapters.kubernetes.repair.metal3 import Metal3
from nhc_adapters.repair.calls import send_once
from nhc_adapters.repair.settings import AdapterSettings, Given

ACTORS: Dict[str, Callable[[ActorSettings], Actor]] = {
    "cluster-api": ClusterApi, "metal3": Metal3, "karpenter": Karpenter, "kured": Kured,
    "self-node-remediation": lambda given: Medik8s(given, SELF_NODE),
    "fence-agents-remediation": lambda given: Medik8s(given, FENCE_AGENTS),
}  # fmt: skip

KNOWN = (
    "to", "kubeconfig", "context", "management-kubeconfig", "management-context", "template", "namespace", "image",
    "sentinel", "daemonset",
)  # fmt: skip


class KubernetesHandoff:
    """As `nhc.marks.ports.repair.Repairer`, Completes."""

    def __init__(self, settings: Given = None, environ: Given = None, timeout: float = 30.0) -> None:
        table = AdapterSettings(settings, KNOWN)
        self.to = table.choice("to", ("", *ACTORS))
        if not self.to:
            raise table.error("to", f"missing: which controller repairs (one of {', '.join(ACTORS)})?")
        self.nodes = RepairCluster.of(table, environ, timeout)
        management = table.text("management-kubeconfig")
        self.objects = (
            RepairCluster(management, table.text("management-context"), timeout) if management else self.nodes
        )  # fmt: skip
        self.actor = ACTORS[self.to](ActorSettings(self.nodes, self.objects, table))

    def can(self, machine: Machine, rung: Rung, device: str = "") -> str:
        """Why this rung is not possible, "" where it is. Asks nobody."""
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
