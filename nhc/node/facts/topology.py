"""Which device hangs where: NUMA nodes and PCIe paths as they are, and as a description says they should be.

A description is either a text of our own (docs/checks.md),

    numa 0: gpu0 gpu1 mlx5_0 nvme0
    near: gpu0 mlx5_0

or a topology file for NCCL (XML with <cpu numaid=..> over <pci busid=..>), as Azure ships one for each
of its GPU nodes.
"""

from __future__ import annotations

import re

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.system.bounded_read import parse_xml
from nhc.node.facts.accelerator import accelerators
from nhc.node.facts.pci import ADDRESS, DEVICES, bridges, normal_address

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple
    from xml.etree.ElementTree import Element

_BRIDGE = "0x06"
"""The class of what is no device: bridges in an NCCL file are often made up."""


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
    """Where a device is: its PCI address, its NUMA node (None where the firmware tells none), the bridges above it."""

    address: str
    numa: Optional[int]
    path: Tuple[str, ...]


def _address_of(host: Host, device: str) -> Optional[str]:
    """The PCI address of `gpu0`, `mlx5_0`, `nvme0`, `eth0` or an address; None where there is no such device."""
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
    """Where `device` is, None where there is none of that name."""
    address = _address_of(host, device)
    if address is None or not host.exists(f"{DEVICES}/{address}"):
        return None
    return DevicePlace(address, host.number(f"{DEVICES}/{address}/numa_node"), bridges(host, address))


def places(host: Host, description: Description) -> Dict[str, Optional[DevicePlace]]:
    names = [device for device, _ in description.numa] + [device for group in description.near for device in group]
    return {name: place(host, name) for name in dict.fromkeys(names)}
