"""Azure's virtual machines: what they are now, the calls that change one, and what Azure shows of one without asking
it: its serial console and a picture of its screen. Both kinds of scale set, and none.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Iterator, Mapping, NamedTuple, Optional

from nhc.core.model import printable
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import EvidenceBudget, Exhibit, Machine, Sent, Sighting
from nhc_adapters.cloud.azure.api import Azure, Vm, same
from nhc_adapters.repair.calls import CallFailed, RepairRefused, accepted
from nhc_adapters.repair.evidence import EvidenceCollector

RUNNING, STOPPED, DEALLOCATED = "running", "stopped", "deallocated"
SUCCEEDED = "succeeded"

GONE = frozenset(("ResourceNotFound", "NotFound", "404", "InstanceIdNotFound"))

_QUERY: Mapping[str, Mapping[str, str]] = {"powerOff": {"skipShutdown": "true"}}
"""powerOff with skipShutdown is the power cut."""


class AzureMachine(NamedTuple):
    """A machine as Azure describes it.

    `provisioning` is the state of Azure's last work on it and `at` when that ended: it changes with every operation.
    """

    vm_id: str
    power: str
    provisioning: str
    at: str
    maintenance: str = ""


def get(azure: Azure, which: Vm) -> Optional[AzureMachine]:
    """A machine, None where there is none. Raises CallFailed."""
    try:
        details = azure.call("virtualMachines/read", "GET", which.path, query={"$expand": "instanceView"}).answer
    except CallFailed as error:
        if error.code in GONE:
            return None
        raise
    own: Mapping[str, Any] = details.get("properties") or {}
    view: Mapping[str, Any] = own.get("instanceView") or {}
    codes = {}
    for status in view.get("statuses") or []:
        kind, _, value = str(status.get("code") or "").partition("/")
        codes[kind] = (value.lower(), str(status.get("time") or ""))
    provisioning, at = codes.get("ProvisioningState", (str(own.get("provisioningState") or "").lower(), ""))
    window: Mapping[str, Any] = view.get("maintenanceRedeployStatus") or {}
    return AzureMachine(
        vm_id=str(own.get("vmId") or ""),
        power=codes.get("PowerState", ("", ""))[0],
        provisioning=provisioning,
        at=at,
        maintenance=str(window.get("maintenanceWindowStartTime") or ""),
    )


def compare(machine: Machine, seen: Optional[AzureMachine], which: Vm) -> AzureMachine:
    """The machine, where it is the one that the cluster means: by its DMI UUID, if known. Raises RepairRefused."""
    if seen is None:
        raise RepairRefused(f"there is no virtual machine {which.label} in {which.group}")
    if machine.uuid and seen.vm_id and not same(machine.uuid, seen.vm_id):
        raise RepairRefused(
            f"{which.label} has the vmId {seen.vm_id}, {machine.node} shows {machine.uuid}: another machine"
        )
    return seen


def sighting(seen: Optional[AzureMachine]) -> Sighting:
    if seen is None:
        return Sighting(time.time(), power="gone")
    acting = seen.provisioning not in (SUCCEEDED, "failed", "")
    doing = f"provisioning is {seen.provisioning}" if acting else ""
    return Sighting(time.time(), seen.vm_id, seen.at, seen.power, "azure" if acting else "", doing)


def act(azure: Azure, which: Vm, action: str) -> Sent:
    """POST one action: restart, redeploy, reimage, deallocate, powerOff, start."""
    begun = azure.call(action, "POST", f"{which.path}/{action}", query=_QUERY.get(action))
    return accepted(f"Azure began to {action} {which.label}", begun.operation)


def delete(azure: Azure, which: Vm) -> Sent:
    begun = azure.call("delete", "DELETE", which.path)
    return accepted(f"Azure began to delete {which.label}", begun.operation)


class OperationStatus(NamedTuple):
    """How far an operation of Azure's is: `done` with or without an `error`."""

    done: bool
    error: str


def work(azure: Azure, which: Vm, place: str) -> Optional[OperationStatus]:
    """The operation, None where it is not known. Raises CallFailed."""
    if not place:
        return None
    details = azure.operation(which.subscription, place)
    status = str(details.get("status") or "").lower()
    if not status:
        return None
    error: Mapping[str, Any] = details.get("error") or {}
    failed = status in ("failed", "canceled")
    why = printable(f"{error.get('code') or status}: {error.get('message') or ''}", 300) if failed else ""
    return OperationStatus(status not in ("inprogress", "running", "accepted"), why)


# Evidence.


def evidence(azure: Azure, which: Vm, budget: EvidenceBudget) -> Iterator[Exhibit]:
    """The pieces that can be had, within the budget. Raises AdapterError where none can.

    Boot diagnostics must be on. The addresses are signed for minutes and shown nowhere.
    """
    collector = EvidenceCollector(budget)  # the time for the addresses counts
    try:
        path = f"{which.path}/retrieveBootDiagnosticsData"
        blobs = azure.call(
            "retrieveBootDiagnosticsData", "POST", path, query={"sasUriExpirationTimeInMinutes": "5"}
        ).answer
    except CallFailed as error:
        raise AdapterError(f"Azure shows nothing of {which.label}: {error}") from None
    addresses = (
        ("console.txt", "text/plain", str(blobs.get("serialConsoleLogBlobUri") or "")),
        ("screenshot.bmp", "image/bmp", str(blobs.get("consoleScreenshotBlobUri") or "")),
    )
    pieces = ((name, kind, partial(azure.fetch, name, address)) for name, kind, address in addresses if address)
    yield from collector.gather(pieces, f"Azure shows nothing of {which.label}")
