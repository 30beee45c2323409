"""What init records of boots and shutdowns: the file of wtmp(5), or wtmpdb(8)'s database where that took its place.

wtmpdb (Debian 13, openSUSE) has a row for each boot and writes the time of the shutdown into it: one without was cut
off. It is read as a whole, as the other is, so that recordings have it too.
"""

from __future__ import annotations

import struct

from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import List, Optional, Tuple

WTMP = "/var/log/wtmp"
FILES = (f"{WTMP}.1", WTMP)
"""The one before logrotate's last turn, and the one that is written."""
DATABASE = "/var/lib/wtmpdb/wtmp.db"

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


_COLUMNS = "ID INTEGER PRIMARY KEY, Type INTEGER, User TEXT, Login INTEGER, Logout INTEGER, TTY TEXT"
_BOOTS = "FROM wtmp WHERE User = 'reboot' AND TTY = '~' AND Login > 0 ORDER BY Login"


def parse_database(data: bytes) -> List[BootRecord]:
    """The boots and shutdowns of wtmpdb's database, in order; [] for another form, or a Python older than 3.11."""
    records: List[BootRecord] = []
    for began, ended in _boots(data):
        records.append(BootRecord(began / 1e6, True))
        if ended:
            records.append(BootRecord(ended / 1e6, False))
    return records


def database_without_logins(data: bytes) -> bytes:
    """The database of wtmpdb with its boots alone; b"" where it cannot be read."""
    boots = _boots(data)
    if not boots:
        return b""
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(":memory:")) as copy:
        copy.execute(f"CREATE TABLE wtmp ({_COLUMNS})")
        copy.executemany("INSERT INTO wtmp (Type, User, Login, Logout, TTY) VALUES (1, 'reboot', ?, ?, '~')", boots)
        copy.commit()
        return bytes(copy.serialize())  # type: ignore[attr-defined,unused-ignore]  # from Python 3.11


def _boots(data: bytes) -> List[Tuple[int, Optional[int]]]:
    """When each boot began and ended (None: nobody ended it), in microseconds of Unix time."""
    if not data.startswith(b"SQLite format 3\0"):
        return []
    try:
        import sqlite3
        from contextlib import closing
    except ImportError:  # a Python without it
        return []
    try:
        with closing(sqlite3.connect(":memory:")) as base:
            base.deserialize(data)  # type: ignore[attr-defined,unused-ignore]  # from Python 3.11
            rows = base.execute(f"SELECT Login, Logout {_BOOTS}").fetchall()
    except (AttributeError, sqlite3.Error, UnicodeDecodeError):
        return []
    return [(began, ended) for began, ended in rows if isinstance(began, int) and isinstance(ended, (int, type(None)))]


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
