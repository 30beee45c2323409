"""Who else repairs a node of this cluster: the node itself, the actors' own kinds, and kured's lock, read right now."""

from __future__ import annotations

from typing import List, Sequence

from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import Claim, Right
from nhc_adapters.kubernetes.api.client import namespaced, node_path
from nhc_adapters.kubernetes.api.rights import ClusterRight
from nhc_adapters.kubernetes.repair.actor_kinds import ActorKinds
from nhc_adapters.kubernetes.repair.cluster import RepairCluster, read_node
from nhc_adapters.kubernetes.repair.shown_on_nodes import of_kured, of_node

APPS = "apis/apps/v1"


class ClusterClaims:
    """One cluster's other actors. `kured` is where its DaemonSet is, as NAMESPACE/NAME."""

    def __init__(self, kubeconfig: str, context: str, timeout: float, kured: str, karpenter_repairs: bool) -> None:
        self.cluster = RepairCluster(kubeconfig, context, timeout)
        self._objects = ActorKinds(self.cluster)
        self._kured, self._karpenter = kured, karpenter_repairs
        if kured and kured.count("/") != 1:
            raise AdapterError(f"NHC_KUBE_KURED: {kured!r} is not NAMESPACE/NAME")

    def claims(self, name: str) -> List[Claim]:
        """Everybody else at work on a node. Raises AdapterError."""
        node = self.cluster.find(node_path(name))
        if node is None:
            return []
        claims = of_node(node, self._karpenter)
        claims += self._objects.claims(read_node(node))
        if self._kured:
            namespace, _, daemonset = self._kured.partition("/")
            kured = self.cluster.find(namespaced(namespace, "daemonsets", daemonset, APPS))
            claims += of_kured(kured, name) if kured is not None else []
        return list(dict.fromkeys(claims))

    def rights(self) -> Sequence[Right]:
        """What the loop needs to mark, drain and return nodes, and to see others. Raises AdapterError."""
        needed = [
            *(ClusterRight(verb, "nodes", purpose="to follow the nodes") for verb in ("get", "list")),
            ClusterRight("patch", "nodes", purpose="to mark and clear nodes, and to answer requests"),
            ClusterRight("patch", "nodes/status", purpose="to end what a preflight found, to say what is under way"),
            ClusterRight("list", "pods", purpose="to see what runs on a node"),
            ClusterRight("create", "pods/eviction", purpose="to drain nodes"),
            *(
                ClusterRight(verb, "events", "", "default", purpose="to tell the story of a node in its events")
                for verb in ("create", "patch")
            ),
            *self._objects.needed(),
        ]
        if self._kured:
            namespace, _, daemonset = self._kured.partition("/")
            needed.append(
                ClusterRight("get", "daemonsets", "apps", namespace, daemonset, "to see who holds kured's lock")
            )
        return self.cluster.rights(needed)

    def close(self) -> None:
        """End its connections."""
        self.cluster.close()
