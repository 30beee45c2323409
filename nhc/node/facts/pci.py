"""The PCI bus: its accelerators and switches, and the speed of their links.

The bus shows what the driver does not: a GPU that is no longer in its driver's list is still enumerated here until the
node restarts.
"""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple, regex
from nhc.node.facts.pci_index import AMAZON, INDEX, VENDORS, may_accelerate, of_neuron, parse_index

if TYPE_CHECKING:
    from typing import Optional, Tuple

DEVICES = "/sys/bus/pci/devices"
# PCI class codes (PCI Code and ID Assignment Specification): VGA, 3D and other display controllers,
# and processing accelerators. NVIDIA's data-centre GPUs are 0302, AMD's MI200 0380 and MI300 1200.
_GPU_CLASSES = frozenset({0x0300, 0x0302, 0x0380, 0x1200})
_COMPUTES = frozenset({0x0302, 0x1200})
"""Classes without a screen: a device of such a class computes, from any maker."""
_DISPLAYS = frozenset({0x0300, 0x0380})
OWN_MEMORY = 256 << 20
"""A display controller that maps more memory than this is an accelerator (Intel's Max maps 128 GB). The
screens of management controllers and virtual machines, and graphics inside a processor, map up to 256 MB.
"""
_NVSWITCH_CLASS = 0x0680

FOR_GUESTS = frozenset(["pci-stub", "vfio-pci"])
"""Drivers that reserve a device for a virtual machine: this node does not judge it."""

ADDRESS = regex(r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")
"""A function's address, with or without its domain."""
_SPEED = regex(r"(\d+(?:\.\d+)?)\s*GT/s")
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
        """The vendor whose driver can be asked, "" for any other."""
        return VENDORS.get(self.vendor, "")

    @property
    def of_neuron(self) -> bool:
        return of_neuron(self.vendor, self.device, self.driver)

    @property
    def ids(self) -> str:
        """Vendor and device as lspci -n writes them."""
        return f"{self.vendor:04x}:{self.device:04x}"


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
    """The ports above a function, from the root down: the directories above its own in /sys/devices."""
    above = host.realpath(f"{DEVICES}/{address}").split("/")[:-1]
    return tuple(part for part in above if ADDRESS.fullmatch(part))


def _functions(host: Host) -> Tuple[PciFunction, ...]:
    """Every function that may be an accelerator or a switch between accelerators."""
    listed = parse_index(host.read_or(INDEX))  # no such file in some containers: the directory tells
    places = {function[0] for function in listed if may_accelerate(function)}
    if listed and not places:
        return ()
    functions = []
    for address in host.names(DEVICES):
        if listed and address.partition(":")[2] not in places:
            continue
        base = f"{DEVICES}/{address}"
        vendor, device = (hexadecimal(host.read_or(f"{base}/{name}")) for name in ("vendor", "device"))
        class_code = hexadecimal(host.read_or(f"{base}/class")) >> 8
        driver = host.link_name(f"{base}/driver")
        numa = host.number(f"{base}/numa_node")  # -1, which is no number, if the firmware says nothing
        functions.append(PciFunction(address, vendor, device, class_code, driver, numa))
    return tuple(functions)


def reads_as_ones(count: int) -> bool:
    """Whether no counter can have this value: a read that nothing answers completes as ones (PCI Express, 2.3.2).

    Cards that sleep or are gone give this value, also cut to a field of the register: 1048560 is 0xffff0. In a status
    register the same value means that the device is gone.
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
    """The accelerators on the bus whose drivers nhc can ask, in the order of their addresses."""
    return tuple(
        f
        for f in host.fact(_functions)
        if f.of_neuron or (f.vendor in VENDORS and f.vendor != AMAZON and f.class_code in _GPU_CLASSES)
    )


def other_accelerators(host: Host) -> Tuple[PciFunction, ...]:
    """Accelerators of vendors whose drivers nhc cannot ask: by their class, and a display controller by its memory."""
    return tuple(
        f
        for f in host.fact(_functions)
        if (f.vendor not in VENDORS or f.vendor == AMAZON)
        and not f.of_neuron
        and f.driver not in FOR_GUESTS
        and (f.class_code in _COMPUTES or (f.class_code in _DISPLAYS and _mapped(host, f.address) > OWN_MEMORY))
    )


def _mapped(host: Host, address: str) -> int:
    """The size of a function's largest region: lines of `start end flags` in hexadecimal."""
    sizes = [0]
    for line in host.read_or(f"{DEVICES}/{address}/resource").splitlines()[:6]:
        start, _, rest = line.partition(" ")
        sizes.append(hexadecimal(rest.partition(" ")[0]) - hexadecimal(start) + 1)
    return max(sizes)


def shows(host: Host, vendor: str) -> bool:
    """Whether an accelerator of this vendor is on the bus."""
    return any(function.vendor_name == vendor for function in host.fact(accelerator_functions))


def switch_functions(host: Host) -> Tuple[PciFunction, ...]:
    """The NVSwitches on the bus. From the NVLink 5 generation on they are no PCI functions of the node."""
    return tuple(f for f in host.fact(_functions) if f.vendor == 0x10DE and f.class_code == _NVSWITCH_CLASS)
