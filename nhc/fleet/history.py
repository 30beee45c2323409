"""Sweeps stored locally, in SQLite: `nhc fleet diff` and `nhc fleet report` read them, and a sweep's reports wait
there, on disk instead of in memory, until they are written out.

One row a node, its JSON compressed. If it cannot be written (a full disk, a missing home), the sweep continues in
memory and says so.
"""

from __future__ import annotations

import os
import sqlite3
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from nhc.core.model import Report, printable
from nhc.core.render.json import from_dict, loads
from nhc.core.system.bounded_read import unpacked
from nhc.fleet.node_result import safe
from nhc.marks.policy.reconcile import BadReports

KEEP = 50
"""Sweeps kept."""
BATCH = 256

_TABLES = """
create table if not exists sweep (
    id integer primary key, started real not null, ended real, command text not null, version text not null,
    asked integer not null default 0, interrupted integer not null default 0
);
create table if not exists result (
    sweep integer not null references sweep(id) on delete cascade,
    node text not null, verdict integer not null, seconds real not null, line blob not null,
    primary key (sweep, node)
) without rowid;
pragma user_version = 1;
"""

_LATER = {"asked": "integer not null default 0", "interrupted": "integer not null default 0"}
"""Columns that a history written by an earlier nhc lacks."""
_SWEEP = "id, started, ended, command, version, asked, interrupted"


class HistoryError(Exception):
    """The history cannot be read, or holds no such sweep. One line."""


class Sweep(NamedTuple):
    """A sweep as the history has it. `ended` is None for one whose process was killed.

    `asked` is the number of nodes that were to be judged, 0 where that is not known; `interrupted` says that the user
    ended it before all of them were.
    """

    id: int
    started: float
    ended: Optional[float]
    command: str
    version: str
    counts: Dict[int, int]
    asked: int = 0
    interrupted: bool = False


def default_path() -> str:
    """`$NHC_FLEET_HISTORY`, else fleet.sqlite in the user's data directory."""
    base = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return os.environ.get("NHC_FLEET_HISTORY") or f"{base}/nhc/fleet.sqlite"


