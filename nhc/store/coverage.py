"""The times at which a node was watched: spans of reports without a gap. Outside them, its health is not known."""

from __future__ import annotations

from typing import List, NamedTuple, Tuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from nhc.store.schema import coverage, nodes


class ReportSpan(NamedTuple):
    """A span of time in Unix seconds: of reports without a gap, or the one that is asked about."""

    began: float
    ended: float


def add(connection: Connection, node: str, span: Tuple[float, float], gap: float) -> None:
    """Keep a span, as one with those that lie less than a gap from it."""
    began, ended = span
    here = sa.and_(coverage.c.node == node, coverage.c.began <= ended + gap, coverage.c.ended >= began - gap)
    for row in connection.execute(sa.select(coverage).where(here)).all():
        began, ended = min(began, row.began), max(ended, row.ended)
    connection.execute(sa.delete(coverage).where(here))
    connection.execute(sa.insert(coverage).values(node=node, began=began, ended=ended))


def spans(connection: Connection, node: str, began: float, ended: float, gap: float = 600.0) -> List[ReportSpan]:
    """The spans of a node that touch this time, cut to it, in their order; less than a gap apart, two are one."""
    here = sa.and_(coverage.c.node == node, coverage.c.ended >= began - gap, coverage.c.began <= ended + gap)
    touching = [ReportSpan(row.began, row.ended) for row in connection.execute(sa.select(coverage).where(here))]
    asked = sa.select(nodes.c.covered_since, nodes.c.reported_at).where(nodes.c.node == node)
    now = connection.execute(asked).first()
    if now and now.covered_since is not None:
        touching.append(ReportSpan(now.covered_since, now.reported_at))
    whole: List[ReportSpan] = []
    for span in sorted(touching):
        if whole and span.began - whole[-1].ended <= gap:
            whole[-1] = ReportSpan(whole[-1].began, max(whole[-1].ended, span.ended))
        else:
            whole.append(span)
    return [
        ReportSpan(max(span.began, began), min(span.ended, ended))
        for span in whole
        if span.ended >= began and span.began <= ended
    ]


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
