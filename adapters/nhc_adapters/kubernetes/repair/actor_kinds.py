"""Who else acts on a node, by the actors' own kinds: Cluster API, Metal3, medik8s, NVSentinel, Karpenter.

nhc reads only kinds that the API server serves, so a cluster without these actors costs one request in ten minutes. A
kind that is there and may not be read is an error: an actor that cannot be seen must not count as absent.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, NamedTuple, Optional

from nhc.marks.ports.repair import Claim
from nhc_adapters.kubernetes.api.objects import conditions_of, notes_of
from nhc_adapters.kubernetes.api.rights import ClusterRight
from nhc_adapters.kubernetes.repair.cluster import KubeNode, Object, RepairCluster
from nhc_adapters.kubernetes.repair.cluster_api import node_of
from nhc_adapters.kubernetes.repair.pinned_job import ORDER

GROUPS_EVERY = 600.0
"""Seconds for which the API server's kinds are remembered."""

Judge = Callable[[Object, KubeNode], Optional[Claim]]


class ActorKind(NamedTuple):
    """A kind that says who works on a node. `judge` makes a claim from one object, None if there is none."""

    group: str
    resource: str
    judge: Judge


def _ours(item: Object) -> bool:
    return ORDER in notes_of(item)


def _name(item: Object) -> str:
    meta = item["metadata"]
    where = f"{meta['namespace']}/" if meta.get("namespace") else ""
    return f"{item.get('kind') or ''} {where}{meta['name']}".strip()


def machine(item: Object, node: KubeNode) -> Optional[Claim]:
    """A Machine of Cluster API that is being remediated or deleted."""
    if node_of(item) != node.name:
        return None
    if item["metadata"].get("deletionTimestamp"):
        return Claim("cluster-api", "deletes its machine", f"Machine {_name(item)}")
    notes = notes_of(item)
    if "cluster.x-k8s.io/remediate-machine" in notes and not _ours(item):
        return Claim("cluster-api", "is asked to remediate its machine", f"Machine {_name(item)}")
    owned = conditions_of(item).get("OwnerRemediated")
    if owned is not None and owned.get("status") == "False" and not _ours(item):
        return Claim("cluster-api", f"remediates its machine: {owned.get('reason')}", f"Machine {_name(item)}")
    return None


def host(item: Object, node: KubeNode) -> Optional[Claim]:
    """A BareMetalHost that somebody reboots, or that its operator services."""
    if not is_host_of(item, node):
        return None
    asked = [key for key in notes_of(item) if key.startswith("reboot.metal3.io")]
    if asked and not _ours(item):
        return Claim("metal3", "reboots its host, or keeps it off", f"BareMetalHost {_name(item)}: {asked[0]}")
    status: Mapping[str, Any] = item.get("status") or {}
    if status.get("operationalStatus") == "servicing":
        return Claim("metal3", "services its host", f"BareMetalHost {_name(item)}")
    state = str((status.get("provisioning") or {}).get("state") or "")
    if state in ("deprovisioning", "deleting", "powering off before delete", "preparing", "provisioning"):
        return Claim("metal3", f"is {state} its host", f"BareMetalHost {_name(item)}")
    return None


def is_host_of(item: Object, node: KubeNode) -> bool:
    """ProviderID is metal3://NAMESPACE/HOST/MACHINE, or metal3://UID in older clusters."""
    if not node.provider_id.startswith("metal3://"):
        return False
    meta, parts = item["metadata"], node.provider_id[len("metal3://") :].strip("/").split("/")
    return parts[:2] == [meta.get("namespace"), meta["name"]] if len(parts) > 1 else parts[0] == meta.get("uid")


def named_for_node(actor: str, doing: str) -> Judge:
    """A kind whose objects are named for their node and exist as long as they work on it."""

    def judge(item: Object, node: KubeNode) -> Optional[Claim]:
        other = notes_of(item).get("remediation.medik8s.io/node-name", "")
        if node.name not in (item["metadata"]["name"], other) or _ours(item):
            return None
        return Claim(actor, doing, _name(item))

    return judge


