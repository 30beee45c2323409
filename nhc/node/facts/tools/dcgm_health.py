"""The JSON of `dcgmi health -c -j`: what DCGM's background watches have found.

Sources: NVIDIA DCGM 4.6.0 and 3.3.9 (dcgmi/Health.cpp, DcgmiOutput.cpp): body has "Overall Health" and a group for each
kind of entity (GPU, Switch ...), in which each entity has "Errors" by system, with the texts as `overflow`.
"""

from __future__ import annotations

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
    body = _object(json_object(text), "body")
    overall = _word(_object(body, OVERALL), OVERALL)
    found: List[DcgmIncident] = []
    for group, entities in body.items():
        if group == OVERALL:
            continue
        for entity, about in _children(entities, group).items():
            for system, said in _children(_children(about, entity).get("Errors", {}), "Errors").items():
                lines = said.get("overflow") or [] if isinstance(said, dict) else []
                if not isinstance(lines, list):
                    raise ValueError(f"{system}: overflow is {type(lines).__name__}, not a list")
                found.append(DcgmIncident(group, entity, system, _word(said, system), " ".join(map(str, lines))))
    return DcgmHealth(overall, tuple(found))


def _object(value: Dict[str, Any], name: str) -> Dict[str, Any]:
    found = value.get(name)
    if not isinstance(found, dict):
        raise ValueError(f"no object {name}")
    return found


def _children(value: Any, name: str) -> Dict[str, Any]:
    """The children of a box of dcgmi's, {} where it has none."""
    if not isinstance(value, dict):
        raise ValueError(f"{name} is {type(value).__name__}, not an object")
    found = value.get("children") or {}
    if not isinstance(found, dict):
        raise ValueError(f"children of {name} is {type(found).__name__}, not an object")
    return found


def _word(value: Any, name: str) -> str:
    found = value.get("value") if isinstance(value, dict) else None
    if not isinstance(found, str):
        raise ValueError(f"{name} has no value")
    return found
