"""AWS Neuron devices (Inferentia, Trainium): the driver's sysfs tree, and `neuron-ls -j` where it is installed.

Sources: the Neuron Sysfs User Guide and the neuron-ls User Guide in AWS's Neuron documentation. The
driver counts uncorrected errors only; its counters start with the driver.
"""

from __future__ import annotations

import re

from nhc.core.host import Host
from nhc.core.json_values import objects_in, objects_of, text_of, whole_in, whole_of
from nhc.core.light import TYPE_CHECKING
from nhc.core.system.bounded_read import parse_json
from nhc.node.facts.accelerator_values import (
    Device,
    DeviceProcess,
    ErrorCount,
    Link,
    MemoryErrors,
    Source,
    by_number,
    whole,
)
from nhc.node.facts.pci import normal_address

if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Tuple

SYSFS = "/sys/devices/virtual/neuron_device"
TOOLS = ("neuron-ls", "/opt/aws/neuron/bin/neuron-ls")
_ECC = ("mem_ecc_uncorrected", "sram_ecc_uncorrected", "mem_ecc_repairable_uncorrected")
_DEVICE = re.compile(r"neuron(\d+)")


def parse_neuron_ls(text: str) -> List[Dict[str, Any]]:
    """The devices in the output of `neuron-ls -j`. Raises ValueError when it is not its JSON."""
    try:
        devices = objects_in({"devices": parse_json(text)}, "devices")
        for each in devices:
            whole_in(each, "neuron_device")
    except ValueError as error:
        raise ValueError(f"not the output of neuron-ls -j: {error}") from None
    return devices


def device(
    number: int, listed: Mapping[str, Any], read: Mapping[str, Optional[int]], texts: Mapping[str, str]
) -> Device:
    """One device: its entry of neuron-ls (may be empty), its counters and its texts of sysfs."""
    connected = listed.get("connected_to")
    processes = listed.get("neuron_processes")
    hardware = {name: count for name, count in read.items() if count and name not in _ECC}
    repairable = read.get("mem_ecc_repairable_uncorrected")
    if repairable:
        hardware["repairable_dram"] = repairable
    return Device(
        vendor="neuron",
        number=number,
        id=texts.get("serial_number", ""),
        pci=normal_address(str(listed["bdf"])) if listed.get("bdf") else "",
        name=texts.get("device_name", ""),
        serial=texts.get("serial_number") or None,
        driver=texts.get("driver", ""),
        memory_total=whole(listed.get("memory_size")),
        errors=MemoryErrors(
            dram=ErrorCount(None, read.get("mem_ecc_uncorrected")),
            sram=ErrorCount(None, read.get("sram_ecc_uncorrected")),
        ),
        links=_links(connected, texts.get("connected_devices")),
        processes=None if processes is None else tuple(map(_process, objects_of(processes))),
        hardware_errors=hardware,
    )


def _links(connected: object, text: Optional[str]) -> Optional[Tuple[Link, ...]]:
    """The devices that this one is joined to, by design: the driver does not report whether a link is up.

    From Trainium2 on the driver takes the answer from a table (fw_io_topology_v3 in its sources).
    """
    if isinstance(connected, list):
        peers = [peer for peer in map(whole_of, connected) if peer is not None]
    else:
        peers = [int(number) for number in re.findall(r"\d+", text or "")]
    return tuple(Link("NeuronLink", place, None, f"neuron{peer}") for place, peer in enumerate(peers)) or None


def _process(entry: Mapping[str, Any]) -> DeviceProcess:
    return DeviceProcess(whole_of(entry.get("pid")) or 0, text_of(entry.get("command")).split(" ", 1)[0])


def neuron(host: Host) -> Source:
    """The node's Neuron devices."""
    try:
        names = [name for name in host.listdir(SYSFS) if _DEVICE.fullmatch(name)]
    except FileNotFoundError:
        return Source("neuron", reason="DriverNotLoaded", problem="the Neuron driver is not loaded", certain=True)
    driver = host.read_or("/sys/module/neuron/version")
    listed, problem = _listed(host)
    devices = []
    for name in names:
        number = int(name[6:])
        read, texts, unread = _sysfs(host, f"{SYSFS}/{name}")
        accelerator = device(number, listed.get(number, {}), read, {**texts, "driver": driver})
        if problem:
            unread.update(processes=problem, memory=problem, pci=problem)
        accelerator = accelerator._replace(unread=unread)
        devices.append(accelerator)
    return Source("neuron", by_number(devices), driver)


def _listed(host: Host) -> Tuple[Dict[int, Dict[str, Any]], str]:
    """neuron-ls' entries by device number, and why there are none."""
    tool = next((tool for tool in TOOLS if host.which(tool)), None)
    if tool is None:
        return {}, "neuron-ls is not installed"
    ended = host.run([tool, "-j"], timeout=8)
    if ended.status:
        return {}, f"neuron-ls failed with status {ended.status}"
    try:
        return {each["neuron_device"]: each for each in parse_neuron_ls(ended.stdout)}, ""
    except ValueError:
        return {}, "neuron-ls printed something other than its JSON"


def _sysfs(host: Host, base: str) -> Tuple[Dict[str, Optional[int]], Dict[str, str], Dict[str, str]]:
    """A device's counters, its texts, and by area what is there and cannot be read (`Device.unread`).

    Drivers differ in where `stats` lies: below the device or beside it.
    """
    stats = f"{base}/stats" if host.isdir(f"{base}/stats") else f"{SYSFS}/stats"
    read: Dict[str, Optional[int]] = {}
    for name in _ECC:
        read[name] = whole(host.read_or(f"{stats}/hardware/{name}"))
    unread: Dict[str, str] = {}
    for name, why in host.unread(f"{stats}/hardware", [name for name in _ECC if read[name] is None]).items():
        unread["errors"] = f"{name}: {why}"
    for path in host.glob(f"{base}/neuron_core*/stats/status/hw_error/total"):
        core = path[len(base) + 1 :].split("/", 1)[0]
        count = whole(host.read_or(path))
        why = host.why_unread(path) if count is None else ""
        if why:
            unread["hardware"] = f"{core} hw_error: {why}"
        if count:
            read[f"core{core[11:]}_hw_error"] = count
    texts = {
        "serial_number": host.read_or(f"{base}/info/serial_number"),
        "device_name": host.read_or(f"{base}/info/architecture/device_name"),
        "connected_devices": host.read_or(f"{base}/connected_devices"),
    }
    return read, texts, unread
