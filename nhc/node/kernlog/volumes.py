"""Which disks and file systems are the node's own, and which belong to a pod, a person or nobody.

A fault of a volume takes the node out only where the node itself mounts it and still has it mounted. What kubelet
mounts for pods, what a person plugged in, and what nothing mounts any more is not the node's. Facts: the mount table of
process 1, /sys/class/block (a partition's disk, the disks below a device-mapper or RAID device), /proc/swaps.
"""

from __future__ import annotations

from itertools import takewhile

from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.node.facts.fstab import parse_swaps
from nhc.node.facts.mounts import unescape

if TYPE_CHECKING:
    from typing import Dict, FrozenSet, Optional, Set

    from nhc.core.host import Host

MOUNTINFO = "/proc/self/mountinfo"
_PODS = ("/kubelet/pods/", "/kubelet/plugins/", "/kubelet/plugins_registry/")
_PEOPLE = ("/media/", "/run/media/")
_DEPTH = 8
"""Devices stacked on each other: a file system on LVM on RAID on partitions is four."""


class Volumes(NamedTuple):
    """Kernel names of block devices (sda1, dm-0, nvme0n1).

    `own`: mounted by the node itself or its swap, and the devices these lie on. `mounted`: all that have a file system
    mounted. `types`: of each type of file system, the devices it is mounted from.
    """

    own: FrozenSet[str]
    mounted: FrozenSet[str]
    types: Dict[str, FrozenSet[str]]


def of_the_node(point: str) -> bool:
    """Whether it is the node itself that mounts something there, and not kubelet for a pod or a desktop for a user."""
    return not any(part in point for part in _PODS) and not point.startswith(_PEOPLE)


def volumes(host: Host) -> Volumes:
    """The node's volumes. Raises OSError if the mount table cannot be read."""
    own: Set[str] = set()
    mounted: Set[str] = set()
    types: Dict[str, Set[str]] = {}
    for line in host.read(MOUNTINFO).split("\n"):
        # "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw" (Documentation/filesystems/proc.rst 3.5)
        head, _, tail = line.partition(" - ")
        fields, rest = head.split(" "), tail.split(" ")
        if len(fields) < 6 or len(rest) < 2:
            continue
        name = _name(host, fields[2], unescape(rest[1]))
        if not name:
            continue
        mounted.add(name)
        types.setdefault(rest[0], set()).add(name)
        if of_the_node(unescape(fields[4])):
            own.add(name)
    swaps = (_name(host, "", swap) for swap in parse_swaps(host.read_or("/proc/swaps")))
    own |= {name for name in swaps if name}
    below: Set[str] = set(own)
    for name in own:
        below |= _below(host, name, 0)
    return Volumes(frozenset(below), frozenset(mounted), {kind: frozenset(names) for kind, names in types.items()})


def _name(host: Host, number: str, source: str) -> str:
    """The kernel's name of a mounted device: by its number, else (btrfs has one of its own) by its path."""
    if number and not number.startswith("0:"):
        name = host.link_name(f"/sys/dev/block/{number}")
        if name:
            return name
    if not source.startswith("/dev/"):
        return ""
    if source.startswith("/dev/mapper/"):
        for path in host.glob("/sys/class/block/dm-*/dm/name"):
            if host.read_or(path) == source[len("/dev/mapper/") :]:
                return path.split("/")[4]
    return source.rpartition("/")[2]


def _below(host: Host, name: str, depth: int) -> Set[str]:
    """The devices that a device lies on: a partition's disk, the parts of a RAID, an LVM volume or a cache."""
    below: Set[str] = set()
    if depth >= _DEPTH:
        return below
    try:
        parts = host.readlink(f"/sys/class/block/{name}").split("/")  # .../block/sda/sda1
        if len(parts) > 1 and parts[-1] == name and parts[-2] != "block":
            below.add(parts[-2])
    except OSError:
        pass
    if not _multipath(host, name):
        below |= set(host.names(f"/sys/class/block/{name}/slaves"))
    for device in list(below):
        below |= _below(host, device, depth + 1)
    return below


def _multipath(host: Host, name: str) -> bool:
    """Whether this is a map over several paths to one disk: any of them serves, and the loss of one is no fault."""
    return host.read_or(f"/sys/class/block/{name}/dm/uuid").startswith("mpath-")


def is_own(node: Volumes, device: str) -> bool:
    """Whether a device (a controller as nvme0 by its namespaces) carries something that the node itself mounts."""
    if device in node.own:
        return True
    controller = device.startswith("nvme") and "n" not in device[4:]
    return controller and any(name.startswith((f"{device}n", f"{device}c")) for name in node.own)


def disk_of(host: Host, device: str) -> str:
    """The disk of a SCSI address (6:0:0:0) or a SATA port (ata3): where the kernel's line names that alone.

    Other names as they are.
    """
    if device.startswith("ata") and device[3:].isdigit():
        return _disk_of_port(host, device)
    if device.count(":") != 3:
        return device
    return next(iter(host.names(f"/sys/class/scsi_device/{device}/device/block")), device)


def _disk_of_port(host: Host, port: str) -> str:
    """The disk at a SATA port, whose name stands in the disk's path; the port where it has none any more."""
    for path in host.glob("/sys/class/block/sd*"):
        try:  # .../ata3/host2/target2:0:0/2:0:0:0/block/sda/sda1
            before, _, disk = host.readlink(path).partition("/block/")
        except OSError:
            continue
        if port in before.split("/"):
            return disk.partition("/")[0]
    return port


def removable(host: Host, device: str) -> bool:
    """Whether the medium can be taken out (a floppy, a drive of discs, virtual media of a BMC)."""
    return host.number(f"/sys/class/block/{device}/removable") == 1


def fabric(host: Host, device: str) -> Optional[bool]:
    """Whether an NVMe controller or namespace is reached through a network. None if nothing tells."""
    number = "".join(takewhile(str.isdigit, device[4:]))
    transport = host.read_or(f"/sys/class/nvme/nvme{number}/transport")
    return transport != "pcie" if transport else None


def controller_present(host: Host, device: str) -> bool:
    """Whether the node still has this NVMe controller."""
    return host.exists(f"/sys/class/nvme/{device}")


def present(host: Host, device: str) -> bool:
    return host.exists(f"/sys/class/block/{device}")
