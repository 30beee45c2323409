"""The times at which a node was watched: spans of reports without a gap. Outside them, its health is not known."""

from __future__ import annotations

from typing import Dict, Iterable, List, NamedTuple, Sequence, Tuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from nhc.store.schema import batches, coverage, nodes


class ReportSpan(NamedTuple):
    """A span of time in Unix seconds: of reports without a gap, or the queried one."""

    began: float
    ended: float


def add(connection: Connection, node: str, span: Tuple[float, float], gap: float) -> None:
    """Store a span, merged with those that are less than a gap away from it."""
    began, ended = span
    here = sa.and_(coverage.c.node == node, coverage.c.began <= ended + gap, coverage.c.ended >= began - gap)
    for row in connection.execute(sa.select(coverage).where(here)).all():
        began, ended = min(began, row.began), max(ended, row.ended)
    connection.execute(sa.delete(coverage).where(here))
    connection.execute(sa.insert(coverage).values(node=node, began=began, ended=ended))


def spans(connection: Connection, node: str, began: float, ended: float, gap: float = 600.0) -> List[ReportSpan]:
    """The spans of a node that touch this time, cut to it, in their order; less than a gap apart, two are one."""
    return spans_of(connection, [node], began, ended, gap)[node]


def spans_of(
    connection: Connection, names: Sequence[str], began: float, ended: float, gap: float = 600.0
) -> Dict[str, List[ReportSpan]]:
    """The same of several nodes, by name."""
    touching: Dict[str, List[ReportSpan]] = {name: [] for name in names}
    for some in batches(names):
        here = sa.and_(coverage.c.node.in_(some), coverage.c.ended >= began - gap, coverage.c.began <= ended + gap)
        for row in connection.execute(sa.select(coverage).where(here)):
            touching[row.node].append(ReportSpan(row.began, row.ended))
        asked = sa.select(nodes.c.node, nodes.c.covered_since, nodes.c.reported_at)
        for row in connection.execute(asked.where(nodes.c.node.in_(some), nodes.c.covered_since.is_not(None))):
            touching[row.node].append(ReportSpan(row.covered_since, row.reported_at))
    return {name: joined(some, began, ended, gap) for name, some in touching.items()}


def joined(some: Iterable[ReportSpan], began: float, ended: float, gap: float = 0.0) -> List[ReportSpan]:
    """Spans in their order, cut to a time; less than a gap apart, two are one."""
    whole: List[ReportSpan] = []
    for span in sorted(some):
        if whole and span.began - whole[-1].ended <= gap:
            whole[-1] = ReportSpan(whole[-1].began, max(whole[-1].ended, span.ended))
        else:
            whole.append(span)
    return [
        ReportSpan(max(span.began, began), min(span.ended, ended))
        for span in whole
        if span.ended >= began and span.began <= ended
    ]


def watched(connection: Connection, began: float, width: float, parts: int, fresh: float = 0.0) -> List[int]:
    """How many nodes were known in each of so many parts of a time from `began` on, each of `width` seconds.

    A report counts for `fresh` seconds.
    """
    steps = [0] * (parts + 1)
    for table, start, end in (
        (coverage, coverage.c.began, coverage.c.ended), (nodes, nodes.c.covered_since, nodes.c.reported_at)
    ):  # fmt: skip
        first, last = part_of(start, began, width), part_of(end, began - fresh, width)
        here = sa.and_(start.is_not(None), end >= began - fresh)
        asked = sa.select(first, last, sa.func.count()).select_from(table).where(here)
        for row in connection.execute(asked.group_by(first, last)):
            came, went, count = int(row[0]), int(row[1]), int(row[2])
            if came < parts:
                steps[max(0, came)] += count
                steps[min(went + 1, parts)] -= count
    seen, total = [], 0
    for step in steps[:parts]:
        total += step
        seen.append(total)
    return seen


def part_of(column: sa.Column[float], began: float, width: float) -> sa.ColumnElement[int]:
    """The part in which a time lies. Half is subtracted before it is rounded: not every SQLite has floor()."""
    return sa.cast(sa.func.round((column - began) / width - 0.5), sa.Integer)


def gaps(connection: Connection, node: str, began: float, ended: float, gap: float = 600.0) -> List[ReportSpan]:
    """The times between `began` and `ended` that no span covers."""
    holes, at = [], began
    for span in spans(connection, node, began, ended, gap):
        if span.began > at:
            holes.append(ReportSpan(at, span.began))
        at = max(at, span.ended)
    if at < ended:
        holes.append(ReportSpan(at, ended))
    return holes
