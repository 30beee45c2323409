"""Counts of the repairs that have ended since some time, made by the database: a month may have 30,000 of them."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from nhc.store.episodes import ON_NODES, REPAIR, REPAIR_KIND, Episode
from nhc.store.machines import of_this_machine
from nhc.store.schema import LEFT, batches, count, episodes


class EndedEpisode(NamedTuple):
    """The counted fields of an episode that has ended, without its detail."""

    id: int
    version: int
    node: str
    cause: str
    state: str
    opened: float
    train: Optional[int]


def since(connection: Connection, at: float) -> List[EndedEpisode]:
    """The episodes that have ended since then, maintenance among them, the oldest first."""
    columns = (episodes.c[name] for name in EndedEpisode._fields)
    rows = connection.execute(sa.select(*columns).where(ON_NODES, episodes.c.ended >= at))
    # With ORDER BY, SQLite reads all episodes ever written instead of sorting these.
    return sorted((EndedEpisode._make(row) for row in rows), key=lambda episode: episode.id)


def details(connection: Connection, numbers: Sequence[int]) -> Dict[int, str]:
    """The details of episodes, by their numbers."""
    texts: Dict[int, str] = {}
    for batch in batches(numbers):
        rows = connection.execute(sa.select(episodes.c.id, episodes.c.detail).where(episodes.c.id.in_(batch)))
        texts.update({row.id: row.detail for row in rows})
    return texts


def outcomes(connection: Connection, since: float) -> Dict[str, int]:
    """How many episodes ended in which state, the most frequent first."""
    count = sa.func.count()
    asked = sa.select(episodes.c.state, count).where(REPAIR, episodes.c.ended >= since).group_by(episodes.c.state)
    return {str(row[0]): int(row[1]) for row in connection.execute(asked.order_by(count.desc(), episodes.c.state))}


def left_to_operators(connection: Connection) -> List[Episode]:
    """The last episode of each node that was left to a person, the newest first.

    A node with a later episode is not among them: `nhc release remedy` begins one. The index `episodes_left` has only
    episodes that were left: the history of successful repairs is not read.
    """
    newest = sa.select(sa.func.max(episodes.c.id)).where(LEFT, REPAIR).group_by(episodes.c.node)
    later = episodes.alias("later")
    none_later = ~sa.exists().where(
        later.c.node == episodes.c.node, later.c.id > episodes.c.id, later.c.kind == REPAIR_KIND
    )
    asked = sa.select(episodes).where(episodes.c.id.in_(newest), none_later)
    return [Episode._make(row) for row in connection.execute(asked.order_by(episodes.c.id.desc()))]


def repeated(connection: Connection, since: float, limit: int) -> List[Tuple[str, int]]:
    """The nodes with more than one ended repair of their present machine, with how many, the most first."""
    # Grouped by an expression: by the column itself, SQLite would read all episodes in the order of their nodes.
    node, count = episodes.c.node.concat(""), sa.func.count()
    mine = of_this_machine(episodes.c.node, episodes.c.opened)
    asked = sa.select(node, count).where(REPAIR, episodes.c.ended >= since, mine).group_by(node).having(count > 1)
    return [(str(row[0]), int(row[1])) for row in connection.execute(asked.order_by(count.desc(), node).limit(limit))]


def durations(connection: Connection, since: float, state: str, shares: Sequence[float]) -> List[Optional[float]]:
    """Within how many seconds these shares (0.5 is the median) of those that ended in a state did so.

    None if there is none.
    """
    of_state = sa.and_(REPAIR, episodes.c.ended >= since, episodes.c.state == state)
    total = count(connection, episodes, of_state)
    if not total:
        return [None] * len(shares)
    places = [min(int(total * share), total - 1) + 1 for share in shares]
    took = (episodes.c.ended - episodes.c.opened).label("took")
    place = sa.func.row_number().over(order_by=took).label("place")
    ordered = sa.select(took, place).where(of_state).subquery()
    asked = sa.select(ordered.c.place, ordered.c.took).where(ordered.c.place.in_(places))
    seconds = {int(row.place): float(row.took) for row in connection.execute(asked)}
    return [seconds.get(number) for number in places]
