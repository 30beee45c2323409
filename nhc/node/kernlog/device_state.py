"""Findings beside what their devices say of themselves: NVML of a GPU, the PCI bus of what should be on it.

What a device says sharpens what the log says. Where a driver hangs or crashes when it is asked, the log stands alone.
"""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action
from nhc.node.kernlog import complaints
from nhc.node.kernlog.complaints import device_at, device_clean
from nhc.node.kernlog.findings import NVIDIA, OF_A_DEVICE, eased, identity, parted

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence, Tuple

    from nhc.node.facts.accelerator_values import Device
    from nhc.node.kernlog.state_types import Finding, LogState

SETTLED = 60.0
"""Seconds after an Xid before NVML's "nothing to repair" counts."""


def clean_devices(host: Host, state: LogState) -> Dict[Tuple[str, str, str], Optional[bool]]:
    """Of each device that has a finding, whether it is well now. Asked after the node restarted."""
    held = [f for f in state.get("findings", {}).values() if f["kind"] in OF_A_DEVICE]
    return {identity(finding): device_recovered(host, finding) for finding in held}


def device_recovered(host: Host, finding: Finding) -> Optional[bool]:
    """Whether the device of a finding is well after a restart: there, and its vendor has nothing against it."""
    device = finding["device"]
    if device.count(":") != 2:
        return True if finding["kind"] not in ("neuron", "edac", "driver") else None
    if not host.exists(f"/sys/bus/pci/devices/{device}"):
        return False
    if finding["kind"] not in (*NVIDIA, "amdgpu") or finding["kind"] == "sxid":
        return True
    return device_clean(host, device)


def in_context(
    host: Host, pairs: Sequence[Tuple[str, Finding]]
) -> Tuple[List[Tuple[str, Finding]], List[Tuple[str, Finding]]]:
    """Findings beside what their devices answer: as they then stand, and those that the answer shows to be gone.

    A device is asked only where the meaning depends on it: NVML for some Xids, the device of a complaint that the
    catalogue does not know.
    """

    def judged(finding: Finding) -> Optional[Finding]:
        return complaints.answered(host, finding) if complaints.is_complaint(finding) else _beside_gpu(host, finding)

    return parted(pairs, judged)


def device_decides(finding: Finding) -> bool:
    """Whether only the device can tell what this means. Asking it can take long: a driver can hang."""
    from nhc.node.kernlog import xid

    if complaints.is_complaint(finding):
        return True
    return bool(finding["kind"] == "xid" and not finding.get("drill") and xid.depends(finding["code"], ""))


def _beside_gpu(host: Host, finding: Finding) -> Optional[Finding]:
    """A finding as its GPU's state has it, None if the GPU shows it to be gone."""
    from nhc.node.kernlog import xid

    if finding.get("unproven") and not finding.get("recurring") and device_recovered(host, finding):
        return None
    if finding.get("recurring"):
        return finding
    if finding["kind"] != "xid" or finding.get("drill") or not xid.depends(finding["code"], finding["action"]):
        return finding
    device = device_at(host, finding["device"])
    rows, name = (_row_state(device), device.name) if device is not None else ("", "")
    mig = "" if device is None or device.modes.mig is None else "on" if device.modes.mig else "off"
    unified = "on" if xid.is_coherent(name) or _unified_memory_held(host) else ""
    context = xid.in_context(finding["code"], xid.generation(name), mig, rows, unified)
    if context is None:
        if device is None:
            return eased(finding)
        if finding["action"] != Action.RESET_DEVICE.value or host.time() - finding["last"] <= SETTLED:
            return finding
        if xid.had_reset(device.fault, device.recovery, rows):
            return eased({**finding, "eased": finding["count"]})
        return finding if device.fault or device.recovery or rows in ("pending", "failed") else eased(finding)
    severity, action, why = context
    if severity == xid.GONE:
        return None
    return {**finding, "severity": severity, "action": action.value, "message": f"{finding['message']} ({why})"}


def _unified_memory_held(host: Host) -> bool:
    """Whether a program, or another module, holds NVIDIA's module of unified memory."""
    module = "/sys/module/nvidia_uvm"
    return bool(host.number(f"{module}/refcnt") or host.names(f"{module}/holders"))


def _row_state(device: Device) -> str:
    """How a GPU's memory rows are, in the words of xid_context.tsv: failed, pending, clean, "" for unknown."""
    remap = device.row_remap
    if remap is None:
        return ""
    if remap.failed:
        return "failed"
    if remap.pending:
        return "pending"
    return "clean" if remap.pending is False and remap.failed is False else ""
