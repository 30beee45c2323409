"""Gates in Kubernetes: a node publishes its own status, and the taint is set and removed from outside.

scheduler = "kubernetes"
[adapter]
kubeconfig = ""              # as kubectl finds it, or this pod's own
context = ""
taint = "startup-taint.cluster-autoscaler.kubernetes.io/nhc-gate:NoSchedule"
hyperpod = "no"              # "yes": SageMaker HyperPod's labels and taint as well
"""

from __future__ import annotations

import time
from typing import List, Optional, Sequence

from nhc.core.model import printable
from nhc.core.timestamps import utc_milliseconds
from nhc.marks.ports.adapter import AdapterError, Applied, Effect
from nhc.marks.ports.gates import GateLimit, GateNews, GateOrder, GateStanding, GroupOfNodes, Turn
from nhc_adapters.kubernetes.api.access import find, kubeconfig_of
from nhc_adapters.kubernetes.api.client import READ_TIMEOUT, Client, node_path
from nhc_adapters.kubernetes.gates import autoscalers
from nhc_adapters.kubernetes.gates.plan import (
    ORDER,
    TAINT,
    Change,
    GateMarks,
    condition_of,
    held,
    plan,
    read_known,
    read_order,
)
from nhc_adapters.kubernetes.nodes.conditions import NodeConditions
from nhc_adapters.kubernetes.nodes.drain import DrainRules, sort_pods
from nhc_adapters.kubernetes.nodes.marks import Op, apply, plan_annotations
from nhc_adapters.kubernetes.nodes.own_marks import Node, cordoned
from nhc_adapters.kubernetes.nodes.pods import has_ended, pods_on
from nhc_adapters.kubernetes.nodes.vocabulary import parse_taint
from nhc_adapters.repair.settings import AdapterSettings, Given

KNOWN = ("kubeconfig", "context", "taint", "hyperpod")


class KubernetesGate:
    """On the node it publishes; `keep` acts for all nodes."""

    def __init__(self, settings: Given, environ: Given = None, timeout: float = READ_TIMEOUT) -> None:
        table = AdapterSettings(settings, KNOWN, "adapter")
        try:
            taint = parse_taint(table.text("taint", f"{TAINT}:NoSchedule"))
        except ValueError as error:
            raise table.error("taint", str(error)) from None
        self.marks = GateMarks(taint, table.flag("hyperpod", False))
        cluster = find(kubeconfig_of(table, environ), table.text("context"))
        self.client = Client(cluster, read_timeout=timeout)
        self._conditions: Optional[NodeConditions] = None

    # On the node.

    def standing(self, node: str) -> Optional[GateStanding]:
        """How the cluster has the node; None where there is no such node."""
        item = self.client.find(node_path(node))
        if item is None:
            return None
        order, ordered, _rest = read_order(item)
        closed = read_known(item).closed
        opened = order == "open" and ordered >= closed
        pods = sort_pods(pods_on(self.client, node), DrainRules())
        running = [pod for pod in pods.evict if not has_ended(pod)]
        other = "somebody has cordoned it" if cordoned(item) else ""
        tainted = held(item, self.marks)
        return GateStanding(
            tainted, bool(running or pods.block), "" if tainted else other, max(closed, ordered), opened,
            "tainted" if tainted else other or "schedulable", order == GateOrder.ADOPT.value,
        )  # fmt: skip

    def hold(self, node: str, why: str) -> Applied:
        """The taint is not the node's to set: `nhc sync gate` sets it by what the node publishes."""
        item = self.client.find(node_path(node))
        if item is None:
            return Applied(node, Effect.FAILED, "there is no such node")
        if held(item, self.marks):
            return Applied(node, Effect.UNCHANGED, "held already")
        return Applied(node, Effect.UNCHANGED, "nhc sync gate has to set the taint")

    def release(self, node: str) -> Applied:
        """The taint goes by `nhc sync gate`."""
        return Applied(node, Effect.UNCHANGED, "nhc sync gate removes the taint")

    def publish(self, node: str, news: GateNews) -> None:
        """The gate's state as a condition of the node."""
        if self._conditions is None or self._conditions.node != node:
            self._conditions = NodeConditions(self.client, node)
            self._conditions.adopt([])
        self._conditions.say([condition_of(news)])
        self._conditions.flush()

    # From outside.

    def keep(self, groups: Sequence[GroupOfNodes], *, apply: bool) -> List[Turn]:
        """One round over all nodes. Raises AdapterError where they cannot be read."""
        turns: List[Turn] = []
        for node in self.client.items("/api/v1/nodes"):
            name = str(node["metadata"]["name"])
            group = next((candidate for candidate in groups if candidate.contains(name)), None)
            change = plan(node, group, self.marks, time.time()) if group is not None else None
            if group is None or change is None:
                continue
            failed = self._change(name, node, group) if apply else ""
            turns.append(Turn(name, change.what, change.why, apply and not failed, failed))
        return turns

    def _change(self, name: str, node: Node, group: GroupOfNodes) -> str:
        """Carry a change out, planned anew where somebody wrote in between; what kept it from being done."""

        def ops(seen: Node) -> List[Op]:
            change: Optional[Change] = plan(seen, group, self.marks, time.time())
            return change.ops if change is not None else []

        try:
            apply(self.client, name, ops, node)
        except AdapterError as error:
            return printable(str(error))
        return ""

    def order(self, node: str, what: GateOrder, why: str, by: str) -> Applied:
        """A person's order, as an annotation; `keep` carries it out."""
        if self.client.find(node_path(node)) is None:
            return Applied(node, Effect.FAILED, "there is no such node")
        text = f"{what.value} {utc_milliseconds(time.time())} by {printable(by, 60)}: {printable(why, 200)}"
        apply(self.client, node, lambda seen: plan_annotations(seen, {ORDER: text}))
        return Applied(node, Effect.CHANGED, "carried out by the next nhc sync gate")

    def limits(self) -> List[GateLimit]:
        """What autoscalers do to nodes whose gate takes long."""
        return autoscalers.limits(self.client, self.marks.taint)
