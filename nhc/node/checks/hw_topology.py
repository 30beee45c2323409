"""GPUs, network adapters and disks are where they should be: at the right processor, below the right switch.

A description is either a text of our own (docs/checks.md),

    numa 0: gpu0 gpu1 mlx5_0 nvme0
    near: gpu0 mlx5_0

or a topology file for NCCL (XML with <cpu numaid=..> over <pci busid=..>), as Azure ships one for each
of its GPU nodes.
"""

from __future__ import annotations

import re

from nhc.core.check import Judged, arg, check
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Action, Metric, Outcome, crit, ok, unknown
from nhc.core.system.bounded_read import parse_xml
from nhc.core.units import text
from nhc.node.facts.accelerator import accelerators
from nhc.node.facts.pci import ADDRESS, DEVICES, bridges, normal_address

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple, Union
    from xml.etree.ElementTree import Element

_BRIDGE = "0x06"
"""The class of bridges, which are not devices: those in an NCCL file are often made up."""


class Description(NamedTuple):
    """What should be: `numa` a device's NUMA node, `near` groups of devices below one PCIe switch or port."""

    numa: Tuple[Tuple[str, int], ...] = ()
    near: Tuple[Tuple[str, ...], ...] = ()


def parse_description(text: str, name: str = "topology") -> Description:
    """A description in either form. Raises ValueError naming the file, the line and what was expected."""
    return _parse_nccl(text, name) if text.lstrip().startswith("<") else _parse_text(text, name)


def _parse_text(text: str, name: str) -> Description:
    numa: List[Tuple[str, int]] = []
    near: List[Tuple[str, ...]] = []
    for number, line in enumerate(text.splitlines(), 1):
        content = line.split("#", 1)[0].strip()
        if not content:
            continue
        head, colon, rest = content.partition(":")
        fields = head.split()
        devices = tuple(rest.split())
        if colon and devices and len(fields) == 2 and fields[0] == "numa" and fields[1].isdigit():
            numa += [(device, int(fields[1])) for device in devices]
        elif colon and fields == ["near"] and len(devices) > 1:
            near.append(devices)
        else:
            raise ValueError(
                f"{name}:{number}: {content!r}: expected `numa NODE: DEVICE ...` or `near: DEVICE DEVICE ...`"
            )
    if not numa and not near:
        raise ValueError(f"{name}: it describes no device")
    return Description(tuple(numa), tuple(near))


def _parse_nccl(text: str, name: str) -> Description:
    try:
        root = parse_xml(text)
    except ValueError as error:
        raise ValueError(f"{name}: not an XML topology: {error}") from None
    numa: List[Tuple[str, int]] = []
    near: List[Tuple[str, ...]] = []

    def walk(element: Element, node: int) -> List[str]:
        below: List[str] = []
        for child in element:
            if child.tag != "pci":
                continue
            address, kind = child.get("busid", ""), child.get("class", "")
            inner = walk(child, node)
            if len(inner) > 1:
                near.append(tuple(inner))
            if kind and not kind.startswith(_BRIDGE) and ADDRESS.fullmatch(address):
                numa.append((normal_address(address), node))
                below.append(normal_address(address))
            else:
                below += inner
        return below

    for cpu in root.iter("cpu"):
        text_id = cpu.get("numaid", "")
        if not text_id.isdigit():
            raise ValueError(f"{name}: <cpu numaid={text_id!r}>: expected the number of a NUMA node")
        walk(cpu, int(text_id))
    if not numa:
        raise ValueError(f"{name}: it describes no device (<cpu numaid=..> with <pci busid=..> inside)")
    return Description(tuple(numa), tuple(near))


class DevicePlace(NamedTuple):
    """Where a device is: its PCI address, its NUMA node (None if the firmware tells none), the bridges above it."""

    address: str
    numa: Optional[int]
    path: Tuple[str, ...]


def _address_of(host: Host, device: str) -> Optional[str]:
    """The PCI address of `gpu0`, `mlx5_0`, `nvme0`, `eth0` or an address; None if there is no such device."""
    if ADDRESS.fullmatch(device):
        return normal_address(device)
    match = re.fullmatch(r"(gpu|hpu|neuron)(\d+)", device)
    if match:
        addresses = (each.pci or None for each in accelerators(host).devices if each.label == device)
        return next(addresses, None)
    for kind in ("infiniband", "nvme", "net", "block"):
        link = f"/sys/class/{kind}/{device}/device"
        if host.exists(link):
            names = [part for part in host.realpath(link).split("/") if ADDRESS.fullmatch(part)]
            return names[-1] if names else None
    return None


