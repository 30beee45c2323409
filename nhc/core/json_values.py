"""Typed values out of JSON that another program wrote: what has another shape is a ValueError that names the field."""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Dict, List


def list_in(value: Dict[str, Any], name: str) -> List[Any]:
    """The list under a name; an empty one where there is nothing, or null. Raises ValueError."""
    found = value.get(name)
    if found is None:
        return []
    if not isinstance(found, list):
        raise ValueError(f"{name} is {type(found).__name__}, not a list")
    return found


def objects_in(value: Dict[str, Any], name: str) -> List[Dict[str, Any]]:
    """The objects in the list under a name. Raises ValueError."""
    found = list_in(value, name)
    wrong = next((one for one in found if not isinstance(one, dict)), None)
    if wrong is not None or None in found:
        raise ValueError(f"{name} has {type(wrong).__name__}, not an object")
    return found
