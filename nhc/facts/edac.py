"""Memory errors as the kernel's EDAC drivers count them (Documentation/ABI/testing/sysfs-devices-edac)."""

from __future__ import annotations

from nhc.host import Host
from nhc.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import List, Optional, Tuple

CONTROLLERS = "/sys/devices/system/edac/mc"


class Module(NamedTuple):
    """One memory module, or what a controller could not pin on one. Counts are None where they cannot be read."""

    name: str
    label: str
    corrected: Optional[int]
    uncorrected: Optional[int]


def controllers(host: Host) -> Tuple[str, ...]:
    """The memory controllers with a driver (`mc0`); none where there is no EDAC."""
    try:
        return tuple(name for name in host.listdir(CONTROLLERS) if name[:2] == "mc" and name[2:].isdigit())
    except OSError:
        return ()


def modules(host: Host) -> Tuple[Module, ...]:
    """Every module's counts; a controller's own entry holds the errors of no known module."""
    found: List[Module] = []
    for controller in controllers(host):
        base = f"{CONTROLLERS}/{controller}"
        mine = _modules_of(host, controller, base)
        rest = [
            None if total is None else max(0, total - sum(getattr(module, field) or 0 for module in mine))
            for field, total in (
                ("corrected", _number(host, f"{base}/ce_count")),
                ("uncorrected", _number(host, f"{base}/ue_count")),
            )
        ]
        found += mine
        if not mine or rest != [0, 0]:
            found.append(Module(controller, "", rest[0], rest[1]))
    return tuple(found)


def _modules_of(host: Host, controller: str, base: str) -> List[Module]:
    """DIMMs (or ranks, as some drivers call them); on kernels before 3.6 csrows."""
    found: List[Module] = []
    names = host.listdir(base)
    for name in names:
        if name.startswith(("dimm", "rank")) and name[4:].isdigit():
            at = f"{base}/{name}"
            label = host.read_or(f"{at}/dimm_label")
            found.append(
                Module(f"{controller}/{name}", label, _number(host, f"{at}/dimm_ce_count"),
                       _number(host, f"{at}/dimm_ue_count"))
            )  # fmt: skip
    if found:
        return found
    for name in names:
        if name.startswith("csrow") and name[5:].isdigit():
            at = f"{base}/{name}"
            label = host.read_or(f"{at}/ch0_dimm_label")
            found.append(
                Module(f"{controller}/{name}", label, _number(host, f"{at}/ce_count"), _number(host, f"{at}/ue_count"))
            )
    return found


def _number(host: Host, path: str) -> Optional[int]:
    text = host.read_or(path)
    return int(text) if text.isascii() and text.isdigit() else None


_ARRAY = "/sys/firmware/dmi/entries/16-0/raw"
_NO_ECC = 3
"""SMBIOS type 16, Memory Error Correction: 3 None, 4 Parity, 5 single-bit ECC, 6 multi-bit ECC, 7 CRC."""


def has_ecc(host: Host) -> Optional[bool]:
    """Whether the firmware says that this node's memory corrects errors; None where it does not say."""
    try:
        raw = host.read_bytes(_ARRAY)
    except OSError:
        return None
    if len(raw) < 7 or raw[0] != 16 or raw[6] in (1, 2):  # 1 other, 2 unknown
        return None
    return raw[6] != _NO_ECC
