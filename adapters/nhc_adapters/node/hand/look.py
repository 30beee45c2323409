"""Read the node: /proc, /sys and /dev below a root, and the drivers' own commands."""

from __future__ import annotations

import os
import re
from typing import Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

from nhc.core.system import process
from nhc.core.system.bounded_read import parse_json, read_text
from nhc.core.system.process import Completed
from nhc_adapters.node.hand import nvidia
from nhc_adapters.node.hand.values import (
    AskedRepair,
    Holder,
    LoadedModule,
    LoadedUnit,
    NodeFacts,
    NotPossible,
    RepairDevice,
)

HELD_FILES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/renderD", "/dev/neuron")
"""How the device files begin whose holders are looked for."""

NVIDIA_SMI = 120.0
"""Seconds for nvidia-smi: without persistence mode each GPU is initialised first."""


class LocalNode:
    """A node's trees and commands. `root` is before every path, `enter` before every command (a pod's way in)."""

    def __init__(self, root: str = "", enter: Sequence[str] = (), path: str = "") -> None:
        self.root, self.enter = root, tuple(enter)
        self._env = {"PATH": process.extended(path), "LC_ALL": "C.UTF-8"}

    def run(self, *argv: str, timeout: float = 60.0) -> Completed:
        """Run a command of the node. Raises NotPossible where it cannot be run, or does not end in time."""
        try:
            done = process.run((*self.enter, *argv), timeout=timeout, env=self._env)
        except FileNotFoundError:
            raise NotPossible(f"{argv[0]} is not installed") from None
        except OSError as error:
            raise NotPossible(f"{argv[0]} cannot be run: {error.strerror}") from None
        if done.timed_out:
            raise NotPossible(f"{' '.join(argv[:3])} did not end within {timeout:g} s")
        return done

    def ask(self, *argv: str, timeout: float = 60.0) -> str:
        """Run a command that must succeed; what it printed. Raises NotPossible."""
        done = self.run(*argv, timeout=timeout)
        if done.status:
            complaint = " ".join((done.stderr or done.stdout).split())[-300:]
            raise NotPossible(f"{' '.join(argv[:3])}: {complaint or f'exit status {done.status}'}")
        return done.stdout

    def read(self, path: str) -> str:
        """A small file's text, "" if it cannot be read."""
        try:
            return read_text(self.root + path, errors="replace").strip()
        except OSError:
            return ""

    def list(self, path: str) -> List[str]:
        try:
            return sorted(os.listdir(self.root + path))
        except OSError:
            return []

    def make_directory(self, path: str) -> str:
        """Raises OSError. The directory's path with the root before it."""
        os.makedirs(self.root + path, mode=0o700, exist_ok=True)
        return self.root + path

    def write(self, path: str, text: str) -> None:
        """Raises OSError."""
        with open(self.root + path, "w") as file:
            file.write(text)

    def link(self, path: str) -> str:
        try:
            return os.readlink(self.root + path)
        except OSError:
            return ""


class NodeIdentity(NamedTuple):
    """Which machine this is, and which boot."""

    boot: str
    uuid: str


def identity(node: LocalNode) -> NodeIdentity:
    return NodeIdentity(
        node.read("/proc/sys/kernel/random/boot_id"), node.read("/sys/class/dmi/id/product_uuid").lower()
    )  # fmt: skip


def facts(node: LocalNode, asked: AskedRepair) -> NodeFacts:
    """All that a plan is made from. Raises NotPossible where systemd or Kubernetes cannot be asked."""
    boot, uuid = identity(node)
    loaded = modules(node)
    problem = ""
    listed: Tuple[RepairDevice, ...] = ()
    vendor = _vendor(node, asked, loaded)
    if asked.rung in ("reset-device", "reload-driver") and vendor:
        try:
            listed = devices(node, vendor)
        except NotPossible as error:
            problem = str(error)
    names = dict.fromkeys((*asked.services, *asked.stoppable))
    known = units(node, list(names)) if names and asked.rung != "reboot" else {}
    labels = _labels(node, asked) if asked.kubeconfig and vendor == "nvidia" else {}
    return NodeFacts(
        boot, uuid, vendor, listed, problem, tuple(holders(node)), loaded, known, _switches(node), labels
    )  # fmt: skip


def _vendor(node: LocalNode, asked: AskedRepair, loaded: Mapping[str, LoadedModule]) -> str:
    """The driver that a device's name or what is loaded points to."""
    if asked.device.startswith("neuron") or (not asked.device and set(loaded) >= {"neuron"}):
        return "neuron" if "neuron" in loaded else ""
    return "nvidia" if "nvidia" in loaded else "amd" if "amdgpu" in loaded and _amd(node) else ""


