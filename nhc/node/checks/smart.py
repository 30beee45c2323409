"""Disks: what their own monitoring (SMART) says."""

from __future__ import annotations

from nhc.core.check import Judged, check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, skip, unknown, warn
from nhc.core.units import count, show_number
from nhc.node.facts import smart

if TYPE_CHECKING:
    from typing import Tuple

_MEDIA = ("pending_sectors", "offline_uncorrectable", "reported_uncorrectable")


@check(
    "check_smart_health",
    opt("-r --reallocated", "reallocated", count, "WARN from this many reallocated sectors or grown defects on", 10),
    opt("-m --media", "media", count, "WARN from this many pending or uncorrectable sectors on", 1),
    timeout=60,
    every=3600,
)
def check_smart_health(host: Host, reallocated: int = 10, media: int = 1) -> Judged:
    """Disks report themselves healthy.

    Asks every ATA and SCSI disk that `smartctl --scan` finds, behind RAID controllers too, by
    `smartctl --json -H -A`; check_nvme_health asks NVMe. A disk that expects to fail (overall status, or a
    pre-failure attribute at its threshold) is CRIT. The raw values of the attributes that Backblaze's drive
    statistics tie to failure (5, 187, 197, 198) are WARN: pending or uncorrectable sectors from the first,
    reallocated ones from 10 on. 0 turns a limit off. SKIP where there is no such disk (virtual disks have no
    SMART); UNKNOWN where smartctl is missing or may not open the disk, as without root.

    Example: * |every 1h| check_smart_health
    """
    disks = smart.disks(host)
    scanned: Tuple[smart.SmartDevice, ...] = ()
    if host.which("smartctl"):
        try:
            listed = smart.parse_scan(host.run(["smartctl", "--json", "--scan"], timeout=10).stdout)
        except smart.SmartError as error:
            return unknown("SmartUnreadable", f"smartctl --scan: {error}")
        scanned = tuple(device for device in listed if device.type != "nvme")
    elif disks:
        return unknown("CommandMissing", f"smartctl is not installed: nobody can tell the health of {', '.join(disks)}")
    if not scanned:
        if not disks:
            return skip("NoDisk", "no ATA or SCSI disk on this node")
        return unknown("SmartUnreadable", f"smartctl --scan finds none of {', '.join(disks)}")
    outcomes = [_judge(host, device, reallocated, media) for device in scanned]
    if not any("," in device.type for device in scanned):  # a controller's volumes are no disks of its own
        listed_names = {device.name.rsplit("/", 1)[-1] for device in scanned}
        outcomes += [
            unknown("SmartUnreadable", f"smartctl --scan does not find {name}", target=name)
            for name in disks
            if name not in listed_names
        ]
    bad = [outcome for outcome in outcomes if outcome.reason and outcome.reason != "NoSmart"]
    if bad:
        return bad
    healthy = [outcome for outcome in outcomes if not outcome.reason]
    if not healthy:
        return skip("NoSmart", f"none of {len(outcomes)} disks has SMART")
    return ok(f"{show_number(len(healthy), 'disk')} healthy")


def _judge(host: Host, device: smart.SmartDevice, reallocated: int, media: int) -> Outcome:
    name = device.name.rsplit("/", 1)[-1]
    if "," in device.type:  # a disk behind a RAID controller: /dev/bus/0 -d megaraid,3
        name = f"{name}:{device.type}"
    argv = ["smartctl", "--json", "-H", "-A", *(["-d", device.type] if device.type else []), device.name]
    ended = host.run(argv, timeout=15)
    if ended.timed_out:
        return unknown("SmartTimeout", f"{name} did not answer smartctl within 15 s", target=name)
    try:
        health = smart.parse_disk(ended.stdout)
    except smart.SmartError as error:
        if error.unsupported:
            return skip("NoSmart", f"{name}: {error}", target=name)
        return unknown("SmartUnreadable", f"{name}: {error}", target=name)
    metrics = tuple(Metric(key, value) for key, value in health.counts.items())
    who = name + (f" ({health.model})" if health.model else "")
    if health.passed is False or health.failing:
        why = f": {', '.join(health.failing)}" if health.failing else ""
        return crit("DiskFailing", f"{who} expects to fail{why}", target=name, metrics=metrics, action=Action.REPLACE)
    sectors = {key: health.counts.get(key, 0) for key in _MEDIA}
    sectors.update({key: value for key, value in health.counts.items() if key.startswith("uncorrected_")})
    marked = {key: value for key, value in sectors.items() if media and value >= media}
    moved = max(health.counts.get("reallocated_sectors", 0), health.counts.get("grown_defects", 0))
    if marked:
        listing = ", ".join(f"{value} {key.replace('_', ' ')}" for key, value in marked.items())
        return warn("DiskMediaErrors", f"{who} has {listing}", target=name, metrics=metrics, action=Action.INSPECT)
    if reallocated and moved >= reallocated:
        message = f"{who} has replaced {moved} sectors, limit {reallocated}"
        return warn("DiskReallocations", message, target=name, metrics=metrics, action=Action.INSPECT)
    if health.passed is None:
        return unknown("SmartNoStatus", f"{who} tells no overall status", target=name, metrics=metrics)
    return ok(target=name, metrics=metrics)
