"""The file of logins, boots and shutdowns that init writes: wtmp(5)."""

from __future__ import annotations

import struct

from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import List, Tuple

WTMP = "/var/log/wtmp"
FILES = (f"{WTMP}.1", WTMP)
"""The one before logrotate's last turn, and the one that is written."""

_RUN_LEVEL, _BOOT = 1, 2
_TYPES = range(10)
_TYPE, _USER = 0, 44
_SIZES = ((384, "=i", 340), (400, "=q", 344))
"""Bytes of a record, and form and place of its seconds: glibc's struct utmp where 32-bit programs share the file, and
where none do (arm64)."""


class BootRecord(NamedTuple):
    """One record: `at` is Unix time in seconds; of a boot, else of a shutdown."""

    at: float
    boot: bool


def parse_records(data: bytes) -> List[BootRecord]:
    """The boots and shutdowns of a file in wtmp's form, in its order; [] for another form."""
    return [record for record, _raw in _records(data)]


def without_logins(data: bytes) -> bytes:
    """A file in wtmp's form with its boots and shutdowns alone: the other records say who came, and from where."""
    return b"".join(raw for _record, raw in _records(data))


def _records(data: bytes) -> List[Tuple[BootRecord, bytes]]:
    for size, form, place in _SIZES:
        if len(data) % size:
            continue
        starts = range(0, len(data), size)
        kinds = [struct.unpack_from("=h", data, start + _TYPE)[0] for start in starts]
        if not all(kind in _TYPES for kind in kinds):
            continue
        found: List[Tuple[BootRecord, bytes]] = []
        for start, kind in zip(starts, kinds):
            user = data[start + _USER : start + _USER + 32].rstrip(b"\0")
            if kind == _BOOT or (kind == _RUN_LEVEL and user == b"shutdown"):
                at = struct.unpack_from(form, data, start + place)[0]
                record = BootRecord(float(at & 0xFFFFFFFF if size == 384 else at), kind == _BOOT)
                found.append((record, data[start : start + size]))
        return found
    return []
