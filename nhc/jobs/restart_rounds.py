"""Restarting jobs as the rounds of a service."""

from __future__ import annotations

import time
from collections import Counter
from typing import Callable, List, Mapping, Optional
from typing import Counter as CounterOf

from nhc.core.prometheus_family import Family, gauge
from nhc.core.system.steady_time import FAR, SteadyTime
from nhc.jobs.acting import JobActuators
from nhc.jobs.faults import DownNodes
from nhc.jobs.job_round import JobEvent, JobRound, OneRound
from nhc.jobs.job_site import JobSite
from nhc.jobs.log_catalogue import GPU
from nhc.jobs.restart_decision import LeaveReason
from nhc.jobs.run_ends import RunEnds
from nhc.jobs.settings import RestartSettings
from nhc.jobs.why_report import ANSWERS
from nhc.marks.ports.job_control import JobController, Phase
from nhc.store import job_restarts
from nhc.store.database import Fence, Store
from nhc.store.rounds.loop_clock import KeptClock
from nhc.store.rounds.service import RoundEnd, one_item

# Rounds over the jobs that asked to be restarted (`nhc.jobs.job_round`).
#
# A round may be cut off anywhere. What it began is in the store; the next one looks at the job before anything is sent
# again. Jobs of different controllers do not wait for one another's errors.


ACTOR = "nhc job"


class JobLoop:
    """One site's jobs. `fence` is the leading process's number. `publish` gets each event once it is written."""

    def __init__(
        self, store: Store, settings: RestartSettings, controllers: Mapping[str, JobController], *,
        fence: Optional[Fence] = None, clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        publish: Callable[[JobEvent], None] = lambda event: None,
    ) -> None:  # fmt: skip
        self.settings, self.controllers, self.publish = settings, dict(controllers), publish
        self.actuators = JobActuators(store, fence, ACTOR, clock)
        self._down = DownNodes()
        self._ends = RunEnds(self.actuators, settings.mail_domains)
        self._time = KeptClock(store, ACTOR, fence, clock, monotonic)
        self._uncounted: Optional[float] = None

    def round(self, apply: bool = True) -> JobRound:
        """Go over all jobs once. Raises StoreError (LeadershipLost among them)."""
        step = self._time.begin_round(apply)
        now = self._time.read()
        self._ends.begin_round(now)
        if step > FAR:
            self._uncounted = now.since
        one_round = OneRound(
            self.actuators, self.settings, self._down, self._ends, apply, self.publish, now, self._waits(now)
        )
        if step:
            one_round.problems.append(f"the clock jumped by {step:.0f} s: waits begin anew")
        for name, controller in self.controllers.items():
            with one_item(name, one_round.problems):
                one_round.controller(name, controller)
        one_round.problems.extend(self._ends.problems)
        return one_round.result()

    def _waits(self, now: SteadyTime) -> str:
        """Why no restart may begin, "" where one may: after a step, those of the last hour are not where they were."""
        seconds = self.settings.limits.rate.seconds
        if self._uncounted is None or now.elapsed(self._uncounted) >= seconds:
            return ""
        return f"the clock was set: the rate of restarts is counted anew for {seconds:g} s"


# The metrics of job restarts in Prometheus' text, from the store and the last round, so that a restart loses nothing.
#
# No label names a job, a user or a node: those are many, and `nhc status job` lists them.


DAY = 86400.0
CAUSES = tuple(cause for cause in ANSWERS if cause != GPU)
"""What `nhc job why` can answer."""


def render_metrics(store: Store, last: JobRound, events_so_far: CounterOf[str]) -> str:
    """What the loop shows besides its rounds. `events_so_far`: since this process began. Raises StoreError."""
    with store.read() as connection:
        rows = job_restarts.list_jobs(connection)
        under_way = list(job_restarts.open_restarts(connection).values())
        ended = job_restarts.outcomes_since(connection, last.at - DAY)
        lost = {loss.cause: loss for loss in job_restarts.lost_since(connection, last.at - DAY)}
    phases = Family("nhc_job_watched", "gauge", "Jobs that are watched, by phase.")
    counts = Counter(row.phase for row in rows)
    for phase in Phase:
        phases.add(float(counts.get(phase.value, 0)), phase=phase.value)
    states = Family("nhc_job_restarts_under_way", "gauge", "Restarts under way by state.")
    oldest = Family("nhc_job_oldest_restart_seconds", "gauge", "Longest time that a restart is in a state; 0 for none.")
    for state in (job_restarts.HOLDING, job_restarts.HELD, job_restarts.RELEASING):
        since = [last.at - restart.updated for restart in under_way if restart.state == state]
        states.add(float(len(since)), state=state)
        oldest.add(max([0.0, *since]), state=state)
    left = Family("nhc_job_left", "gauge", "Jobs whose newest run is left alone, by why.")
    reasons = Counter(row.left for row in rows)
    for why in LeaveReason:
        left.add(float(reasons.get(why.value, 0)), why=why.value)
    outcomes = Family("nhc_job_restarts_day", "gauge", "Restarts that ended within a day, by outcome.")
    for outcome in (job_restarts.RESTARTED, job_restarts.FAILED, job_restarts.SUPERSEDED):
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


class JobRounds:
    """`publish` gets each event that is in the store. Without `apply` nothing is done or written. With `once` the log
    does not say what would be done: the summary of the only round does.

    /healthz speaks of this process and its store: a controller that cannot be read is `nhc_job_problems`, since no
    restart of ours brings it back.
    """

    prefix = "nhc_job"

    def __init__(self, site: JobSite, publish: Callable[[JobEvent], None], *, apply: bool, once: bool) -> None:
        self.site, self.publish, self.apply, self.once = site, publish, apply, once
        self.events: CounterOf[str] = Counter()
        self.last: Optional[JobRound] = None

    def lead(self, fence: Optional[Fence]) -> None:
        """See RoundWork."""
        site = self.site
        self.loop = JobLoop(site.store, site.settings, site.controllers, fence=fence, publish=self.publish)

    def round(self) -> RoundEnd:
        """See RoundWork."""
        self.last = self.loop.round(apply=self.apply)
        self.events.update(event.what for event in self.last.events)
        events = self.last.would if self.apply and not self.once else ()
        return RoundEnd(self.last.problems, tuple(f"would {event.what} {event.job}: {event.why}" for event in events))

    def page(self) -> str:
        """See RoundWork."""
        assert self.last is not None
        return render_metrics(self.site.store, self.last, self.events)
