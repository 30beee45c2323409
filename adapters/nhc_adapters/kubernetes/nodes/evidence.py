"""The sources of a mark, and whether each has reported that its fault is gone: missing evidence is not health.

Each mark stores its sources on its node (`nhc/source`): the conditions it was set for. It is cleared when each of them
says, recently and explicitly, that its fault is gone. A condition that is missing, Unknown or not renewed proves
nothing.
"""

from __future__ import annotations

from typing import Any, FrozenSet, Iterable, List, Mapping, Optional, Tuple

from nhc.core.timestamps import AHEAD, is_recent
from nhc_adapters.kubernetes.nodes.conditions import CLUSTER_SIDE, KUBELET, UNKNOWN, Condition
from nhc_adapters.kubernetes.nodes.own_marks import annotations_of
from nhc_adapters.kubernetes.nodes.vocabulary import Fault

SOURCE = "nhc/source"
"""Annotation: the sources of our mark, separated by spaces: conditions as `Type=Status`, or `report`, or `operator`."""

REPORT = "report"
"""The source of a mark that was made from a report (`nhc sync`), not from a condition."""

OPERATOR = "operator"
"""The source of a mark that a person set (`nhc kubernetes drain`)."""

ASKED = "maintenance"
"""The source of a mark that others asked for (`nhc/maintenance`, a MaintenanceRequest)."""

SLURM, SLURM_NOTE = "slurm", "slurm-annotation"
"""The sources of a mark that nhc's hooks have set in Slurm, on a node that is Kubernetes' as well: what a slurmd pod
says, and SUNK's annotation of the node."""

ASKED_FOR = (ASKED, SLURM, SLURM_NOTE)
"""Sources that are no conditions and end by themselves."""

SILENT_AFTER = 900.0
"""Seconds without a heartbeat after which a condition no longer counts: three heartbeats."""

NEVER_STALE = frozenset({*KUBELET, *CLUSTER_SIDE})
"""Conditions whose heartbeat proves nothing: the node controller writes those of a silent kubelet, and the network's
and our controller's own are written once."""


def source_of(fault: Fault) -> str:
    return f"{fault.type}={fault.status}"


def read_sources(node: Mapping[str, Any]) -> Tuple[str, ...]:
    """The sources of our mark as its node stores them; none for a mark that is older than sources."""
    return tuple(dict.fromkeys(annotations_of(node).get(SOURCE, "").split()))


def source_types(sources: Iterable[str]) -> FrozenSet[str]:
    """The condition types among sources."""
    return frozenset(source.partition("=")[0] for source in sources if "=" in source)


def fresh(condition: Condition, now: float, silent_after: float = SILENT_AFTER) -> bool:
    """Whether a condition is new enough to count."""
    return condition.type in NEVER_STALE or not condition.renewed or is_recent(condition.seen, now, silent_after)


def is_ahead(condition: Condition, now: float) -> bool:
    """Whether a condition's heartbeat is ahead of our clock, and its arrival was not observed."""
    return condition.type not in NEVER_STALE and condition.renewed and condition.seen - now > AHEAD


def staleness(condition: Condition, now: float) -> str:
    """Why a condition that is not fresh does not count."""
    if is_ahead(condition, now):
        return (
            f"{condition.type} is stamped {condition.seen - now:.0f} s ahead of our clock: it counts once it is renewed"
        )
    return f"{condition.type} was not renewed for {now - condition.seen:.0f} s"


def unsettled(
    source: str, conditions: Mapping[str, Condition], now: float, silent_after: float = SILENT_AFTER
) -> Optional[str]:
    """Why a source does not say that its fault is gone, None if it does."""
    kind, _, bad = source.partition("=")
    if source == REPORT:
        return "it was marked from a report: a good report clears it, or an uncordon"
    if source == OPERATOR or source in ASKED_FOR:
        return None  # only its removal shows that a person's mark has ended
    condition = conditions.get(kind)
    if condition is None:
        return f"it was marked for {source}, and nobody says anything of {kind} any more"
    if condition.status == bad:
        return f"it was marked for {source}, which stands"
    if condition.status == UNKNOWN:
        return f"it was marked for {source}, and {kind} is Unknown now: {condition.message or condition.reason}"
    if not fresh(condition, now, silent_after):
        return f"it was marked for {source}, and {staleness(condition, now)}"
    return None


def sources_now(
    crit: Iterable[str], before: Iterable[str], conditions: Mapping[str, Condition], now: float, silent_after: float
) -> List[str]:
    """The sources of a mark: what is bad now, and what it was set for and has not ended."""
    kept = [source for source in before if unsettled(source, conditions, now, silent_after) is not None]
    return [*dict.fromkeys([*kept, *crit])]
