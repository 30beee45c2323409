"""What the kernel uses as swap, and what /etc/fstab calls it (fstab(5), proc(5))."""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.node.facts.mounts import unescape

if TYPE_CHECKING:
    from typing import FrozenSet, Tuple

_TAGS = {"UUID": "by-uuid", "LABEL": "by-label", "PARTUUID": "by-partuuid", "PARTLABEL": "by-partlabel"}


def parse_swaps(text: str) -> Tuple[str, ...]:
    """The files and devices of /proc/swaps."""
    return tuple(unescape(line.split()[0]) for line in text.splitlines()[1:] if line.split())


def device(source: str) -> str:
    """Where udev links the device that `UUID=...` and its kin name; another source as it is."""
    tag, equals, value = source.partition("=")
    value = value.strip('"')
    return f"/dev/disk/{_TAGS[tag]}/{value}" if equals and tag in _TAGS else source


def in_use(host: Host) -> FrozenSet[str]:
    """What is used as swap, links followed; none where the kernel has no swap. Raises OSError."""
    try:
        names = parse_swaps(host.read("/proc/swaps"))
    except FileNotFoundError:
        return frozenset()
    return frozenset(names) | frozenset(host.realpath(name) for name in names)
