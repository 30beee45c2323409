"""What happened on this node in the last weeks: events in an SQLite file with a bounded age and size.

Runs in the process of the local sink, never in the one that watches the node: a database on a full or hung disk delays
nothing else. Events that cannot be stored now are kept, up to a bound.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections import deque
from typing import Callable, Deque, List, Optional

from nhc.core.system.service_log import note
from nhc.marks.ports.sinks import Event

BACKLOG = 1000
PURGE_EVERY = 3600.0
_COLUMNS = "id INTEGER PRIMARY KEY, at REAL NOT NULL, event TEXT NOT NULL, subject TEXT NOT NULL, body TEXT NOT NULL"


class EventHistory:
    """The events of one node. `keep` is in seconds, `rows` bounds the number at any age."""

    def __init__(
        self,
        path: str,
        keep: float,
        rows: int,
        log: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path, self.keep, self.rows, self.log, self.clock = path, keep, rows, log, clock
        self.lost = 0
        self._waiting: Deque[Event] = deque()
        self._base: Optional[sqlite3.Connection] = None
        self._purged: Optional[float] = None
        self._failing = ""

    def add(self, event: Event) -> None:
        if len(self._waiting) >= BACKLOG:
            self._waiting.popleft()
            self.lost += 1
        self._waiting.append(event)

    def flush(self) -> bool:
        """Store the waiting events. Returns whether all are stored."""
        if not self._waiting and not self._failing and self._base is not None:
            return True
        try:
            base = self._open()
            with base:
                base.executemany(
                    "INSERT INTO event (at, event, subject, body) VALUES (?, ?, ?, ?)",
                    [(self.clock(), p["event"], _subject(p), json.dumps(p, ensure_ascii=False)) for p in self._waiting],
                )
            self._waiting.clear()
            self._purge(base)
        except (sqlite3.Error, OSError) as error:
            self._fails(str(error))
            return False
        if self._failing:
            self.log(note(f"{self.path}: written again ({self.lost} events were lost)"))
            self._failing = ""
        return True

    def close(self) -> None:
        self.flush()
        if self._base is not None:
            self._base.close()
            self._base = None

    def _open(self) -> sqlite3.Connection:
        if self._base is None:
            os.makedirs(os.path.dirname(self.path) or ".", mode=0o750, exist_ok=True)
            self._base = _connect(self.path)
        return self._base

    def _purge(self, base: sqlite3.Connection) -> None:
        """Now and then drop events that are too old or too many, and free their space."""
        now = time.monotonic()
        if self._purged is not None and now - self._purged < PURGE_EVERY:
            return
        self._purged = now
        with base:
            base.execute("DELETE FROM event WHERE at < ?", (self.clock() - self.keep,))
            base.execute(
                "DELETE FROM event WHERE id <= (SELECT id FROM event ORDER BY id DESC LIMIT 1 OFFSET ?)", (self.rows,)
            )
        base.execute("PRAGMA incremental_vacuum")

    def _fails(self, problem: str) -> None:
        if self._base is not None:
            try:
                self._base.close()
            except sqlite3.Error:
                pass
            self._base = None
        if "malformed" in problem or "not a database" in problem:
            aside = f"{self.path}.damaged"
            try:
                os.replace(self.path, aside)
                self.log(f"{self.path} is damaged: set aside as {aside}, a new one is begun")
            except OSError:
                pass
        if problem != self._failing:
            self._failing = problem
            self.log(f"{self.path}: {problem}: events are kept, up to {BACKLOG}, and stored later")


def _connect(path: str) -> sqlite3.Connection:
    base = sqlite3.connect(path, timeout=2.0)
    os.chmod(path, 0o640)
    base.execute("PRAGMA auto_vacuum=INCREMENTAL")
    base.execute("PRAGMA journal_mode=WAL")
    base.execute("PRAGMA cache_size=-256")
    base.execute(f"CREATE TABLE IF NOT EXISTS event ({_COLUMNS})")
    base.execute("CREATE INDEX IF NOT EXISTS event_at ON event (at)")
    return base


def _subject(event: Event) -> str:
    return " ".join(part for part in (event.get("check"), event.get("type"), event.get("target")) if part)


def read(path: str, limit: int = 50, since: float = 0.0) -> List[Event]:
    """The last events of a history, oldest first. Raises OSError if there is none or it cannot be read."""
    if not os.path.exists(path):
        raise FileNotFoundError(2, "no history is kept there", path)
    try:
        base = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=2.0)
        try:
            rows = base.execute(
                "SELECT body FROM event WHERE at >= ? ORDER BY id DESC LIMIT ?", (since, limit)
            ).fetchall()
        finally:
            base.close()
    except sqlite3.Error as error:
        raise OSError(5, str(error), path) from None
    return [json.loads(body) for (body,) in reversed(rows)]
