"""The remedy loop as the rounds of a service."""

from __future__ import annotations

import time
from typing import Callable, Optional

from nhc.remedy import metrics
from nhc.remedy.cases import Written
from nhc.remedy.controller import RemedyRound
from nhc.remedy.site import RemedySite
from nhc.store import settings as store_settings
from nhc.store.database import Fence
from nhc.store.rounds.pruner import Pruner
from nhc.store.rounds.service import RoundEnd

EXPIRE_EVERY = 3600.0
AGAIN = 20
"""Rounds that `once` adds at most, each after something has ended that the round before has begun."""


class RemedyRounds:
    """`publish` gets each step that is in the store. Without `apply` nothing is done or written.

    `once` waits for what a round has begun in the background, since it would end with this process. Otherwise
    evidence is expired and the store is pruned meanwhile.
    """

    prefix = "nhc_remedy"

    def __init__(
        self, site: RemedySite, publish: Callable[[Written], None], log: Callable[[str], None], *, apply: bool,
        once: bool,
    ) -> None:  # fmt: skip
        self.site, self.publish, self.apply, self.once = site, publish, apply, once
        self.totals = metrics.Totals()
        self.last: Optional[RemedyRound] = None
        keep = store_settings.load(url=site.settings.store).prune
        self.pruner = Pruner(site.store, keep, "nhc remedy", log=log, forget=site.gatherer.delete)
        self.expired = 0.0

    def lead(self, fence: Optional[Fence]) -> None:
        """See RoundWork."""
        self.controller = self.site.controller(fence, self.publish, self.apply)

    def round(self) -> RoundEnd:
        """See RoundWork. What cannot be read makes it unhealthy: nothing is repaired on half a view."""
        self.last = self.controller.round(apply=self.apply)
        for _ in range(AGAIN if self.once and self.apply else 0):
            if not self._waited(self.last):
                break
            self.last = self.last.followed_by(self.controller.round())
        self.totals.add(self.last)
        if self.apply and not self.once and time.monotonic() - self.expired > EXPIRE_EVERY:
            self.expired = time.monotonic()
            self.site.gatherer.expire()
        problems = self.last.problems
        return RoundEnd(problems, tuple(self.site.notes), "; ".join(problems))

    def _waited(self, last: RemedyRound) -> bool:
        """Wait for what runs in the background; whether there was anything."""
        whys = [wait.why.partition(":")[0] for wait in last.waiting]
        if "evidence" in whys:
            self.site.gatherer.wait()
        elif "suite" in whys and self.site.prover is not None:
            return self.site.prover.wait()
        return "evidence" in whys

    def page(self) -> str:
        """See RoundWork."""
        assert self.last is not None
        text = metrics.render(self.site.store, self.last, self.totals)
        return text + "".join(family.render() for family in self.pruner.families())
