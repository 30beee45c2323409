"""Sweeps kept locally, in SQLite: what `nhc fleet diff` and `nhc fleet report` read, and where a sweep's reports
wait on disk, not in memory, until they are written out.

One row a node, its JSON compressed. What cannot be kept (a full disk, a home that is not there) does not stop a
sweep: it goes on in memory and says so.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
import zlib
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

KEEP = 50
"""Sweeps kept."""
BATCH = 256

_TABLES = """
create table if not exists sweep (
    id integer primary key, started real not null, ended real, command text not null, version text not null
);
create table if not exists result (
    sweep integer not null references sweep(id) on delete cascade,
    node text not null, verdict integer not null, seconds real not null, line blob not null,
    primary key (sweep, node)
) without rowid;
pragma user_version = 1;
"""


class HistoryError(Exception):
    """The history cannot be read, or holds no such sweep. One line."""


class Sweep(NamedTuple):
    """A sweep as the history has it. `ended` is None for one that was broken off."""

    id: int
    started: float
    ended: Optional[float]
    command: str
    version: str
    counts: Dict[int, int]


def default_path() -> str:
    """`$NHC_FLEET_HISTORY`, else fleet.sqlite in the user's data directory."""
    base = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return os.environ.get("NHC_FLEET_HISTORY") or f"{base}/nhc/fleet.sqlite"


class History:
    """The file at `path`, created where it is missing; "" is a private one that ends with the process."""

    def __init__(self, path: str, create: bool = True) -> None:
        self.path = path
        self.warning = ""
        self._pending: List[Tuple[int, str, int, float, bytes]] = []
        if path and not create and not os.path.exists(path):
            raise HistoryError(f"{path}: no sweep has been kept yet")
        try:
            if path and create:
                os.makedirs(os.path.dirname(os.path.abspath(path)), mode=0o700, exist_ok=True)
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self.db = self._open(path)
        except (OSError, sqlite3.Error) as error:
            if not create:
                raise HistoryError(f"{path}: {error}") from None
            self.warning = f"{path}: {getattr(error, 'strerror', None) or error}: this sweep is not kept"
            self.db = self._open("")

    @staticmethod
    def _open(path: str) -> sqlite3.Connection:
        db = sqlite3.connect(path, timeout=10, isolation_level=None)
        try:
            db.execute("pragma journal_mode = wal" if path else "pragma journal_mode = off")
            db.execute("pragma synchronous = normal")
            db.execute("pragma foreign_keys = on")
            (version,) = db.execute("pragma user_version").fetchone()
            if version > 1:
                raise sqlite3.DatabaseError("written by a newer nhc")
            db.executescript(_TABLES)
        except sqlite3.Error:
            db.close()
            raise
        return db

    # Writing.

    def begin(self, command: str, version: str, started: float) -> int:
        try:
            return self._begin(command, version, started)
        except sqlite3.Error as error:
            self._retreat(error)
            return self._begin(command, version, started)

    def _begin(self, command: str, version: str, started: float) -> int:
        made = self.db.execute(
            "insert into sweep (started, command, version) values (?, ?, ?)", (started, command, version)
        )
        return int(made.lastrowid or 0)

    def add(self, sweep: int, node: str, verdict: int, seconds: float, line: bytes) -> None:
        """Keep one node's line (compressed); written in batches."""
        self._pending.append((sweep, node, verdict, seconds, line))
        if len(self._pending) >= BATCH:
            self.flush()

    def flush(self) -> None:
        try:
            self._write()
        except sqlite3.Error as error:
            self._retreat(error)
            self._write()
        self._pending.clear()

    def _write(self) -> None:
        self.db.execute("begin immediate")
        try:
            self.db.executemany("insert or replace into result values (?, ?, ?, ?, ?)", self._pending)
            self.db.execute("commit")
        except sqlite3.Error:
            if self.db.in_transaction:
                self.db.execute("rollback")
            raise

    def _retreat(self, error: sqlite3.Error) -> None:
        """Go on in memory with what is there of this sweep."""
        if not self.path:
            raise error
        self.warning, self.path = f"{self.path}: {error}: this sweep is not kept", ""
        old, self.db = self.db, self._open(":memory:")
        try:
            row = old.execute(
                "select id, started, ended, command, version from sweep order by id desc limit 1"
            ).fetchone()
            if row is not None:
                self.db.execute("insert into sweep values (?, ?, ?, ?, ?)", row)
                for one in old.execute("select * from result where sweep = ?", row[:1]):
                    self.db.execute("insert or replace into result values (?, ?, ?, ?, ?)", one)
        except sqlite3.Error:
            pass
        old.close()

    def end(self, sweep: int, keep: int = KEEP) -> None:
        """The sweep is whole; sweeps beyond the newest `keep` are forgotten."""
        self.flush()
        try:
            self.db.execute("update sweep set ended = ? where id = ?", (time.time(), sweep))
            self.db.execute(
                "delete from sweep where id not in (select id from sweep order by id desc limit ?)", (keep,)
            )
        except sqlite3.Error as error:
            self.warning = f"{self.path}: {error}"

    def close(self) -> None:
        self.db.close()

    # Reading.

    def sweeps(self) -> List[Sweep]:
        """Every sweep, oldest first."""
        counts: Dict[int, Dict[int, int]] = {}
        rows = self._ask("select sweep, verdict, count(*) from result group by sweep, verdict")
        for sweep, verdict, count in rows:
            counts.setdefault(sweep, {})[verdict] = count
        return [
            Sweep(number, started, ended, command, version, counts.get(number, {}))
            for number, started, ended, command, version in self._ask(
                "select id, started, ended, command, version from sweep order by id"
            )
        ]

    def find(self, word: str) -> Sweep:
        """A sweep by its number; `last` is the newest, `last-1` the one before. Raises HistoryError."""
        sweeps = self.sweeps()
        if not sweeps:
            raise HistoryError(f"{self.path}: no sweep has been kept yet")
        if word.isdigit():
            found = [sweep for sweep in sweeps if sweep.id == int(word)]
        else:
            name, _, back = word.partition("-")
            if name != "last" or (back and not back.isdigit()):
                raise HistoryError(f"{word!r} is not a sweep: give a number, last or last-1")
            place = len(sweeps) - 1 - int(back or 0)
            found = sweeps[place : place + 1] if place >= 0 else []
        if not found:
            raise HistoryError(f"there is no sweep {word}: the history has {sweeps[0].id} to {sweeps[-1].id}")
        return found[0]

    def lines(self, sweep: int, nodes: Optional[Sequence[str]] = None) -> Iterator[Tuple[str, str]]:
        """Node and JSON line of every node, in the order of their names."""
        for node, line in self._ask("select node, line from result where sweep = ? order by node", (sweep,)):
            if nodes is None or node in nodes:
                yield node, zlib.decompress(line).decode()

    def records(self, sweep: int) -> Iterator[Dict[str, Any]]:
        """The same, as JSON values."""
        for _node, line in self.lines(sweep):
            yield json.loads(line)

    def _ask(self, query: str, values: Tuple[Any, ...] = ()) -> Iterator[Tuple[Any, ...]]:
        try:
            yield from self.db.execute(query, values)
        except sqlite3.Error as error:
            raise HistoryError(f"{self.path}: {error}") from None
