"""Oracle's cloud as a repairer: instances, instance pools, OKE, GPU memory clusters.

    [repairers.oracle]
    replace = "pool"             # or oke, memory-cluster, terminate, reboot-migrate
    pool = "ocid1.instancepool…" # or per node, in the machine settings: pool, node_pool, gpu_memory_cluster
    reboot = "softreset"         # or reset, which cuts the power

Before an instance goes, its host is tagged as unhealthy. The rights that it needs are in adapters/oracle.
"""

from __future__ import annotations

import uuid
from typing import Iterator, List, NamedTuple, Optional, Sequence

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
from nhc_adapters.cloud.oracle import instances, pools
from nhc_adapters.cloud.oracle.api import PERMISSIONS, Oracle
from nhc_adapters.cloud.oracle.instances import GONE, TERMINATED, OracleInstance
from nhc_adapters.repair.calls import (
    CallFailed,
    RepairRefused,
    possible,
    require_whole,
    send_once,
    size_of,
    unknown,
    untouched,
)
from nhc_adapters.repair.settings import AdapterSettings, Given

KNOWN = (
    "endpoint", "proxy", "region", "credentials", "config-file", "profile", "replace", "reboot", "pool", "node-pool",
    "gpu-memory-cluster", "compartment",
)  # fmt: skip
WAYS = ("pool", "oke", "memory-cluster", "terminate", "reboot-migrate")
_OWNER = {"pool": ("pool", ""), "oke": ("node-pool", "oke-pool-id"), "memory-cluster": ("gpu-memory-cluster", "")}
"""The setting that names what replaces an instance, and where in its own metadata that may stand."""


class OracleTarget(NamedTuple):
    """An instance whose identity was compared, the way to repair it, and what it belongs to."""

    instance: OracleInstance
    way: str
    owner: str = ""


