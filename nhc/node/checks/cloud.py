"""What the cloud has announced for this instance in its metadata service.

Sources: EC2 "Scheduled events for your instances", "Spot Instance interruption notices" and "rebalance
recommendations"; Compute Engine "Query metadata server for maintenance event notices" and "Monitor and plan for a
host maintenance event"; Azure "Scheduled Events for Linux VMs"; OCI's Instance (timeMaintenanceRebootDue).
"""

from __future__ import annotations

import re

from nhc.core.check import Judged, check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Action, Metric, Outcome, crit, ok, skip, unknown, warn
from nhc.core.system.bounded_read import parse_json
from nhc.core.system.plain_http import NoHttpResponse
from nhc.core.timestamps import MONTHS, from_iso, utc
from nhc.core.units import seconds, show_seconds, text
from nhc.node.facts import cloud_metadata
from nhc.node.facts.machine_identity import cloud_of

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Sequence, Tuple


class Announcement(NamedTuple):
    """What the cloud will do to this instance. `starts` is Unix time, None if it is not known or has begun.

    `code` is the cloud's own word; `mild` says that the instance goes on (a pause, a live migration, an advice),
    `reclaim` that the cloud takes it away: another machine, if any, comes in its place.
    """

    code: str
    what: str
    starts: Optional[float] = None
    running: bool = False
    mild: bool = False
    detail: str = ""
    reclaim: bool = False


class BadAnswer(ValueError):
    """The service's answer is not of the documented form; the text says what it is."""


# What to ask, by cloud: a name and a path.
_PATHS: Dict[str, Tuple[Tuple[str, str], ...]] = {
    "aws": (
        ("scheduled", "/latest/meta-data/events/maintenance/scheduled"),
        ("spot", "/latest/meta-data/spot/instance-action"),
        ("rebalance", "/latest/meta-data/events/recommendations/rebalance"),
    ),
    "gcp": (
        ("event", "/computeMetadata/v1/instance/maintenance-event"),
        ("upcoming", "/computeMetadata/v1/instance/upcoming-maintenance?alt=json"),
        ("preempted", "/computeMetadata/v1/instance/preempted"),
    ),
    "azure": (
        ("name", "/metadata/instance/compute/name?api-version=2021-02-01&format=text"),
        ("events", "/metadata/scheduledevents?api-version=2020-07-01"),
    ),
    "oci": (("due", "/opc/v2/instance/timeMaintenanceRebootDue"),),  # not the whole: it holds user data
}


def ask(cloud: str, base: Optional[str], deadline: float) -> Dict[str, List[Any]]:
    """Status and body of each question, or [0, PROBLEM], as plain values for a recording, within `deadline` seconds."""
    return cloud_metadata.answers(cloud, _PATHS[cloud], base, deadline)


def announcements(cloud: str, answers: Dict[str, List[Any]]) -> Optional[Tuple[Announcement, ...]]:
    """What the answers announce; None if this cloud's service never does. Raises BadAnswer, NoHttpResponse."""
    return {"aws": _aws, "gcp": _gcp, "azure": _azure, "oci": _oci}[cloud](answers)


def _body(answers: Dict[str, List[Any]], name: str, absent: Sequence[int] = (404,)) -> Optional[str]:
    """One answer's body, None if the service says that there is nothing. Raises NoHttpResponse."""
    status, body = answers.get(name) or [0, "was not asked"]
    if status == 200:
        return str(body)
    if status in absent:
        return None
    raise NoHttpResponse(str(body) if not status else f"the metadata service answered {status} for {name}")


def _json(text: str, name: str) -> Any:
    try:
        return parse_json(text)
    except ValueError:
        raise BadAnswer(f"the metadata service's answer for {name} is not JSON: {text[:60]!r}") from None


