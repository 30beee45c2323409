"""Identifies the accelerator of a fault: all its names, by its address or its label.

Asks no driver that may hang: NVIDIA's has the UUID and the minor number of each GPU, also of a lost one, as text below
/proc, amdgpu in sysfs. The answer of a vendor's library is used if a check has already asked it.
"""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, regex
from nhc.core.model import DeviceId
from nhc.node.facts.accelerator import asked
from nhc.node.facts.pci import (
    ADDRESS,
    DEVICES,
    accelerator_functions,
    normal_address,
    other_accelerators,
    switch_functions,
)

if TYPE_CHECKING:
    from typing import Dict

PROC = "/proc/driver/nvidia/gpus"

_LABEL = regex(r"((?:gpu|neuron|hpu)[0-9]+)(?:\.[0-9]+)?")
_TOGETHER = regex(r"\b[PV]100.*SXM")
_NONE_KNOWN = DeviceId()


def device_of(host: Host, target: str) -> DeviceId:
    """The accelerator or NVSwitch that a target names: by its address, or by its label (`gpu3`, a MIG instance's
    `gpu3.0`) where its vendor's library has been asked in this run. One that is not there has no name.
    """
    if ADDRESS.fullmatch(target):
        address = normal_address(target)
        kinds = (accelerator_functions, other_accelerators, switch_functions)
        functions = [function for kind in kinds for function in host.fact(kind)]
        there = any(function.address == address for function in functions)
        return by_address(host, address) if there else _NONE_KNOWN
    label = _LABEL.fullmatch(target)
    if label is None or not host.knows(asked):
        return _NONE_KNOWN
    for device in host.fact(asked).devices:
        if device.label == label[1]:
            named = by_address(host, device.pci) if device.pci else _NONE_KNOWN
            return named._replace(uuid=device.id or named.uuid, serial=device.serial or named.serial)
    return _NONE_KNOWN


def by_address(host: Host, address: str) -> DeviceId:
    """What the driver's files say of the device at this address (sysfs' form)."""
    lines = _information(host, address)
    uuid = lines.get("GPU UUID", "") or host.read_or(f"{DEVICES}/{address}/unique_id")
    minor = lines.get("Device Minor", "")
    serial = host.read_or(f"{DEVICES}/{address}/serial_number")
    return DeviceId(address, "" if "?" in uuid else uuid.strip(), minor, serial.strip())


def reset_together(host: Host, address: str) -> bool:
    """Whether a reset of the device also resets its peers."""
    if host.read_or(f"{DEVICES}/{address}/xgmi_hive_info/xgmi_hive_id").strip("0x \n"):
        return True
    return bool(_TOGETHER.search(_information(host, address).get("Model", "")))


def _information(host: Host, address: str) -> Dict[str, str]:
    """/proc/driver/nvidia/gpus/ADDRESS/information: `GPU UUID: GPU-...`, `Device Minor: 3`, and more."""
    lines = (line.partition(":") for line in host.read_or(f"{PROC}/{address}/information").splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}