class OracleRepairer:
    """As `nhc.marks.ports.repair.Repairer`, Completes, OtherActors, EvidenceSource."""

    def __init__(self, settings: Given = None, environ: Given = None, timeout: float = 30.0) -> None:
        self.table = AdapterSettings(settings, KNOWN)
        self.replace = self.table.choice("replace", WAYS)
        self.reboot = self.table.choice("reboot", ("softreset", "reset"))
        self.oracle = Oracle(self.table, environ, timeout)

    # What is possible.

    def can(self, machine: Machine, rung: Rung, device: str = "") -> str:
        return possible(lambda: self._target(machine, rung, device))

    def _ocid(self, machine: Machine) -> str:
        which = instances.ocid(machine)
        if not which:
            raise unknown("instance of Oracle's", machine)
        return which

    def _target(self, machine: Machine, rung: Rung, device: str) -> OracleTarget:
        """Raises RepairRefused, CallFailed."""
        require_whole("Oracle", "instances", rung, device)
        which = self._ocid(machine)
        instance = instances.compare(machine, instances.get(self.oracle, which), which)
        if rung is not Rung.REPLACE:
            return OracleTarget(instance, "RESET" if rung is Rung.POWER_CYCLE else self.reboot.upper())
        owner = self._owner(machine, instance)
        if self.replace in _OWNER and not owner:
            raise RepairRefused(
                f"what replaces {machine.node} is not known (repairers.oracle.{_OWNER[self.replace][0]})"
            )
        if self.replace == "pool" and not pools.is_member(self.oracle, owner, which):
            raise RepairRefused(f"{machine.node} is not of the instance pool: nothing would replace it")
        return OracleTarget(instance, self.replace, owner)

    def _owner(self, machine: Machine, instance: Optional[OracleInstance]) -> str:
        setting, label = _OWNER.get(self.replace, ("", ""))
        own = machine.settings.get(setting.replace("-", "_"), "") if setting else ""
        labelled = instance.metadata.get(label, "") if instance and label else ""
        return own or labelled or (self.table.text(setting) if setting else "")

    # Looking, acting.

    def look(self, machine: Machine) -> Sighting:
        return instances.sighting(instances.get(self.oracle, self._ocid(machine)))

    def send(self, order: Order) -> Sent:
        return send_once(lambda: self._prepare(order), lambda target: self._act(order, target))

    def _prepare(self, order: Order) -> OracleTarget:
        target = self._target(order.machine, order.rung, order.device)
        if order.rung is Rung.REPLACE:  # the tag destroys nothing, and must stand before anything else is sent
            target = target._replace(instance=instances.report(self.oracle, target.instance, order))
        return target

    def _act(self, order: Order, target: OracleTarget) -> Sent:
        if target.way == "pool":
            return pools.detach(self.oracle, target.owner, target.instance, order)
        if target.way == "oke":
            return pools.delete_node(self.oracle, target.owner, target.instance)
        if target.way == "memory-cluster":
            return pools.leave(self.oracle, target.owner, target.instance)
        if target.way == "terminate":
            return instances.terminate(self.oracle, target.instance)
        if target.way == "reboot-migrate":
            body = {"actionType": "rebootMigrate", "deleteLocalStorage": True}
            return instances.act(self.oracle, target.instance, "REBOOTMIGRATE", order.key, body)
        return instances.act(self.oracle, target.instance, target.way, order.key)

    def complete(self, order: Order, sent: Sent) -> Sent:
        """The growth of a GPU memory cluster back to its size."""
        return send_once(lambda: self._owner(order.machine, None), lambda owner: self._grow(order, sent, owner))

    def _grow(self, order: Order, sent: Sent, owner: str) -> Sent:
        if self.replace != "memory-cluster" or not owner:
            raise RepairRefused("nothing is to follow")
        key = str(uuid.uuid5(uuid.UUID(order.key), "grow"))
        return pools.regrow(self.oracle, owner, size_of(sent), key)

    # Watching.

    def progress(self, order: Order, sent: Sent, before: Sighting) -> Progress:
        which = self._ocid(order.machine)
        instance = instances.get(self.oracle, which)
        state = instance.state if instance else "gone"
        if order.rung is not Rung.REPLACE or self.replace == "reboot-migrate":
            if instance is None or instance.state in GONE or instance.state == "STOPPED":
                return Progress(Stage.FAILED, f"the instance is {state}")
            return Progress(Stage.WORKING, f"the instance is {state}; Oracle shows no boots: see the boot id")
        owner = self._owner(order.machine, instance)
        if self.replace == "pool" and owner:
            compartment = (instance.compartment if instance else "") or self.table.text("compartment")
            return pools.replaced(self.oracle, owner, instance, compartment, sent, before)
        if self.replace == "oke" and owner:
            return pools.node_replaced(self.oracle, owner, which, sent)
        if instance is not None and instance.state == before.power:
            return untouched(sent, before, f"the instance is {state}, as before")
        if instance is not None and instance.state != TERMINATED:
            return Progress(Stage.WORKING, f"the instance is {state}")
        if self.replace == "memory-cluster" and owner:
            now = pools.cluster(self.oracle, owner)
            if now.size < size_of(sent):
                return Progress(Stage.HALFWAY, f"the instance has ended; its cluster is to grow to {size_of(sent)}")
            stage = Stage.DONE if now.state == "ACTIVE" else Stage.WORKING
            return Progress(stage, f"the instance has ended; its cluster has {now.size} instances and is {now.state}")
        return Progress(Stage.DONE, "the instance has ended")

    # Rights, others, evidence.

    def rights(self) -> Sequence[Right]:
        """Oracle tells nobody which permissions one has: reading is tried, the rest cannot be."""
        names = sorted(set(PERMISSIONS.values()) - {"INSTANCE_READ"})
        rights = [Right(name, None, "Oracle has no way to try it") for name in names]
        compartment = self.table.text("compartment")
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
        which = instances.ocid(machine)
        instance = instances.get(self.oracle, which) if which else None
        if instance is None:
            return []
        seen = instances.sighting(instance)
        own: List[Claim] = [Claim("oracle", f"the instance is {seen.doing}", "get_instance")] if seen.actor else []
        return own + instances.maintenance(self.oracle, instance)

    def evidence(self, machine: Machine, budget: EvidenceBudget) -> Iterator[Exhibit]:
        return instances.evidence(self.oracle, self._ocid(machine), budget)
