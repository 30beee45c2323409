"""What a node remembers of its gate: one JSON file, replaced as a whole and synced, that survives a reboot.

The check `check_gate`, which a prolog runs before every job, reads the same file.
"""

from __future__ import annotations

import json
import os
from enum import Enum
from typing import Any, Mapping, NamedTuple, Optional

from nhc.core.system import written_files
from nhc.core.system.bounded_read import parse_json, read_text

PATH = "/var/lib/nhc/gate.json"
LIMIT = 1 << 20
"""Bytes of a record that are read; one has some hundred."""
WHY_LIMIT = 500


class GateState(str, Enum):
    """Where a gate stands. Work may come in PASSED and OPENED alone."""

    HELD = "held"
    TESTING = "testing"
    PASSED = "passed"
    FAILED = "failed"
    UNTOLD = "could-not-tell"
    OPENED = "opened"

    @property
    def lets_in(self) -> bool:
        return self in (GateState.PASSED, GateState.OPENED)


class GateRecord(NamedTuple):
    """One gate. `at` is when its state began (Unix time), `due` why the suite was asked for.

    `marks` are what the verdict holds for (`nhc.remedy.gates.identity`), `boot` the boot that it was found in.
    `tries` counts
    runs that could not tell. `asked` is the newest order of a person that was seen. `completed`: the cloud's lifecycle
    hook has been answered for this verdict. `report` is where the suite's report lies. `each_boot`: another boot
    closes it.
    """

    state: GateState
    suite: str
    group: str
    at: float
    boot: str
    marks: Mapping[str, str]
    why: str
    due: str = ""
    tries: int = 0
    asked: float = 0.0
    completed: bool = False
    report: str = ""
    each_boot: bool = True


_NUMBER = (int, float)
_KINDS: Mapping[str, Any] = {
    "suite": str, "group": str, "at": _NUMBER, "boot": str, "why": str, "due": str, "tries": int, "asked": _NUMBER,
    "completed": bool, "report": str, "each_boot": bool,
}  # fmt: skip


class BadRecord(ValueError):
    """A record that cannot be read: one line."""


def path() -> str:
    """`$NHC_GATE_FILE`, else /var/lib/nhc/gate.json."""
    return os.environ.get("NHC_GATE_FILE") or PATH


def read(where: str) -> Optional[GateRecord]:
    """The record, None where there is none. Raises BadRecord."""
    try:
        text = read_text(where, LIMIT)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise BadRecord(f"{where}: {getattr(error, 'strerror', '') or error}") from None
    return parse(text, where)


def parse(text: str, where: str) -> GateRecord:
    """The record in a text. Raises BadRecord."""
    try:
        value = parse_json(text)
        marks = value["marks"]
        record = GateRecord(**{**value, "state": GateState(value["state"])})
        if not isinstance(marks, dict) or not all(isinstance(mark, str) for mark in marks.values()):
            raise ValueError("marks are not texts by name")
        for name, kind in _KINDS.items():
            if not isinstance(getattr(record, name), kind):
                raise ValueError(f"{name} is {getattr(record, name)!r}")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadRecord(f"{where}: is not the record of a gate: {error}") from None
    return record


def write(where: str, record: GateRecord) -> None:
    """Keep a record, on the disk before this returns. Raises OSError that names the path."""
    value = {**record._asdict(), "state": record.state.value, "why": record.why[:WHY_LIMIT]}
    try:
        os.makedirs(os.path.dirname(where) or ".", mode=0o755, exist_ok=True)
        written_files.write_whole(where, json.dumps(value).encode(), 0o644, durable=True)
    except OSError as error:
        raise OSError(error.errno, error.strerror, where) from None
