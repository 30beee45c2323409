"""What the cloud has announced for this instance."""

from __future__ import annotations

from nhc.core.check import Judged, check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, skip, unknown, warn
from nhc.core.system.plain_http import NoHttpResponse
from nhc.core.timestamps import utc
from nhc.core.units import seconds, show_seconds, text
from nhc.node.facts import cloud
from nhc.node.facts.machine_identity import cloud_of

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

    from nhc.node.facts.cloud import Announcement

_DEADLINE = 2.0
_DAY = 86400.0


@check(
    "check_cloud_maintenance",
    opt("-c --crit", "crit_at", seconds, "CRIT where it begins within this time (0: never) (default 15m)", 900.0),
    opt("-w --warn", "warn_at", seconds, "WARN where it begins within this time (default 14d)", 14 * _DAY),
    opt("-u --url", "url", text, "where the metadata service is (default http://169.254.169.254)"),
    timeout=5,
)
def check_cloud_maintenance(
    host: Host, crit_at: float = 900.0, warn_at: float = 14 * _DAY, url: Optional[str] = None
) -> Judged:
    """The cloud has announced no maintenance of this instance.

    Asks the metadata service that the firmware's tables name, two seconds at most: EC2's scheduled events, spot
    interruption and rebalance recommendation (IMDSv2), Google's maintenance-event, upcoming-maintenance and
    preempted, Azure's scheduled events of this machine, Oracle's timeMaintenanceRebootDue where its service tells
    it. The message says what will be done and how soon. WARN within two weeks; CRIT where it stops the instance
    within 15 minutes or is doing so, as no work should begin there (EC2 reclaims spot instances after two minutes,
    Azure reboots after fifteen). The reason is CloudReclaim where the cloud takes the instance away (spot,
    preemption, deletion): the remedy loop then repairs nothing, and calls nobody. A pause, a live migration and a
    recommendation stay WARN. Nothing is approved or acknowledged. SKIP where the firmware names no such cloud:
    nothing is asked then. UNKNOWN where the service does not answer; Azure's takes up to two minutes when it is first
    asked.

    Example: * || check_cloud_maintenance -c 1h
    """
    name = cloud_of(host)
    if not name:
        return skip("NoCloud", "this node is in no cloud that announces maintenance")
    base = url or host.environ.get("NHC_METADATA_URL")

    def question() -> Dict[str, List[Any]]:
        return cloud.ask(name, base, _DEADLINE)

    try:
        announcements = cloud.announcements(name, host.system.ask("cloud-maintenance", question))
    except (NoHttpResponse, OSError) as error:
        return unknown("MetadataSilent", f"the metadata service of {name} does not tell: {error}")
    except cloud.BadAnswer as error:
        return unknown("MetadataUnreadable", str(error))
    if announcements is None:
        return skip("NoAnnouncements", f"the metadata service of {name} announces no maintenance on this node")
    now = host.time()
    outcomes = [
        _outcome(each, now, crit_at)
        for each in announcements
        if each.running or each.starts is None or each.starts - now <= max(warn_at, crit_at)
    ]
    return outcomes or ok(f"{name} has announced no maintenance within {show_seconds(warn_at)}")


def _outcome(each: Announcement, now: float, crit_at: float) -> Outcome:
    metrics: Tuple[Metric, ...] = ()
    when = "begins any moment" if each.running or each.starts is None else ""
    if each.mild and each.starts is None and not each.running:
        when = "no time is told"
    if each.starts is not None and not each.running:
        at = utc(each.starts)
        lead = each.starts - now
        when = f"in {show_seconds(lead)}, {at}" if lead > 0 else f"due since {at}"
        metrics = (Metric("maintenance_lead_time", max(lead, 0.0), "s"),)
    message = f"{each.what} ({each.code}): {when}"
    if each.detail:
        message += f" [{each.detail}]"
    reason = "CloudReclaim" if each.reclaim else "CloudMaintenance"
    soon = each.running or each.starts is None or each.starts - now <= crit_at
    if crit_at and soon and not each.mild:
        return crit(reason, message, target=each.code, metrics=metrics, action=Action.NONE)
    return warn(reason, message, target=each.code, metrics=metrics)
