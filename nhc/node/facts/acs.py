"""PCI Express access control services (ACS), read from configuration space.

Sources: PCI Express base specification, ACS extended capability; the kernel's include/uapi/linux/pci_regs.h.
"""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.node.facts.pci import DEVICES

if TYPE_CHECKING:
    from typing import Optional, Tuple

_CAP_POINTER, _CAP_PCIE, _EXT_ACS = 0x34, 0x10, 0x000D
ROOT_PORT, DOWNSTREAM = 4, 6
"""Device/port types of the PCI Express capability."""
_BITS = ((0x01, "SrcValid"), (0x02, "TransBlk"), (0x04, "ReqRedir"), (0x08, "CmpltRedir"), (0x10, "UpstreamFwd"),
         (0x20, "EgressCtrl"), (0x40, "DirectTrans"))  # fmt: skip
REDIRECT = 0x04 | 0x08 | 0x20
"""Request and completion redirect, egress control: what a device writes to another goes up to the root, or nowhere."""


class AcsPort(NamedTuple):
    """A port above some device. `control` is its ACS control register, None where it has no ACS."""

    address: str
    type: int
    control: Optional[int]


class ShortConfig(Exception):
    """Only the first 64 bytes of configuration space may be read: not by root, or the kernel is locked down."""


def names(control: int) -> str:
    """The bits that are on, as lspci calls them."""
    return " ".join(f"{name}+" for bit, name in _BITS if control & bit)


def parse_port(config: bytes) -> Tuple[int, Optional[int]]:
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


def port(host: Host, address: str) -> AcsPort:
    """Raises ShortConfig, OSError."""
    return AcsPort(address, *parse_port(host.read_bytes(f"{DEVICES}/{address}/config", 4096)))
