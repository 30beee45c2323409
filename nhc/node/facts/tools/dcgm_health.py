"""The JSON of `dcgmi health -c -j`: what DCGM's background watches have found.

Sources: NVIDIA DCGM 4.6.0 and 3.3.9 (dcgmi/Health.cpp, DcgmiOutput.cpp): body has "Overall Health" and a group for each
kind of entity (GPU, Switch ...), in which each entity has "Errors" by system, with the texts as `overflow`.
"""

from __future__ import annotations

from nhc.core.json_values import list_in, object_in, text_in
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.node.facts.tools.output import json_object

if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple

HEALTHY, WARNING, FAILURE = "Healthy", "Warning", "Failure"
OVERALL = "Overall Health"
NVLINK = "NVLINK system"


class DcgmIncident(NamedTuple):
    """What a watch found: of which entity (`GPU`, "3"), in which system (`Memory system`), how grave, and the text."""

    group: str
    entity: str
    system: str
    health: str
    text: str


class DcgmHealth(NamedTuple):
    """The whole answer. `overall` is DCGM's own word."""

    overall: str
    incidents: Tuple[DcgmIncident, ...]


def parse(text: str) -> DcgmHealth:
    """Read the output. Raises ValueError where it is not what dcgmi writes."""
    body = object_in(json_object(text), "body")
    overall = text_in(object_in(body, OVERALL), "value")
    found: List[DcgmIncident] = []
    for group in body:
        if group == OVERALL:
            continue
        entities = _children(body, group)
        for entity in entities:
            about = _children(entities, entity)
            errors = _children(about, "Errors") if "Errors" in about else {}
            for system in errors:
                said = object_in(errors, system)
                lines = list_in(said, "overflow")
                found.append(DcgmIncident(group, entity, system, text_in(said, "value"), " ".join(map(str, lines))))
    return DcgmHealth(overall, tuple(found))


def _children(value: Dict[str, Any], name: str) -> Dict[str, Any]:
    """The children of the box of dcgmi's under a name, {} where it has none. Raises ValueError."""
    box = object_in(value, name)
    return object_in(box, "children") if box.get("children") else {}
