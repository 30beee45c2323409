"""Karpenter replaces an instance whose NodeClaim is deleted: it drains the node, and starts another for what waits.

`karpenter.sh/do-not-disrupt` on the node or its claim is respected. Another instance comes when pods need one: until
then there is none to prove [kubernetes-sigs/karpenter, pkg/apis/v1/nodeclaim_status.go, labels.go].
"""

from __future__ import annotations

from typing import FrozenSet, List, Optional

from nhc.core.timestamps import from_utc
from nhc.marks.ports.repair import Machine, Order, Progress, Rung, Sent, Sighting, Stage
from nhc_adapters.kubernetes.api.objects import conditions_of, notes_of, texts
from nhc_adapters.kubernetes.api.rights import ClusterRight
from nhc_adapters.kubernetes.repair.cluster import KubeNode, Object
from nhc_adapters.kubernetes.repair.cluster_api import CLOCKS
from nhc_adapters.kubernetes.repair.handover import Actor
from nhc_adapters.repair.calls import LATER, RepairRefused, accepted

GROUP = "karpenter.sh"
POOL = f"{GROUP}/nodepool"
KEEP = f"{GROUP}/do-not-disrupt"


class Karpenter(Actor):
    """Asked by deleting a NodeClaim."""

    rungs: FrozenSet[Rung] = frozenset({Rung.REPLACE})

    def can(self, machine: Machine) -> str:
        if machine.labels and POOL not in machine.labels:
            return f"{machine.node} is of no NodePool (label {POOL})"
        return ""

    def needed(self) -> List[ClusterRight]:
        purpose = "to have an instance replaced, and to watch it"
        return [ClusterRight(verb, "nodeclaims", GROUP, purpose=purpose) for verb in ("list", "delete")]

    def instance(self, node: KubeNode) -> str:
        """POOL/CLAIM."""
        claim = self._claim(node)
        return f"{node.labels.get(POOL, '')}/{claim['metadata']['name']}" if claim is not None else ""

    def ask(self, order: Order, node: KubeNode) -> Sent:
        claim = self._claim(node)
        if claim is None:
            raise RepairRefused(f"{node.name} has no NodeClaim")
        meta = claim["metadata"]
        if "true" in (node.annotations.get(KEEP), notes_of(claim).get(KEEP)):
            raise RepairRefused(f"{node.name} is not to be disrupted (annotation {KEEP})")
        if meta.get("deletionTimestamp"):
            raise RepairRefused(f"the NodeClaim {meta['name']} is being deleted already", LATER)
        self.objects.delete(self._path(meta["name"]), {"preconditions": {"uid": meta["uid"]}})
        pool = texts(meta.get("labels")).get(POOL, "")
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
            if texts(claim["metadata"].get("labels")).get(POOL) != pool or not _ready(claim):
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
        return self.objects.kind(GROUP, "nodeclaims", "", name)


def _ready(claim: Object) -> bool:
    conditions = conditions_of(claim)
    return any((conditions.get(kind) or {}).get("status") == "True" for kind in ("Ready", "Initialized"))
