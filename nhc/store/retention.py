"""How long data is stored: history, problems and evidence by age. The audit log is archived into files, never deleted.

A node's newest deep verdict of each suite stays at any age: other parts ask how old it is.

Everything is deleted in small transactions, so that no other writer has to wait. The next run continues an interrupted
one.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
from typing import Dict, List, NamedTuple, Tuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from nhc.core.settings import declared
from nhc.core.system import written_files
from nhc.store import audit, evidence, location
from nhc.store.database import LONG, Store
from nhc.store.errors import StoreError
from nhc.store.schema import (
    attempts,
    audit_segments,
    count,
    coverage,
    deep_results,
    episodes,
    jobs,
    machines,
    problems,
    report_history,
    sweep_tests,
    sweeps,
    tokens,
    train_approvals,
    trains,
)
from nhc.store.schema import audit as audit_table
from nhc.store.schema import evidence as evidence_table

CHUNK = 5000
"""Rows deleted in one transaction."""
DAY = 86400.0


@declared.settings
class RetentionPeriods(NamedTuple):
    """Ages in seconds. Repairs and their attempts are never deleted: they are few, and rates are counted from them."""

    history: float = declared.seconds("history", 90 * DAY, least=DAY)
    problems: float = declared.seconds("problems", 365 * DAY, "after their end; and what nodes were made of", least=DAY)
    audit: float = declared.seconds("audit", 365 * DAY, "in the database; older rows are moved into files", least=DAY)
    tokens: float = declared.seconds("tokens", 365 * DAY, "after they were revoked", least=DAY)
    deep: float = declared.seconds(
        "deep", 180 * DAY, "deep results and sweeps; a node's newest of each suite stays", least=DAY
    )
    trains: float = declared.seconds(
        "trains", 365 * DAY, "nodes and work of maintenance trains, after their end; the names stay", least=DAY
    )
    jobs: float = declared.seconds(
        "jobs", 365 * DAY, "jobs with their restarts and the nodes that failed them, after their end", least=DAY
    )


@declared.settings
class PruneSettings(NamedTuple):
    """How often to prune (seconds; 0 for never), how long data is stored, and where old rows of the audit log go."""

    keep: RetentionPeriods = declared.part("keep", RetentionPeriods)
    segments: str = declared.text(
        "audit-archive", f"{location.DIRECTORY}/audit", "where `nhc store prune` puts old rows of the audit log"
    )
    every: float = declared.seconds(
        "keep.every", 86400.0,
        "how often `nhc serve server` and `nhc serve remedy` prune, all of them together; 0: `nhc store prune` alone",
    )  # fmt: skip


class Pruned(NamedTuple):
    """How many rows were deleted, by table, and the files that evidence no longer needs."""

    rows: Dict[str, int]
    files: List[str]
    segment: str = ""


class _Crowd(NamedTuple):
    """Rows of which a node may have many: those of a table that match `which`. For each hour, the first row of a kind
    stays.
    """

    table: sa.Table
    at: sa.Column[float]
    which: sa.ColumnElement[bool]
    kinds: Tuple[sa.Column[str], ...]


NEWEST = 1000
"""Rows of the history of one node, and of its ended problems, that all stay. Of older rows, the first of each hour
stays for each verdict or problem: a node whose problem comes and goes each minute would have 130,000 rows of history in
90 days, and 260,000 problems in a year.
"""
_CROWDS = (
    _Crowd(report_history, report_history.c.started, sa.true(), (report_history.c.verdict,)),
    _Crowd(problems, problems.c.began, problems.c.ended.is_not(None),
           (problems.c.check, problems.c.reason, problems.c.target, problems.c.verdict)),
)  # fmt: skip


def _crowded(connection: Connection, crowd: _Crowd) -> List[sa.ColumnElement[bool]]:
    """The rows that repeat others, of each node with many rows. Reads one index for each table."""
    node, at, key = crowd.table.c.node, crowd.at, list(crowd.table.primary_key.columns)[-1]
    asked = sa.select(node).where(crowd.which).group_by(node).having(sa.func.count() > NEWEST)
    crowded = []
    for (name,) in connection.execute(asked).all():
        here = sa.and_(node == name, crowd.which)
        newest = sa.select(at).where(here).order_by(at.desc()).offset(NEWEST - 1).limit(1)
        old = sa.and_(here, at < connection.scalar(newest))
        firsts = sa.select(sa.func.min(key)).where(old).group_by(sa.cast(at, sa.BigInteger) // 3600, *crowd.kinds)
        crowded.append(sa.and_(old, key.not_in(firsts)))
    return crowded


def _thin(store: Store, crowd: _Crowd) -> int:
    with store.read(LONG) as connection:
        crowded = _crowded(connection, crowd)
    return sum(_some(store, crowd.table, which) for which in crowded)


def prune(
    store: Store, keep: RetentionPeriods, now: float, *, segments: str, by: str, with_evidence: bool = True
) -> Pruned:  # fmt: skip
    """Delete what is older than that, and archive old rows of the audit log in the directory `segments`.

    `with_evidence` is for a caller that deletes its files as well.

    Raises StoreError; what was deleted until then stays deleted.
    """
    rows = {table.name: _some(store, table, which) for table, which in _old(keep, now, with_results=False)}
    for crowd in _CROWDS:
        rows[crowd.table.name] += _thin(store, crowd)
    files: List[str] = []
    if with_evidence:
        rows["evidence"], files = evidence.forget_expired(store, now)
    done = {name: count for name, count in rows.items() if count}
    if done:
        with store.write(patience=LONG) as connection:
            audit.append(connection, now, by, "store.pruned", detail=dict(done))
    return Pruned(rows, files, archive(store, now - keep.audit, now, segments=segments, by=by))


def due(store: Store, keep: RetentionPeriods, now: float) -> Dict[str, int]:
    """How many rows `prune` would delete or archive now, by table. Raises StoreError."""
    young = sa.select(sa.func.min(audit_table.c.seq)).where(audit_table.c.at >= now - keep.audit).scalar_subquery()
    newest = sa.select(sa.func.max(audit_table.c.seq)).scalar_subquery()
    old = {
        **dict(_old(keep, now, with_results=True)),
        evidence_table: evidence_table.c.expires <= now,
        audit_table: audit_table.c.seq < sa.func.coalesce(young, newest),
    }
    with store.read(LONG) as connection:
        counts = {table.name: count(connection, table, which) for table, which in old.items()}
        for crowd in _CROWDS:
            others = sa.not_(old[crowd.table])
            counts[crowd.table.name] += sum(
                count(connection, crowd.table, which, others) for which in _crowded(connection, crowd)
            )
        return counts


def _old(keep: RetentionPeriods, now: float, with_results: bool) -> List[Tuple[sa.Table, sa.ColumnElement[bool]]]:
    """The expired rows, in the order in which they are deleted: first the rows that name others.

    Everything of trains is deleted except their names: no name is used twice. `with_results`: see `_old_sweeps`.
    """
    old_results, old_sweeps = _old_results(now - keep.deep), _old_sweeps(now - keep.deep, with_results)
    old = sa.select(trains.c.id).where(trains.c.ended < now - keep.trains)
    return [
        (report_history, report_history.c.started < now - keep.history),
        (coverage, coverage.c.ended < now - keep.history),
        (problems, problems.c.ended < now - keep.problems),
        (machines, _old_machines(now - keep.problems)),
        (tokens, tokens.c.ended < now - keep.tokens),
        (jobs, jobs.c.ended < now - keep.jobs),  # with their restarts and nodes
        (deep_results, old_results),
        (sweep_tests, sweep_tests.c.sweep.in_(old_sweeps)),
        (sweeps, sweeps.c.id.in_(old_sweeps)),
        (attempts, attempts.c.episode.in_(sa.select(episodes.c.id).where(episodes.c.train.in_(old)))),
        (train_approvals, train_approvals.c.train.in_(old)),
        (episodes, episodes.c.train.in_(old)),
    ]


def archive(store: Store, before: float, now: float, *, segments: str, by: str) -> str:
    """Move rows of the audit log that are older than `before` into a file; its path, "" if there are none.

    The newest row always stays: the next one is hashed with it. The file is on the disk before a row is deleted. Raises
    StoreError.
    """
    with store.read(LONG) as connection:
        newest = audit.head(connection)
        first = connection.scalar(sa.select(sa.func.min(audit_table.c.seq)))
        young = connection.scalar(sa.select(sa.func.min(audit_table.c.seq)).where(audit_table.c.at >= before))
        if newest is None or first is None:
            return ""
        last = min(newest.seq, young if young is not None else newest.seq) - 1
        if last < first:
            return ""
        path = os.path.join(os.path.abspath(segments), f"audit-{store.id[:8]}-{first}-{last}.jsonl.gz")
        try:
            digest, end = _write(connection, path, last)
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror or error}: no row was archived") from None
    row = {"last": last, "first": first, "hash": end, "path": path, "sha256": digest, "archived": now}
    with store.write(patience=LONG) as connection:
        audit.lock(connection)
        if connection.scalar(sa.select(sa.func.min(audit_table.c.seq))) != first:
            raise StoreError(f"{store.name}: another archived rows of the audit log at this moment")
        connection.execute(sa.insert(audit_segments), row)
        connection.execute(sa.delete(audit_table).where(audit_table.c.seq <= last))
        audit.append(connection, now, by, "audit.archived", detail=row)
    return path


def _write(connection: Connection, path: str, last: int) -> tuple[str, str]:
    """The segment's file, and its name, on the disk. The digest of the file and the hash of its last row."""
    directory = os.path.dirname(path)
    written_files.make_directories(directory, 0o700)
    temporary = f"{path}.{os.getpid()}.tmp"
    fd = written_files.open_or_make(temporary, os.O_RDWR | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        end = ""
        with open(fd, "wb", closefd=False) as raw:
            packed = gzip.GzipFile("", "wb", 6, raw, mtime=0)
            with io.TextIOWrapper(packed, encoding="utf-8") as text:
                for some in audit.walk(connection):
                    rows = [row for row in some if row.seq <= last]
                    text.writelines(json.dumps(list(row)) + "\n" for row in rows)
                    end = rows[-1].hash if rows else end
                    if len(rows) < len(some):
                        break
        os.fsync(fd)
        digest = hashlib.sha256()
        os.lseek(fd, 0, os.SEEK_SET)
        while block := os.read(fd, 1 << 20):
            digest.update(block)
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    finally:
        os.close(fd)
    at = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(at)
    finally:
        os.close(at)
    return digest.hexdigest(), end


def _old_results(before: float) -> sa.ColumnElement[bool]:
    """Results of deep checks from before that time, except each node's newest run of a suite."""
    newest = sa.select(
        deep_results.c.node, deep_results.c.suite, sa.func.max(deep_results.c.at)
    ).group_by(deep_results.c.node, deep_results.c.suite)  # fmt: skip
    kept = sa.tuple_(deep_results.c.node, deep_results.c.suite, deep_results.c.at).in_(newest)
    return sa.and_(deep_results.c.at < before, sa.not_(kept))


def _old_machines(before: float) -> sa.ColumnElement[bool]:
    """The rows about nodes' machines that were replaced by newer rows before that time."""
    later = machines.alias("later")
    return sa.exists().where(
        later.c.node == machines.c.node, later.c.began > machines.c.began, later.c.began <= before
    )  # fmt: skip


def _old_sweeps(before: float, with_results: bool) -> sa.Select[Tuple[int]]:
    """The sweeps that ended before that time and that no result names; `with_results`: that no remaining result
    names.
    """
    named = sa.select(deep_results.c.sweep).where(deep_results.c.sweep.is_not(None))
    if with_results:
        named = named.where(sa.not_(_old_results(before)))
    return sa.select(sweeps.c.id).where(sweeps.c.ended < before, sweeps.c.id.not_in(named))


def _some(store: Store, table: sa.Table, which: sa.ColumnElement[bool]) -> int:
    """Delete these rows, some at a time."""
    keys = list(table.primary_key.columns)
    total = 0
    while True:
        some = sa.select(*keys).where(which).limit(CHUNK)
        with store.write(patience=LONG) as connection:
            here = keys[0].in_(some) if len(keys) == 1 else sa.tuple_(*keys).in_(some)
            count = connection.execute(sa.delete(table).where(here)).rowcount
        total += count
        if count < CHUNK:
            return total
