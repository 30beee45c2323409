"""Findings beside what their devices say of themselves: NVML of a GPU, the PCI bus of what should be on it."""

from __future__ import annotations

from nhc.host import Host
from nhc.kernlog.findings import NVIDIA, OF_A_DEVICE, identity
from nhc.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Sequence, Tuple

    from nhc.kernlog.state_types import Finding, LogState

SETTLED = 60.0
"""Seconds after an Xid before NVML's "nothing to repair" counts as a reset seen."""


def clean_devices(host: Host, state: LogState) -> Dict[Tuple[str, str, str], Optional[bool]]:
    """Of each device that has a finding, whether it is well now. Asked after the node restarted."""
    held = [f for f in state.get("findings", {}).values() if f["kind"] in OF_A_DEVICE]
    return {identity(finding): found_clean(host, finding) for finding in held}


def found_clean(host: Host, finding: Finding) -> Optional[bool]:
    """Whether the device of a finding is well after a restart: there, and its vendor has nothing against it."""
    device = finding["device"]
    if device.count(":") != 2:
        return True if finding["kind"] not in ("neuron", "edac") else None
    if not host.exists(f"/sys/bus/pci/devices/{device}"):
        return False
    if finding["kind"] not in (*NVIDIA, "amdgpu") or finding["kind"] == "sxid":
        return True
    return device_clean(host, device)


def device_clean(host: Host, address: str) -> Optional[bool]:
    """Whether the vendor's library says that a device is well, None where it says nothing of it."""
    from nhc.facts.accelerator import accelerators

    try:
        inventory = host.fact(accelerators)
    except OSError:
        return None
    for device in inventory.devices:
        if device.pci == address:
            remap = device.row_remap
            sick = device.fault or device.recovery or (remap and (remap.pending or remap.failed))
            return not sick
    return None


def in_context(
    host: Host, pairs: Sequence[Tuple[str, Finding]]
) -> Tuple[List[Tuple[str, Finding]], List[Tuple[str, Finding]]]:
    """Xid findings beside what NVML says of their GPUs: as they then stand, and those that it shows to be gone.

    NVML is asked only if there is an Xid whose meaning depends on it.
    """
    from nhc.kernlog import xid

    out: List[Tuple[str, Finding]] = []
    gone: List[Tuple[str, Finding]] = []
    for key, finding in pairs:
        if finding["kind"] != "xid" or finding.get("drill") or not xid.depends(finding["code"], finding["action"]):
            out.append((key, finding))
            continue
        device = _device(host, finding["device"])
        if device is None:
            out.append((key, finding))
            continue
        remap = device.row_remap
        rows = ""
        if remap is not None:
            if remap.failed:
                rows = "failed"
            elif remap.pending:
                rows = "pending"
            elif remap.pending is False and remap.failed is False:
                rows = "clean"
        mig = "" if device.modes.mig is None else "on" if device.modes.mig else "off"
        told = xid.in_context(finding["code"], xid.generation(device.name), mig, rows)
        settled = host.time() - finding["last"] > SETTLED and finding["action"] == "reset-device"
        if told is None and settled and xid.well(device.fault, device.recovery, rows):
            gone.append((key, finding))
        elif told is None:
            out.append((key, finding))
        elif told[0] == "gone":
            gone.append((key, finding))
        else:
            message = f"{finding['message']} ({told[2]})"
            out.append((key, {**finding, "severity": told[0], "action": told[1].value, "message": message}))
    return out, gone


def _device(host: Host, address: str) -> Any:
    from nhc.facts.accelerator import accelerators

    try:
        inventory = host.fact(accelerators)
    except OSError:
        return None
    return next((device for device in inventory.devices if device.pci == address), None)
