"""Network interfaces: the links of Ethernet, the frame sizes of all (Documentation/ABI/testing/sysfs-class-net*)."""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple, regex

if TYPE_CHECKING:
    from typing import Dict, Mapping, Optional, Tuple

NET = "/sys/class/net"
_ETHERNET = "1"  # ARPHRD_ETHER
_IFF_UP = 0x1


class Interface(NamedTuple):
    """One interface. `speed` is Mb/s, None if it is not known; `carrier` None if the interface is down.

    `losses` counts how often the carrier went away, `gains` how often it came, since the driver was loaded.
    """

    name: str
    up: bool
    carrier: Optional[bool]
    speed: Optional[int]
    duplex: str
    losses: Optional[int]
    gains: Optional[int]
    bond: bool
    driver: str

    @property
    def has_speed(self) -> bool:
        """Whether the link has a speed: paravirtual interfaces have none."""
        return self.driver not in ("virtio_net", "xen_netfront", "vif", "veth", "hv_netvsc") or self.speed is not None


def _directory(host: Host, name: str) -> Optional[str]:
    """What the kernel shows of an interface, None if there is none of that name."""
    base = f"{NET}/{name}"
    return None if "/" in name or name in ("", ".", "..") or not host.isdir(base) else base


def interface(host: Host, name: str) -> Optional[Interface]:
    """One interface, None if there is none of that name."""
    base = _directory(host, name)
    if base is None:
        return None
    carrier = host.read_or(f"{base}/carrier")  # EINVAL while the interface is down
    speed = host.number(f"{base}/speed") or 0  # -1: unknown
    flags = host.read_or(f"{base}/flags", "0x0")
    driver = host.link_name(f"{base}/device/driver")
    if not driver and host.read_or(f"{base}/device/modalias").startswith("virtio:"):
        driver = "virtio_net"
    return Interface(
        name=name,
        up=_HEX.fullmatch(flags) is not None and bool(int(flags, 16) & _IFF_UP),
        carrier=carrier == "1" if carrier in ("0", "1") else None,
        speed=speed if 0 < speed < 4294967295 else None,
        duplex=host.read_or(f"{base}/duplex"),
        losses=host.number(f"{base}/carrier_down_count"),
        gains=host.number(f"{base}/carrier_up_count"),
        bond=host.isdir(f"{base}/bonding"),
        driver=driver,
    )


def interfaces(host: Host) -> Tuple[Interface, ...]:
    """The Ethernet ports of this node and bonds of them; no virtual functions, bridges, VLANs or tunnels."""
    ports = []
    for name in host.names(NET):
        base = f"{NET}/{name}"
        if host.read_or(f"{base}/type") != _ETHERNET or host.exists(f"{base}/device/physfn"):
            continue
        if host.exists(f"{base}/device") or host.isdir(f"{base}/bonding"):
            ports.append(interface(host, name))
    return tuple(port for port in ports if port)


COUNTERS = ("rx_packets", "tx_packets", "rx_errors", "tx_errors", "rx_crc_errors", "rx_missed_errors")


def statistics(host: Host, name: str) -> Dict[str, int]:
    """The counters that could be read, by name."""
    return host.numbers(f"{NET}/{name}/statistics", COUNTERS)


def unread_statistics(host: Host, name: str, read: Mapping[str, int]) -> Dict[str, str]:
    """Why a counter that is there and not among those `read` cannot be read, by name."""
    return host.unread(f"{NET}/{name}/statistics", [each for each in COUNTERS if each not in read])


_HEX = regex(r"0x[0-9a-f]+")
_MODE = regex(r"(\d+)base\S*")


def parse_ethtool_best(text: str) -> Optional[int]:
    """The fastest of ethtool's supported link modes in Mb/s; None if it lists none."""
    _, heading, rest = text.partition("Supported link modes:")
    if not heading:
        return None
    # The list goes on over lines until the next "Name:" begins.
    lines = rest.splitlines()
    modes = lines[:1]
    for line in lines[1:]:
        if ":" in line:
            break
        modes.append(line)
    speeds = [int(match[1]) for match in _MODE.finditer(" ".join(modes))]
    return max(speeds) if speeds else None


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
    """One interface, None if there is none of that name."""
    base = _directory(host, name)
    if base is None:
        return None
    lower = tuple(entry[6:] for entry in host.names(base) if entry.startswith("lower_"))
    kind = "bond" if host.isdir(f"{base}/bonding") else parse_kind(host.read_or(f"{base}/uevent"))
    return Sized(name, host.number(f"{base}/mtu"), kind, lower)


def stacked(host: Host) -> Tuple[Sized, ...]:
    """The bonds and VLANs of this node."""
    interfaces = (sized(host, name) for name in host.names(NET) if name != "bonding_masters")
    return tuple(interface for interface in interfaces if interface and interface.kind in ("bond", "vlan"))
