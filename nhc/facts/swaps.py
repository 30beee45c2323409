"""What swap /etc/fstab asks for, and what the kernel uses (fstab(5), proc(5))."""

from __future__ import annotations

from nhc.facts.mounts import unescape
from nhc.host import Host
from nhc.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import FrozenSet, Tuple

_TAGS = {"UUID": "by-uuid", "LABEL": "by-label", "PARTUUID": "by-partuuid", "PARTLABEL": "by-partlabel"}


class Swap(NamedTuple):
    """One line of /etc/fstab of the type swap."""

    source: str
    options: Tuple[str, ...]


def parse_swap_entries(text: str) -> Tuple[Swap, ...]:
    found = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 3 and not fields[0].startswith("#") and fields[2] == "swap":
            found.append(Swap(unescape(fields[0]), tuple(fields[3].split(",")) if len(fields) > 3 else ()))
    return tuple(found)


def parse_swaps(text: str) -> Tuple[str, ...]:
    """The files and devices of /proc/swaps."""
    return tuple(unescape(line.split()[0]) for line in text.splitlines()[1:] if line.split())


def device(source: str) -> str:
    """Where udev links the device that `UUID=...` and its kin name; another source as it is."""
    tag, equals, value = source.partition("=")
    value = value.strip('"')
    return f"/dev/disk/{_TAGS[tag]}/{value}" if equals and tag in _TAGS else source


def entries(host: Host) -> Tuple[Swap, ...]:
    """Raises OSError where /etc/fstab is there and cannot be read."""
    try:
        return parse_swap_entries(host.read("/etc/fstab"))
    except FileNotFoundError:
        return ()


def in_use(host: Host) -> FrozenSet[str]:
    """What is used as swap, links followed; none where the kernel has no swap. Raises OSError."""
    try:
        names = parse_swaps(host.read("/proc/swaps"))
    except FileNotFoundError:
        return frozenset()
    return frozenset(names) | frozenset(host.realpath(name) for name in names)
