"""Typed values out of JSON that another program wrote, whatever its shape.

Two kinds of readers: `X_of` takes what is there as an X, and as nothing where it is something else (a field that an
answer may lack); `X_in` raises ValueError that names the field (an answer that makes no sense without it). Nothing here
raises anything else: numbers are finite and of 64 bits, and arrays within arrays have an end.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING
from nhc.core.system.bounded_read import parse_json

if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Union

_LARGEST = 1 << 64
_ENDLESS = float("inf")


def parse_object(text: Union[str, bytes]) -> Dict[str, Any]:
    """The JSON object in a text. Raises ValueError where it is no JSON, or another value."""
    value = parse_json(text)
    if not isinstance(value, dict):
        raise ValueError(f"JSON of another shape: {type(value).__name__}, not an object")
    return value


def object_from(text: Union[str, bytes]) -> Dict[str, Any]:
    """The JSON object in a text, an empty one where there is none."""
    try:
        return parse_object(text)
    except ValueError:
        return {}


def object_of(value: object) -> Dict[str, Any]:
    """An object, an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> List[Any]:
    """A list, an empty one for any other value."""
    return value if isinstance(value, list) else []


def objects_of(value: object) -> List[Dict[str, Any]]:
    """The objects in a list; none for any other value."""
    return [one for one in list_of(value) if isinstance(one, dict)]


def texts_of(value: object) -> List[str]:
    """The texts and numbers in a list, as texts; none for any other value."""
    return [str(one) for one in list_of(value) if isinstance(one, (str, int, float))]


def text_of(value: object) -> str:
    """A text, "" for any other value."""
    return value if isinstance(value, str) else ""


def whole_of(value: object) -> Optional[int]:
    """A whole number of 64 bits, None for any other value, true and false among them."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST else None


def number_of(value: object) -> Optional[float]:
    """A finite number, None for any other value."""
    if isinstance(value, float):
        return value if abs(value) < _ENDLESS else None
    whole = whole_of(value)
    return None if whole is None else float(whole)


def list_in(value: Mapping[str, Any], name: str) -> List[Any]:
    """The list under a name; an empty one where there is nothing, or null. Raises ValueError."""
    found = value.get(name)
    if found is None:
        return []
    if not isinstance(found, list):
        raise ValueError(f"JSON of another shape: {name} is {type(found).__name__}, not a list")
    return found


def objects_in(value: Mapping[str, Any], name: str) -> List[Dict[str, Any]]:
    """The objects in the list under a name. Raises ValueError."""
    found = list_in(value, name)
    wrong = next((one for one in found if not isinstance(one, dict)), None)
    if wrong is not None or None in found:
        raise ValueError(f"JSON of another shape: {name} has {type(wrong).__name__}, not an object")
    return found


def object_in(value: Mapping[str, Any], name: str) -> Dict[str, Any]:
    """The object under a name. Raises ValueError."""
    found = value.get(name)
    if not isinstance(found, dict):
        raise ValueError(f"JSON of another shape: {name} is {type(found).__name__}, not an object")
    return found


def text_in(value: Mapping[str, Any], name: str) -> str:
    """The text under a name. Raises ValueError."""
    found = value.get(name)
    if not isinstance(found, str):
        raise ValueError(f"JSON of another shape: {name} is {type(found).__name__}, not a text")
    return found


def whole_in(value: Mapping[str, Any], name: str, default: Optional[int] = None) -> int:
    """The whole number under a name, the default where there is nothing. Raises ValueError."""
    found = value.get(name, default)
    whole = whole_of(found)
    if whole is None:
        raise ValueError(f"JSON of another shape: {name} is {type(found).__name__}, not a whole number of 64 bits")
    return whole
