"""Oracle's cloud as a repairer: instances, instance pools, OKE, GPU memory clusters.

    [repairers.oracle]
    replace = "pool"             # or oke, memory-cluster, terminate, reboot-migrate
    pool = "ocid1.instancepool…" # or per node, in the machine settings: pool, node_pool, gpu_memory_cluster
    reboot = "softreset"         # or reset, which cuts the power

Before an instance is replaced, its host is tagged as unhealthy. The rights that it needs are in adapters/oracle.
"""

from __future__ import annotations

import uuid
from typing import Any, Iterator, List, Mapping, NamedTuple, Optional, Sequence

from nhc.core.settings import declared
from nhc.core.timestamps import from_iso
from nhc.marks.ports.part_settings import Given, read
from nhc.marks.ports.repair import (
    Claim,
    EvidenceBudget,
    Exhibit,
    Machine,
    Order,
    Progress,
    Right,
    Rung,
    Sent,
    Sighting,
    Stage,
)
from nhc_adapters.cloud.oracle import api
from nhc_adapters.cloud.oracle.api import (
    GONE,
    PERMISSIONS,
    TERMINATED,
    Oracle,
    OracleAccess,
    OracleInstance,
    objects,
    terminate,
)
from nhc_adapters.repair import (
    CallFailed,
    RepairRefused,
    accepted,
    possible,
    require_whole,
    send_once,
    size_of,
    sized,
    unknown,
    untouched,
)

# What replaces an instance of Oracle's: instance pools, OKE's node pools, GPU memory clusters.


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
    """DONE if the old one has ended and the pool runs one that is newer. Raises CallFailed."""
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
    """DONE if OKE's work has succeeded and as many nodes are active as there should be. Raises CallFailed."""
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
    """Bring the cluster back to its size. Changes nothing if it has it. Raises CallFailed."""
    now = cluster(oracle, which)
    if now.size >= size:
        return accepted(f"the GPU memory cluster has {now.size} instances", sized(size))
    path = f"computeGpuMemoryClusters/{which}"
    oracle.call(
        "update_compute_gpu_memory_cluster", "PUT", path, which, body={"size": size}, if_match=now.etag, token=key
    )
    return accepted(f"the GPU memory cluster grows to {size} instances", sized(size))


WAYS = ("pool", "oke", "memory-cluster", "terminate", "reboot-migrate")
_OWNER = {"pool": ("pool", ""), "oke": ("node_pool", "oke-pool-id"), "memory-cluster": ("gpu_memory_cluster", "")}
"""The setting that names what replaces an instance, and where in its own metadata that may stand."""


@declared.settings
class OracleSettings(NamedTuple):
    """The table of a repairer of this kind (docs/repairers.md)."""

    access: OracleAccess = declared.part("", OracleAccess)
    replace: str = declared.word("replace", WAYS)
    reboot: str = declared.word("reboot", ("softreset", "reset"), "", "reset cuts the power")
    pool: str = declared.text("pool", "", "the instance pool, unless a node's own settings name it")
    node_pool: str = declared.text("node-pool", "", "OKE's, in the same way")
    gpu_memory_cluster: str = declared.text("gpu-memory-cluster", "", "in the same way")
    compartment: str = declared.text("compartment", "", "where `nhc doctor remedy` tries the rights")


class OracleTarget(NamedTuple):
    """An instance whose identity was checked, the way to repair it, and what it belongs to."""

    instance: OracleInstance
    way: str
    owner: str = ""


