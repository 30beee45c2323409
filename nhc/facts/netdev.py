"""The network interfaces and their counters, from /proc/net/dev (one read for all of them)."""

from __future__ import annotations

from nhc.host import Host
from nhc.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Dict


class Counters(NamedTuple):
    """One interface's counts since it was created. The order of the columns has not changed since Linux 2.2."""

    rx_bytes: int
    rx_packets: int
    rx_errors: int
    rx_dropped: int
    tx_bytes: int
    tx_packets: int
    tx_errors: int
    tx_dropped: int


def parse_net_dev(text: str) -> Dict[str, Counters]:
    """Counters by interface name. Lines of another shape are left out."""
    counters: Dict[str, Counters] = {}
    for line in text.splitlines():
        # The count of bytes may follow the colon without a blank; a name may hold one itself (eth0:1).
        name, colon, rest = line.rpartition(":")
        fields = rest.split()
        if colon and len(fields) >= 12 and all(field.isascii() and field.isdigit() for field in fields[:12]):
            numbers = [int(field[:20]) for field in fields[:12]]
            counters[name.strip()] = Counters(*numbers[:4], *numbers[8:12])
    return counters


def interfaces(host: Host) -> Dict[str, Counters]:
    """The node's interfaces. Raises OSError."""
    return parse_net_dev(host.read("/proc/net/dev"))
