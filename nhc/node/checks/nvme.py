"""NVMe drives: as many as the node should have, working, and healthy by their own report."""

from __future__ import annotations

import re

from nhc.core.check import Judged, arg, check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, known, ok, skip, unknown, warn
from nhc.core.units import count, percent, seconds, show_number, show_seconds, whole
from nhc.node.facts import smart
from nhc.node.facts.history import Growth, amount, growth

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

_WARNINGS = (
    (0x04, "its reliability is degraded", "DriveDegraded", True),
    (0x08, "it has become read-only", "DriveReadOnly", True),
    (0x10, "its volatile memory backup has failed", "DriveBackupFailed", True),
    (0x20, "its persistent memory is unreliable", "DriveMemoryUnreliable", True),
    (0x01, "its spare blocks have run low", "DriveSpareLow", False),
    (0x02, "its temperature is beyond its limits", "DriveTemperature", False),
)
"""The bits of Critical Warning (NVM Express base specification, SMART / Health log), and whether one is CRIT."""


@check(
    "check_nvme_health",
    opt("-u --used", "used", percent, "WARN from this share of the rated endurance used on", 90.0),
    opt("-U --used-critical", "used_critical", percent, "CRIT from this share on (0: never)", 0.0),
    opt("-m --media", "media", count, "WARN from this many new media errors within --per on", 1),
    opt("-p --per", "per", seconds, "the time over which media errors count", 86400.0),
    timeout=60,
    every=600,
)
def check_nvme_health(
    host: Host, used: float = 90.0, used_critical: float = 0.0, media: int = 1, per: float = 86400.0
) -> Judged:
    """NVMe controllers are live, raise no critical warning and have endurance left.

    Reads state in /sys/class/nvme, and for local drives the health log by `smartctl --json` or
    `nvme smart-log`. A dead controller and a warning of lost reliability, read-only media or failed backup
    memory is CRIT; low spare and temperature are WARN, as the drive still works. Used endurance may pass
    100 % without a failure (NVMe specification), so it is WARN only, from 90 %, unless -U is given. Media
    errors count while they grow: a drive's old ones are not reported. SKIP where there is no NVMe; UNKNOWN where
    neither tool is installed or may open the drive, as without root.

    Example: * |every 10m| check_nvme_health -u 80
    """
    controllers = smart.nvme_controllers(host)
    if not controllers:
        return skip("NoNvme", "no NVMe controller on this node")
    logs: Dict[str, smart.NvmeHealth] = {}
    outcomes: List[Outcome] = []
    for controller in controllers:
        outcome = _judge_state(controller)
        if outcome:
            outcomes.append(outcome)
        elif controller.transport in ("pcie", ""):
            try:
                logs[controller.name] = smart.nvme_health(host, controller.name)
            except smart.SmartError as error:
                outcomes.append(unknown("NvmeUnreadable", f"{controller.name}: {error}", target=controller.name))
            except OSError:
                message = f"{controller.name}: neither smartctl nor nvme is installed"
                outcomes.append(unknown("CommandMissing", message, target=controller.name))
    totals = {name: float(log.media_errors) for name, log in logs.items()}
    # The drive counts over its whole lifetime, so only what was added since the first run is meaningful.
    grown = growth(host, "nvme_media_errors", totals, per, since_boot=False) if totals else {}
    for name, log in logs.items():
        outcomes += _judge_log(name, log, (used, used_critical), media, per, grown)
    live = len(controllers)
    worst = max((log.percentage_used for log in logs.values()), default=None)
    metrics = known("%", percentage_used=worst)
    return outcomes or ok(f"{show_number(live, 'NVMe controller')} healthy", metrics=metrics)


def _judge_state(controller: smart.NvmeController) -> Optional[Outcome]:
    """What the kernel thinks of a controller (nvme_sysfs_show_state in drivers/nvme/host/sysfs.c)."""
    name, state = controller.name, controller.state
    if state == "live" or (not state and controller.model):  # kernels before 4.17 have no state
        return None
    if not state:
        return unknown("NvmeStateUnknown", f"{name} tells no state", target=name)
    message = f"{name} ({controller.model}) is {state}"
    if state in ("new", "resetting", "connecting"):
        return warn("NvmeNotLive", message, target=name)
    return crit("NvmeNotLive", message, target=name, action=Action.REBOOT)


def _judge_log(
    name: str,
    log: smart.NvmeHealth,
    used: Tuple[float, float],
    media: int,
    per: float,
    grown: Dict[str, Growth],
) -> List[Outcome]:
    shared = (
        *known("%", percentage_used=log.percentage_used), *known(media_errors=log.media_errors),
        *known("Cel", temperature=log.temperature), *known("%", available_spare=log.available_spare),
    )  # fmt: skip
    evidence = (f"critical_warning=0x{log.critical_warning:02x}",)
    outcomes: List[Outcome] = []
    for bit, text, reason, critical in _WARNINGS:
        if log.critical_warning & bit:
            say = crit if critical else warn
            action = Action.REPLACE if critical else Action.INSPECT
            message = f"{name} warns: {text}"
            outcomes.append(say(reason, message, target=name, metrics=shared, action=action, evidence=evidence))
    if log.critical_warning & ~0x3F:
        message = f"{name} warns of something this version does not know (0x{log.critical_warning:02x})"
        outcomes.append(warn("DriveWarning", message, target=name, metrics=shared, evidence=evidence))
    message = f"{name} has used {log.percentage_used} % of its endurance"
    if used[1] and log.percentage_used >= used[1]:
        outcomes.append(crit("DriveWornOut", message, target=name, metrics=shared, action=Action.REPLACE))
    elif used[0] and log.percentage_used >= used[0]:
        outcomes.append(warn("DriveWornOut", message, target=name, metrics=shared, action=Action.REPLACE))
    recent = amount(grown, name)
    if media and recent >= media:
        message = f"{name} has {recent:.0f} new media errors in {show_seconds(per)}"
        outcomes.append(warn("DriveMediaErrors", message, target=name, metrics=shared, action=Action.INSPECT))
    return outcomes


_FIRST_NAMESPACE = re.compile(r"nvme\d+n1")


@check("check_nvme_count", arg("count", whole, "how many NVMe drives the node has", required=True), timeout=5)
def check_nvme_count(host: Host, count: int) -> Outcome:
    """The node has all its NVMe drives.

    Counts first namespaces (nvme0n1, nvme1n1 ...) in /sys/class/block, as Azure's check of this name counts
    /dev/nvme*n1. UNKNOWN where sysfs cannot be read.

    Example: nd96isr* || check_nvme_count 8
    """
    try:
        drives = [name for name in host.listdir("/sys/class/block") if _FIRST_NAMESPACE.fullmatch(name)]
    except OSError as error:
        return unknown("Unreadable", f"/sys/class/block: {error.strerror}")
    metrics = (Metric("nvme_count", len(drives)), Metric("nvme_expected", count))
    if len(drives) != count:
        message = f"Expected to see {count} NVMe drives but found {len(drives)}"
        return crit("NvmeCountMismatch", message, metrics=metrics, evidence=tuple(drives))
    return ok(f"{count} NVMe drives", metrics=metrics)
