"""Restarting jobs as the rounds of a service."""

from __future__ import annotations

from collections import Counter
from typing import Callable, Optional
from typing import Counter as CounterOf

from nhc.jobs import metrics
from nhc.jobs.job_round import JobEvent, JobRound
from nhc.jobs.loop import JobLoop
from nhc.jobs.site import JobSite
from nhc.store.database import Fence
from nhc.store.rounds.service import RoundEnd


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
        return metrics.render(self.site.store, self.last, self.events)
