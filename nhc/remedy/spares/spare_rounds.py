"""Swapping spares as the rounds of a service: each round does the same as `nhc spares swap`."""

from __future__ import annotations

from typing import Callable, List, Optional

from nhc.core.prometheus_family import Family
from nhc.marks.ports.adapter import Effect
from nhc.remedy.remedy_site import RemedySite
from nhc.remedy.spares.swap import PoolRound, Pools, SpareDone, Swapping, spare_loop
from nhc.remedy.spares.swap_decision import unverified
from nhc.store.database import Fence
from nhc.store.rounds.service import RoundEnd


class SpareRounds:
    """`tell` gets each step that was done. A step that failed is a problem of the round, logged once while it lasts.
    Without `apply` the log says what would be done.

    /healthz is about this process and its store: a pool that cannot be read is in `nhc_spares_problems`.
    """

    prefix = "nhc_spares"

    def __init__(self, site: RemedySite, pools: Pools, apply: bool, tell: Callable[[SpareDone], None]) -> None:
        self.apply, self.tell = apply, tell
        self.trade = Swapping(site, pools, self._tell)
        self.last: List[PoolRound] = []

    def lead(self, fence: Optional[Fence]) -> None:
        """See RoundWork."""
        self.loop = spare_loop(self.trade, fence)

    def round(self) -> RoundEnd:
        """See RoundWork."""
        done = self.loop.round(self.apply)
        self.last = self.trade.seen(done)
        failed = [
            f"{turn.pool.name}: {done.step.action} {done.step.spare}: {done.applied.message}"
            for turn in self.last for done in turn.done if done.applied.effect is Effect.FAILED
        ]  # fmt: skip
        unread = [f"{turn.pool.name}: {turn.problem}" for turn in self.last if turn.problem]
        problems = (*done.problems, *unread, *failed)
        would = [
            f"would {step.action} {step.spare} for {step.stands_for}: {step.why}"
            for turn in self.last for step in turn.decision.steps
        ]  # fmt: skip
        return RoundEnd(problems, tuple([] if self.apply else would))

    def _tell(self, done: SpareDone) -> None:
        if done.applied.effect is not Effect.FAILED:
            self.tell(done)

    def page(self) -> str:
        """See RoundWork."""
        verified = Family("nhc_spares_verified", "gauge", "Spares of a pool that wait and may be trusted with work.")
        in_use = Family("nhc_spares_in_use", "gauge", "Spares of a pool that stand in for a node.")
        for turn in self.last:
            if turn.view is not None:
                good = [node for node in turn.view.waiting if not unverified(turn.view, node)]
                verified.add(float(len(good)), pool=turn.pool.name)
                in_use.add(float(len(turn.view.in_use)), pool=turn.pool.name)
        return verified.render() + in_use.render()
