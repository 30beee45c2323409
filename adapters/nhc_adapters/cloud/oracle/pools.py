"""What replaces an instance of Oracle's: instance pools, OKE's node pools, GPU memory clusters."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Optional

from nhc.core.timestamps import from_iso
from nhc.marks.ports.repair import Order, Progress, Sent, Sighting, Stage
from nhc_adapters.cloud.oracle.api import Oracle, objects
from nhc_adapters.cloud.oracle.instances import OracleInstance, terminate
from nhc_adapters.repair.calls import CallFailed, RepairRefused, accepted, sized, untouched


def is_member(oracle: Oracle, pool: str, instance: str) -> bool:
    """Whether an instance is of the pool. Raises CallFailed."""
    try:
        oracle.call("get_instance_pool_instance", "GET", f"instancePools/{pool}/instances/{instance}", pool)
    except CallFailed as error:
        if error.code in ("NotAuthorizedOrNotFound", "404"):
            return False
        raise
    return True


def detach(oracle: Oracle, pool: str, instance: OracleInstance, order: Order) -> Sent:
    """Detach and terminate a member; the pool keeps its size and launches another."""
    body = {"instanceId": instance.ocid, "isAutoTerminate": True, "isDecrementSize": False}
    path = f"instancePools/{pool}/actions/detachInstance"
    reply = oracle.call("detach_instance_pool_instance", "POST", path, pool, body=body, token=order.key)
    return accepted("the pool detaches and terminates the instance, and launches another", reply.work)


def replaced(
    oracle: Oracle, pool: str, instance: Optional[OracleInstance], compartment: str, sent: Sent, before: Sighting
) -> Progress:
    """DONE where the old one has ended and the pool runs one that is newer. Raises CallFailed."""
    if instance is not None and instance.state == before.power:
        return untouched(sent, before, f"the instance is {instance.state}, as before")
    if instance is not None and instance.state != "TERMINATED":
        return Progress(Stage.WORKING, f"the instance is {instance.state}")
    if not compartment:
        return Progress(
            Stage.WORKING, "the instance has ended; its compartment is not known (repairers.oracle.compartment)"
        )
    query = {"compartmentId": compartment, "sortBy": "TIMECREATED", "sortOrder": "DESC", "limit": "50"}
    reply = oracle.call("list_instance_pool_instances", "GET", f"instancePools/{pool}/instances", pool, query=query)
    fresh = [row for row in objects(reply.data) if (from_iso(str(row.get("timeCreated"))) or 0.0) >= before.at - 1]
    running = [str(row.get("id")) for row in fresh if str(row.get("state")).upper() == "RUNNING"]
    if running:
        return Progress(Stage.DONE, "the instance has ended, and a newer one of its pool runs", running[-1])
    return Progress(
        Stage.WORKING, f"the instance has ended; {'another is coming' if fresh else 'no other has come yet'}"
    )


# OKE.


def delete_node(oracle: Oracle, pool: str, instance: OracleInstance) -> Sent:
    """Delete a managed node; the node pool keeps its size and makes another. OKE drains it first."""
    path = f"nodePools/{pool}/node/{instance.ocid}"
    reply = oracle.call("delete_node", "DELETE", path, pool, query={"isDecrementSize": "false"})
    return accepted("OKE deletes the node and makes another", reply.work)


def node_replaced(oracle: Oracle, pool: str, which: str, sent: Sent) -> Progress:
    """DONE where OKE's work has succeeded and as many nodes are active as there should be. Raises CallFailed."""
    if sent.request_id:
        path = f"workRequests/{sent.request_id}"
        status = str(oracle.call("get_work_request", "GET", path, pool).data.get("status") or "")
        if status in ("FAILED", "CANCELED"):
            return Progress(Stage.FAILED, f"OKE's work request is {status}")
        if status != "SUCCEEDED":
            return Progress(Stage.WORKING, f"OKE's work request is {status}")
    own: Mapping[str, Any] = oracle.call("get_node_pool", "GET", f"nodePools/{pool}", pool).data
    nodes = [node for node in own.get("nodes") or [] if node.get("lifecycleState") not in ("DELETED", "DELETING")]
    wanted = int((own.get("nodeConfigDetails") or {}).get("size") or 0)
    if any(node.get("id") == which for node in nodes):
        return Progress(Stage.WORKING, "the node is still there")
    active = sum(node.get("lifecycleState") == "ACTIVE" for node in nodes)
    stage = Stage.DONE if wanted and active >= wanted else Stage.WORKING
    return Progress(stage, f"the node is deleted; {active} of {wanted} nodes of its pool are active")


# GPU memory clusters (GB200, GB300): an NVLink domain with a size.


class GpuMemoryCluster(NamedTuple):
    """A GPU memory cluster."""

    size: int
    state: str
    etag: str


def cluster(oracle: Oracle, which: str) -> GpuMemoryCluster:
    """Raises CallFailed."""
    reply = oracle.call("get_compute_gpu_memory_cluster", "GET", f"computeGpuMemoryClusters/{which}", which)
    return GpuMemoryCluster(int(reply.data.get("size") or 0), str(reply.data.get("lifecycleState") or ""), reply.etag)


def leave(oracle: Oracle, which: str, instance: OracleInstance) -> Sent:
    """Terminate a member, keeping in the request's id the size to come back to."""
    before = cluster(oracle, which)
    if before.state != "ACTIVE":
        raise RepairRefused(f"the GPU memory cluster is {before.state}", 60.0)
    request_id = sized(before.size)
    try:
        return terminate(oracle, instance)._replace(request_id=request_id)
    except CallFailed as error:
        raise error.known_as(request_id) from None


def regrow(oracle: Oracle, which: str, size: int, key: str) -> Sent:
    """Bring the cluster back to its size. Changes nothing where it has it. Raises CallFailed."""
    now = cluster(oracle, which)
    if now.size >= size:
        return accepted(f"the GPU memory cluster has {now.size} instances", sized(size))
    path = f"computeGpuMemoryClusters/{which}"
    oracle.call(
        "update_compute_gpu_memory_cluster", "PUT", path, which, body={"size": size}, if_match=now.etag, token=key
    )
    return accepted(f"the GPU memory cluster grows to {size} instances", sized(size))
