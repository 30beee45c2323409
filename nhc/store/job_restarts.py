"""Jobs that are restarted after infrastructure faults: the jobs, their restarts, and which node failed which job.

A restart is written before anything is sent, and a run is restarted once: the table refuses a second row for it.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from nhc.core.model import printable
from nhc.marks.ports.job_control import JobName
from nhc.store import audit
from nhc.store.episodes import MESSAGE_LIMIT
from nhc.store.errors import Conflict
from nhc.store.schema import count, insert_into, job_ends, job_nodes, job_restarts, jobs, with_end

HOLDING, HELD, RELEASING, ENDED = "holding", "held", "releasing", "ended"
"""The states of a restart: HOLD is written down or sent, the job is held, RELEASE is written down or sent, ended."""
RESTARTED, FAILED, SUPERSEDED = "restarted", "failed", "superseded"
"""How a restart ends: the job started, nothing could be done, someone else has taken over the job."""
GIVEN_UP = ("limit", "final", "failed")
"""Why a run that failed because of the infrastructure is not restarted (`nhc.jobs.restart_decision.LeaveReason`)."""

OF_ITS_USER = ("application", "unclear")
"""Why a run without a known infrastructure fault is left to its user."""


class WatchedJob(NamedTuple):
    """One row. `nodes` are words with spaces between them; `run` and `nodes` are of the newest run seen.

    `left` is why that run is not restarted, a value of `nhc.jobs.restart_decision.LeaveReason`; "" if it may be.
    """

    id: int
    controller: str
    kind: str
    namespace: str
    name: str
    uid: str
    user: str
    phase: str
    run: str
    nodes: str
    wants: int
    max_restarts: int
    checkpoint: str
    logged: str
    began: float
    seen: float
    ended: Optional[float]
    left: str = ""

    @property
    def node_names(self) -> Tuple[str, ...]:
        return tuple(self.nodes.split())

    @property
    def job(self) -> JobName:
        """Its name in its controller."""
        return JobName(self.kind, self.namespace, self.name, self.uid)

    def text(self) -> str:
        """Its name as a person writes it."""
        return self.job.text()


class JobRestart(NamedTuple):
    """One row. `nodes` failed the run, `exclude` are all that the job avoids; words with spaces between them."""

    id: int
    job: int
    number: int
    run: str
    key: str
    state: str
    outcome: str
    why: str
    nodes: str
    exclude: str
    manifest: str
    message: str
    written: float
    sent: Optional[float]
    updated: float
    ended: Optional[float]

    @property
    def avoided(self) -> Tuple[str, ...]:
        return tuple(self.exclude.split())


class JobEnd(NamedTuple):
    """Why one run failed. `why` is the one line for a person; `cause`, `sure` and `restart` are as in why.schema.json.

    `node` is the one at fault, "" for none. `own_fault` says why a restart on other nodes does not help, "" if it may.
    `gpus` is how many it had, 0 if unknown; times are Unix seconds.
    """

    job: int
    run: str
    cause: str
    sure: str
    why: str
    node: str
    restart: str
    own_fault: str
    gpus: int
    began: Optional[float]
    ended: float


class LostGpus(NamedTuple):
    """Runs that failed from one cause: how many, and the GPU hours that they had taken."""

    cause: str
    runs: int
    gpu_hours: float


class JobNodePair(NamedTuple):
    """A node that failed a job in one of its runs."""

    job: int
    node: str
    run: str
    why: str
    at: float


# Jobs.


def watch(connection: Connection, row: WatchedJob) -> WatchedJob:
    """Store a job as it was seen; returns its row. An id of 0 is a job that is not known yet."""
    values = row._replace(phase=printable(row.phase, 40), logged=printable(row.logged, MESSAGE_LIMIT))._asdict()
    number = values.pop("id")
    if number:
        del values["began"]
        if not connection.execute(sa.update(jobs).where(jobs.c.id == number).values(values)).rowcount:
            raise Conflict(f"job {number} is gone")
        return row
    keys = ["controller", "kind", "namespace", "name", "uid"]
    made = insert_into(connection, jobs).values(values)
    kept = {name: value for name, value in values.items() if name not in (*keys, "began")}
    stored = connection.execute(made.on_conflict_do_update(index_elements=keys, set_=kept).returning(jobs)).one()
    return WatchedJob._make(stored)


def list_jobs(connection: Connection, *, controller: str = "", is_open: Optional[bool] = True) -> List[WatchedJob]:
    """Jobs by name: of one controller or of all; those that have not ended, those that have, or (None) all."""
    asked = sa.select(jobs).where(with_end(jobs, is_open))
    if controller:
        asked = asked.where(jobs.c.controller == controller)
    order = (jobs.c.controller, jobs.c.namespace, jobs.c.name, jobs.c.id)
    return [WatchedJob._make(row) for row in connection.execute(asked.order_by(*order))]


def get(connection: Connection, number: int) -> Optional[WatchedJob]:
    """A job by its number, None if there is none."""
    row = connection.execute(sa.select(jobs).where(jobs.c.id == number)).first()
    return WatchedJob._make(row) if row else None


def find(connection: Connection, name: str) -> List[WatchedJob]:
    """The jobs with this name, as a person writes it: `17`, `llama`, `team/llama`, `PyTorchJob/team/llama`; the newest
    first.
    """
    *before, last = name.split("/")
    asked = sa.select(jobs).where(jobs.c.name == last).order_by(jobs.c.id.desc())
    rows = [WatchedJob._make(row) for row in connection.execute(asked)]
    return [row for row in rows if row.text().split("/")[-len(before) - 1 :] == [*before, last]]


def end_job(connection: Connection, row: WatchedJob, now: float, by: str, why: str) -> None:
    """The job no longer needs watching."""
    connection.execute(sa.update(jobs).where(jobs.c.id == row.id, jobs.c.ended.is_(None)).values(ended=now, seen=now))
    audit.append(connection, now, by, "job.ended", detail={"job": row.text(), "why": printable(why, MESSAGE_LIMIT)})


# Restarts.


def begin(
    connection: Connection, job: WatchedJob, *, key: str, run: str, why: str, nodes: Sequence[str],
    exclude: Sequence[str], manifest: str, now: float, by: str,
) -> JobRestart:  # fmt: skip
    """Write down a restart, with the pairs of this job and these nodes. Raises Conflict if the run has one already."""
    last = connection.scalar(sa.select(sa.func.max(job_restarts.c.number)).where(job_restarts.c.job == job.id))
    values = {
        "job": job.id, "number": int(last or 0) + 1, "run": run, "key": key, "state": HOLDING,
        "why": printable(why, MESSAGE_LIMIT), "nodes": " ".join(nodes), "exclude": " ".join(exclude),
        "manifest": manifest, "written": now, "updated": now,
    }  # fmt: skip
    try:
        with connection.begin_nested():
            made = connection.execute(sa.insert(job_restarts).values(values).returning(job_restarts)).one()
    except sa.exc.IntegrityError:
        raise Conflict(f"{job.text()}: run {run} has a restart already") from None
    if nodes:
        pairs = [{"job": job.id, "node": node, "run": run, "why": values["why"], "at": now} for node in nodes]
        connection.execute(insert_into(connection, job_nodes).on_conflict_do_nothing(), pairs)
    detail = {"job": job.text(), "number": values["number"], "why": values["why"], "exclude": list(exclude)}
    audit.append(connection, now, by, "job.hold", node=nodes[0] if nodes else "", detail=detail)
    return JobRestart._make(made)


def save(
    connection: Connection, row: JobRestart, job: WatchedJob, *, state: str, now: float, by: str, message: str = "",
    outcome: str = "", sent: Optional[float] = None,
) -> JobRestart:  # fmt: skip
    """Write the next state of a restart, from the state in which it was read. Raises Conflict if it was changed
    since.
    """
    values = {"state": state, "updated": now, "message": printable(message, MESSAGE_LIMIT), "sent": sent}
    if state == ENDED:
        values.update(outcome=outcome, ended=now, sent=row.sent)
    mine = sa.and_(
        job_restarts.c.id == row.id, job_restarts.c.state == row.state, job_restarts.c.updated == row.updated
    )
    after = connection.execute(sa.update(job_restarts).where(mine).values(values).returning(job_restarts)).first()
    if after is None:
        raise Conflict(f"{job.text()}: restart {row.number} has changed")
    if state != row.state:
        what = f"job.{outcome if state == ENDED else state}"
        detail = {"job": job.text(), "number": row.number, "message": printable(message, MESSAGE_LIMIT)}
        audit.append(connection, now, by, what, detail=detail)
    return JobRestart._make(after)


def restarts(connection: Connection, job: int) -> List[JobRestart]:
    """The restarts of a job, the oldest first."""
    asked = sa.select(job_restarts).where(job_restarts.c.job == job).order_by(job_restarts.c.number)
    return [JobRestart._make(row) for row in connection.execute(asked)]


def open_restarts(connection: Connection) -> Dict[int, JobRestart]:
    """The unfinished restart of each job that has one."""
    asked = sa.select(job_restarts).where(job_restarts.c.state != ENDED)
    return {row.job: JobRestart._make(row) for row in connection.execute(asked)}


def newest_restarts(connection: Connection, since: float) -> Dict[int, JobRestart]:
    """The newest restart of each job, of those that are under way or ended since then."""
    asked = sa.select(job_restarts).where(sa.or_(job_restarts.c.ended.is_(None), job_restarts.c.ended >= since))
    return {row.job: JobRestart._make(row) for row in connection.execute(asked.order_by(job_restarts.c.number))}


def begun_since(connection: Connection, since: float) -> int:
    """How many restarts of all jobs began since then: a rate is counted from it."""
    return count(connection, job_restarts, job_restarts.c.written >= since)


def outcomes_since(connection: Connection, since: float) -> Dict[str, int]:
    """How many restarts of all jobs ended since then, by outcome."""
    asked = sa.select(job_restarts.c.outcome, sa.func.count()).where(job_restarts.c.ended >= since)
    return {str(row[0]): int(row[1]) for row in connection.execute(asked.group_by(job_restarts.c.outcome))}


# Why runs failed.


def keep_end(connection: Connection, end: JobEnd, now: float, by: str, job: str) -> bool:
    """Write down why a run failed, with its audit row; returns whether that is new. An existing entry stays."""
    values = end._replace(why=printable(end.why, MESSAGE_LIMIT), own_fault=printable(end.own_fault, MESSAGE_LIMIT))
    made = insert_into(connection, job_ends).values(values._asdict()).on_conflict_do_nothing().returning(job_ends.c.run)
    if connection.execute(made).first() is None:
        return False
    detail = {"job": job, "run": end.run, "cause": end.cause, "sure": end.sure, "why": values.why}
    audit.append(connection, now, by, "job.why", node=end.node, detail=detail)
    return True


def ends(connection: Connection, job: int) -> List[JobEnd]:
    """Why the runs of a job failed, the oldest first."""
    asked = sa.select(job_ends).where(job_ends.c.job == job).order_by(job_ends.c.ended)
    return [JobEnd._make(row) for row in connection.execute(asked)]


def end_of_run(connection: Connection, job: int, run: str) -> Optional[JobEnd]:
    """Why this run failed, None if that was not examined."""
    row = connection.execute(sa.select(job_ends).where(job_ends.c.job == job, job_ends.c.run == run)).first()
    return JobEnd._make(row) if row is not None else None


def ends_of_newest_runs(connection: Connection) -> Dict[int, JobEnd]:
    """Why the newest run of each watched job failed."""
    newest = sa.and_(jobs.c.id == job_ends.c.job, jobs.c.run == job_ends.c.run, jobs.c.ended.is_(None))
    return {row.job: JobEnd._make(row) for row in connection.execute(sa.select(job_ends).join(jobs, newest))}


def lost_since(connection: Connection, since: float) -> List[LostGpus]:
    """The GPU hours of runs that failed since then, by cause."""
    took = sa.func.coalesce(job_ends.c.gpus * (job_ends.c.ended - job_ends.c.began) / 3600.0, 0.0)
    asked = sa.select(job_ends.c.cause, sa.func.count(), sa.func.sum(took)).where(job_ends.c.ended >= since)
    return [LostGpus(str(row[0]), int(row[1]), max(float(row[2]), 0.0))
            for row in connection.execute(asked.group_by(job_ends.c.cause))]  # fmt: skip


# Which node failed which job.


def pairs(connection: Connection, job: int) -> List[JobNodePair]:
    """The nodes that failed a job, the newest first."""
    asked = sa.select(job_nodes).where(job_nodes.c.job == job).order_by(job_nodes.c.at.desc(), job_nodes.c.node)
    return [JobNodePair._make(row) for row in connection.execute(asked)]


def forget_pairs(connection: Connection, job: WatchedJob, nodes: Sequence[str], now: float, by: str) -> int:
    """Let the job use these nodes again (none named: all of them); returns how many pairs that were."""
    mine = job_nodes.c.job == job.id
    if nodes:
        mine = sa.and_(mine, job_nodes.c.node.in_(nodes))
    count = connection.execute(sa.delete(job_nodes).where(mine)).rowcount
    if count:
        audit.append(connection, now, by, "job.forgot", detail={"job": job.text(), "nodes": list(nodes)})
    return count


def offenders(connection: Connection, since: float) -> List[Tuple[str, int]]:
    """The nodes that failed jobs since then, with how many jobs each; those with most first."""
    count = sa.func.count(sa.distinct(job_nodes.c.job))
    asked = sa.select(job_nodes.c.node, count).where(job_nodes.c.at >= since).group_by(job_nodes.c.node)
    return [(str(row[0]), int(row[1])) for row in connection.execute(asked.order_by(count.desc(), job_nodes.c.node))]
