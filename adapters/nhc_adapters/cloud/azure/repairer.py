"""Azure as a repairer: virtual machines, scale sets of both kinds, AKS's node pools, guest health reports.

    [repairers.azure]
    replace = "redeploy"         # or reimage, deallocate, delete, aks, report
    log-directory = ""           # NODE.log.gz in it goes with a report
    client-id = ""               # of a managed identity, if the machine has several

The rights that it needs are in adapters/azure; docs/repairers.md says which call makes which repair.
"""

from __future__ import annotations

import fnmatch
import os
import re
import time
import uuid
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence
from urllib.parse import urlsplit, urlunsplit

from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.core.system.bounded_read import read_bytes
from nhc.core.timestamps import utc
from nhc.marks.ports.adapter import AdapterError
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
from nhc_adapters.cloud.azure import api
from nhc_adapters.cloud.azure.api import (
    AKS,
    DEALLOCATED,
    IMPACT,
    PERMISSIONS,
    RUNNING,
    STOPPED,
    SUCCEEDED,
    Azure,
    AzureAccess,
    AzureMachine,
    Vm,
    vm,
)
from nhc_adapters.repair import (
    LATER,
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

# Guest health reports: telling Azure that a machine's hardware is bad, with a log, and reading what it makes of it.
#
# The report is a PUT under a name that follows from the machine, its boot and the fault, so that the same report sent
# twice is one. Only a terminal insight says whether the machine is to be deallocated; Azure then waits up to 30 days
# [Azure guest health reporting, preview; the subscription must be onboarded].


UNHEALTHY = "Resource.Hpc.Unhealthy."

_CATEGORIES = (
    ("XID79FallenOffBus", r"xid\D?79\b|fall(en|s)?.?off|off.the.bus"),
    ("XID95UncontainedECCError", r"xid\D?95\b"),
    ("XID94ContainedECCError", r"xid\D?94\b"),
    ("XID48DoubleBitECC", r"xid\D?48\b|double.?bit"),
    ("GpuXIDError", r"\bxid"),
    ("HpcRowRemapFailure", r"row.?remap"),
    ("HpcInforomCorruption", r"inforom"),
    ("ECCPageRetirementTableFull", r"page.?retire"),
    ("EROTFailure", r"\berot"),
    ("NvLink", r"nvlink|nvswitch"),
    ("IBPortFlapping", r"(ib|infiniband|link).*flap"),
    ("IBPortDown", r"(ib|infiniband).*(down|polling|inactive|not active)"),
    ("MissingIB", r"(missing|no|count).*(\bib\b|infiniband|\bhca)|(\bib\b|infiniband|\bhca).*(missing|count)"),
    ("IBPerformance", r"(\bib\b|infiniband|rdma).*(bandwidth|latency|below|slow)"),
    ("GPUMemoryBWFailure", r"memory.*(bandwidth|bw)|hbm.*bandwidth"),
    ("HpcDcgmiThermalReport", r"thermal|temperature|throttl"),
    ("HpcGpuDcgmDiagFailure", r"dcgm"),
    ("HpcMissingGpu", r"gpu.*(missing|count|lost)|missing.*gpu"),
    ("UnhealthyGPUNvidiasmi", r"nvidia.?smi|\bgpu"),
    ("CPUPerformance", r"cpu.*(slow|below|performance)"),
)
"""Azure's name for a fault, by our reason; the first that fits."""

_REMOVED = ("NodeRemovedFromService",)
"""What a terminal insight says where the machine is to be deallocated."""


class Insight(NamedTuple):
    """What Azure makes of a report. `terminal` says that nothing more follows."""

    code: str
    terminal: bool

    @property
    def removed(self) -> bool:
        return self.terminal and self.code in _REMOVED


def category(because: str) -> str:
    fault = next(
        (name for name, pattern in _CATEGORIES if re.search(pattern, because, re.IGNORECASE)), "HpcGenericFailure"
    )
    return UNHEALTHY + fault


def report_name(order: Order, seen: AzureMachine) -> str:
    """The report's name: the same for the same machine, boot and fault."""
    about = f"{seen.vm_id}/{order.machine.boot_id or seen.at}/{category(order.because)}"
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"nhc:{about}"))


