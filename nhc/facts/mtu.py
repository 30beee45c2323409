"""Frame sizes of network interfaces and what lies below each (Documentation/ABI/testing/sysfs-class-net)."""

from __future__ import annotations

from nhc.host import Host
from nhc.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Optional, Tuple

NET = "/sys/class/net"


class Sized(NamedTuple):
    """One interface. `kind` is `bond`, `vlan`, `bridge` ... or "" for a plain port; `lower` what it is made of."""

    name: str
    mtu: Optional[int]
    kind: str
    lower: Tuple[str, ...]


def parse_kind(uevent: str) -> str:
    """DEVTYPE of a device's uevent file."""
    return next((line[8:] for line in uevent.splitlines() if line.startswith("DEVTYPE=")), "")


def sized(host: Host, name: str) -> Optional[Sized]:
    """One interface, None where there is none of that name."""
    base = f"{NET}/{name}"
    if "/" in name or name in ("", ".", "..") or not host.isdir(base):
        return None
    lower = tuple(entry[6:] for entry in host.names(base) if entry.startswith("lower_"))
    kind = "bond" if host.isdir(f"{base}/bonding") else parse_kind(host.read_or(f"{base}/uevent"))
    return Sized(name, host.number(f"{base}/mtu"), kind, lower)


def stacked(host: Host) -> Tuple[Sized, ...]:
    """The bonds and VLANs of this node."""
    interfaces = (sized(host, name) for name in host.names(NET) if name != "bonding_masters")
    return tuple(interface for interface in interfaces if interface and interface.kind in ("bond", "vlan"))
