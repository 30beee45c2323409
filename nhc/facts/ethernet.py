"""Ethernet interfaces, from sysfs (Documentation/ABI/testing/sysfs-class-net*)."""

from __future__ import annotations

import re

from nhc.host import Host
from nhc.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Dict, Optional, Tuple

NET = "/sys/class/net"
_ETHERNET = "1"  # ARPHRD_ETHER
_IFF_UP = 0x1


class Interface(NamedTuple):
    """One interface. `speed` is Mb/s, None where it is not known; `carrier` None where the interface is down.

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
        """Whether there is a wire with a speed: paravirtual interfaces have none."""
        return self.driver not in ("virtio_net", "xen_netfront", "vif", "veth", "hv_netvsc") or self.speed is not None


def _number(text: str) -> Optional[int]:
    return int(text) if re.fullmatch(r"-?\d{1,18}", text) else None


def interface(host: Host, name: str) -> Optional[Interface]:
    """One interface, None where there is none of that name."""
    base = f"{NET}/{name}"
    if "/" in name or name in ("", ".", "..") or not host.isdir(base):
        return None
    carrier = host.read_or(f"{base}/carrier")  # EINVAL while the interface is down
    speed = _number(host.read_or(f"{base}/speed"))
    flags = host.read_or(f"{base}/flags", "0x0")
    try:
        driver = host.readlink(f"{base}/device/driver").rsplit("/", 1)[-1]
    except OSError:
        driver = ""
    if driver == "" and host.exists(f"{base}/device") and host.read_or(f"{base}/device/modalias").startswith("virtio:"):
        driver = "virtio_net"
    return Interface(
        name=name,
        up=bool(int(flags, 16) & _IFF_UP) if re.fullmatch(r"0x[0-9a-f]+", flags) else False,
        carrier=carrier == "1" if carrier in ("0", "1") else None,
        speed=speed if speed is not None and speed > 0 and speed < 4294967295 else None,  # -1: unknown
        duplex=host.read_or(f"{base}/duplex"),
        losses=_number(host.read_or(f"{base}/carrier_down_count")),
        gains=_number(host.read_or(f"{base}/carrier_up_count")),
        bond=host.isdir(f"{base}/bonding"),
        driver=driver,
    )


def interfaces(host: Host) -> Tuple[Interface, ...]:
    """The Ethernet ports of this node and bonds of them; no virtual functions, bridges, VLANs or tunnels."""
    try:
        names = host.listdir(NET)
    except OSError:
        return ()
    found = []
    for name in names:
        base = f"{NET}/{name}"
        if host.read_or(f"{base}/type") != _ETHERNET or host.exists(f"{base}/device/physfn"):
            continue
        if host.exists(f"{base}/device") or host.isdir(f"{base}/bonding"):
            each = interface(host, name)
            if each:
                found.append(each)
    return tuple(found)


COUNTERS = ("rx_packets", "tx_packets", "rx_errors", "tx_errors", "rx_crc_errors", "rx_missed_errors")


def statistics(host: Host, name: str) -> Dict[str, int]:
    """The counters that could be read, by name."""
    found = {}
    for counter in COUNTERS:
        value = _number(host.read_or(f"{NET}/{name}/statistics/{counter}"))
        if value is not None:
            found[counter] = value
    return found


_MODE = re.compile(r"(\d+)base\S*")


def parse_ethtool_best(text: str) -> Optional[int]:
    """The fastest of ethtool's supported link modes in Mb/s; None where it lists none."""
    _, found, rest = text.partition("Supported link modes:")
    if not found:
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
