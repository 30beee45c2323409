"""Memory errors as the kernel's EDAC drivers count them (Documentation/ABI/testing/sysfs-devices-edac)."""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Iterable, List, Optional, Tuple

CONTROLLERS = "/sys/devices/system/edac/mc"


class Module(NamedTuple):
    """One memory module, or what a controller could not pin on one. Counts are None where they cannot be read."""

    name: str
    label: str
    corrected: Optional[int]
    uncorrected: Optional[int]


def controllers(host: Host) -> Tuple[str, ...]:
    """The memory controllers with a driver (`mc0`); none where there is no EDAC."""
    return tuple(name for name in host.names(CONTROLLERS) if name[:2] == "mc" and name[2:].isdigit())


def modules(host: Host) -> Tuple[Module, ...]:
    """Every module's counts; a controller's own entry holds the errors of no known module."""
    counted: List[Module] = []
    for controller in controllers(host):
        base = f"{CONTROLLERS}/{controller}"
        mine = _modules_of(host, controller, base)
        corrected = _rest(host.number(f"{base}/ce_count"), (module.corrected for module in mine))
        uncorrected = _rest(host.number(f"{base}/ue_count"), (module.uncorrected for module in mine))
        counted += mine
        if not mine or (corrected, uncorrected) != (0, 0):
            counted.append(Module(controller, "", corrected, uncorrected))
    return tuple(counted)


def _rest(total: Optional[int], counts: Iterable[Optional[int]]) -> Optional[int]:
    """What a controller counted beyond its modules."""
    return None if total is None else max(0, total - sum(count or 0 for count in counts))


def _modules_of(host: Host, controller: str, base: str) -> List[Module]:
    """DIMMs (or ranks, as some drivers call them); on kernels before 3.6 csrows."""
    listed = host.listdir(base)
    names = [name for name in listed if name.startswith(("dimm", "rank")) and name[4:].isdigit()]
    label, prefix = "dimm_label", "dimm_"
    if not names:
        names = [name for name in listed if name.startswith("csrow") and name[5:].isdigit()]
        label, prefix = "ch0_dimm_label", ""
    return [
        Module(
            f"{controller}/{name}",
            host.read_or(f"{base}/{name}/{label}"),
            host.number(f"{base}/{name}/{prefix}ce_count"),
            host.number(f"{base}/{name}/{prefix}ue_count"),
        )
        for name in names
    ]


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
