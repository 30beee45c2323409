"""Arrays of the kernel's software RAID, as it shows them below /sys/block (Documentation/admin-guide/md.rst)."""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Optional, Tuple

BLOCK = "/sys/block"
CONFIGURATIONS = ("/etc/mdadm/mdadm.conf", "/etc/mdadm.conf")
"""Debian's place and all others'."""


class MdArray(NamedTuple):
    """One array. `state` is array_state, "" if it cannot be read.

    `degraded` is how many members are missing, None if the level knows no such thing (raid0, linear). `unread` says
    why one of the two is there and cannot be read. `action` is its background action (`idle`, `resync`, `recover`,
    `check`, `reshape`), `progress` how far that is in percent. `faulty` are members that the kernel took out.
    """

    name: str
    state: str
    level: str
    disks: int
    degraded: Optional[int]
    action: str
    progress: Optional[float]
    faulty: Tuple[str, ...]
    unread: str = ""


def arrays(host: Host) -> Tuple[MdArray, ...]:
    """The node's arrays. The container of an array with external metadata (IMSM, DDF) holds no data and is left out."""
    found = []
    for block in host.names(BLOCK):
        base = f"{BLOCK}/{block}/md"
        if not host.isdir(base):
            continue
        metadata = host.read_or(f"{base}/metadata_version")
        if metadata.startswith("external:") and not metadata.startswith("external:/"):
            continue
        state = host.read_or(f"{base}/array_state")
        found.append(MdArray(
            block, state, host.read_or(f"{base}/level"), host.number(f"{base}/raid_disks") or 0,
            host.number(f"{base}/degraded"), host.read_or(f"{base}/sync_action"),
            _progress(host.read_or(f"{base}/sync_completed")), _faulty(host, base),
            _unread(host, base, state),
        ))  # fmt: skip
    return tuple(found)


def _unread(host: Host, base: str, state: str) -> str:
    if not state:
        return host.why_unread(f"{base}/array_state") or "it is empty"
    return next((f"{name}: {why}" for name, why in host.unread(base, ("degraded",)).items()), "")


def _progress(text: str) -> Optional[float]:
    """Percent out of `1234 / 5678` sectors; None for `none` and `delayed`."""
    done, slash, whole = text.partition(" / ")
    if not slash or not done.isdigit() or not whole.isdigit() or not int(whole):
        return None
    return int(done) * 100 / int(whole)


def _faulty(host: Host, base: str) -> Tuple[str, ...]:
    members = (name for name in host.names(base) if name.startswith("dev-"))
    return tuple(name[4:] for name in members if "faulty" in host.read_or(f"{base}/{name}/state").split(","))


def configured(host: Host) -> Tuple[str, ...]:
    """The devices of the ARRAY lines of mdadm.conf(5), as `/dev/md0`; lines without one or with `<ignore>` left out."""
    for path in CONFIGURATIONS:
        lines = host.read_or(path).splitlines()
        words = (line.split() for line in lines)
        devices = [line[1] for line in words if len(line) > 1 and line[0].upper() == "ARRAY"]
        if devices:
            return tuple(device if device.startswith("/") else f"/dev/md/{device}"
                         for device in devices if "=" not in device and not device.startswith("<"))  # fmt: skip
    return ()
