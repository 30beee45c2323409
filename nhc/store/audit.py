"""The audit log: who did what to which node, and why; only ever added to.

Each row holds the hash of the one before it and is hashed with it, so that a change or a hole shows. Triggers refuse
to change or delete rows. A cut tail or a chain that was made anew shows against the anchor (`nhc.store.anchor`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from typing import Iterator, List, Mapping, NamedTuple, Optional, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from nhc.core.model import printable
from nhc.store.anchor import Head
from nhc.store.database import HEAD, NEWEST
from nhc.store.schema import audit
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
    """Add a row, in the transaction of what it tells of. Call it last: it makes others wait for this commit.

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
    """Write the rows that the body adds at its end, in one statement; none where it raises."""
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
    """What stands before the first row: no two stores have the same."""
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
    """The newest row, None where there is none."""
    row = connection.execute(sa.select(audit).order_by(audit.c.seq.desc()).limit(1)).first()
    return _entry(row) if row else None


def _store(connection: Connection) -> str:
    return str(connection.scalar(sa.select(store_table.c.id)) or "")


def _entry(row: Row[tuple[object, ...]]) -> Entry:
    return Entry(row.seq, row.at, row.actor, row.what, row.node, row.episode or 0, row.detail, row.previous, row.hash)
