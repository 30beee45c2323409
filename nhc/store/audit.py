"""The audit log: who did what to which node, and why. Rows are only added.

Each row holds the hash of the one before it and is hashed with it, so that a change or a hole can be seen. Triggers
refuse to change or delete rows. A cut tail or a rebuilt chain is found by comparison with the anchor
(`nhc.store.anchor`).

Verifying the log finds a changed row, a hole, rows added or left out in an archived segment, a tail that was cut, and a
chain that was rebuilt with right hashes. Rows after the last anchored one are only as safe as the database.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import zlib
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from nhc.core.model import printable
from nhc.core.system.bounded_read import open_file, parse_json
from nhc.store.anchor import Anchor, Head
from nhc.store.database import HEAD, NEWEST
from nhc.store.schema import audit, audit_segments
from nhc.store.schema import store as store_table

LOCK = 0x6E686341
"""PostgreSQL's advisory lock under which rows are added, one transaction at a time."""
GATHERED = "nhc_audit_gathered"
TEXT_LIMIT = 2000
DETAIL_LIMIT = 64 << 10


_INSERT = sa.insert(audit)


class Entry(NamedTuple):
    """One row. `episode` is 0 for what belongs to none; `detail` is a JSON object as text."""

    seq: int
    at: float
    actor: str
    what: str
    node: str
    episode: int
    detail: str
    previous: str
    hash: str


def append(
    connection: Connection,
    at: float,
    actor: str,
    what: str,
    *,
    node: str = "",
    episode: int = 0,
    detail: Optional[Mapping[str, object]] = None,
) -> None:
    """Add a row, in the transaction of the change that it records. Call it last: it makes others wait for this commit.

    Within `together` the row is written at its end. `actor` is a person or a part of nhc, `what` a dotted word
    (`attempt.sent`). Raises ValueError for a detail that is no JSON or larger than 64 KiB.
    """
    text = json.dumps(detail or {}, sort_keys=True, separators=(",", ":"), allow_nan=False)
    if len(text) > DETAIL_LIMIT:
        raise ValueError(f"an audit detail of {len(text)} bytes: at most {DETAIL_LIMIT}")
    row = Entry(
        0, float(at), printable(actor, TEXT_LIMIT), printable(what, TEXT_LIMIT), printable(node, TEXT_LIMIT),
        episode, text, "", "",
    )  # fmt: skip
    gathered: Optional[List[Entry]] = connection.info.get(GATHERED)
    if gathered is None:
        _write(connection, [row])
    else:
        gathered.append(row)


@contextlib.contextmanager
def together(connection: Connection) -> Iterator[None]:
    """Write the rows that the body adds at its end, in one statement; none if it raises."""
    if GATHERED in connection.info:
        yield
        return
    gathered: List[Entry] = []
    connection.info[GATHERED] = gathered
    try:
        yield
    finally:
        del connection.info[GATHERED]
    if gathered:
        _write(connection, gathered)


def _write(connection: Connection, rows: Sequence[Entry]) -> None:
    """Chain rows to the newest one and insert them. The newest is read once a transaction."""
    newest: Optional[Head] = connection.info.get(HEAD)
    if newest is None:
        lock(connection)
        last = connection.execute(NEWEST).first()
        newest = Head(last.seq, last.hash, last.at) if last is not None else Head(0, genesis(_store(connection)), 0.0)
    values = []
    for entry in rows:
        row = entry._replace(seq=newest.seq + 1, previous=newest.hash)
        row = row._replace(hash=digest(row))
        newest = Head(row.seq, row.hash, row.at)
        values.append({**row._asdict(), "episode": row.episode or None})
    connection.execute(_INSERT, values)
    connection.info[HEAD] = newest


