"""What a store of findings must look like before it is used: its file may hold anything.

What does not fit is left out and the rest stays: a fault that is remembered is worth more than a tidy file.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action
from nhc.node.kernlog.match import RANK

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List

    from nhc.node.kernlog.state_types import LogState

_ACTIONS = frozenset(action.value for action in Action)


def fit(held: Dict[str, Any]) -> LogState:
    """Leave out of a store what cannot be its own. Returns the store."""
    for name, fits in _TOP.items():
        if name in held and not fits(held[name]):
            del held[name]
    for name, fits in _INNER.items():
        inner = held.get(name)
        if inner:
            for key in [key for key, value in inner.items() if not fits(value)]:
                del inner[key]
    state: Any = held
    fitted: LogState = state  # what is left has the form
    return fitted


def acknowledged(kept: Dict[str, Any]) -> List[Any]:
    """The acknowledgements that are remembered."""
    acks = kept.get("acks")
    return acks if isinstance(acks, list) else []


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -1e12 < value < 1e12


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def _place(value: object) -> bool:
    """Where a reader stands: a record's number, journald's cursor, or inode and offset of a file."""
    if isinstance(value, list):
        return len(value) == 2 and all(map(_count, value))
    return value is None or _text(value) or _count(value) or value == -1


def _pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_number, value))


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _table(value: Any) -> bool:
    return isinstance(value, dict)


def _finding(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    texts = all(_text(value.get(name)) for name in ("kind", "code", "device", "message", "line"))
    times = all(_number(value.get(name)) for name in ("first", "noticed", "last"))
    known = value.get("severity") in RANK if _text(value.get("severity")) else False
    return texts and times and known and value.get("action") in _ACTIONS and _count(value.get("count"))


def _hung(value: Any) -> bool:
    """The memory of nhc.node.kernlog.hung. Its words are added where an earlier version wrote none."""
    if not _table(value):
        return False
    tasks, ended = value.setdefault("tasks", {}), value.setdefault("ended", {})
    if not (_table(tasks) and _table(ended) and _text(value.setdefault("task", ""))):
        return False
    value["named"] = value.get("named") is True
    return all(map(_number, ended.values())) and all(
        isinstance(task, (list, tuple)) and len(task) == 3 and _text(task[1]) and _number(task[0]) and _number(task[2])
        for task in tasks.values()
    )


_TOP: Dict[str, Callable[[Any], bool]] = {
    "boot": _text,
    "cursor": lambda value: _place(value) or (_table(value) and _text(value.get("path")) and _place(value.get("at"))),
    "driver": _text,
    "kept": _count,
    "more": _count,
    "tail": lambda value: isinstance(value, list) and all(map(_text, value)),
    "findings": _table,
    "seen": _table,
    "companions": _table,
    "history": _table,
    "programs": _table,
    "ties": _table,
    "hung": _hung,
    "no_callback": _number,
    "slots": _table,
    "taken_out": _number,
    "speakers": _table,
    "complained": _table,
    "foreign": _table,
}
_INNER: Dict[str, Callable[[Any], bool]] = {
    "findings": _finding,
    "seen": _count,
    "companions": _number,
    "complained": _number,
    "foreign": _count,
    "slots": _number,
    "speakers": lambda value: (
        isinstance(value, (list, tuple)) and len(value) == 2 and _text(value[0]) and _number(value[1])
    ),
    "history": lambda value: isinstance(value, list) and bool(value) and all(map(_number, value)),
    "programs": lambda value: _table(value) and all(map(_pair, value.values())),
    "ties": lambda value: _table(value) and all(map(_text, value.values())),
}
