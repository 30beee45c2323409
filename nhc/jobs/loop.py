"""Rounds over the jobs that asked to be restarted (`nhc.jobs.job_round`).

A round may be cut off anywhere. What it began is in the store; the next one looks at the job before anything is sent
again. Jobs of different controllers do not wait for one another's errors.
"""

from __future__ import annotations

import time
from typing import Callable, Mapping, Optional

from nhc.core.system.steady_time import FAR, SteadyTime
from nhc.jobs.acting import JobActuators
from nhc.jobs.faults import DownNodes
from nhc.jobs.job_round import JobEvent, JobRound, OneRound
from nhc.jobs.run_ends import RunEnds
from nhc.jobs.settings import RestartSettings
from nhc.marks.ports.jobs import JobController
from nhc.store.clocks import KeptClock
from nhc.store.database import Fence, Store
from nhc.store.rounds.one_item import one_item

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
