"""What a fault speaks of: its scope by its reason (nhc/data/scopes.tsv), and by its target which accelerator it is.

Asks no driver that may hang: NVIDIA's has the UUID and the minor number of each GPU as text below /proc, amdgpu in
sysfs, also of one that is lost. What a vendor's library said is used where a check has asked it already.

A fault of a device that cannot be reset alone is its board's: GPUs before the Ampere generation with NVLink are reset
together (nvidia-smi's manual, --gpu-reset), as are AMD's in one XGMI hive (amdgpu_device_gpu_recover).
"""

from __future__ import annotations

from nhc.data.reader import table
from nhc.facts.accelerator import asked
from nhc.facts.pci import accelerator_functions, normal_address, switch_functions
from nhc.host import Host
from nhc.light import TYPE_CHECKING, regex
from nhc.model import DeviceId, Outcome, Scope, Verdict

if TYPE_CHECKING:
    from typing import Dict, List, Sequence

PROC = "/proc/driver/nvidia/gpus"
SYSFS = "/sys/bus/pci/devices"

_ADDRESS = regex(r"(?i)(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_LABEL = regex(r"((?:gpu|neuron|hpu)[0-9]+)(?:\.[0-9]+)?")
_TOGETHER = regex(r"\b[PV]100.*SXM")
_NONE_KNOWN = DeviceId()


def about(host: Host, outcomes: Sequence[Outcome]) -> List[Outcome]:
    """The outcomes with scope and device, where a check has not set them. Doubt is the node's: an UNKNOWN stays so."""
    scopes = _scopes()
    return [_about(host, outcome, scopes) for outcome in outcomes]


def scope_of(reason: str) -> Scope:
    """What a fault with this reason speaks of, where its device is known."""
    return _scope(reason, _scopes())


def _scopes() -> Dict[str, Scope]:
    return {row[0]: Scope(row[1]) for row in table("scopes.tsv")}


def _scope(reason: str, scopes: Dict[str, Scope]) -> Scope:
    numbered = f"{reason.rstrip('0123456789')}*"
    return scopes.get(reason) or scopes.get(numbered) or Scope.NODE


def _about(host: Host, outcome: Outcome, scopes: Dict[str, Scope]) -> Outcome:
    if outcome.verdict not in (Verdict.WARN, Verdict.CRIT) or outcome.scope is not Scope.NODE:
        return outcome
    scope = _scope(outcome.reason, scopes)
    if scope is Scope.NODE:
        return outcome
    device = outcome.device if outcome.device.known else device_of(host, outcome.target)
    if scope is Scope.DEVICE:
        if not device.known:
            return outcome
        if device.pci and reset_together(host, device.pci):
            scope = Scope.BOARD
    return outcome._replace(scope=scope, device=device)


def device_of(host: Host, target: str) -> DeviceId:
    """The accelerator or NVSwitch that a target names: by its address, or by its label (`gpu3`, a MIG instance's
    `gpu3.0`) where its vendor's library has been asked in this run. One that is not there has no name.
    """
    if _ADDRESS.fullmatch(target):
        address = normal_address(target)
        functions = (*host.fact(accelerator_functions), *host.fact(switch_functions))
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
    uuid = lines.get("GPU UUID", "") or host.read_or(f"{SYSFS}/{address}/unique_id")
    minor = lines.get("Device Minor", "")
    serial = host.read_or(f"{SYSFS}/{address}/serial_number")
    return DeviceId(address, "" if "?" in uuid else uuid.strip(), minor, serial.strip())


def reset_together(host: Host, address: str) -> bool:
    """Whether a reset of the device is one of its peers as well."""
    if host.read_or(f"{SYSFS}/{address}/xgmi_hive_info/xgmi_hive_id").strip("0x \n"):
        return True
    return bool(_TOGETHER.search(_information(host, address).get("Model", "")))


def _information(host: Host, address: str) -> Dict[str, str]:
    """/proc/driver/nvidia/gpus/ADDRESS/information: `GPU UUID: GPU-...`, `Device Minor: 3`, and more."""
    lines = (line.partition(":") for line in host.read_or(f"{PROC}/{address}/information").splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}
