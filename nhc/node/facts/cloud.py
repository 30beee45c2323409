"""Which cloud this node is in, and what its metadata service announces for this instance.

Sources: EC2 "Scheduled events for your instances", "Spot Instance interruption notices" and "rebalance
recommendations"; Compute Engine "Query metadata server for maintenance event notices" and "Monitor and plan for a
host maintenance event"; Azure "Scheduled Events for Linux VMs"; OCI's Instance (timeMaintenanceRebootDue).
"""

from __future__ import annotations

import re

from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.system.bounded_read import parse_json
from nhc.core.system.plain_http import NoHttpResponse
from nhc.core.timestamps import MONTHS, from_iso
from nhc.node.facts import cloud_metadata

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Sequence, Tuple


class Announcement(NamedTuple):
    """What the cloud will do to this instance. `starts` is Unix time, None where it is not known or has begun.

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
    """What the answers announce; None where this cloud's service never does. Raises BadAnswer, NoHttpResponse."""
    return {"aws": _aws, "gcp": _gcp, "azure": _azure, "oci": _oci}[cloud](answers)


def _body(answers: Dict[str, List[Any]], name: str, absent: Sequence[int] = (404,)) -> Optional[str]:
    """One answer's body, None where the service says that there is nothing. Raises NoHttpResponse."""
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
        # History stays a while with [Completed] or [Canceled] in front of the description.
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