def send_report(azure: Azure, which: Vm, order: Order, seen: AzureMachine, log_url: str) -> Sent:
    """Report the machine. Raises CallFailed."""
    more: Dict[str, str] = {"LogUrl": log_url} if log_url else {}
    more.update(_device(order.machine))
    # A host's name says more than a machine's id; either must be there.
    host = order.machine.settings.get("physical_host", "")
    more.update({"PhysicalHostName": host} if host else {"VmUniqueId": seen.vm_id})
    properties = {
        "startDateTime": utc(time.time()),
        "impactCategory": category(order.because),
        "impactDescription": printable(order.because, 400),
        "impactedResourceId": which.path,
        "additionalProperties": more,
    }
    called = report_name(order, seen)
    azure.call("workloadImpacts/write", "PUT", _path(which, called), IMPACT, body={"properties": properties})
    return accepted(f"reported {which.label} to Azure as {category(order.because)}", f"impact/{called}")


def _device(machine: Machine) -> Dict[str, str]:
    """What a report of a GPU names, if the site's settings of the node contain it."""
    names = {"manufacturer": "Manufacturer", "serial": "SerialNumber", "model": "ModelNumber", "location": "Location"}
    return {name: machine.settings[key] for key, name in names.items() if machine.settings.get(key)}


def _path(which: Vm, called: str) -> str:
    return f"/subscriptions/{which.subscription}/providers/Microsoft.Impact/workloadImpacts/{called}"


def insight_of(azure: Azure, which: Vm, called: str) -> Optional[Insight]:
    """The status of a report, None while there is none. Raises CallFailed."""
    try:
        answer = azure.call("insights/read", "GET", f"{_path(which, called)}/insights", IMPACT).answer
    except CallFailed as error:
        if error.code in ("404", "NotFound", "ResourceNotFound"):
            return None
        raise
    insights = [_insight(insight) for insight in answer.get("value") or []]
    return next((insight for insight in insights if insight.terminal), insights[-1] if insights else None)


def _insight(value: Mapping[str, Any]) -> Insight:
    more = (value.get("properties") or {}).get("additionalDetails") or {}
    return Insight(str(more.get("statusCode") or ""), str(more.get("terminalInsight")).lower() == "true")


def upload(azure: Azure, which: Vm, content: bytes) -> str:
    """Upload one .gz for the report; its address without the signature. Raises CallFailed, AdapterError."""
    path = f"/subscriptions/{which.subscription}/providers/Microsoft.Impact/getUploadToken"
    answer = azure.call("getUploadToken", "POST", path, IMPACT).answer
    address = str(answer.get("uploadUrl") or answer.get("sasUrl") or "")
    azure.upload(address, content)
    return urlunsplit((*urlsplit(address)[:3], "", ""))


# AKS: deleting one machine of a node pool, and bringing the pool back to its size.


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


def pool_of(machine: Machine, subscription: str, group: str) -> Optional[AzureNodePool]:
    """The pool of a node, from its labels or settings (`cluster_group`, `cluster`, `pool`); None if unknown."""
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


def pool_size(azure: Azure, of: AzureNodePool) -> Size:
    """Raises CallFailed."""
    own = _properties(azure, of)
    settled = str(own.get("provisioningState") or "") == "Succeeded"
    return Size(int(own.get("count") or 0), bool(own.get("enableAutoScaling")), settled)


def delete(azure: Azure, of: AzureNodePool, node: str) -> Sent:
    """Delete a machine, keeping in the request's id the size to come back to."""
    before = pool_size(azure, of)
    if not before.settled:
        raise RepairRefused(f"the node pool {of.name} is being changed", 60.0)
    request_id = sized(before.nodes)
    try:
        azure.call("deleteMachines", "POST", f"{of.path}/deleteMachines", AKS, body={"machineNames": [node]})
    except CallFailed as error:
        raise error.known_as(request_id) from None
    return accepted(f"AKS deletes {node} of {of.name}", request_id)


