"""Maintenance of nodes: what others request and plan, and how the node's conditions show our own drains and repairs.

Others ask by the annotation `nhc/maintenance` ("replace the PSU [until: 2026-12-01T10:00:00Z] [by: alice]"), or by an
object of a kind of their own (`controller.maintenance_requests`). They show their own work in Kubernetes' lifecycle
conditions (1.37: DrainInProgress, Drained, MaintenancePlanned, MaintenanceInProgress), which have no owner: nhc writes
its own with its own reasons, takes those back, and leaves all others alone
(https://kubernetes.io/docs/reference/node/node-lifecycle-conditions/). Planned maintenance is no fault. Pure.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from nhc.core.model import printable
from nhc.core.timestamps import from_utc
from nhc_adapters.kubernetes.nodes.conditions import FALSE, TRUE, Condition, read_conditions
from nhc_adapters.kubernetes.nodes.drains import DONE, DRAINING, read_drain
from nhc_adapters.kubernetes.nodes.manual import read_manual
from nhc_adapters.kubernetes.nodes.own_marks import REMEDY, annotations_of, labels_of, read_own_mark, released

MAINTENANCE = "nhc/maintenance"
"""Annotation that anybody sets: take this node out, drain it and hold it. It is returned once that is gone."""

_TAG = re.compile(r" ?\[(until|by): ([^\]]+)\]$")

# What others ask for.


class Maintenance(NamedTuple):
    """A node that others want out: why, who, until when (Unix time), and from when on."""

    why: str
    by: str = ""
    until: Optional[float] = None
    start: float = 0.0

    def stands(self, now: float) -> bool:
        """Whether the node is to be out now."""
        return self.start <= now and (self.until is None or now < self.until)


def read_maintenance(node: Mapping[str, Any]) -> Optional[Maintenance]:
    """What the annotation asks for, None if there is none. An end that is not a valid time is ignored."""
    text = annotations_of(node).get(MAINTENANCE)
    if text is None:
        return None
    why = printable(text, 400).strip()
    tags: Dict[str, str] = {}
    while tag := _TAG.search(why):
        tags.setdefault(tag[1], tag[2].strip())
        why = why[: tag.start()]
    until = from_utc(tags.get("until", ""))
    if "until" in tags and not until:
        why = f"{why} ({tags['until']!r} is no time such as 2026-12-01T10:00:00Z)".strip()
    return Maintenance(why.strip() or "no reason given", tags.get("by", ""), until or None)


# Conditions of a node's lifecycle.

DRAIN_IN_PROGRESS, DRAINED = "DrainInProgress", "Drained"
PLANNED, IN_PROGRESS = "MaintenancePlanned", "MaintenanceInProgress"
SHUTS_DOWN = "GracefulNodeShutdownInProgress"
WRITTEN = (DRAIN_IN_PROGRESS, DRAINED, IN_PROGRESS)
LIFECYCLE = (*WRITTEN, PLANNED, SHUTS_DOWN)

OURS = "Nhc"
"""What our reasons begin with."""

_AT_WORK = frozenset({"acting", "watching", "verifying"})
_WITHOUT_WORK = _AT_WORK | {"evidence", "recheck", "awaiting-approval", "returning"}
"""States of the loop's episode (nhc.remedy.machine): of a repair, and those before which the node's work has ended."""


def _wanted(node: Mapping[str, Any]) -> Dict[str, Tuple[str, str]]:
    """The conditions that are true of a node through us, each with its reason and message."""
    mark = read_own_mark(node)
    if mark is None or released(node):
        return {}
    drain, repair, manual = read_drain(node), labels_of(node).get(REMEDY, ""), read_manual(node)
    found: Dict[str, Tuple[str, str]] = {}
    if drain == DRAINING or repair == "draining":
        found[DRAIN_IN_PROGRESS] = "NhcDraining", f"nhc drains it: {mark.why}"
    elif drain == DONE or repair in _WITHOUT_WORK:
        found[DRAINED] = "NhcDrained", f"nhc has drained it: {mark.why}"
    if repair in _AT_WORK:
        found[IN_PROGRESS] = "NhcRepair", annotations_of(node).get(REMEDY, "") or f"nhc repairs it: {mark.why}"
    elif drain == DONE and manual is not None:
        found[IN_PROGRESS] = "NhcMaintenance", f"{manual.line()}: {mark.why}"
    return found


def lifecycle_changes(node: Mapping[str, Any], now: float) -> List[Condition]:
    """The conditions to write so that the node says what we do to it. One that another has set stays as it is."""
    wanted, standing = _wanted(node), read_conditions(node)
    changes = []
    for kind in WRITTEN:
        before = standing.get(kind)
        is_true = before is not None and before.status == TRUE
        if kind in wanted and (before is None or not is_true or before.reason.startswith(OURS)):
            reason, message = wanted[kind]
            since = before.since if before is not None and is_true else now
            made = Condition(kind, TRUE, reason, printable(message, 400), since, now)
            changes += [] if made.says_the_same(before) else [made]
        elif kind not in wanted and is_true and before is not None and before.reason.startswith(OURS):
            changes.append(Condition(kind, FALSE, "NhcEnded", "nhc has ended it", now, now))
    return changes


def of_others(node: Mapping[str, Any], *kinds: str) -> List[Condition]:
    """The lifecycle conditions of these kinds that are true and that another has set."""
    standing = read_conditions(node)
    found = [standing[kind] for kind in kinds if kind in standing]
    return [one for one in found if one.status == TRUE and not one.reason.startswith(OURS)]


def maintained(node: Mapping[str, Any]) -> str:
    """What others report that they do to a node, "" for nothing: its kubelet may be away because of it."""
    return _said(of_others(node, IN_PROGRESS, SHUTS_DOWN))


def planned(node: Mapping[str, Any]) -> str:
    """What others plan for a node or do to it, as text for people; "" for nothing."""
    return _said(of_others(node, PLANNED, DRAIN_IN_PROGRESS, IN_PROGRESS, SHUTS_DOWN))


def _said(conditions: List[Condition]) -> str:
    return "; ".join(f"{one.type} ({printable(one.message or one.reason, 120)})" for one in conditions)
