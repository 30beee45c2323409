"""Who else acts on a node, as kinds of the actors' own show it: Cluster API, Metal3, medik8s, NVSentinel, Karpenter.

Only kinds that the API server serves are asked for, so a cluster without these actors costs one request in ten minutes.
A kind that is there and may not be read is an error: who cannot see another actor must not take it for absent.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, NamedTuple, Optional

from nhc.ports.repair import Claim
from nhc_adapters.kubernetes.controller.rights import ClusterRight
from nhc_adapters.kubernetes.repair.cluster import KubeNode, Object, RepairCluster, texts
from nhc_adapters.kubernetes.repair.jobs import ORDER

GROUPS_EVERY = 600.0
"""Seconds for which the API server's kinds are remembered."""

Judge = Callable[[Object, KubeNode], Optional[Claim]]


class ActorKind(NamedTuple):
    """A kind that says who works on a node. `judge` makes a claim of one object, None where it says nothing of it."""

    group: str
    resource: str
    judge: Judge


def conditions_of(found: Mapping[str, Any]) -> Dict[str, Mapping[str, Any]]:
    """An object's conditions by type; Cluster API keeps its older ones below `status.deprecated`."""
    status: Mapping[str, Any] = found.get("status") or {}
    older = ((status.get("deprecated") or {}).get("v1beta1") or {}).get("conditions") or ()
    return {str(one.get("type")): one for one in (*older, *(status.get("conditions") or ()))}


def _ours(found: Object) -> bool:
    return ORDER in texts(found["metadata"].get("annotations"))


def _name(found: Object) -> str:
    meta = found["metadata"]
    where = f"{meta['namespace']}/" if meta.get("namespace") else ""
    return f"{found.get('kind') or ''} {where}{meta['name']}".strip()


def machine(found: Object, node: KubeNode) -> Optional[Claim]:
    """A Machine of Cluster API that is being remediated or deleted."""
    reference = ((found.get("status") or {}).get("nodeRef") or {}).get("name")
    if reference != node.name:
        return None
    if found["metadata"].get("deletionTimestamp"):
        return Claim("cluster-api", "deletes its machine", f"Machine {_name(found)}")
    notes = texts(found["metadata"].get("annotations"))
    if "cluster.x-k8s.io/remediate-machine" in notes and not _ours(found):
        return Claim("cluster-api", "is asked to remediate its machine", f"Machine {_name(found)}")
    owned = conditions_of(found).get("OwnerRemediated")
    if owned is not None and owned.get("status") == "False" and not _ours(found):
        return Claim("cluster-api", f"remediates its machine: {owned.get('reason')}", f"Machine {_name(found)}")
    return None


def host(found: Object, node: KubeNode) -> Optional[Claim]:
    """A BareMetalHost that somebody reboots, or that its operator services."""
    if not is_host_of(found, node):
        return None
    asked = [key for key in texts(found["metadata"].get("annotations")) if key.startswith("reboot.metal3.io")]
    if asked and not _ours(found):
        return Claim("metal3", "reboots its host, or keeps it off", f"BareMetalHost {_name(found)}: {asked[0]}")
    status: Mapping[str, Any] = found.get("status") or {}
    if status.get("operationalStatus") == "servicing":
        return Claim("metal3", "services its host", f"BareMetalHost {_name(found)}")
    state = str((status.get("provisioning") or {}).get("state") or "")
    if state in ("deprovisioning", "deleting", "powering off before delete", "preparing", "provisioning"):
        return Claim("metal3", f"is {state} its host", f"BareMetalHost {_name(found)}")
    return None


def is_host_of(found: Object, node: KubeNode) -> bool:
    """ProviderID is metal3://NAMESPACE/HOST/MACHINE, or metal3://UID in older clusters."""
    if not node.provider_id.startswith("metal3://"):
        return False
    meta, parts = found["metadata"], node.provider_id[len("metal3://") :].strip("/").split("/")
    return parts[:2] == [meta.get("namespace"), meta["name"]] if len(parts) > 1 else parts[0] == meta.get("uid")


def named_for_node(actor: str, doing: str) -> Judge:
    """A kind whose objects are named for their node and exist as long as they work on it."""

    def judge(found: Object, node: KubeNode) -> Optional[Claim]:
        other = texts(found["metadata"].get("annotations")).get("remediation.medik8s.io/node-name", "")
        if node.name not in (found["metadata"]["name"], other) or _ours(found):
            return None
        return Claim(actor, doing, f"{_name(found)}")

    return judge


def with_node_name(actor: str, doing: str) -> Judge:
    """A kind whose spec.nodeName is the node, and that works until status.completionTime."""

    def judge(found: Object, node: KubeNode) -> Optional[Claim]:
        ended = (found.get("status") or {}).get("completionTime")
        if (found.get("spec") or {}).get("nodeName") != node.name or ended:
            return None
        return Claim(actor, doing, f"{_name(found)}")

    return judge


def node_claim(found: Object, node: KubeNode) -> Optional[Claim]:
    """A NodeClaim of Karpenter that is being deleted: its instance goes."""
    status: Mapping[str, Any] = found.get("status") or {}
    if status.get("nodeName") != node.name or not found["metadata"].get("deletionTimestamp"):
        return None
    return Claim("karpenter", "removes its instance", f"NodeClaim {found['metadata']['name']}")


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

    def __init__(self, cluster: RepairCluster, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.cluster, self._clock = cluster, monotonic
        self._paths: Dict[ActorKind, str] = {}
        self._read = float("-inf")

    def served(self) -> Dict[ActorKind, str]:
        """Where each kind that is there is read. Raises CallFailed."""
        if self._clock() - self._read > GROUPS_EVERY:
            groups = self.cluster.find("/apis") or {}
            versions = {
                str(one["name"]): str((one.get("preferredVersion") or {}).get("groupVersion") or "")
                for one in groups.get("groups") or ()
            }
            found: Dict[ActorKind, str] = {}
            for one in WATCHED:
                version = versions.get(one.group)
                if version and one.resource in self._resources(version):
                    found[one] = f"/apis/{version}/{one.resource}"
            self._paths, self._read = found, self._clock()
        return self._paths

    def _resources(self, version: str) -> FrozenSet[str]:
        listed = self.cluster.find(f"/apis/{version}") or {}
        return frozenset(str(one.get("name")) for one in listed.get("resources") or ())

    def claims(self, node: KubeNode) -> List[Claim]:
        """Everybody's work on this node. Raises CallFailed."""
        found: List[Claim] = []
        for one, path in self.served().items():
            kind = one.resource
            for each in self.cluster.items(path):
                claim = one.judge({"kind": kind, **each}, node)
                if claim is not None:
                    found.append(claim)
        return found

    def needed(self) -> List[ClusterRight]:
        """The rights to read what is served here. Raises CallFailed."""
        purpose = "to see whether another controller repairs a node"
        return [ClusterRight("list", one.resource, one.group, purpose=purpose) for one in self.served()]
