"""The PCI bus in one read: which of its functions may be accelerators, before any of them is looked at.

Not in `nhc.node.facts.pci` because a run reads this on each node, and regular expressions are slow to import.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

    Listed = Tuple[str, int, int, Optional[int], str]

INDEX = "/proc/bus/pci/devices"
"""Every function in one read, without its class and domain: enough to see which ones need a second read."""

NEURON_IDS = frozenset({0x7064, 0x7065, 0x7066, 0x7067, 0x7164, 0x7264, 0x7364, 0x7564, 0x7565})
"""Inferentia, Trainium, Inferentia2, Trainium2 and 3 (neuron_device.h of the Neuron driver).

Amazon's other functions are network adapters and disks. A device that the Neuron driver serves is one, too.
"""
AMAZON = 0x1D0F

VENDORS: Dict[int, str] = {0x10DE: "nvidia", 0x1002: "amd", 0x1DA3: "gaudi", AMAZON: "neuron"}
"""Vendors whose drivers nhc can ask. An accelerator of any other vendor is found by its class."""
_OTHER_DRIVERS = frozenset([
    "ahci", "ast", "ata_piix", "be2net", "bnxt_en", "efa", "ena", "gve", "hibmc-drm", "i40e", "ice", "idxd", "igb",
    "igc", "intel_qat", "ioatdma", "irdma", "ixgbe", "lpc_ich", "megaraid_sas", "mgag200", "mlx4_core", "mlx5_core",
    "mpt3sas", "nvme", "pcieport", "piix4_smbus", "qla2xxx", "tg3", "virtio-pci", "vmd", "xhci_hcd",
])  # fmt: skip
"""Drivers of disks, networks and boards, which serve no accelerator: their functions' classes need no read."""


def parse_index(text: str) -> List[Listed]:
    """The functions listed in /proc/bus/pci/devices: address without the domain, vendor, device, size of the largest
    region (None if the line does not tell), driver. Lines of another form are left out.
    """
    functions = []
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) < 3 or len(fields[0]) != 4 or len(fields[1]) != 8:
            continue
        try:
            at = int(fields[0], 16)
            sizes = [int(size, 16) for size in fields[10:16]]
            place = f"{at >> 8:02x}:{at >> 3 & 31:02x}.{at & 7}"
            driver = fields[17].strip() if len(fields) > 17 else ""
            memory = max(sizes) if len(sizes) == 6 else None
            functions.append((place, int(fields[1][:4], 16), int(fields[1][4:], 16), memory, driver))
        except ValueError:
            continue
    return functions


def may_accelerate(function: Listed) -> bool:
    """Whether the class of a function must be read: the vendor is one that nhc can ask, or the driver is unknown.

    A function without memory of its own on the bus (most functions inside a processor) is not for programs.
    """
    _place, vendor, device, memory, driver = function
    known = vendor in VENDORS and vendor != AMAZON
    return known or of_neuron(vendor, device, driver) or (memory != 0 and driver not in _OTHER_DRIVERS)


def of_neuron(vendor: int, device: int, driver: str) -> bool:
    return vendor == AMAZON and (device in NEURON_IDS or driver == "neuron")
