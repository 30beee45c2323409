"""kured reboots a node whose sentinel file is there: in its own windows, one node at a time, after its own drain.

The file is made by a Job on the node (`repairer`), since kured looks nowhere else. kured's lock, windows and blockers
decide when it reboots: allow for them in `effect.reboot`.
"""

from __future__ import annotations

from typing import FrozenSet, List, Optional

from nhc.marks.ports.repair import Machine, Order, Progress, Rung, Sent, Sighting, Stage
from nhc_adapters.kubernetes.api.client import namespaced
from nhc_adapters.kubernetes.api.rights import ClusterRight
from nhc_adapters.kubernetes.repair.cluster import KubeNode, Object
from nhc_adapters.kubernetes.repair.handover import Actor, ActorSettings, booted
from nhc_adapters.kubernetes.repair.jobs import HandSettings, OrderJobs, job_name, order_text
from nhc_adapters.kubernetes.repair.pinned_job import JobPlace
from nhc_adapters.kubernetes.repair.shown_on_nodes import KURED_LOCK, of_kured
from nhc_adapters.node.repairer import asked_of
from nhc_adapters.repair.calls import LATER, RepairRefused, accepted

SENTINEL = "/run/reboot-required"
HAND = HandSettings(deadline=300)
"""A file is made: minutes, not the twenty of a repair."""


class Kured(Actor):
    """Asked by a file on the node."""

    rungs: FrozenSet[Rung] = frozenset({Rung.REBOOT})

    def __init__(self, given: ActorSettings) -> None:
        super().__init__(given)
        table = given.table
        self.sentinel = table.text("sentinel", SENTINEL)
        self.place = JobPlace(table.text("namespace", "nhc-system"), table.text("image"))
        self.orders = OrderJobs(self.nodes, self.place, HAND)
        self.where, _, self.daemonset = table.text("daemonset", "kube-system/kured").partition("/")
        if not self.sentinel.startswith("/"):
            raise table.wrong("sentinel", "a path on the node")
        if not self.daemonset:
            raise table.wrong("daemonset", "NAMESPACE/NAME of kured's DaemonSet")

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
