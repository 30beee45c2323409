"""PCI Express links and their error counters, from sysfs (the kernel's Documentation/ABI/testing/sysfs-bus-pci*).

Access control services (ACS) are read from configuration space. Sources: PCI Express base specification, ACS extended
capability; the kernel's include/uapi/linux/pci_regs.h.
"""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.node.facts.pci import DEVICES, bridges, generation, hexadecimal, parse_speed

if TYPE_CHECKING:
    from typing import Dict, Optional, Tuple

    from nhc.node.facts.accelerator_values import PcieLink

BRIDGE = 0x06
_ALL_ONES_WIDTH = 63
"""The width field of a register that reads as all ones: the device no longer answers on the bus."""


class PcieDeviceLink(NamedTuple):
    """One device's link. Speeds are GT/s, 0 if sysfs does not know; widths are lanes.

    `best_speed` and `best_width` are the best that both ends of the link support: a x16 card in a x8 slot has 8.
    """

    address: str
    base_class: int
    vendor: str
    device: str
    driver: str
    speed: float
    width: int
    best_speed: float
    best_width: int

    @property
    def gone(self) -> bool:
        """Whether the device has stopped answering: its registers read as all ones."""
        return self.width == _ALL_ONES_WIDTH


def parse_aer(text: str) -> Dict[str, int]:
    """The counters of an aer_dev_* file by name, with the kernel's total as `TOTAL`.

    Lines are `RxErr 0` ... `TOTAL_ERR_COR 0`; other lines are left out.
    """
    counts: Dict[str, int] = {}
    for line in text.splitlines():
        name, _, count = line.strip().rpartition(" ")
        if name and count.isascii() and count.isdigit():
            counts["TOTAL" if name.startswith("TOTAL_ERR_") else name] = int(count)
    return counts


def _asleep(host: Host, base: str) -> bool:
    """Whether the device is runtime-suspended: its link may be down by design."""
    status, state = host.read_or(f"{base}/power/runtime_status"), host.read_or(f"{base}/power_state")
    return status == "suspended" or state.startswith("D3")


def links(host: Host) -> Tuple[PcieDeviceLink, ...]:
    """The links of all devices that have one, one per device (functions share it), bridges left out."""
    by_slot: Dict[str, PcieDeviceLink] = {}
    for address in host.names(DEVICES):
        base, slot = f"{DEVICES}/{address}", address.rpartition(".")[0]
        base_class = hexadecimal(host.read_or(f"{base}/class")) >> 16
        best_width = host.number(f"{base}/max_link_width")
        if slot in by_slot or base_class == BRIDGE or not best_width or _asleep(host, base):
            continue
        best_speed = parse_speed(host.read_or(f"{base}/max_link_speed"))
        for port in bridges(host, address)[-1:]:
            best_width = min(best_width, host.number(f"{DEVICES}/{port}/max_link_width") or best_width)
            best_speed = min(best_speed, parse_speed(host.read_or(f"{DEVICES}/{port}/max_link_speed")) or best_speed)
        by_slot[slot] = PcieDeviceLink(
            address, base_class, host.read_or(f"{base}/vendor"), host.read_or(f"{base}/device"),
            host.link_name(f"{base}/driver"), parse_speed(host.read_or(f"{base}/current_link_speed")),
            host.number(f"{base}/current_link_width") or 0, best_speed, best_width,
        )  # fmt: skip
    return tuple(by_slot.values())


def link_speed(host: Host, address: str) -> PcieLink:
    """What the link of the function at `address` runs at. A link trained down shows a width of 0 or 63: None."""
    from nhc.node.facts.accelerator_values import PcieLink

    base = f"{DEVICES}/{address}"

    def width(name: str) -> Optional[int]:
        lanes = host.number(f"{base}/{name}")
        return lanes if lanes and lanes <= 32 else None

    return PcieLink(
        generation(host.read_or(f"{base}/current_link_speed")),
        width("current_link_width"),
        generation(host.read_or(f"{base}/max_link_speed")),
        width("max_link_width"),
    )


_SEVERITIES = ("fatal", "nonfatal", "correctable")


def aer(host: Host) -> Tuple[Dict[str, Dict[str, int]], Dict[str, str]]:
    """The kernel's error counts of each function: `fatal`, `nonfatal`, `correctable`, and each kind by name.

    A function whose errors are not counted is left out. Also returns the functions with a count that cannot be read,
    and why.
    """
    by_address: Dict[str, Dict[str, int]] = {}
    unread: Dict[str, str] = {}
    names = host.names(DEVICES)
    for severity in _SEVERITIES:
        for address, text in host.read_each(DEVICES, names, f"aer_dev_{severity}").items():
            counts = parse_aer(text or "")
            if text is None:
                unread.setdefault(address, f"aer_dev_{severity}: no answer")
            if "TOTAL" in counts:
                mine = by_address.setdefault(address, {})
                mine[severity] = counts.pop("TOTAL")
                mine.update((f"{severity} {name}", number) for name, number in counts.items())
    for address, found in by_address.items():
        missing = [f"aer_dev_{severity}" for severity in _SEVERITIES if severity not in found]
        for name, why in host.unread(f"{DEVICES}/{address}", missing if address not in unread else ()).items():
            unread.setdefault(address, f"{name}: {why}")
    return by_address, unread


_CAP_POINTER, _CAP_PCIE, _EXT_ACS = 0x34, 0x10, 0x000D
ROOT_PORT, DOWNSTREAM = 4, 6
"""Device/port types of the PCI Express capability."""
_BITS = ((0x01, "SrcValid"), (0x02, "TransBlk"), (0x04, "ReqRedir"), (0x08, "CmpltRedir"), (0x10, "UpstreamFwd"),
         (0x20, "EgressCtrl"), (0x40, "DirectTrans"))  # fmt: skip
REDIRECT = 0x04 | 0x08 | 0x20
"""Request and completion redirect, egress control: writes from device to device go up to the root, or are blocked."""


class AcsPort(NamedTuple):
    """A port above some device. `control` is its ACS control register, None if it has no ACS."""

    address: str
    type: int
    control: Optional[int]


class ShortConfig(Exception):
    """Only the first 64 bytes of configuration space may be read: not by root, or the kernel is locked down."""


def acs_names(control: int) -> str:
    """The bits that are on, as lspci calls them."""
    return " ".join(f"{name}+" for bit, name in _BITS if control & bit)


def parse_acs_port(config: bytes) -> Tuple[int, Optional[int]]:
    """Port type (-1 for what is not PCI Express) and the ACS control register. Raises ShortConfig."""
    if len(config) <= 64:
        raise ShortConfig
    kind, at, steps = -1, config[_CAP_POINTER] & ~3, 0
    while 0x40 <= at < min(0xFD, len(config) - 2) and steps < 48:
        if config[at] == _CAP_PCIE:
            kind = config[at + 2] >> 4
            break
        at, steps = config[at + 1] & ~3, steps + 1
    if kind < 0 or len(config) < 0x104:
        return kind, None
    at, steps = 0x100, 0
    while 0x100 <= at <= len(config) - 8 and steps < 480:
        header = int.from_bytes(config[at : at + 4], "little")
        if header & 0xFFFF == _EXT_ACS:
            return kind, int.from_bytes(config[at + 6 : at + 8], "little")
        at, steps = header >> 20 & ~3, steps + 1
    return kind, None


def acs_port(host: Host, address: str) -> AcsPort:
    """Raises ShortConfig, OSError."""
    return AcsPort(address, *parse_acs_port(host.read_bytes(f"{DEVICES}/{address}/config", 4096)))
