"""Guest health reports: telling Azure that a machine's hardware is bad, with a log, and reading what it makes of it.

The report is a PUT under a name that follows from the machine, its boot and the fault, so that the same report sent
twice is one. Only a terminal insight says whether the machine is to be deallocated; Azure then waits up to 30 days
[Azure guest health reporting, preview; the subscription must be onboarded].
"""

from __future__ import annotations

import re
import time
import uuid
from typing import Any, Dict, Mapping, NamedTuple, Optional
from urllib.parse import urlsplit, urlunsplit

from nhc.core.model import printable
from nhc.core.timestamps import utc
from nhc.marks.ports.repair import Machine, Order, Sent
from nhc_adapters.cloud.azure.api import IMPACT, Azure
from nhc_adapters.cloud.azure.identity import Vm
from nhc_adapters.cloud.azure.machines import AzureMachine
from nhc_adapters.repair.calls import CallFailed, accepted

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
"""Azure's word for a fault, by what we say of it; the first that fits."""

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


def name(order: Order, seen: AzureMachine) -> str:
    """The report's name: the same for the same machine, boot and fault."""
    about = f"{seen.vm_id}/{order.machine.boot_id or seen.at}/{category(order.because)}"
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"nhc:{about}"))


def send(azure: Azure, which: Vm, order: Order, seen: AzureMachine, log_url: str) -> Sent:
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
    called = name(order, seen)
    azure.call("workloadImpacts/write", "PUT", _path(which, called), IMPACT, body={"properties": properties})
    return accepted(f"reported {which.label} to Azure as {category(order.because)}", f"impact/{called}")


def _device(machine: Machine) -> Dict[str, str]:
    """What a report of a GPU names, where the site's settings of the node tell it."""
    names = {"manufacturer": "Manufacturer", "serial": "SerialNumber", "model": "ModelNumber", "location": "Location"}
    return {name: machine.settings[key] for key, name in names.items() if machine.settings.get(key)}


def _path(which: Vm, called: str) -> str:
    return f"/subscriptions/{which.subscription}/providers/Microsoft.Impact/workloadImpacts/{called}"


def insight(azure: Azure, which: Vm, called: str) -> Optional[Insight]:
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
