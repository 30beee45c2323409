"""What is read of any object of the API: its name, its annotations, its owner, its conditions, its times. Pure."""

from __future__ import annotations

from typing import Any, Dict, Iterable, Mapping, Optional

from nhc.core.json_values import objects_of
from nhc.core.timestamps import from_iso

Object = Mapping[str, Any]


def get(value: object, *path: str) -> Any:
    """The value at a path of nested objects, None if it is missing."""
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def name_of(item: Object) -> str:
    return str(get(item, "metadata", "name") or "")


def texts(values: object) -> Dict[str, str]:
    """Labels or annotations, text by name."""
    return {str(key): str(value) for key, value in values.items()} if isinstance(values, Mapping) else {}


def notes_of(item: Object) -> Dict[str, str]:
    """Its annotations."""
    return texts(get(item, "metadata", "annotations"))


def controller_of(item: Object) -> Mapping[str, Any]:
    """The owner that controls it, empty where none does."""
    owners: Iterable[Mapping[str, Any]] = get(item, "metadata", "ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), {})


def conditions_of(item: Object) -> Dict[str, Mapping[str, Any]]:
    """Its conditions by type; Cluster API keeps its older ones below `status.deprecated`."""
    older, rows = get(item, "status", "deprecated", "v1beta1", "conditions"), get(item, "status", "conditions")
    return {str(row.get("type")): row for row in (*objects_of(older), *objects_of(rows))}


def true_conditions(item: Object) -> Dict[str, Mapping[str, Any]]:
    """Its conditions that are true, by type."""
    rows = objects_of(get(item, "status", "conditions"))
    return {str(row.get("type")): row for row in rows if row.get("status") == "True"}


def is_ready(node: Object) -> bool:
    """Whether a node's kubelet says that it is ready."""
    return "Ready" in true_conditions(node)


def moment(text: object) -> Optional[float]:
    """A time of the API as Unix seconds, with its fraction; None for what is none."""
    return from_iso(str(text))
