"""The controller's own findings, each with an identity, so that an acknowledged one never comes back.

A finding is known by the condition it sets (its source), by its place (a container of a pod; an error of a device) and
by its time, which the log itself says. A node stores the findings of its conditions (`nhc/findings`), and for each
place the time up to which findings are acknowledged (`nhc/acknowledged`). If a place fails again later, that is a new
finding.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Iterable, List, Mapping, Optional

from nhc.core.json_values import number_of, object_from, object_of
from nhc_adapters.kubernetes.nodes.own_marks import annotations_of

FINDINGS = "nhc/findings"
"""Annotation: the findings that the controller's conditions stand on, by condition: place and time (Unix)."""

ACKNOWLEDGED = "nhc/acknowledged"
"""Annotation: the same for findings that a person, or a restart of the node, has dealt with."""

ANY = "*"
"""The place of an acknowledgement that covers every place: of a condition that has no findings written down."""

KEPT = 64
"""Findings kept of each condition, the latest: an annotation is bounded."""

Places = Mapping[str, float]
Annotations = Dict[str, Optional[str]]


def read_findings(node: Mapping[str, Any], annotation: str) -> Dict[str, Dict[str, float]]:
    """Findings by condition, place and time; nothing if the annotation is missing or makes no sense."""
    return {
        kind: {place: number for place, when in object_of(places).items() if (number := number_of(when)) is not None}
        for kind, places in object_from(annotations_of(node).get(annotation, "")).items()
    }


def acknowledged(node: Mapping[str, object], kind: str) -> Dict[str, float]:
    """What was acknowledged of one condition."""
    return read_findings(node, ACKNOWLEDGED).get(kind, {})


def covers(acks: Places, place: str, when: float) -> bool:
    """Whether a finding was acknowledged."""
    return when <= max(acks.get(place, float("-inf")), acks.get(ANY, float("-inf")))


def record(node: Mapping[str, object], kind: str, places: Places) -> Annotations:
    """The annotation that names these findings as the base of a condition; none if there are none."""
    findings = read_findings(node, FINDINGS)
    findings.pop(kind, None)
    if places:
        findings[kind] = _latest(places)
    return {FINDINGS: _text(findings)}


def acknowledge(node: Mapping[str, object], kinds: Iterable[str], now: float) -> Annotations:
    """The annotations after the findings of these conditions were acknowledged."""
    findings, acks = read_findings(node, FINDINGS), read_findings(node, ACKNOWLEDGED)
    for kind in kinds:
        places = findings.pop(kind, None) or {ANY: now}
        before = acks.get(kind, {})
        newer = {place: max(when, before.get(place, when)) for place, when in places.items()}
        acks[kind] = _latest({**before, **newer})
    return {FINDINGS: _text(findings), ACKNOWLEDGED: _text(acks)}


def _latest(places: Places) -> Dict[str, float]:
    kept: List[str] = sorted(places, key=lambda place: places[place])[-KEPT:]
    return {place: places[place] for place in kept}


def _text(findings: Mapping[str, Places]) -> Optional[str]:
    return json.dumps(findings, separators=(",", ":"), sort_keys=True) if findings else None
