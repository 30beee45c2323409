"""A job between its controller's view and the store's rows. Pure."""

from __future__ import annotations

from typing import Optional, Tuple

from nhc.jobs.settings import RestartSettings
from nhc.marks.ports.jobs import JobView, Phase
from nhc.store.jobs import JobRestart, WatchedJob


def watched(
    name: str,
    job: JobView,
    row: Optional[WatchedJob],
    settings: RestartSettings,
    now: float,
    why: Optional[str] = None,
    left: Optional[str] = None,
) -> WatchedJob:
    """The row of a job as it is now. A run keeps all nodes that it was seen on, a job how many it needs."""
    same = row is not None and row.run == job.run
    kept = " ".join(nodes_of_run(row, job))
    wants = max(job.wants, row.wants) if row is not None and same else job.wants or (row.wants if row else 0)
    before = row.logged if row is not None else ""
    return WatchedJob(
        row.id if row is not None else 0, name, job.job.kind, job.job.namespace, job.job.name, job.job.uid, job.user,
        job.phase.value, job.run, kept, wants, settings.allowed(job.wish.max_restarts), job.wish.checkpoint,
        before if why is None else why, row.began if row is not None else now, now, None,
        (row.left if row is not None and same else "") if left is None else left,
    )  # fmt: skip


def nodes_of_run(row: Optional[WatchedJob], job: JobView) -> Tuple[str, ...]:
    """The nodes that a job's run was seen on so far, in that order."""
    before = row.node_names if row is not None and row.run == job.run else ()
    return tuple(dict.fromkeys([*before, *job.nodes]))


def remembered(row: WatchedJob, restart: JobRestart) -> JobView:
    """A job that its controller does not show now, as it was when its restart began."""
    return JobView(row.job, restart.run, Phase.FAILED, tuple(restart.nodes.split()), row.wants, row.user)
