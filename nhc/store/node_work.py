"""What the store knows about the work on one node: jobs that run or failed there, maintenance trains."""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional, Tuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from nhc.store.episodes import PLANNED
from nhc.store.job_restarts import WatchedJob
from nhc.store.schema import episodes, job_nodes, job_restarts, jobs, trains

JOBS, TRAINS = 50, 10
"""Rows of one node that are read at most."""


class FailedJob(NamedTuple):
    """A job that failed on a node in one of its runs, and the restart that followed; "" and None if none did."""

    job: int
    kind: str
    namespace: str
    name: str
    user: str
    run: str
    why: str
    at: float
    restart: Optional[int]
    state: str
    outcome: str


class NodeTrain(NamedTuple):
    """A maintenance train that the node is in. `ended` is None while the train still has work on it.

    `detail` is that of its episode.
    """

    train: str
    by: str
    why: str
    wave: int
    state: str
    outcome: str
    updated: float
    ended: Optional[float]
    detail: str


def failed_jobs(connection: Connection, node: str) -> List[FailedJob]:
    """The jobs that failed on a node, the newest first."""
    restarted = sa.and_(job_restarts.c.job == job_nodes.c.job, job_restarts.c.run == job_nodes.c.run)
    asked = (
        sa.select(
            job_nodes.c.job, jobs.c.kind, jobs.c.namespace, jobs.c.name, jobs.c.user, job_nodes.c.run, job_nodes.c.why,
            job_nodes.c.at, job_restarts.c.number, sa.func.coalesce(job_restarts.c.state, ""),
            sa.func.coalesce(job_restarts.c.outcome, ""),
        )
        .join_from(job_nodes, jobs, jobs.c.id == job_nodes.c.job)
        .outerjoin(job_restarts, restarted)
        .where(job_nodes.c.node == node)
        .order_by(job_nodes.c.at.desc(), job_nodes.c.job)
        .limit(JOBS)
    )  # fmt: skip
    return [FailedJob._make(row) for row in connection.execute(asked)]


def running_jobs(connection: Connection, node: str) -> List[WatchedJob]:
    """The watched jobs whose newest run has this node and that have not ended."""
    # The nodes are words with a space between them; the pattern finds more, but only whole words count.
    asked = sa.select(jobs).where(jobs.c.ended.is_(None), jobs.c.nodes.contains(node, autoescape=True))
    rows = (WatchedJob._make(row) for row in connection.execute(asked.order_by(jobs.c.id.desc())))
    return [row for row in rows if node in row.node_names][:JOBS]


def trains_of(connection: Connection, node: str) -> List[NodeTrain]:
    """The trains that a node is or was in, the newest first."""
    asked = _in_trains().where(episodes.c.node == node).limit(TRAINS)
    return [NodeTrain._make(row[1:]) for row in connection.execute(asked)]


def begun_by_train(connection: Connection) -> List[Tuple[str, NodeTrain]]:
    """The nodes on which a train has begun and not ended, each with that train."""
    asked = _in_trains().where(episodes.c.ended.is_(None), episodes.c.state != PLANNED)
    return [(str(row[0]), NodeTrain._make(row[1:])) for row in connection.execute(asked)]


def _in_trains() -> sa.Select[Any]:
    columns = (trains.c.name, trains.c.by, trains.c.why, *(episodes.c[name] for name in NodeTrain._fields[3:]))
    asked = sa.select(episodes.c.node, *columns).join_from(episodes, trains, trains.c.id == episodes.c.train)
    return asked.order_by(episodes.c.train.desc())
