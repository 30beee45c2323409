"""The metrics of job restarts in Prometheus' text, from the store and the last round, so that a restart loses nothing.

No label names a job, a user or a node: those are many, and `nhc status job` lists them.
"""

from __future__ import annotations

from collections import Counter
from typing import Counter as CounterOf
from typing import List

from nhc.core.prometheus_family import Family, gauge
from nhc.jobs.decide import LeaveReason
from nhc.jobs.job_round import JobRound
from nhc.jobs.log_catalogue import GPU
from nhc.jobs.why_report import ANSWERS
from nhc.marks.ports.jobs import Phase
from nhc.store import jobs
from nhc.store.database import Store

DAY = 86400.0
CAUSES = tuple(cause for cause in ANSWERS if cause != GPU)
"""What `nhc job why` can answer."""


def render(store: Store, last: JobRound, events_so_far: CounterOf[str]) -> str:
    """What the loop shows besides its rounds. `events_so_far`: since this process began. Raises StoreError."""
    with store.read() as connection:
        rows = jobs.list_jobs(connection)
        under_way = list(jobs.open_restarts(connection).values())
        ended = jobs.outcomes_since(connection, last.at - DAY)
        lost = {loss.cause: loss for loss in jobs.lost_since(connection, last.at - DAY)}
    phases = Family("nhc_job_watched", "gauge", "Jobs that are watched, by phase.")
    counts = Counter(row.phase for row in rows)
    for phase in Phase:
        phases.add(float(counts.get(phase.value, 0)), phase=phase.value)
    states = Family("nhc_job_restarts_under_way", "gauge", "Restarts under way by state.")
    oldest = Family("nhc_job_oldest_restart_seconds", "gauge", "Longest time that a restart is in a state; 0 for none.")
    for state in (jobs.HOLDING, jobs.HELD, jobs.RELEASING):
        since = [last.at - restart.updated for restart in under_way if restart.state == state]
        states.add(float(len(since)), state=state)
        oldest.add(max([0.0, *since]), state=state)
    left = Family("nhc_job_left", "gauge", "Jobs whose newest run is left alone, by why.")
    reasons = Counter(row.left for row in rows)
    for why in LeaveReason:
        left.add(float(reasons.get(why.value, 0)), why=why.value)
    outcomes = Family("nhc_job_restarts_day", "gauge", "Restarts that ended within a day, by outcome.")
    for outcome in (jobs.RESTARTED, jobs.FAILED, jobs.SUPERSEDED):
        outcomes.add(float(ended.get(outcome, 0)), outcome=outcome)
    runs = Family("nhc_job_failed_runs_day", "gauge", "Runs of watched jobs that failed within a day, by cause.")
    hours = Family("nhc_job_lost_gpu_hours_day", "gauge", "GPU hours that these runs had taken, by cause.")
    for cause in CAUSES:
        runs.add(float(lost[cause].runs if cause in lost else 0), cause=cause)
        hours.add(lost[cause].gpu_hours if cause in lost else 0.0, cause=cause)
    events = Family("nhc_job_events_total", "counter", "What happened to jobs since the start, by kind.")
    for what, count in sorted(events_so_far.items()):
        events.add(float(count), what=what)
    families: List[Family] = [
        phases, states, oldest, left, outcomes, runs, hours, events,
        gauge("nhc_job_waiting", "Jobs that the last round found waiting.", float(len(last.waiting))),
        gauge("nhc_job_would", "Jobs that would be restarted if that were enabled.", float(len(last.would))),
    ]  # fmt: skip
    return "".join(family.render() for family in families)
