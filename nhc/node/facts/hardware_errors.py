"""Counts of hardware errors on this node.

Machine checks that the processors raised: the kernel counts them in /proc/interrupts. Memory errors: the mcelog daemon
reports them by `mcelog --client` (mcelog's memdb.c and its client protocol), the kernel's EDAC drivers in sysfs
(Documentation/ABI/testing/sysfs-devices-edac).
"""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple, regex

if TYPE_CHECKING:
    from typing import Dict, Iterable, List, Optional, Tuple

_INTERRUPTS = {"MCE": "exceptions", "THR": "threshold", "DFR": "deferred"}
"""MCE: machine check exceptions; THR: corrected errors reached a bank's threshold (CMCI);
DFR: AMD's deferred errors. MCP counts polls, not errors (arch/x86/kernel/irq.c)."""


def parse_interrupts(text: str) -> Dict[str, int]:
    """Machine-check interrupts since boot, summed over processors, by the names above."""
    counts: Dict[str, int] = {}
    for line in text.splitlines():
        name, colon, rest = line.strip().partition(":")
        if not colon or name not in _INTERRUPTS:
            continue
        total = 0
        for number in rest.split():
            if not (number.isascii() and number.isdigit()):
                break
            total += int(number)
        counts[_INTERRUPTS[name]] = total
    return counts


def machine_check_interrupts(host: Host) -> Dict[str, int]:
    """The counts; empty on a kernel without machine checks. Raises OSError."""
    return parse_interrupts(host.read("/proc/interrupts"))


def recent_machine_checks(host: Host) -> Tuple[str, ...]:
    """What rasdaemon recorded last (`ras-mc-ctl --errors`); nothing if it is not there or cannot tell."""
    if not host.which("ras-mc-ctl"):
        return ()
    try:
        ended = host.run(["ras-mc-ctl", "--errors"], timeout=5)
    except OSError:
        return ()
    return tuple(line.rstrip() for line in ended.stdout.splitlines() if line[:1].isdigit())[-20:]


_COUNT = regex(r"\s*(\d{1,18}) (?:in (.+)|total)")
_ANY = regex(r"\bany\b")
_PLACE = regex(r'DMI_NAME "([^"]*)"')


class McelogErrors(NamedTuple):
    """One kind of error at one place. `recent` is the count within `period`, which mcelog's default makes 24h.

    `place` is mcelog's: `SOCKET 0 CHANNEL 1 DIMM 0`, with the board's label where it knows one. `any` in it says that
    mcelog does not know the exact place, or sums up what lies below.
    """

    place: str
    corrected: bool
    total: int
    recent: int
    period: str

    @property
    def exact(self) -> bool:
        """Whether one module is named, rather than a socket or channel as a whole."""
        return not _ANY.search(self.place)


def parse_mcelog(text: str) -> Tuple[McelogErrors, ...]:
    """Every count in the client's answer, in its order; none in a text of another kind."""
    counts: List[McelogErrors] = []
    place = ""
    kind = ""
    total = 0
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("SOCKET"):
            place, kind = stripped, ""
        elif stripped.startswith("DMI_NAME"):
            label = _PLACE.match(stripped)
            place = f"{place} ({label[1]})" if label and place else place
        elif stripped in ("corrected memory errors:", "uncorrected memory errors:"):
            kind, total = stripped, 0
        elif kind:
            count = _COUNT.fullmatch(line)
            if count is None:
                kind = ""
            elif count[2] is None:
                total = int(count[1])
            else:
                counts.append(McelogErrors(place, kind.startswith("corrected"), total, int(count[1]), count[2]))
                kind = ""
    return tuple(counts)


CONTROLLERS = "/sys/devices/system/edac/mc"


class Module(NamedTuple):
    """One memory module, or what a controller could not pin on one. Counts are None if they cannot be read."""

    name: str
    label: str
    corrected: Optional[int]
    uncorrected: Optional[int]


def controllers(host: Host) -> Tuple[str, ...]:
    """The memory controllers with a driver (`mc0`); none if there is no EDAC."""
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
    """Whether the firmware says that this node's memory corrects errors; None if it does not say."""
    try:
        raw = host.read_bytes(_ARRAY)
    except OSError:
        return None
    if len(raw) < 7 or raw[0] != 16 or raw[6] in (1, 2):  # 1 other, 2 unknown
        return None
    return raw[6] != _NO_ECC
