"""An unhealthy prolog: drain the node with our reason, tell the job's owner, have the job run elsewhere.

Slurm drains the node of a failing Prolog by itself, with the reason "Prolog error", unless it is drained
already: so ours is set first and stays. It then requeues the job, held unless SchedulerParameters has
nohold_on_prolog_fail. A failing PrologSlurmctld requeues the job and touches no node.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Report
from nhc.core.state.store import State
from nhc.hooks import log
from nhc.hooks.job_environment import PROLOG_SLURMCTLD, watch_only
from nhc.hooks.outcome import UNHEALTHY
from nhc.marks.ports.adapter import AdapterError, Effect, JobMessages
from nhc.marks.ports.marks import mark_of

if TYPE_CHECKING:
    from typing import Mapping


def unhealthy(
    context: str, report: Report, environ: Mapping[str, str], settings: Mapping[str, str], state: State
) -> int:
    """Returns UNHEALTHY, which makes Slurm requeue the job; 0 if the bound on drained nodes is reached."""
    from nhc.hooks.marking import scheduler

    mark = mark_of(report)
    assert mark is not None
    adapter = scheduler(environ, settings)
    if adapter is None:
        # A failing Prolog always drains the node; a site that switched marking off does not want that.
        log.warn(f"{report.host} is unhealthy: {mark.why}; marking is off, so the job starts")
        return 0
    if context != PROLOG_SLURMCTLD:
        from nhc.hooks.healthcheck import mark_here

        done = mark_here(adapter, report, mark, settings, state)
        if done.effect is Effect.REFUSED and "NHC_MAX_DRAINED" in done.message:
            return 0
        if watch_only(settings):
            log.warn(f"watch only: the job {environ.get('SLURM_JOB_ID', '?')} starts, otherwise it would be requeued")
            return 0
    elif watch_only(settings):
        log.warn(f"{report.host} is unhealthy: {mark.why}; watch only: otherwise the job would be requeued")
        return 0
    else:
        log.warn(f"{report.host} is unhealthy: {mark.why}; the job is requeued")
    notify_owner(adapter, report, mark.why, environ)
    return UNHEALTHY


def notify_owner(adapter: object, report: Report, why: str, environ: Mapping[str, str]) -> None:
    """Tell the job's owner why; if this fails, nothing else changes."""
    job = environ.get("SLURM_JOB_ID", "")
    if not job or not isinstance(adapter, JobMessages):
        return
    try:
        adapter.tell_job(job, f"NHC: node {report.host} is unhealthy, the job is requeued: {why}")
    except AdapterError as error:
        log.info(f"job {job} could not be told: {error}")
