"""The interface between each actor's module and `handoff`, and what these modules share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Dict, FrozenSet, List, Mapping, NamedTuple, Optional

from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.marks.ports.repair import Machine, Order, Progress, Rung, Sent, Sighting, Stage
from nhc_adapters.kubernetes.api.access import ClusterSettings
from nhc_adapters.kubernetes.api.client import MERGE_PATCH
from nhc_adapters.kubernetes.api.objects import notes_of
from nhc_adapters.kubernetes.api.rights import ClusterRight
from nhc_adapters.kubernetes.repair.cluster import KubeNode, Object, RepairCluster
from nhc_adapters.kubernetes.repair.pinned_job import ORDER
from nhc_adapters.repair import RepairRefused


@declared.settings
class HandoffSettings(NamedTuple):
    """The table of a repairer of this kind. `to` names the actor."""

    to: str = declared.text("to", declared.NEEDED, "which controller repairs", shown='"karpenter"')
    cluster: ClusterSettings = declared.part("", ClusterSettings)
    management_kubeconfig: str = declared.text(
        "management-kubeconfig", "", "where the actor's objects are; default: the nodes' cluster"
    )
    management_context: str = declared.text("management-context")
    template: str = declared.text("template", "", "NAMESPACE/NAME of the remediation's template")
    namespace: str = declared.text("namespace", "nhc-system", "of the Job that makes kured's sentinel")
    image: str = declared.text("image", "", "of that Job")
    sentinel: str = declared.text("sentinel", "/run/reboot-required", "kured's file on the node")
    daemonset: str = declared.text("daemonset", "kube-system/kured", "NAMESPACE/NAME of kured's DaemonSet")


class ActorSettings(NamedTuple):
    """The cluster of the nodes, the one with the actor's objects, and the repairer's settings."""

    nodes: RepairCluster
    objects: RepairCluster
    own: HandoffSettings


class Actor(ABC):
    """One other controller that repairs nodes."""

    rungs: FrozenSet[Rung]

    def __init__(self, given: ActorSettings) -> None:
        self.nodes, self.objects = given.nodes, given.objects

    def can(self, machine: Machine) -> str:
        """Why it cannot be asked about this machine, "" if it can. Sends no request."""
        return ""

    def instance(self, node: KubeNode) -> str:
        """The name of its object for a node, "" if it has none: the machine itself, if no object represents it. Raises
        CallFailed.
        """
        return node.instance

    @abstractmethod
    def ask(self, order: Order, node: KubeNode) -> Sent:
        """One call that changes something, after all reads. Raises RepairRefused, CallFailed."""

    @abstractmethod
    def progress(self, order: Order, sent: Sent, before: Sighting, node: Optional[KubeNode]) -> Progress:
        """How far it is. Raises AdapterError."""

    def finish(self, order: Order) -> Sent:
        """What is to be done once it has ended, after HALFWAY. Raises RepairRefused, CallFailed."""
        raise RepairRefused("nothing is to be finished")

    @abstractmethod
    def needed(self) -> List[ClusterRight]:
        """The rights on its objects."""


def is_of(item: Object, order: Order) -> bool:
    """Whether an object carries this very order."""
    return notes_of(item).get(ORDER) == order.key


def order_notes(order: Order) -> Dict[str, str]:
    """What our orders leave on an object: the key, the episode, the reason."""
    return {ORDER: order.key, "nhc/episode": order.episode, "nhc/because": printable(order.because, 300)}


def annotate(objects: RepairCluster, path: str, item: Object, notes: Mapping[str, str]) -> None:
    """Set annotations on an object, only as it was seen: the version in the patch holds that. Raises CallFailed."""
    body = {"metadata": {"annotations": dict(notes), "resourceVersion": item["metadata"]["resourceVersion"]}}
    objects.patch(path, body, MERGE_PATCH)


def booted(before: Sighting, order: Order, node: Optional[KubeNode]) -> Optional[Progress]:
    """Another boot proves a reboot, by anyone; None without one."""
    boot = before.boot or order.machine.boot_id
    if node is not None and boot and node.boot and node.boot != boot:
        return Progress(Stage.DONE, f"booted again: {node.boot}")
    return None