def grow(azure: Azure, of: AzureNodePool, count: int) -> Sent:
    """Bring the pool back to at least `count` nodes. Changes nothing if it has them. Raises CallFailed."""
    own = _properties(azure, of)
    if int(own.get("count") or 0) >= count:
        return accepted(f"{of.name} has {own.get('count')} nodes", sized(count))
    azure.call("agentPools/write", "PUT", of.path, AKS, body={"properties": {**own, "count": count}})
    return accepted(f"{of.name} grows to {count} nodes", sized(count))


WAYS = ("redeploy", "reimage", "deallocate", "delete", "aks", "report")
LOG_LIMIT = 100 << 20
"""Bytes of a log that goes with a report; nvidia-bug-report.log.gz has 1 to 20 MB."""

VM = "Microsoft.Compute/virtualMachines"
SET = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines"
_EACH = (
    "read", "instanceView/read", "restart/action", "redeploy/action", "reimage/action", "powerOff/action",
    "deallocate/action", "start/action", "delete", "retrieveBootDiagnosticsData/action",
)  # fmt: skip
ACTIONS: Sequence[str] = (
    *(f"{VM}/{action}" for action in _EACH),
    *(f"{SET}/{action}" for action in _EACH),
    "Microsoft.Compute/locations/operations/read",
    "Microsoft.ContainerService/managedClusters/agentPools/read",
    "Microsoft.ContainerService/managedClusters/agentPools/write",
    "Microsoft.ContainerService/managedClusters/agentPools/deleteMachines/action",
    "Microsoft.Impact/WorkloadImpacts/read",
    "Microsoft.Impact/WorkloadImpacts/write",
    "Microsoft.Impact/WorkloadImpacts/insights/read",
    "Microsoft.Impact/getUploadToken/action",
)
"""What all of it takes, as adapters/azure/role-repair.json grants it."""


@declared.settings
class AzureSettings(NamedTuple):
    """The table of a repairer of this kind (docs/repairers.md)."""

    access: AzureAccess = declared.part("", AzureAccess)
    replace: str = declared.word("replace", WAYS)
    logs: str = declared.text("log-directory", "", "where logs lie that go with a report of a fault")
    subscription: str = declared.text("subscription", "", "with resource-group: where the doctor tries the rights")
    resource_group: str = declared.text("resource-group")


class AzureTarget(NamedTuple):
    """A machine whose identity was checked, and the way to repair it."""

    which: Vm
    seen: AzureMachine
    way: str