def place(host: Host, device: str) -> Optional[DevicePlace]:
    """Where `device` is, None if there is none of that name."""
    address = _address_of(host, device)
    if address is None or not host.exists(f"{DEVICES}/{address}"):
        return None
    return DevicePlace(address, host.number(f"{DEVICES}/{address}/numa_node"), bridges(host, address))


def places(host: Host, description: Description) -> Dict[str, Optional[DevicePlace]]:
    names = [device for device, _ in description.numa] + [device for group in description.near for device in group]
    return {name: place(host, name) for name in dict.fromkeys(names)}


@check(
    "check_hw_topology",
    arg("file", text, "the description: `numa NODE: DEVICE ...` and `near: DEVICE ...` lines, or an NCCL topology "
        "(default: $NCCL_TOPO_FILE, that of /etc/nccl.conf, Azure's)", ""),
    timeout=30,
    tags=("gpu", "topology"),
    parts=(),
)  # fmt: skip
def check_hw_topology(host: Host, file: str = "") -> Judged:
    """Every device is on its NUMA node, and those that belong together are below one PCIe switch.

    A GPU behind the wrong processor halves a job's bandwidth and breaks no other check. Reads each
    device's numa_node and its path in /sys/devices and compares them with FILE. Its lines are
    `numa 0: gpu0 gpu1 mlx5_0` and `near: gpu0 mlx5_0`; devices are gpu0, mlx5_0, nvme0, eth0 or PCI
    addresses. A topology file for NCCL serves too (Azure's are in /opt/microsoft). A missing device and a
    wrong node are CRIT; UNKNOWN where the firmware names no NUMA node, or FILE cannot be read.

    Without FILE it is the one that NCCL uses: the variable NCCL_TOPO_FILE, else that line of /etc/nccl.conf,
    else the one that Azure's image has for its type (/opt/microsoft/*topo.xml).

    Example: nd96isr* || check_hw_topology /opt/microsoft/ndv5-topo.xml
    """
    if not file:
        named = _default(host)
        if isinstance(named, Outcome):
            return named
        file = named
    try:
        description = parse_description(host.read(file, 1 << 20), file)
    except OSError as error:
        return unknown("Unreadable", f"{file}: {error.strerror}")
    except ValueError as error:
        return unknown("BadTopology", str(error))
    located = places(host, description)
    outcomes: List[Outcome] = []
    absent = [name for name, where in located.items() if where is None]
    if absent:
        message = f"not on this node: {', '.join(absent)}"
        outcomes.append(crit("TopologyDeviceMissing", message, action=Action.INSPECT))
    for device, node in description.numa:
        where = located[device]
        if where is None:
            continue
        name = device if device == where.address else f"{device} ({where.address})"
        if where.numa is None:
            outcomes.append(unknown("NumaUnknown", f"{name}: the firmware names no NUMA node", target=device))
        elif where.numa != node:
            message = f"{name} is on NUMA node {where.numa}, {node} expected"
            outcomes.append(crit("TopologyNuma", message, target=device, action=Action.INSPECT))
    for group in description.near:
        known = [where for where in (located[device] for device in group) if where is not None]
        if len(known) > 1 and not _together(known):
            message = f"{', '.join(group)} are not below one PCIe switch"
            outcomes.append(crit("TopologyPath", message, target=group[0], action=Action.INSPECT))
    return outcomes or ok(f"{len(located)} devices in their places", metrics=(Metric("devices", len(located)),))


_AZURE = "/opt/microsoft"


def _default(host: Host) -> Union[str, Outcome]:
    """The topology file that NCCL uses here, or why there is none."""
    named = host.setting("NCCL_TOPO_FILE")
    for line in () if named else host.read_or("/etc/nccl.conf").splitlines():
        name, equals, value = line.partition("=")
        if equals and name.strip() == "NCCL_TOPO_FILE":
            named = value.strip().strip("'\"")
    if named:
        return named
    files = [f"{_AZURE}/{name}" for name in host.names(_AZURE) if name.endswith("topo.xml")]
    if len(files) == 1:
        return files[0]
    several = f"there are {', '.join(files)}: name one" if files else f"no file is named, and none is in {_AZURE}"
    return unknown("BadArguments", f"{several} (or set NCCL_TOPO_FILE)")


def _together(places_found: List[DevicePlace]) -> bool:
    """Whether one bridge is above them all; devices that hang on the root itself have none to share."""
    return bool(set.intersection(*(set(where.path) for where in places_found)))
