"""The PCI bus: which accelerators and switches sit on it, and what their links run at.

The bus is the witness against the driver: a GPU that has fallen off its driver's list is still
enumerated here until the node restarts.
"""

from __future__ import annotations

import re

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Dict, FrozenSet, List, Optional, Tuple

DEVICES = "/sys/bus/pci/devices"
INDEX = "/proc/bus/pci/devices"
"""Every function in one read, vendor and device but not class or domain: enough to see that none is ours."""

NEURON_IDS = frozenset({0x7064, 0x7065, 0x7066, 0x7067, 0x7164, 0x7264, 0x7364, 0x7564, 0x7565})
"""Inferentia, Trainium, Inferentia2, Trainium2 and 3 (neuron_device.h of the Neuron driver).

Amazon's other functions are network adapters and disks.
"""

_VENDORS: Dict[int, str] = {0x10DE: "nvidia", 0x1002: "amd", 0x1DA3: "gaudi", 0x1D0F: "neuron"}
# PCI class codes (PCI Code and ID Assignment Specification): VGA, 3D and other display controllers,
# and processing accelerators. NVIDIA's data-centre GPUs are 0302, AMD's MI200 0380 and MI300 1200.
_GPU_CLASSES = frozenset({0x0300, 0x0302, 0x0380, 0x1200})
_NVSWITCH_CLASS = 0x0680

ADDRESS = re.compile(r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)
"""A function's address, with or without its domain."""
_SPEED = re.compile(r"(\d+(?:\.\d+)?)\s*GT/s")
_GENERATION = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}


class PciFunction(NamedTuple):
    """One function on the bus: `address` as sysfs writes it (`0001:00:00.0`), class code without the interface byte."""

    address: str
    vendor: int
    device: int
    class_code: int
    driver: str = ""
    numa: Optional[int] = None

    @property
    def vendor_name(self) -> str:
        return _VENDORS.get(self.vendor, "")


def parse_index(text: str) -> List[Tuple[int, int]]:
    """(vendor, device) of each function listed in /proc/bus/pci/devices; lines of another form are left out."""
    kinds = []
    for line in text.splitlines():
        fields = line.split("\t", 2)
        if len(fields) == 3 and len(fields[1]) == 8:
            try:
                kinds.append((int(fields[1][:4], 16), int(fields[1][4:], 16)))
            except ValueError:
                continue
    return kinds


def normal_address(text: str) -> str:
    """A PCI address in sysfs' form: NVML writes the domain with eight digits, tools leave it out or use capitals."""
    text = text.strip().lower()
    parts = text.split(":")
    if len(parts) == 2:
        parts.insert(0, "0000")
    if len(parts) != 3:
        return text
    try:
        return f"{int(parts[0], 16):04x}:{parts[1]}:{parts[2]}"
    except ValueError:
        return text


def parse_speed(text: str) -> float:
    """`16.0 GT/s PCIe` is 16.0; `Unknown` and anything else is 0."""
    match = _SPEED.match(text.strip())
    return float(match[1]) if match else 0.0


def generation(speed: str) -> Optional[int]:
    """The PCIe generation of a link speed as sysfs writes it: `16.0 GT/s PCIe` is 4."""
    return _GENERATION.get(parse_speed(speed))


def bridges(host: Host, address: str) -> Tuple[str, ...]:
    """The ports that a function hangs on, from the root down: the directories above its own in /sys/devices."""
    above = host.realpath(f"{DEVICES}/{address}").split("/")[:-1]
    return tuple(part for part in above if ADDRESS.fullmatch(part))


def _wanted(vendor: int, device: int) -> bool:
    return vendor in _VENDORS and (vendor != 0x1D0F or device in NEURON_IDS)


def _functions(host: Host) -> Tuple[PciFunction, ...]:
    """Every function of a vendor that makes accelerators."""
    listed = set(parse_index(host.read_or(INDEX)))  # no such file in some containers: the directory tells
    if listed and not any(_wanted(*each) for each in listed):
        return ()
    vendors: FrozenSet[int] = frozenset(v for v, d in listed if _wanted(v, d)) or frozenset(_VENDORS)
    functions = []
    for address in host.names(DEVICES):
        base = f"{DEVICES}/{address}"
        vendor = hexadecimal(host.read_or(f"{base}/vendor"))
        if vendor not in vendors:
            continue
        device = hexadecimal(host.read_or(f"{base}/device"))
        if not _wanted(vendor, device):
            continue
        class_code = hexadecimal(host.read_or(f"{base}/class")) >> 8
        driver = host.link_name(f"{base}/driver")
        numa = host.number(f"{base}/numa_node")  # -1, and so no number, where the firmware says nothing
        functions.append(PciFunction(address, vendor, device, class_code, driver, numa))
    return tuple(functions)


def reads_as_ones(count: int) -> bool:
    """Whether no counter can have this value: a read that nothing answers completes as ones (PCI Express, 2.3.2).

    Cards that sleep or are gone give it, also cut to a field of the register: 1048560 is 0xffff0. In a register of
    state the same value means that the device is gone.
    """
    while count and count % 16 == 0:
        count >>= 4
    return count >= 0xFFFF and count & (count + 1) == 0


def hexadecimal(text: str) -> int:
    """A number as sysfs writes it: `0x030200`; -1 for anything else."""
    try:
        return int(text, 16)
    except ValueError:
        return -1


def accelerator_functions(host: Host) -> Tuple[PciFunction, ...]:
    """The accelerators on the bus, in the order of their addresses."""
    return tuple(
        f
        for f in host.fact(_functions)
        if f.class_code in _GPU_CLASSES or (f.vendor == 0x1D0F and f.device in NEURON_IDS)
    )


def shows(host: Host, vendor: str) -> bool:
    """Whether an accelerator of this vendor is on the bus."""
    return any(function.vendor_name == vendor for function in host.fact(accelerator_functions))


def switch_functions(host: Host) -> Tuple[PciFunction, ...]:
    """The NVSwitches on the bus. From the NVLink 5 generation on they are no PCI functions of the node."""
    return tuple(f for f in host.fact(_functions) if f.vendor == 0x10DE and f.class_code == _NVSWITCH_CLASS)
