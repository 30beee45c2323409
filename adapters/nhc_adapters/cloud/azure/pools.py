"""AKS: deleting one machine of a node pool, and bringing the pool back to its size."""

from __future__ import annotations

import re
from typing import Any, Mapping, NamedTuple, Optional

from nhc.marks.ports.repair import Machine, Sent
from nhc_adapters.cloud.azure.api import AKS, Azure
from nhc_adapters.repair.calls import CallFailed, RepairRefused, accepted, sized

_NODE_GROUP = re.compile(r"^MC_(.+)_([^_]+)_[^_]+$", re.IGNORECASE)
"""AKS's own name for the resource group of a cluster's nodes: MC_GROUP_CLUSTER_LOCATION."""


class AzureNodePool(NamedTuple):
    """A node pool."""

    subscription: str
    group: str
    cluster: str
    name: str

    @property
    def path(self) -> str:
        base = f"/subscriptions/{self.subscription}/resourceGroups/{self.group}"
        return f"{base}/providers/Microsoft.ContainerService/managedClusters/{self.cluster}/agentPools/{self.name}"


def pool(machine: Machine, subscription: str, group: str) -> Optional[AzureNodePool]:
    """The pool of a node, from its labels or settings (`cluster_group`, `cluster`, `pool`); None where unknown."""
    name = machine.settings.get("pool", "") or machine.labels.get("kubernetes.azure.com/agentpool", "")
    match = _NODE_GROUP.match(group)
    owner = machine.settings.get("cluster_group", "") or (match[1] if match else "")
    cluster = machine.settings.get("cluster", "") or (match[2] if match else "")
    return AzureNodePool(subscription, owner, cluster, name) if name and owner and cluster else None


class Size(NamedTuple):
    """A pool's wanted size. An autoscaled one is brought back by its autoscaler."""

    nodes: int
    autoscaled: bool
    settled: bool


def _properties(azure: Azure, of: AzureNodePool) -> Mapping[str, Any]:
    return azure.call("agentPools/read", "GET", of.path, AKS).answer.get("properties") or {}


def size(azure: Azure, of: AzureNodePool) -> Size:
    """Raises CallFailed."""
    own = _properties(azure, of)
    settled = str(own.get("provisioningState") or "") == "Succeeded"
    return Size(int(own.get("count") or 0), bool(own.get("enableAutoScaling")), settled)


def delete(azure: Azure, of: AzureNodePool, node: str) -> Sent:
    """Delete a machine, keeping in the request's id the size to come back to."""
    before = size(azure, of)
    if not before.settled:
        raise RepairRefused(f"the node pool {of.name} is being changed", 60.0)
    request_id = sized(before.nodes)
    try:
        azure.call("deleteMachines", "POST", f"{of.path}/deleteMachines", AKS, body={"machineNames": [node]})
    except CallFailed as error:
        raise error.known_as(request_id) from None
    return accepted(f"AKS deletes {node} of {of.name}", request_id)


def grow(azure: Azure, of: AzureNodePool, count: int) -> Sent:
    """Bring the pool back to at least `count` nodes. Changes nothing where it has them. Raises CallFailed."""
    own = _properties(azure, of)
    if int(own.get("count") or 0) >= count:
        return accepted(f"{of.name} has {own.get('count')} nodes", sized(count))
    azure.call("agentPools/write", "PUT", of.path, AKS, body={"properties": {**own, "count": count}})
    return accepted(f"{of.name} grows to {count} nodes", sized(count))
