"""The names of the network interfaces, from /proc/net/dev (one read for all of them)."""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Tuple


def parse_net_dev(text: str) -> Tuple[str, ...]:
    """The names; lines without the columns of counters, which have not changed since Linux 2.2, are left out."""
    names = []
    for line in text.splitlines():
        # The count of bytes may follow the colon without a blank; a name may hold one itself (eth0:1).
        name, colon, rest = line.rpartition(":")
        fields = rest.split()[:12]
        if colon and len(fields) == 12 and all(field.isascii() and field.isdigit() for field in fields):
            names.append(name.strip())
    return tuple(names)


def interfaces(host: Host) -> Tuple[str, ...]:
    """The node's interfaces. Raises OSError."""
    return parse_net_dev(host.read("/proc/net/dev"))
