"""How the fleet was: problems that stood at moments of a span, repairs within its parts, and when nodes were out of
service because of nhc: from its mark to the node's return, or to a later repair's beginning.

Only the scheduler knows which nodes a person took out there.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from nhc.store.coverage import ReportSpan, joined, part_of
from nhc.store.episodes import KINDS_ON_NODES, ON_NODES, REPAIR
from nhc.store.schema import LEFT, batches, episodes, problems

_MARKED = re.compile(r'"marked":([0-9.e+]+)')
"""The time of the mark in an episode's detail, as `nhc.remedy.detail` writes it: a whole detail of 20 faults takes ten
times as long to read, and a quarter of a year has 90,000."""
_OF_A_DEVICE = re.compile(r'"(about|widened)":\[')
"""The key of the one accelerator that is marked (`Detail.node_marked`): its node stays in service."""


class OutPart(NamedTuple):
    """A part of a span: nodes that are out at its end, and node-seconds and GPU-seconds that were lost within it."""

    out: int
    node_seconds: float
    gpu_seconds: float


def out_spans(
    connection: Connection, began: float, ended: float, names: Optional[Sequence[str]] = None
) -> Dict[str, List[ReportSpan]]:
    """By node, the times between `began` and `ended` in which it was out; of these nodes, or (None) of all."""
    later = episodes.alias("later")
    left_before = sa.and_(
        LEFT, episodes.c.ended < began,
        ~sa.exists().where(
            later.c.node == episodes.c.node, later.c.id > episodes.c.id, later.c.opened < began,
            later.c.kind.in_(KINDS_ON_NODES),
        ),
    )  # fmt: skip
    columns = [episodes.c[name] for name in ("id", "node", "state", "opened", "ended", "detail")]
    spans: Dict[str, List[ReportSpan]] = {}
    for some in [None] if names is None else batches(names):
        of = sa.true() if some is None else episodes.c.node.in_(some)
        rows = {
            row.id: row
            for which in (episodes.c.ended.is_(None), episodes.c.ended >= began, left_before)  # an index each
            for row in connection.execute(sa.select(*columns).where(ON_NODES, which, of, episodes.c.opened <= ended))
        }
        by_node: Dict[str, List[sa.Row]] = {}  # type: ignore[type-arg]
        for _number, row in sorted(rows.items()):
            by_node.setdefault(row.node, []).append(row)
        for node, mine in by_node.items():
            out = [span for place, row in enumerate(mine) if (span := _out(row, mine[place + 1 :], ended)) is not None]
            if found := joined(out, began, ended):
                spans[node] = found
    return spans


def _out(row: sa.Row, after: Sequence[sa.Row], now: float) -> Optional[ReportSpan]:  # type: ignore[type-arg]
    """The time that one episode had its node out. An episode that was left to a person lasts until the node's next
    one.
    """
    marked = _MARKED.search(row.detail)
    if marked is None or _OF_A_DEVICE.search(row.detail):
        return None
    end = now if row.ended is None else float(row.ended)
    if row.state in ("escalated", "aborted"):
        end = min((float(other.opened) for other in after if other.opened >= row.opened), default=now)
    return ReportSpan(float(marked.group(1)), max(end, float(marked.group(1))))


def lost_capacity(
    spans: Mapping[str, Iterable[ReportSpan]], gpus: Mapping[str, int], began: float, width: float, parts: int
) -> List[OutPart]:
    """The sums of the spans in so many parts, each of `width` seconds. `gpus` has the GPUs of the nodes it knows."""
    out, nodes, accelerators = [0] * parts, [0.0] * parts, [0.0] * parts
    for node, some in spans.items():
        of = gpus.get(node, 0)
        for span in some:
            first = max(0, int((span.began - began) // width))
            for place in range(first, parts):
                start, end = began + width * place, began + width * (place + 1)
                if start >= span.ended:
                    break
                here = min(span.ended, end) - max(span.began, start)
                nodes[place] += here
                accelerators[place] += here * of
                out[place] += span.began <= end <= span.ended
    return [OutPart(*part) for part in zip(out, nodes, accelerators)]


class HistoryPart(NamedTuple):
    """A part of the span. `standing` are problems by verdict at its end; `opened` and `ended` are repairs within it.

    `ended` has them by the state that they ended in. `at` is the part's end, in Unix seconds.
    """

    at: float
    standing: Dict[str, int]
    opened: int
    ended: Dict[str, int]


def of_fleet(connection: Connection, began: float, width: float, parts: int) -> List[HistoryPart]:
    """The parts of a span from `began` on, each of `width` seconds. Reads what ended since, and what is open."""
    made = [HistoryPart(began + width * (place + 1), {}, 0, {}) for place in range(parts)]
    steps: Dict[Tuple[str, int], int] = Counter()
    first, last = part_of(problems.c.began, began, width), part_of(problems.c.ended, began, width)
    for verdict, came, went, count in _counts(connection, problems, problems.c.verdict, first, last, began):
        steps[verdict, max(0, came)] += count
        if went is not None:
            steps[verdict, went] -= count
    for verdict in {verdict for verdict, _place in steps}:
        standing = 0
        for place, part in enumerate(made):
            standing += steps[verdict, place]
            part.standing[verdict] = standing
    first, last = part_of(episodes.c.opened, began, width), part_of(episodes.c.ended, began, width)
    for state, came, went, count in _counts(connection, episodes, episodes.c.state, first, last, began, REPAIR):
        if 0 <= came < parts:
            made[came] = made[came]._replace(opened=made[came].opened + count)
        if went is not None and 0 <= went < parts:
            made[went].ended[state] = made[went].ended.get(state, 0) + count
    return made


def _counts(
    connection: Connection,
    table: sa.Table,
    kind: sa.Column[str],
    first: sa.ColumnElement[int],
    last: sa.ColumnElement[int],
    began: float,
    *which: sa.ColumnElement[bool],
) -> List[Tuple[str, int, Optional[int], int]]:
    """Rows that are open or ended since: kind, part of the beginning, part of the end (None while open), how many."""
    counts: List[Tuple[str, int, Optional[int], int]] = []
    for wanted in (table.c.ended.is_(None), table.c.ended >= began):  # an index each
        asked = sa.select(kind, first, last, sa.func.count()).where(wanted, *which).group_by(kind, first, last)
        counts += [(str(row[0]), int(row[1]), row[2], int(row[3])) for row in connection.execute(asked)]
    return counts