def modules(node: LocalNode) -> Dict[str, LoadedModule]:
    """The modules that are loaded (/proc/modules: name, size, count, users, state, address)."""
    loaded = {}
    for line in node.read("/proc/modules").splitlines():
        fields = line.split()
        if len(fields) >= 4 and fields[2].isdigit():
            users = tuple(name for name in fields[3].split(",") if name and name != "-" and "[" not in name)
            loaded[fields[0]] = LoadedModule(int(fields[2]), users)
    return loaded


def holders(node: LocalNode) -> Iterator[Holder]:
    """The processes that have an accelerator's device file open."""
    for pid in node.list("/proc"):
        if not pid.isdigit() or (not node.root and int(pid) == os.getpid()):
            continue
        files = {node.link(f"/proc/{pid}/fd/{fd}") for fd in node.list(f"/proc/{pid}/fd")}
        held = tuple(sorted(file for file in files if file.startswith(HELD_FILES)))
        if held:
            group = node.read(f"/proc/{pid}/cgroup")
            unit = re.search(r"/([^/\s]+\.service)(?:/|$)", group, re.MULTILINE)
            pod = "kubepods" in group
            name = node.read(f"/proc/{pid}/comm") or "a process"
            yield Holder(int(pid), name, unit[1] if unit and not pod else "", pod, held)


def units(node: LocalNode, names: Sequence[str]) -> Dict[str, LoadedUnit]:
    """The units of these names that are there. Raises NotPossible."""
    output = node.ask("systemctl", "show", "-p", "Id,LoadState,ActiveState,InvocationID,TriggeredBy", *names)
    loaded = {}
    for block in output.split("\n\n"):
        fields = dict(line.partition("=")[::2] for line in block.splitlines() if "=" in line)
        if fields.get("LoadState") == "loaded":
            active = fields.get("ActiveState") in ("active", "activating", "reloading")
            triggers = tuple(fields.get("TriggeredBy", "").split())
            loaded[fields.get("Id", "")] = LoadedUnit(active, fields.get("InvocationID", ""), triggers)
    missing = sorted({name for unit in loaded.values() for name in unit.triggers} - set(loaded) - set(names))
    if missing:
        loaded.update(units(node, missing))
    return loaded


def _labels(node: LocalNode, asked: AskedRepair) -> Dict[str, str]:
    output = node.ask("kubectl", "--kubeconfig", asked.kubeconfig, "get", "node", asked.node, "-o", "json")
    try:
        value = parse_json(output)
        return {str(name): str(text) for name, text in value["metadata"].get("labels", {}).items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise NotPossible(f"kubectl get node {asked.node}: no node in its answer") from None


def devices(node: LocalNode, vendor: str) -> Tuple[RepairDevice, ...]:
    """The devices of a driver. Raises NotPossible where they cannot be listed."""
    return {"nvidia": nvidia_devices, "amd": _amd, "neuron": _neuron}[vendor](node)


def nvidia_devices(node: LocalNode) -> Tuple[RepairDevice, ...]:
    """Raises NotPossible."""
    try:
        listed = nvidia.parse_devices(node.ask("nvidia-smi", "-q", "-x", timeout=NVIDIA_SMI))
    except ValueError as error:
        raise NotPossible(str(error)) from None
    linked = nvidia.parse_links(node.run("nvidia-smi", "nvlink", "-s", timeout=NVIDIA_SMI).stdout)
    return tuple(device._replace(linked=linked.get(device.number, False)) for device in listed)


def _switches(node: LocalNode) -> bool:
    """NVSwitches are PCI bridges of class 0680 of NVIDIA's."""
    base = "/sys/bus/pci/devices"
    return any(
        node.read(f"{base}/{device}/class").startswith("0x0680") and node.read(f"{base}/{device}/vendor") == "0x10de"
        for device in node.list(base)
    )


def _amd(node: LocalNode) -> Tuple[RepairDevice, ...]:
    """The GPUs that amdgpu drives, in amd-smi's order: by PCI address."""
    base = "/sys/bus/pci/devices"
    ours = [
        device for device in node.list(base)
        if node.read(f"{base}/{device}/vendor") == "0x1002" and node.link(f"{base}/{device}/driver").endswith("/amdgpu")
    ]  # fmt: skip
    gpus = []
    for number, device in enumerate(ours):
        files = tuple(f"/dev/dri/{name}" for name in node.list(f"{base}/{device}/drm") if name.startswith("renderD"))
        hive = node.read(f"{base}/{device}/xgmi_hive_info/xgmi_hive_id")
        gpus.append(RepairDevice(number, device, files=files, group=hive if hive.strip("0x") else ""))
    return tuple(gpus)


def _neuron(node: LocalNode) -> Tuple[RepairDevice, ...]:
    names = [name for name in node.list("/dev") if re.fullmatch(r"neuron\d+", name)]
    return tuple(RepairDevice(int(name[6:]), name, files=(f"/dev/{name}",)) for name in names)
