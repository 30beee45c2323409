"""Plan a repair from what was read on the node, or say why it is refused. Pure.

A plan lists everything that a repair takes away (services, persistence mode, labels, modules), to put it back. A
process outside the services that may be stopped blocks a repair: it is named, never killed.
"""

from __future__ import annotations

from typing import FrozenSet, List, Optional, Sequence, Tuple, Union

from nhc_adapters.node.hand.nvidia import SINGLE, bus
from nhc_adapters.node.hand.values import (
    AskedRepair,
    AskedRun,
    Holder,
    NodeFacts,
    Refusal,
    RepairDevice,
    RepairPlan,
    Undo,
)

MODULES = {
    "nvidia": ("nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia_peermem", "gdrdrv", "nvidia"),
    "amd": ("amdgpu",),
    "neuron": ("neuron",),
}
"""The modules of a driver, users before those that they use."""

CONTROL = {"nvidia": ("/dev/nvidia",), "amd": ("/dev/kfd", "/dev/dri/renderD"), "neuron": ("/dev/neuron",)}
"""How the device files of a driver begin."""

FABRIC_MANAGER = "nvidia-fabricmanager.service"
PERSISTENCED = "nvidia-persistenced.service"

DEPLOY = "nvidia.com/gpu.deploy."
OPERANDS = ("device-plugin", "dcgm", "dcgm-exporter", "gpu-feature-discovery", "dcgm-dra", "dcgm-exporter-dra")
"""What the GPU Operator runs that holds GPUs; a label that is "false" takes it off the node."""

REBOOT_WORDS = ("reboot", "bus reset")
"""What a driver asks for where a reset is not enough (gpu_recovery_action)."""

HELD = 60.0
"""Seconds after which a device that is held may be asked for again."""


def plan(facts: NodeFacts, asked: AskedRepair) -> Union[RepairPlan, Refusal]:
    """What to do, or why nothing."""
    other = another(facts, asked)
    if other:
        return Refusal(other)
    if asked.rung == "reboot":
        return RepairPlan("reboot", (), (), frozenset(), (), (("systemctl", "reboot"),))
    if asked.rung == "restart-app":
        return _restart(facts, asked)
    if asked.rung not in ("reset-device", "reload-driver"):
        return Refusal(f"there is no {asked.rung} on the node")
    if not facts.vendor:
        return Refusal(facts.problem or "no driver of accelerators is loaded")
    if asked.rung == "reload-driver" or facts.vendor == "neuron":
        return _reload(facts, asked)
    return _reset(facts, asked)


def another(facts: NodeFacts, asked: Union[AskedRepair, AskedRun]) -> str:
    """Why this machine is not the one that was judged, "" if it is."""
    if asked.uuid:
        if facts.uuid.lower() == asked.uuid.lower():
            return ""
        return f"this machine's UUID is {facts.uuid or 'not readable'}, not {asked.uuid}"
    if asked.boot:
        return "" if facts.boot == asked.boot else f"this machine's boot id is {facts.boot}, not {asked.boot}"
    return "neither the UUID nor the boot id of the machine is known, so it cannot be compared"


def find(facts: NodeFacts, name: str) -> Optional[RepairDevice]:
    """A device by what a fault calls it: gpu3, neuron3, a UUID, a PCI address."""
    for device in facts.devices:
        if name in (device.label, device.uuid) or (name and bus(name) == bus(device.bus)):
            return device
    return None


def _restart(facts: NodeFacts, asked: AskedRepair) -> Union[RepairPlan, Refusal]:
    if not asked.services:
        return Refusal("no services are set up to be started again (services)")
    absent = [name for name in asked.services if name not in facts.units]
    if absent:
        return Refusal(f"this node has no {', '.join(absent)}")
    return RepairPlan("services", (), (), frozenset(), (), (("systemctl", "restart", *asked.services),))


def _reset(facts: NodeFacts, asked: AskedRepair) -> Union[RepairPlan, Refusal]:
    if facts.problem:
        return Refusal(facts.problem)
    device = find(facts, asked.device)
    if device is None:
        listed = ", ".join(peer.label for peer in facts.devices) or "none"
        name = asked.device or "no device"
        return Refusal(f"{name}: not among those that the driver lists ({listed}); no reset reaches it")
    if any(asked_for in device.recovery.lower() for asked_for in REBOOT_WORDS):
        return Refusal(f"{device.label}: the driver asks for {device.recovery}, a reset is not enough")
    unit = _amd_unit(facts, device) if facts.vendor == "amd" else _nvidia_unit(facts, device)
    sliced = [peer.label for peer in unit if peer.slices]
    if sliced:
        return Refusal(f"{', '.join(sliced)}: MIG instances are there; a reset would destroy them")
    files = frozenset(file for peer in unit for file in peer.files)
    files |= {"/dev/kfd"} if facts.vendor == "amd" else frozenset()
    if facts.vendor == "amd":
        command: Tuple[str, ...] = ("amd-smi", "reset", "--gpureset", "-g", *(str(peer.number) for peer in unit))
    else:
        command = ("nvidia-smi", "--gpu-reset", "-i", ",".join(peer.bus for peer in unit))
    return _around(facts, asked, unit, files, (), (command,), facts.vendor)


