"""What the module of each actor gives to `handoff`, and what they share."""

from __future__ import annotations

from typing import FrozenSet, List, NamedTuple, Optional, Protocol

from nhc.model import printable
from nhc.ports.repair import Machine, Order, Progress, Rung, Sent, Sighting, Stage
from nhc_adapters.kubernetes.controller.rights import ClusterRight
from nhc_adapters.kubernetes.repair.cluster import KubeNode, Object, RepairCluster, texts
from nhc_adapters.kubernetes.repair.jobs import ORDER
from nhc_adapters.repair.settings import AdapterSettings


class ActorSettings(NamedTuple):
    """The cluster of the nodes, the one with the actor's objects, and the repairer's table."""

    nodes: RepairCluster
    objects: RepairCluster
    table: AdapterSettings


class Actor(Protocol):
    """One other controller that repairs nodes."""

    rungs: FrozenSet[Rung]

    def can(self, machine: Machine) -> str:
        """Why it cannot be asked about this machine, "" where it can. Asks nobody."""
        ...

    def instance(self, node: KubeNode) -> str:
        """The name of its object for a node, "" where it has none. Raises CallFailed."""
        ...

    def ask(self, order: Order, node: KubeNode) -> Sent:
        """One call that changes something, after all reads. Raises RepairRefused, CallFailed."""
        ...

    def progress(self, order: Order, sent: Sent, before: Sighting, node: Optional[KubeNode]) -> Progress:
        """How far it is. Raises AdapterError."""
        ...

    def finish(self, order: Order) -> Sent:
        """What is to be done once it has ended, after HALFWAY. Raises RepairRefused, CallFailed."""
        ...

    def needed(self) -> List[ClusterRight]:
        """The rights on its objects."""
        ...


def is_of(item: Object, order: Order) -> bool:
    """Whether an object carries this very order."""
    return texts(item["metadata"].get("annotations")).get(ORDER) == order.key


def notes_of(order: Order) -> dict[str, str]:
    """What our orders leave on an object: the key, the episode, the reason."""
    return {ORDER: order.key, "nhc/episode": order.episode, "nhc/because": printable(order.because, 300)}


def booted(before: Sighting, order: Order, node: Optional[KubeNode]) -> Optional[Progress]:
    """Another boot is the proof of a reboot, whoever did it; None without one."""
    boot = before.boot or order.machine.boot_id
    if node is not None and boot and node.boot and node.boot != boot:
        return Progress(Stage.DONE, f"booted again: {node.boot}")
    return None