class AzureRepairer:
    """As `nhc.marks.ports.repair.Repairer`, Completes, OtherActors, EvidenceSource."""

    SETTINGS = AzureSettings

    def __init__(self, settings: Given = None, environ: Given = None, timeout: float = 30.0) -> None:
        self.own = read(AzureSettings, settings)
        self.replace, self.logs = self.own.replace, self.own.logs
        self.azure = Azure(self.own.access, environ, timeout)

    # What is possible.

    def can(self, machine: Machine, rung: Rung, device: str = "") -> str:
        return possible(lambda: self._target(machine, rung, device))

    def _vm(self, machine: Machine) -> Vm:
        which = vm(machine)
        if which is None:
            raise unknown("machine of Azure's", machine)
        return which

    def _way(self, rung: Rung) -> str:
        return {Rung.REBOOT: "restart", Rung.POWER_CYCLE: "powerOff"}.get(rung, self.replace)

    def _target(self, machine: Machine, rung: Rung, device: str) -> AzureTarget:
        """Raises RepairRefused, CallFailed."""
        require_whole("Azure", "machines", rung, device)
        which, way = self._vm(machine), self._way(rung)
        seen = api.compare(machine, api.get(self.azure, which), which)
        if seen.provisioning not in (SUCCEEDED, "failed"):
            raise RepairRefused(f"{which.label} is being changed: provisioning is {seen.provisioning}", LATER)
        if seen.power != RUNNING and way != "delete":
            raise RepairRefused(f"{which.label} is {seen.power or 'in no known state of power'}")
        if way == "aks":
            self._pool(machine, which)
        return AzureTarget(which, seen, way)

    def _pool(self, machine: Machine, which: Vm) -> AzureNodePool:
        pool = pool_of(machine, which.subscription, which.group)
        if pool is None:
            raise RepairRefused(
                f"{machine.node} is no node of AKS that is known (its label kubernetes.azure.com/agentpool)"
            )
        return pool

    # Looking, acting.

    def look(self, machine: Machine) -> Sighting:
        return api.sighting(api.get(self.azure, self._vm(machine)))

    def send(self, order: Order) -> Sent:
        return send_once(
            lambda: self._target(order.machine, order.rung, order.device), lambda target: self._act(order, target)
        )

    def _act(self, order: Order, target: AzureTarget) -> Sent:
        if target.way == "delete":
            return api.delete(self.azure, target.which)
        if target.way == "aks":
            return delete(self.azure, self._pool(order.machine, target.which), order.machine.node)
        if target.way == "report":
            return send_report(self.azure, target.which, order, target.seen, self._log(order.machine, target.which))
        return api.act(self.azure, target.which, target.way)

    def _log(self, machine: Machine, which: Vm) -> str:
        """The address of the node's log, uploaded now. A report without a log is better than none."""
        path = os.path.join(self.logs, f"{os.path.basename(machine.node)}.log.gz")
        if not self.logs or not os.path.exists(path):
            return ""
        try:
            return upload(self.azure, which, read_bytes(path, LOG_LIMIT))
        except (AdapterError, OSError):
            return ""

    def complete(self, order: Order, sent: Sent) -> Sent:
        """The start after a stop; the deallocation that a report ends with; a pool's growth after a deletion."""
        return send_once(lambda: self._next(order), lambda target: self._do_next(order, sent, target))

    def _next(self, order: Order) -> AzureTarget:
        which, way = self._vm(order.machine), self._way(order.rung)
        seen = api.get(self.azure, which) if way != "aks" else AzureMachine("", "", "", "")
        if seen is None:
            raise RepairRefused(f"{which.label} is gone")
        return AzureTarget(which, seen, way)

    def _do_next(self, order: Order, sent: Sent, target: AzureTarget) -> Sent:
        if target.way == "aks":
            return grow(self.azure, self._pool(order.machine, target.which), size_of(sent))
        if target.way == "report" and target.seen.power == RUNNING:
            return api.act(self.azure, target.which, "deallocate")
        return api.act(self.azure, target.which, "start")

    # Watching.

    def progress(self, order: Order, sent: Sent, before: Sighting) -> Progress:
        which, way = self._vm(order.machine), self._way(order.rung)
        if way == "aks":
            return self._pool_progress(order, which, sent)
        seen = api.get(self.azure, which)
        if seen is None:
            done = way == "delete"
            return Progress(Stage.DONE if done else Stage.FAILED, f"{which.label} is gone")
        place = sent.request_id if sent.request_id.count("/") == 1 and not sent.request_id.startswith("impact/") else ""
        work = api.work(self.azure, which, place)
        if work is not None and work.error:
            return Progress(Stage.FAILED, work.error)
        if (work is not None and not work.done) or seen.provisioning not in (SUCCEEDED, "failed"):
            return Progress(Stage.WORKING, f"Azure works on {which.label}: {seen.provisioning}, {seen.power}")
        if way == "report" and not place and seen.power == RUNNING:
            return self._report_progress(order, which, before)
        if seen.power in (STOPPED, DEALLOCATED) and way in ("powerOff", "deallocate", "report"):
            return Progress(Stage.HALFWAY, f"{which.label} is {seen.power}; it is to be started")
        if work is not None and seen.power == RUNNING and seen.provisioning == SUCCEEDED:
            return Progress(
                Stage.DONE, f"{which.label} runs, and our operation ended at {seen.at}", f"azure://{which.path}"
            )
        if (seen.power, seen.at) == (before.power, before.boot):
            return untouched(sent, before, f"{which.label} is {seen.power}, as before")
        # Any update of the machine changes the time: of its tags, of an extension, by whomever.
        return Progress(Stage.WORKING, f"{which.label} was worked on until {seen.at}, by whom Azure does not say")

    def _report_progress(self, order: Order, which: Vm, before: Sighting) -> Progress:
        """What Azure makes of the report, until the machine is touched. Its name follows from what was seen before."""
        then = AzureMachine(before.instance, before.power, SUCCEEDED, before.boot)
        insight = insight_of(self.azure, which, report_name(order, then))
        if insight is None:
            return Progress(Stage.WORKING, "Azure says nothing of the report yet")
        if insight.removed:
            return Progress(Stage.HALFWAY, f"Azure: {insight.code}; {which.label} is to be deallocated")
        if insight.terminal:
            return Progress(Stage.FAILED, f"Azure did nothing: {insight.code}")
        return Progress(Stage.WORKING, f"Azure: {insight.code}")

    def _pool_progress(self, order: Order, which: Vm, sent: Sent) -> Progress:
        pool = self._pool(order.machine, which)
        if api.get(self.azure, which) is not None:
            return Progress(Stage.WORKING, f"{order.machine.node} is still there")
        size = pool_size(self.azure, pool)
        wanted = size_of(sent)
        if size.autoscaled or size.nodes >= wanted:
            stage = Stage.DONE if size.settled else Stage.WORKING
            return Progress(stage, f"{order.machine.node} is deleted; {pool.name} has {size.nodes} nodes")
        return Progress(Stage.HALFWAY, f"{order.machine.node} is deleted; {pool.name} is to grow to {wanted} nodes")

    # Rights, others, evidence.

    def rights(self) -> Sequence[Right]:
        """Azure tells which actions one has in a resource group."""
        subscription, group = self.own.subscription, self.own.resource_group
        if not (subscription and group):
            return [Right(grant, None, "set subscription and resource-group in [repairers.azure]") for grant in ACTIONS]
        path = f"/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Authorization/permissions"
        try:
            grants = self.azure.call("permissions", "GET", path, PERMISSIONS).answer.get("value") or []
        except CallFailed as error:
            return [Right(grant, None, str(error)) for grant in ACTIONS]
        rights = []
        for action in ACTIONS:
            granted = any(
                _fits(action, grant.get("actions")) and not _fits(action, grant.get("notActions")) for grant in grants
            )
            # What the settings make no use of need not be granted.
            if granted or self._needed(action):
                rights.append(Right(action, granted, "" if granted else f"not granted in {group}"))
        return rights

    def _needed(self, action: str) -> bool:
        last = action.rpartition("/")[0].rpartition("/")[2] if action.endswith("/action") else action.rpartition("/")[2]
        if "ContainerService" in action:
            return self.replace == "aks"
        if "Impact" in action:
            return self.replace == "report"
        if last in ("redeploy", "reimage", "deallocate", "delete"):
            return self.replace == last or (last == "deallocate" and self.replace == "report")
        return True

    def claims(self, machine: Machine) -> Sequence[Claim]:
        which = vm(machine)
        seen = api.get(self.azure, which) if which else None
        if which is None or seen is None:
            return []
        claims: List[Claim] = []
        if seen.provisioning not in (SUCCEEDED, "failed", ""):
            # AKS's own repair (reboot, reimage, redeploy) shows as such work too.
            claims.append(Claim("azure", f"provisioning is {seen.provisioning}", f"{VM}/read instanceView"))
        if seen.maintenance:
            doing = f"maintenance from {seen.maintenance}"
            claims.append(Claim("azure", doing, f"{VM}/read maintenanceRedeployStatus"))
        return claims

    def evidence(self, machine: Machine, budget: EvidenceBudget) -> Iterator[Exhibit]:
        return api.evidence(self.azure, self._vm(machine), budget)


def _fits(action: str, patterns: Optional[Sequence[str]]) -> bool:
    return any(fnmatch.fnmatchcase(action.lower(), str(pattern).lower()) for pattern in patterns or [])