def _reload(facts: NodeFacts, asked: AskedRepair) -> Union[RepairPlan, Refusal]:
    """The driver of all devices goes, so all must be free. Devices that cannot be listed may be cured by it."""
    modules = tuple(name for name in MODULES[facts.vendor] if name in facts.modules)
    if not modules:
        return Refusal(f"no module of {facts.vendor} is loaded")
    strangers = sorted({user for name in modules for user in facts.modules[name].users} - set(modules))
    if strangers:
        return Refusal(f"{', '.join(strangers)} uses the driver")
    files = frozenset(
        file for holder in facts.holders for file in holder.files if file.startswith(CONTROL[facts.vendor])
    ) | frozenset(file for device in facts.devices for file in device.files)
    back = tuple(reversed(modules))
    commands = (("modprobe", "-r", *modules), *(("modprobe", name) for name in back))
    return _around(facts, asked, facts.devices, files, modules, commands, "driver")


def _around(
    facts: NodeFacts, asked: AskedRepair, devices: Sequence[RepairDevice], files: FrozenSet[str],
    modules: Tuple[str, ...], commands: Tuple[Tuple[str, ...], ...], judge: str,
) -> Union[RepairPlan, Refusal]:  # fmt: skip
    """What is to be taken away before and put back after."""
    labels = [Undo("label", DEPLOY + name, "true") for name in OPERANDS if facts.labels.get(DEPLOY + name) == "true"]
    holders = [device for device in facts.holders if files.intersection(device.files)]
    stopped = [name for name in _stopped(facts, asked, holders, bool(modules)) if facts.units[name].active]
    held = [device for device in holders if device.unit not in stopped and not (device.pod and labels)]
    if held:
        what = ", ".join(device.label for device in devices) or "the driver"
        return Refusal(f"{what} is held by {', '.join(map(str, held[:5]))}", HELD)
    undo: List[Undo] = [*labels]
    if facts.vendor == "nvidia":
        undo += [Undo("persistence", device.bus) for device in devices if device.persistence]
    for name in stopped:
        undo += [Undo("unit", device) for device in (*facts.units[name].triggers, name) if _active(facts, device)]
    undo += [Undo("module", name) for name in modules]
    return RepairPlan(judge, tuple(devices), tuple(dict.fromkeys(undo)), files, modules, commands)


def _stopped(facts: NodeFacts, asked: AskedRepair, holders: Sequence[Holder], whole: bool) -> List[str]:
    """The services to stop: those that hold the devices, and what keeps a GPU in persistence mode. For a driver all."""
    keep = FABRIC_MANAGER if not whole and _needs_fabric_manager(facts) else ""
    units = {holder.unit for holder in holders} | {PERSISTENCED}
    return [name for name in asked.stoppable if name in facts.units and name != keep and (whole or name in units)]


def _active(facts: NodeFacts, name: str) -> bool:
    """A trigger that was not looked at counts as active: starting what is active changes nothing."""
    return name not in facts.units or facts.units[name].active


def _needs_fabric_manager(facts: NodeFacts) -> bool:
    """Ampere behind NVSwitches is reset singly only while the Fabric Manager runs; later ones do without it."""
    return facts.switches and any(device.architecture.startswith("ampere") for device in facts.devices)


def _nvidia_unit(facts: NodeFacts, device: RepairDevice) -> Tuple[RepairDevice, ...]:
    """The GPUs that must be reset in one command (nvidia-smi(1), --gpu-reset)."""
    if not (device.linked or facts.switches):
        return (device,)
    manager = facts.units.get(FABRIC_MANAGER)
    single = device.architecture.startswith(SINGLE)
    if single and not (_needs_fabric_manager(facts) and not (manager and manager.active)):
        return (device,)
    return tuple(peer for peer in facts.devices if peer.linked or facts.switches)


def _amd_unit(facts: NodeFacts, device: RepairDevice) -> Tuple[RepairDevice, ...]:
    """The GPUs of one XGMI hive: a reset of one stops its peers."""
    return tuple(peer for peer in facts.devices if peer is device or (device.group and peer.group == device.group))
