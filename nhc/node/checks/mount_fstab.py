"""What /etc/fstab asks for is there: file systems and swap."""

from __future__ import annotations

from nhc.core.check import Judged, check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Outcome, crit, ok, skip, warn
from nhc.core.units import show_number, text
from nhc.node.facts import mounts as table
from nhc.node.facts.fstab import REMOTE, FstabEntry, fstab, place, swap_device, swaps_in_use

if TYPE_CHECKING:
    from typing import Optional, Sequence


@check(
    "check_mount_fstab",
    opt("-i --ignore", "ignore", text, "mount points to leave out, as a shell pattern; may be repeated", many=True),
    timeout=5,
    settles=("NotMounted",),
)
def check_mount_fstab(host: Host, ignore: Sequence[str] = ()) -> Judged:
    """Every file system and swap of /etc/fstab is in use.

    Compares /etc/fstab with /proc/mounts and /proc/swaps. A line with `noauto` is left out; one whose mount systemd
    makes on first use (`x-systemd.automount`) is met by the automounter's own mount. What is not mounted is CRIT,
    and WARN where the line says `nofail`: the node may start without it. A network file system that was mounted
    from another place than the line names is WARN. So is swap that is not used: jobs run without it, until memory
    is short. Looks at the tables only, so that a server which hangs does not hang it. SKIP where fstab names
    nothing.

    Example: * || check_mount_fstab -i '/mnt/*'
    """
    from fnmatch import fnmatchcase

    entries = [entry for entry in fstab(host) if "noauto" not in entry.options]
    swap = [entry for entry in entries if entry.type == "swap"]
    wanted = [
        entry
        for entry in entries
        if entry.point.startswith("/")
        and entry.type not in ("swap", "ignore")
        and not any(fnmatchcase(entry.point, pattern) for pattern in ignore)
    ]
    if not wanted and not swap:
        return skip("NothingExpected", "/etc/fstab names nothing to mount")
    mounted = table.mounts(host)
    outcomes = [outcome for outcome in (_judge(host, entry, mounted) for entry in wanted) if outcome]
    used = swaps_in_use(host) if swap else frozenset()
    for entry in swap:
        device = swap_device(entry.source)
        if device not in used and host.realpath(device) not in used:
            message = f"{entry.source} is swap in /etc/fstab and not in use"
            outcomes.append(warn("SwapMissing", message, target=entry.source, action=Action.INSPECT))
    return outcomes or ok(f"{show_number(len(wanted), 'file system')} of /etc/fstab mounted"
                          + (f", {len(swap)} swap in use" if swap else ""))  # fmt: skip


def _judge(host: Host, entry: FstabEntry, mounted: Sequence[table.Mount]) -> Optional[Outcome]:
    """What is wrong with one line, None where nothing is."""
    # /proc/mounts has the place without symbolic links.
    mount = table.at(mounted, entry.point) or table.at(mounted, host.realpath(entry.point))
    evidence = (f"{entry.source} {entry.point} {entry.type} {','.join(entry.options)}",)
    if mount is None:
        say, optional = (warn, ", though it may be missing (nofail)") if "nofail" in entry.options else (crit, "")
        message = f"{entry.point} ({entry.source}) is in /etc/fstab and not mounted{optional}"
        return say("NotMounted", message, target=entry.point, action=Action.INSPECT, evidence=evidence)
    # A FUSE program calls its source what it likes, and a device may be named by its label.
    labels = ("/dev/", "UUID=", "LABEL=", "PARTUUID=", "PARTLABEL=")
    other = mount.type.startswith("fuse") or entry.source.startswith(labels)
    if place(mount) != REMOTE or other or "bind" in entry.options:
        return None
    if mount.source.rstrip("/") != entry.source.rstrip("/"):
        message = f"{entry.point} is mounted from {mount.source}, /etc/fstab says {entry.source}"
        return warn("MountedElsewhere", message, target=entry.point, action=Action.INSPECT, evidence=evidence)
    return None