class SweepHistory:
    """The file at `path`, created where it is missing; "" is a private one that ends with the process."""

    def __init__(self, path: str, create: bool = True) -> None:
        self.path = path
        self.warning = ""
        self._begun = 0
        """The sweep that this process keeps, 0 for none yet: another process may keep one in the same file."""
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
            there = {row[1] for row in db.execute("pragma table_info(sweep)")}
            for name, kind in _LATER.items():
                if name not in there:
                    db.execute(f"alter table sweep add column {name} {kind}")
        except sqlite3.Error:
            db.close()
            raise
        return db

    # Writing.

    def begin(self, command: str, version: str, started: float, asked: int = 0) -> int:
        """A new sweep of so many nodes; its number."""
        try:
            return self._begin(command, version, started, asked)
        except sqlite3.Error as error:
            self._retreat(error)
            return self._begin(command, version, started, asked)

    def _begin(self, command: str, version: str, started: float, asked: int) -> int:
        made = self.db.execute(
            "insert into sweep (started, command, version, asked) values (?, ?, ?, ?)",
            (started, command, version, asked),
        )
        self._begun = int(made.lastrowid or 0)
        return self._begun

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
        """Go on in memory with what the file has of the sweep that this process keeps."""
        if not self.path:
            raise error
        self.warning, self.path = f"{self.path}: {error}: this sweep is not kept", ""
        old, self.db = self.db, self._open(":memory:")
        try:
            for row in old.execute(f"select {_SWEEP} from sweep where id = ?", (self._begun,)):  # noqa: S608 (our own columns)
                self.db.execute(f"insert into sweep ({_SWEEP}) values (?, ?, ?, ?, ?, ?, ?)", row)  # noqa: S608
            for row in old.execute("select * from result where sweep = ?", (self._begun,)):
                self.db.execute("insert or replace into result values (?, ?, ?, ?, ?)", row)
        except sqlite3.Error:
            pass
        old.close()

    def end(self, sweep: int, keep: int = KEEP, interrupted: bool = False) -> None:
        """The sweep is over, whole or interrupted; sweeps beyond the newest `keep` are forgotten."""
        self.flush()
        try:
            self.db.execute(
                "update sweep set ended = ?, interrupted = ? where id = ?", (time.time(), int(interrupted), sweep)
            )
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
        try:
            return [
                Sweep(int(number), float(started), None if ended is None else float(ended), printable(command),
                      printable(version), counts.get(number, {}), int(asked), bool(interrupted))
                for number, started, ended, command, version, asked, interrupted in self._ask(
                    f"select {_SWEEP} from sweep order by id"  # noqa: S608
                )
            ]  # fmt: skip
        except (TypeError, ValueError, AttributeError) as error:
            raise HistoryError(f"{self.path}: damaged: {error}") from None

    def find(self, wanted: str) -> Sweep:
        """A sweep by its number; `last` is the newest, `last-1` the one before. Raises HistoryError."""
        sweeps = self.sweeps()
        if not sweeps:
            raise HistoryError(f"{self.path}: no sweep has been kept yet")
        if wanted.isdigit():
            matches = [sweep for sweep in sweeps if sweep.id == int(wanted)]
        else:
            name, _, back = wanted.partition("-")
            if name != "last" or (back and not back.isdigit()):
                raise HistoryError(f"{wanted!r} is not a sweep: give a number, last or last-1")
            place = len(sweeps) - 1 - int(back or 0)
            matches = sweeps[place : place + 1] if place >= 0 else []
        if not matches:
            raise HistoryError(f"there is no sweep {wanted}: the history has {sweeps[0].id} to {sweeps[-1].id}")
        return matches[0]

    def lines(self, sweep: int, nodes: Optional[Sequence[str]] = None) -> Iterator[Tuple[str, str]]:
        """Node and JSON line of every node, in the order of their names. Raises HistoryError."""
        for node, line in self._ask("select node, line from result where sweep = ? order by node", (sweep,)):
            if nodes is None or node in nodes:
                try:
                    yield printable(node), unpacked(line).decode()
                except (ValueError, TypeError) as error:
                    raise self._damaged(sweep, node, error) from None

    def records(self, sweep: int) -> Iterator[Dict[str, Any]]:
        """The same, as JSON values. Raises HistoryError."""
        for node, line in self.lines(sweep):
            try:
                record = loads(line)
            except ValueError as error:
                raise self._damaged(sweep, node, error) from None
            if not isinstance(record, dict):
                raise self._damaged(sweep, node, ValueError("not a report"))
            yield record

    def reports(self, sweep: int) -> Iterator[Tuple[Report, Dict[str, Any]]]:
        """Every node's report, made safe to show, and what the sweep added to it. Raises HistoryError."""
        for record in self.records(sweep):
            extra = record.get("fleet", {})
            try:
                report = safe(from_dict(record), time.time())
                if not isinstance(extra, dict):
                    raise ValueError("`fleet` is not an object")
            except (ValueError, OverflowError, TypeError) as error:
                raise self._damaged(sweep, str(record.get("host", "?")), error) from None
            yield report, extra

    def _damaged(self, sweep: int, node: str, error: Exception) -> HistoryError:
        what = f"sweep {sweep}, {printable(str(node), 100)}: {printable(str(error), 200)}"
        return HistoryError(f"{self.path}: damaged: {what}")

    def _ask(self, query: str, values: Tuple[Any, ...] = ()) -> Iterator[Tuple[Any, ...]]:
        try:
            yield from self.db.execute(query, values)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise HistoryError(f"{self.path}: {error}") from None


def reports_of_file(path: str) -> Iterator[Report]:
    """The reports of all sweeps in a file, the oldest sweep first. Raises BadReports."""
    try:
        history = SweepHistory(path, create=False)
        try:
            for sweep in sorted(history.sweeps(), key=lambda each: each.started):
                yield from (report for report, _record in history.reports(sweep.id))
        finally:
            history.close()
    except HistoryError as error:
        raise BadReports(str(error)) from None