def _objects(value: object, name: str) -> List[Dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise BadAnswer(f"the metadata service's answer for {name} is not a list of events")
    return value


_EC2 = {
    "instance-reboot": "the instance will be rebooted",
    "system-reboot": "the instance's host will be rebooted",
    "system-maintenance": "the instance's host loses network or power for a while",
    "instance-retirement": "the instance will be stopped or terminated, as its host is to be retired",
    "instance-stop": "the instance will be stopped, as its host is degraded",
}


def _aws(answers: Dict[str, List[Any]]) -> Tuple[Announcement, ...]:
    announced: List[Announcement] = []
    for event in _objects(_json(_body(answers, "scheduled") or "[]", "scheduled"), "scheduled"):
        # Past events stay a while, with [Completed] or [Canceled] in front of the description.
        if str(event.get("State", "active")) == "active":
            code = str(event.get("Code", "?"))
            announced.append(Announcement(code, _EC2.get(code, "maintenance"), moment(event.get("NotBefore")),
                                      detail=str(event.get("Description", ""))))  # fmt: skip
    spot = _body(answers, "spot")
    if spot is not None:
        event = _json(spot, "spot")
        if not isinstance(event, dict) or "action" not in event:
            raise BadAnswer(f"the metadata service's spot notice has no action: {spot[:60]!r}")
        announced.append(Announcement(f"spot-{event['action']}", f"the spot instance is reclaimed ({event['action']})",
                                  moment(event.get("time")), reclaim=True))  # fmt: skip
    if _body(answers, "rebalance") is not None:
        announced.append(
            Announcement("rebalance", "the spot instance is likely to be reclaimed soon", mild=True, reclaim=True)
        )
    return tuple(announced)


def _gcp(answers: Dict[str, List[Any]]) -> Tuple[Announcement, ...]:
    announced: List[Announcement] = []
    event = (_body(answers, "event") or "NONE").strip()
    if event == "MIGRATE_ON_HOST_MAINTENANCE":
        announced.append(Announcement(event, "the instance is about to be migrated live", running=True, mild=True))
    elif event != "NONE":
        announced.append(
            Announcement(event, "the instance is about to be stopped for its host's maintenance", running=True)
        )
    # 503 with "no notifications have been received yet" is how most machine types say that nothing is planned.
    text = (_body(answers, "upcoming", (404, 503)) or "").strip()
    if text not in ("", "NONE", '"NONE"'):
        planned = _json(text, "upcoming-maintenance")
        if not isinstance(planned, dict):
            raise BadAnswer(f"the metadata service's upcoming maintenance is not an object: {text[:60]!r}")
        inner = [value for value in planned.values() if isinstance(value, dict)]
        planned = inner[0] if len(planned) == 1 and inner else planned
        keys = {re.sub("_", "", str(key)).lower(): value for key, value in planned.items()}
        status = str(keys.get("maintenancestatus", ""))
        if keys and "error" not in keys:
            reasons = keys.get("maintenancereasons")
            detail = ", ".join(map(str, reasons)) if isinstance(reasons, list) else ""
            announced.append(Announcement(
                str(keys.get("type", "SCHEDULED")), "the instance's host will be maintained",
                moment(keys.get("windowstarttime") or keys.get("starttime")), status == "ONGOING", detail=detail,
            ))  # fmt: skip
    if (_body(answers, "preempted") or "").strip() == "TRUE":
        announced.append(Announcement("preempted", "the instance is being preempted", running=True, reclaim=True))
    return tuple(announced)


_AZURE = {
    "Freeze": "the virtual machine pauses for some seconds",
    "Reboot": "the virtual machine will be rebooted",
    "Redeploy": "the virtual machine will be moved to another host, its local disks lost",
    "Preempt": "the spot virtual machine will be deleted",
    "Terminate": "the virtual machine will be deleted",
}


def _azure(answers: Dict[str, List[Any]]) -> Tuple[Announcement, ...]:
    name = (_body(answers, "name") or "").strip()
    document = _json(_body(answers, "events", ()) or "", "scheduledevents")
    if not isinstance(document, dict):
        raise BadAnswer("the metadata service's scheduled events are not an object")
    announced = []
    for event in _objects(document.get("Events"), "scheduledevents"):
        resources = event.get("Resources")
        # The others of an availability set or scale set see the event too.
        if isinstance(resources, list) and name and name not in map(str, resources):
            continue
        code = str(event.get("EventType", "?"))
        announced.append(Announcement(
            code, _AZURE.get(code, "maintenance"), moment(event.get("NotBefore")),
            event.get("EventStatus") == "Started", code == "Freeze", str(event.get("Description", "")),
            code in ("Preempt", "Terminate"),
        ))  # fmt: skip
    return tuple(announced)


def _oci(answers: Dict[str, List[Any]]) -> Optional[Tuple[Announcement, ...]]:
    text = _body(answers, "due")
    if text is None:
        return None
    stamp = text.strip().strip('"')
    if stamp in ("", "null"):
        return ()
    due = moment(stamp)
    if due is None:
        raise BadAnswer(f"the metadata service's timeMaintenanceRebootDue is no time: {text[:60]!r}")
    return (Announcement("reboot", "the instance will be moved by a reboot", due),)


_RFC = re.compile(r"(?:\w{3}, )?(\d{1,2}) (\w{3}) (\d{4}) (\d\d:\d\d:\d\d)(?: GMT)?")


def moment(text: object) -> Optional[float]:
    """Unix time of `21 Jan 2019 09:00:43 GMT` or `2019-01-21T09:00:43Z`, UTC without a zone; None for anything else."""
    stamp = str(text).strip()
    mail = _RFC.fullmatch(stamp)
    if mail and mail[2] in MONTHS:
        stamp = f"{mail[3]}-{MONTHS.index(mail[2]) + 1:02d}-{int(mail[1]):02d}T{mail[4]}"
    without_zone = from_iso(f"{stamp}Z")
    return from_iso(stamp) if without_zone is None else without_zone


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
        return ask(name, base, _DEADLINE)

    try:
        announced = announcements(name, host.system.ask("cloud-maintenance", question))
    except (NoHttpResponse, OSError) as error:
        return unknown("MetadataSilent", f"the metadata service of {name} does not tell: {error}")
    except BadAnswer as error:
        return unknown("MetadataUnreadable", str(error))
    if announced is None:
        return skip("NoAnnouncements", f"the metadata service of {name} announces no maintenance on this node")
    now = host.time()
    outcomes = [
        _outcome(each, now, crit_at)
        for each in announced
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
