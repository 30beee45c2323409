"""How the fleet was: problems that stood at moments of a span, repairs within its parts. Counted by the database."""

from __future__ import annotations

from collections import Counter
from typing import Dict, List, NamedTuple, Optional, Tuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from nhc.store.coverage import part_of
from nhc.store.episodes import REPAIR
from nhc.store.schema import episodes, problems


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
