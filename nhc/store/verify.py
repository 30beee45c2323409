"""Verifies the audit log: every row is hashed into the next, and the head matches the anchor outside the database.

It finds a changed row, a hole, rows added or left out in an archived segment, a tail that was cut, and a chain that
was made anew with right hashes. Rows after the last anchored one are as safe as the database.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from typing import Dict, Iterator, List, NamedTuple, Sequence, Set, Tuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from nhc.core.model import printable
from nhc.core.system.bounded_read import open_file, parse_json
from nhc.store import audit
from nhc.store.anchor import Anchor
from nhc.store.audit import Entry
from nhc.store.schema import audit_segments

MISTAKES = 20
"""Mistakes that are reported one by one. The first already shows that somebody rewrote the log."""
LINE_LIMIT = 1 << 20


class Segment(NamedTuple):
    """Rows `first` to `last` of the log, in a file; `hash` is that of the last, `sha256` that of the file."""

    last: int
    first: int
    hash: str
    path: str
    sha256: str
    archived: float


class Verified(NamedTuple):
    """What was seen: rows in the database and in segments, the newest row, the newest anchored one, and mistakes."""

    rows: int
    archived: int
    head: int
    anchored: int
    mistakes: Tuple[str, ...]


class _Walk:
    def __init__(self, store: str, anchored: Dict[int, str]) -> None:
        self.previous, self.seq = audit.genesis(store), 0
        self.anchored = anchored
        self.accounted: Set[int] = set()
        """The anchored numbers whose rows were seen."""
        self.mistakes: List[str] = []

    def row(self, entry: Entry, where: str) -> None:
        """One row follows the one before it."""
        if entry.seq != self.seq + 1:
            self.mistakes.append(f"{where}: after row {self.seq} comes row {entry.seq}: rows are missing")
        elif entry.previous != self.previous:
            self.mistakes.append(f"{where}: row {entry.seq} does not follow row {self.seq}: one of them is another")
        try:
            changed = audit.digest(entry) != entry.hash
        except (TypeError, ValueError, OverflowError, RecursionError) as error:  # SQLite keeps any type in any column
            self.mistakes.append(
                f"{where}: row {entry.seq} was changed and cannot be hashed: {printable(str(error), 80)}"
            )
            changed = False
        if changed:
            self.mistakes.append(f"{where}: row {entry.seq} was changed")
        known = self.anchored.get(entry.seq)
        if known is not None:
            self.accounted.add(entry.seq)
        if known is not None and known != entry.hash:
            self.mistakes.append(f"{where}: row {entry.seq} is another than the one that was anchored")
        self.seq, self.previous = entry.seq, entry.hash


def verify(connection: Connection, anchor: Anchor) -> Verified:
    """Go through the whole log. Raises StoreError where the database cannot be read."""
    store = anchor.store
    anchored, mistakes = _anchored(anchor)
    walk = _Walk(store, anchored)
    archived = rows = 0
    for segment in segments(connection):
        if len(walk.mistakes) >= MISTAKES:
            break
        archived += _segment(walk, segment)
    for some in audit.walk(connection):
        rows += len(some)
        for entry in some:
            walk.row(entry, "audit")
        if len(walk.mistakes) >= MISTAKES:
            break
    mistakes += walk.mistakes[:MISTAKES]
    newest = max(anchored, default=0)
    if len(walk.mistakes) < MISTAKES:
        if newest > walk.seq:
            mistakes.append(f"audit: ends with row {walk.seq}, but row {newest} was anchored: its tail was cut")
        lost = sorted(set(anchored) - walk.accounted)
        if lost and lost[0] <= walk.seq:
            mistakes.append(f"audit: row {lost[0]} was anchored and is nowhere: {len(lost)} anchored rows are missing")
        if walk.seq and not anchored:
            mistakes.append(f"{anchor.path}: anchors nothing of this store, which has {walk.seq} rows")
    return Verified(rows, archived, walk.seq, newest, tuple(mistakes))


def segments(connection: Connection) -> List[Segment]:
    """The archived segments, in their order."""
    return [Segment._make(row) for row in connection.execute(sa.select(audit_segments).order_by(audit_segments.c.last))]


def lines(path: str) -> Iterator[Entry]:
    """The rows in a segment's file. Raises OSError, ValueError for what is none."""
    try:
        with os.fdopen(open_file(path), "rb") as packed, gzip.open(packed, "rt", encoding="utf-8") as file:
            while True:
                line = file.readline(LINE_LIMIT)
                if not line:
                    return
                yield Entry._make(_fields(parse_json(line)))
    except (zlib.error, EOFError, TypeError) as error:
        raise ValueError(f"damaged: {error}") from None


def _fields(value: object) -> Sequence[object]:
    if not isinstance(value, list) or len(value) != len(Entry._fields):
        raise ValueError("damaged: a line is no row")
    for name, field in zip(Entry._fields, value):
        if type(field) not in _TYPES.get(name, (str,)):
            raise ValueError(f"damaged: the {name} of a row is a {type(field).__name__}")
    return value


_TYPES: Dict[str, Tuple[type, ...]] = {"seq": (int,), "at": (int, float), "episode": (int,)}


def _anchored(anchor: Anchor) -> Tuple[Dict[int, str], List[str]]:
    anchored: Dict[int, str] = {}
    mistakes: List[str] = []
    try:
        for line in anchor.lines():
            if not line.seq:
                mistakes.append(f"{anchor.path}:{line.line}: damaged")
            elif line.store != anchor.store:
                mistakes.append(f"{anchor.path}:{line.line}: is of another store ({line.store[:12]})")
            elif anchored.setdefault(line.seq, line.hash) != line.hash:
                mistakes.append(f"{anchor.path}:{line.line}: row {line.seq} was anchored before, as another")
            if len(mistakes) >= MISTAKES:
                break
    except FileNotFoundError:
        pass  # said where there are rows
    except OSError as error:
        mistakes.append(f"{anchor.path}: {error.strerror or error}")
    return anchored, mistakes


def _segment(walk: _Walk, segment: Segment) -> int:
    where, count = segment.path, 0
    before, known = walk.seq, len(walk.mistakes)
    try:
        if _sha256(segment.path) != segment.sha256:
            walk.mistakes.append(f"{where}: was changed since it was archived")
        for entry in lines(segment.path):
            walk.row(entry, where)
            count += 1
            if len(walk.mistakes) >= MISTAKES:
                break
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        walk.mistakes.append(f"{where}: rows {segment.first} to {segment.last} were archived there: {why}")
    whole = (walk.seq, walk.previous) == (segment.last, segment.hash) and count == segment.last - segment.first + 1
    if not whole and len(walk.mistakes) == known:
        walk.mistakes.append(
            f"{where}: holds {count} rows and ends with row {walk.seq}, not with row {segment.last} as it was archived"
        )
    if segment.first != before + 1:
        walk.mistakes.append(f"{where}: begins with row {segment.first}, after row {before}: rows are missing")
    walk.seq, walk.previous = segment.last, segment.hash
    return count


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with os.fdopen(open_file(path), "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()