def lock(connection: Connection) -> None:
    """Keep others from adding rows until this transaction ends; SQLite has one writer anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK)))


def digest(row: Entry) -> str:
    """The hash of a row, with that of the row before it."""
    whole = [row.seq, row.at, row.actor, row.what, row.node, row.episode, row.detail, row.previous]
    return hashlib.sha256(json.dumps(whole, separators=(",", ":")).encode()).hexdigest()


def genesis(store: str) -> str:
    """The hash before the first row: no two stores have the same."""
    return hashlib.sha256(f"nhc audit {store}".encode()).hexdigest()


def entries(
    connection: Connection, *, node: str = "", episode: int = 0, what: str = "", after: int = 0, limit: int = 100,
    newest: bool = False,
) -> List[Entry]:  # fmt: skip
    """Rows of a node, an episode or one kind (`what`), or all: above number `after`, the first or newest `limit`."""
    asked = sa.select(audit).where(audit.c.seq > after)
    if node:
        asked = asked.where(audit.c.node == node)
    if episode:
        asked = asked.where(audit.c.episode == episode)
    if what:
        asked = asked.where(audit.c.what == what)
    result = connection.execute(asked.order_by(audit.c.seq.desc() if newest else audit.c.seq).limit(limit))
    rows = [_entry(row) for row in result]
    return rows[::-1] if newest else rows


def walk(connection: Connection, size: int = 1000) -> Iterator[Sequence[Entry]]:
    """All rows in order, so many at a time."""
    after = 0
    while True:
        page = connection.execute(sa.select(audit).where(audit.c.seq > after).order_by(audit.c.seq).limit(size)).all()
        if not page:
            return
        yield [_entry(row) for row in page]
        after = page[-1].seq


def head(connection: Connection) -> Optional[Entry]:
    """The newest row, None if there is none."""
    row = connection.execute(sa.select(audit).order_by(audit.c.seq.desc()).limit(1)).first()
    return _entry(row) if row else None


def _store(connection: Connection) -> str:
    return str(connection.scalar(sa.select(store_table.c.id)) or "")


def _entry(row: Row[tuple[object, ...]]) -> Entry:
    return Entry(row.seq, row.at, row.actor, row.what, row.node, row.episode or 0, row.detail, row.previous, row.hash)


MISTAKES = 20
"""Mistakes that are reported one by one. The first one already shows that the log was changed."""
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
        self.previous, self.seq = genesis(store), 0
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
            changed = digest(entry) != entry.hash
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
    """Verify the whole log. Raises StoreError if the database cannot be read."""
    store = anchor.store
    anchored, mistakes = _anchored(anchor)
    chain = _Walk(store, anchored)
    archived = rows = 0
    for segment in segments(connection):
        if len(chain.mistakes) >= MISTAKES:
            break
        archived += _segment(chain, segment)
    for some in walk(connection):
        rows += len(some)
        for entry in some:
            chain.row(entry, "audit")
        if len(chain.mistakes) >= MISTAKES:
            break
    mistakes += chain.mistakes[:MISTAKES]
    newest = max(anchored, default=0)
    if len(chain.mistakes) < MISTAKES:
        if newest > chain.seq:
            mistakes.append(f"audit: ends with row {chain.seq}, but row {newest} was anchored: its tail was cut")
        lost = sorted(set(anchored) - chain.accounted)
        if lost and lost[0] <= chain.seq:
            mistakes.append(f"audit: row {lost[0]} was anchored and is nowhere: {len(lost)} anchored rows are missing")
        if chain.seq and not anchored:
            mistakes.append(f"{anchor.path}: anchors nothing of this store, which has {chain.seq} rows")
    return Verified(rows, archived, chain.seq, newest, tuple(mistakes))


def segments(connection: Connection) -> List[Segment]:
    """The archived segments, in their order."""
    return [Segment._make(row) for row in connection.execute(sa.select(audit_segments).order_by(audit_segments.c.last))]


def lines(path: str) -> Iterator[Entry]:
    """The rows in a segment's file. Raises OSError; ValueError if it is no segment."""
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
        pass  # reported if there are rows
    except OSError as error:
        mistakes.append(f"{anchor.path}: {error.strerror or error}")
    return anchored, mistakes


def _segment(chain: _Walk, segment: Segment) -> int:
    where, count = segment.path, 0
    before, known = chain.seq, len(chain.mistakes)
    try:
        if _sha256(segment.path) != segment.sha256:
            chain.mistakes.append(f"{where}: was changed since it was archived")
        for entry in lines(segment.path):
            chain.row(entry, where)
            count += 1
            if len(chain.mistakes) >= MISTAKES:
                break
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        chain.mistakes.append(f"{where}: rows {segment.first} to {segment.last} were archived there: {why}")
    whole = (chain.seq, chain.previous) == (segment.last, segment.hash) and count == segment.last - segment.first + 1
    if not whole and len(chain.mistakes) == known:
        chain.mistakes.append(
            f"{where}: holds {count} rows and ends with row {chain.seq}, not with row {segment.last} as it was archived"
        )
    if segment.first != before + 1:
        chain.mistakes.append(f"{where}: begins with row {segment.first}, after row {before}: rows are missing")
    chain.seq, chain.previous = segment.last, segment.hash
    return count


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with os.fdopen(open_file(path), "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()