def with_node_name(actor: str, doing: str) -> Judge:
    """A kind whose spec.nodeName is the node, and that works until status.completionTime."""

    def judge(item: Object, node: KubeNode) -> Optional[Claim]:
        ended = (item.get("status") or {}).get("completionTime")
        if (item.get("spec") or {}).get("nodeName") != node.name or ended:
            return None
        return Claim(actor, doing, _name(item))

    return judge


def node_claim(claim: Object, node: KubeNode) -> Optional[Claim]:
    """A NodeClaim of Karpenter that is being deleted: its instance goes."""
    status: Mapping[str, Any] = claim.get("status") or {}
    if status.get("nodeName") != node.name or not claim["metadata"].get("deletionTimestamp"):
        return None
    return Claim("karpenter", "removes its instance", f"NodeClaim {claim['metadata']['name']}")


MEDIK8S = {
    "self-node-remediation": "selfnoderemediations", "fence-agents-remediation": "fenceagentsremediations",
    "machine-deletion-remediation": "machinedeletionremediations",
}  # fmt: skip

WATCHED = (
    ActorKind("cluster.x-k8s.io", "machines", machine),
    ActorKind("metal3.io", "baremetalhosts", host),
    *(ActorKind(f"{name}.medik8s.io", resource, named_for_node("medik8s", "remediates it"))
      for name, resource in MEDIK8S.items()),
    ActorKind("nodemaintenance.medik8s.io", "nodemaintenances", with_node_name("medik8s", "maintains it")),
    ActorKind("janitor.dgxc.nvidia.com", "rebootnodes", with_node_name("nvsentinel", "reboots it")),
    ActorKind("janitor.dgxc.nvidia.com", "terminatenodes", with_node_name("nvsentinel", "terminates it")),
    ActorKind("janitor.dgxc.nvidia.com", "gpuresets", with_node_name("nvsentinel", "resets its GPUs")),
    ActorKind("karpenter.sh", "nodeclaims", node_claim),
)  # fmt: skip


class ActorKinds:
    """The kinds of WATCHED that this API server serves."""

    def __init__(self, cluster: RepairCluster) -> None:
        self.cluster = cluster
        self._paths: Dict[ActorKind, str] = {}
        self._read = float("-inf")

    def served(self) -> Dict[ActorKind, str]:
        """The path of each kind that is there. Raises CallFailed."""
        if time.monotonic() - self._read > GROUPS_EVERY:
            groups = self.cluster.find("/apis") or {}
            versions = {
                str(kind["name"]): str((kind.get("preferredVersion") or {}).get("groupVersion") or "")
                for kind in groups.get("groups") or ()
            }
            paths: Dict[ActorKind, str] = {}
            for kind in WATCHED:
                version = versions.get(kind.group)
                if version and kind.resource in self._resources(version):
                    paths[kind] = f"/apis/{version}/{kind.resource}"
            self._paths, self._read = paths, time.monotonic()
        return self._paths

    def _resources(self, version: str) -> FrozenSet[str]:
        listed = self.cluster.find(f"/apis/{version}") or {}
        return frozenset(str(resource.get("name")) for resource in listed.get("resources") or ())

    def claims(self, node: KubeNode) -> List[Claim]:
        """Everybody's work on this node. Raises CallFailed."""
        claims: List[Claim] = []
        for actor, path in self.served().items():
            kind = actor.resource
            for item in self.cluster.items(path):
                claim = actor.judge({"kind": kind, **item}, node)
                if claim is not None:
                    claims.append(claim)
        return claims

    def needed(self) -> List[ClusterRight]:
        """The rights to read what is served here. Raises CallFailed."""
        purpose = "to see whether another controller repairs a node"
        return [ClusterRight("list", kind.resource, kind.group, purpose=purpose) for kind in self.served()]
