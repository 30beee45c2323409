"""A summary of the store: counts, sizes, and how far the audit log is anchored."""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional

import sqlalchemy as sa

from nhc.store import nodes
from nhc.store.database import Store
from nhc.store.episodes import REPAIR
from nhc.store.schema import audit, count, episodes, problems, report_history
from nhc.store.schema import nodes as nodes_table


class Overview(NamedTuple):
    """Counts, and times as Unix seconds; None where there is nothing yet."""

    store: str
    revision: str
    size: int
    nodes: Dict[str, int]
    problems: int
    episodes: int
    history: int
    audit: int
    oldest: Optional[float]
    newest: Optional[float]


def overview(store: Store, revision: str) -> Overview:
    """What it holds now. Raises StoreError."""
    with store.read() as connection:
        if store.sqlite:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar() or 0
            size = pages * (connection.exec_driver_sql("PRAGMA page_size").scalar() or 0)
        else:
            size = connection.scalar(sa.select(sa.func.pg_database_size(sa.func.current_database()))) or 0
        times = connection.execute(
            sa.select(sa.func.min(nodes_table.c.received_at), sa.func.max(nodes_table.c.received_at))
        ).one()

        return Overview(
            store.id,
            revision,
            int(size),
            nodes.counts(connection),
            count(connection, problems, problems.c.ended.is_(None)),
            count(connection, episodes, REPAIR, episodes.c.ended.is_(None)),
            count(connection, report_history),
            int(connection.scalar(sa.select(sa.func.max(audit.c.seq))) or 0),
            times[0],
            times[1],
        )