class OracleRepairer:
    """As `nhc.marks.ports.repair.Repairer`, Completes, OtherActors, EvidenceSource."""

    SETTINGS = OracleSettings

    def __init__(self, settings: Given = None, environ: Given = None, timeout: float = 30.0) -> None:
        self.own = read(OracleSettings, settings)
        self.replace, self.reboot = self.own.replace, self.own.reboot
        self.oracle = Oracle(self.own.access, environ, timeout)

    # What is possible.

    def can(self, machine: Machine, rung: Rung, device: str = "") -> str:
        return possible(lambda: self._target(machine, rung, device))

    def _ocid(self, machine: Machine) -> str:
        which = api.ocid(machine)
        if not which:
            raise unknown("instance of Oracle's", machine)
        return which

    def _target(self, machine: Machine, rung: Rung, device: str) -> OracleTarget:
        """Raises RepairRefused, CallFailed."""
        require_whole("Oracle", "instances", rung, device)
        which = self._ocid(machine)
        instance = api.compare(machine, api.get(self.oracle, which), which)
        if rung is not Rung.REPLACE:
            return OracleTarget(instance, "RESET" if rung is Rung.POWER_CYCLE else self.reboot.upper())
        owner = self._owner(machine, instance)
        if self.replace in _OWNER and not owner:
            key = _OWNER[self.replace][0].replace("_", "-")
            raise RepairRefused(f"what replaces {machine.node} is not known (repairers.oracle.{key})")
        if self.replace == "pool" and not is_member(self.oracle, owner, which):
            raise RepairRefused(f"{machine.node} is not of the instance pool: nothing would replace it")
        return OracleTarget(instance, self.replace, owner)

    def _owner(self, machine: Machine, instance: Optional[OracleInstance]) -> str:
        setting, label = _OWNER.get(self.replace, ("", ""))
        own = machine.settings.get(setting, "") if setting else ""
        labelled = instance.metadata.get(label, "") if instance and label else ""
        return own or labelled or (str(getattr(self.own, setting)) if setting else "")

    # Looking, acting.

    def look(self, machine: Machine) -> Sighting:
        return api.sighting(api.get(self.oracle, self._ocid(machine)))

    def send(self, order: Order) -> Sent:
        return send_once(lambda: self._prepare(order), lambda target: self._act(order, target))

    def _prepare(self, order: Order) -> OracleTarget:
        target = self._target(order.machine, order.rung, order.device)
        if order.rung is Rung.REPLACE:  # the tag destroys nothing, and must stand before anything else is sent
            target = target._replace(instance=api.report(self.oracle, target.instance, order))
        return target

    def _act(self, order: Order, target: OracleTarget) -> Sent:
        if target.way == "pool":
            return detach(self.oracle, target.owner, target.instance, order)
        if target.way == "oke":
            return delete_node(self.oracle, target.owner, target.instance)
        if target.way == "memory-cluster":
            return leave(self.oracle, target.owner, target.instance)
        if target.way == "terminate":
            return api.terminate(self.oracle, target.instance)
        if target.way == "reboot-migrate":
            body = {"actionType": "rebootMigrate", "deleteLocalStorage": True}
            return api.act(self.oracle, target.instance, "REBOOTMIGRATE", order.key, body)
        return api.act(self.oracle, target.instance, target.way, order.key)

    def complete(self, order: Order, sent: Sent) -> Sent:
        """The growth of a GPU memory cluster back to its size."""
        return send_once(lambda: self._owner(order.machine, None), lambda owner: self._grow(order, sent, owner))

    def _grow(self, order: Order, sent: Sent, owner: str) -> Sent:
        if self.replace != "memory-cluster" or not owner:
            raise RepairRefused("nothing is to follow")
        key = str(uuid.uuid5(uuid.UUID(order.key), "grow"))
        return regrow(self.oracle, owner, size_of(sent), key)

    # Watching.

    def progress(self, order: Order, sent: Sent, before: Sighting) -> Progress:
        which = self._ocid(order.machine)
        instance = api.get(self.oracle, which)
        state = instance.state if instance else "gone"
        if order.rung is not Rung.REPLACE or self.replace == "reboot-migrate":
            if instance is None or instance.state in GONE or instance.state == "STOPPED":
                return Progress(Stage.FAILED, f"the instance is {state}")
            return Progress(Stage.WORKING, f"the instance is {state}; Oracle shows no boots: see the boot id")
        owner = self._owner(order.machine, instance)
        if self.replace == "pool" and owner:
            compartment = (instance.compartment if instance else "") or self.own.compartment
            return replaced(self.oracle, owner, instance, compartment, sent, before)
        if self.replace == "oke" and owner:
            return node_replaced(self.oracle, owner, which, sent)
        if instance is not None and instance.state == before.power:
            return untouched(sent, before, f"the instance is {state}, as before")
        if instance is not None and instance.state != TERMINATED:
            return Progress(Stage.WORKING, f"the instance is {state}")
        if self.replace == "memory-cluster" and owner:
            now = cluster(self.oracle, owner)
            if now.size < size_of(sent):
                return Progress(Stage.HALFWAY, f"the instance has ended; its cluster is to grow to {size_of(sent)}")
            stage = Stage.DONE if now.state == "ACTIVE" else Stage.WORKING
            return Progress(stage, f"the instance has ended; its cluster has {now.size} instances and is {now.state}")
        return Progress(Stage.DONE, "the instance has ended")

    # Rights, others, evidence.

    def rights(self) -> Sequence[Right]:
        """Oracle does not show which permissions a caller has: nhc tries reads; the rest cannot be tried."""
        names = sorted(set(PERMISSIONS.values()) - {"INSTANCE_READ"})
        rights = [Right(name, None, "Oracle has no way to try it") for name in names]
        compartment = self.own.compartment
        if not compartment:
            return [Right("INSTANCE_READ", None, "set compartment in [repairers.oracle] to try it"), *rights]
        query = {"compartmentId": compartment, "limit": "1"}
        try:
            self.oracle.call("list_instances", "GET", "instances", compartment, query=query)
        except CallFailed as error:
            denied = error.code in ("NotAuthorizedOrNotFound", "NotAuthenticated", "404", "401")
            return [Right("INSTANCE_READ", False if denied else None, str(error)), *rights]
        return [Right("INSTANCE_READ", True), *rights]

    def claims(self, machine: Machine) -> Sequence[Claim]:
        which = api.ocid(machine)
        instance = api.get(self.oracle, which) if which else None
        if instance is None:
            return []
        seen = api.sighting(instance)
        own: List[Claim] = [Claim("oracle", f"the instance is {seen.doing}", "get_instance")] if seen.actor else []
        return own + api.maintenance(self.oracle, instance)

    def evidence(self, machine: Machine, budget: EvidenceBudget) -> Iterator[Exhibit]:
        return api.evidence(self.oracle, self._ocid(machine), budget)
