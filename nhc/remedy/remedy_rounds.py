"""The remedy loop as the rounds of a service."""

from __future__ import annotations

import time
from collections import Counter
from typing import Callable, List, Optional, Tuple
from typing import Counter as CounterOf

from nhc.core.prometheus_family import Family, counter, gauge
from nhc.marks.policy.breaker import NAME
from nhc.remedy.cases import Written
from nhc.remedy.episode_flow import EpisodeRound
from nhc.remedy.machine import EpisodeState
from nhc.remedy.remedy_site import RemedySite
from nhc.remedy.traces import TraceSender
from nhc.store import attempts, episodes, holds
from nhc.store import settings as store_settings
from nhc.store.database import Fence, Store
from nhc.store.rounds.pruner import Pruner
from nhc.store.rounds.service import RoundEnd

# The loop's metrics in Prometheus' text, from the store and the last round, so that a restart loses nothing.


DAY = 86400.0


class Totals:
    """What was counted since this process began."""

    def __init__(self) -> None:
        self.moves: CounterOf[str] = Counter()
        self.decisions = 0

    def add(self, done: EpisodeRound) -> None:
        """One round more."""
        self.decisions += done.decisions
        for written in done.moved:
            self.moves[written.case.state.value] += 1


def render_metrics(store: Store, last: EpisodeRound, totals: Totals) -> str:
    """What the loop shows besides its rounds. Raises StoreError."""
    with store.read() as connection:
        rows = episodes.list_episodes(connection, is_open=True)
        ended = episodes.list_episodes(connection, is_open=False, ended_since=last.at - DAY)
        tried = attempts.attempts_since(connection, last.at - DAY)
        breaker = holds.breaker_of(connection, NAME)
        held = holds.in_force(connection, last.at)
    open_ones = Family("nhc_remedy_episodes", "gauge", "Open episodes by state.")
    by_state = Counter(row.state for row in rows)
    for each in EpisodeState:
        open_ones.add(float(by_state.get(each.value, 0)), state=each.value)
    oldest = Family("nhc_remedy_oldest_step_seconds", "gauge", "Longest time since an episode in a state last moved.")
    for state in by_state:
        oldest.add(max(last.at - row.updated for row in rows if row.state == state), state=state)
    outcomes = Family("nhc_remedy_episodes_ended_day", "gauge", "Episodes that ended within a day, by end.")
    for name, count in sorted(Counter(row.state for row in ended).items()):
        outcomes.add(float(count), state=name)
    repairs = Family("nhc_remedy_attempts_day", "gauge", "Attempts within a day, by rung and outcome.")
    pairs: CounterOf[Tuple[str, str]] = Counter((attempt.rung, attempt.status.value) for attempt in tried)
    for (rung, outcome), count in sorted(pairs.items()):
        repairs.add(float(count), rung=rung, outcome=outcome)
    moves = Family("nhc_remedy_steps_total", "counter", "Steps taken since the start, by the state they led to.")
    for each in EpisodeState:
        moves.add(float(totals.moves[each.value]), state=each.value)
    waits = Family("nhc_remedy_waiting", "gauge", "Episodes and faults that wait, by what they wait for.")
    for bound, count in sorted(Counter(_bound(wait.why) for wait in last.waiting).items()):
        waits.add(float(count), bound=bound)
    families: List[Family] = [
        open_ones, oldest, outcomes, repairs, moves, waits,
        gauge("nhc_remedy_breaker_open", "1 while no mark is set and no repair begins.", float(breaker.is_open)),
        gauge("nhc_remedy_holds", "Holds in force.", float(len(held))),
        gauge("nhc_remedy_stalled", "Open episodes with a step that waits for too long.",
              float(sum(1 for row in rows if '"alarmed":' in row.detail))),
        gauge("nhc_remedy_round_seconds", "How long the last round took.", last.seconds),
        counter("nhc_remedy_decisions_total", "Steps that were decided.", totals.decisions),
    ]  # fmt: skip
    return "".join(family.render() for family in families)


def _bound(why: str) -> str:
    """The stable name in front of a reason. A reason without one is an admission that was refused."""
    name, colon, _ = why.partition(": ")
    return name if colon and " " not in name else "refused"


EXPIRE_EVERY = 3600.0
AGAIN = 20
"""Rounds that `once` adds at most, each after something has ended that the previous round began."""


class RemedyRounds:
    """`publish` gets each step that is in the store. Without `apply` nothing is done or written.

    `once` waits for background work that a round has begun, because it would end with this process. Otherwise old
    evidence is deleted and the store is pruned meanwhile.
    """

    prefix = "nhc_remedy"

    def __init__(
        self, site: RemedySite, publish: Callable[[Written], None], log: Callable[[str], None], *, apply: bool,
        once: bool,
    ) -> None:  # fmt: skip
        self.site, self.publish, self.apply, self.once = site, publish, apply, once
        self.totals = Totals()
        self.last: Optional[EpisodeRound] = None
        keep = store_settings.load(url=site.settings.store).prune
        self.pruner = Pruner(site.store, keep, "nhc remedy", log=log, forget=site.gatherer.delete)
        traces = site.settings.traces
        self.traces = TraceSender(site.store, traces, log) if traces.endpoint and apply else None
        self.expired = 0.0

    def lead(self, fence: Optional[Fence]) -> None:
        """See RoundWork."""
        self.controller = self.site.controller(fence, self.publish, self.apply)

    def round(self) -> RoundEnd:
        """See RoundWork. If something cannot be read, the service is unhealthy: nothing is repaired on
        incomplete data.
        """
        self.last = self.controller.round(apply=self.apply)
        for _ in range(AGAIN if self.once and self.apply else 0):
            if not self._waited(self.last):
                break
            self.last = self.last.followed_by(self.controller.round())
        self.totals.add(self.last)
        if self.traces is not None:
            self.traces.wake(self.last.at)
        if self.apply and not self.once and time.monotonic() - self.expired > EXPIRE_EVERY:
            self.expired = time.monotonic()
            self.site.gatherer.expire()
        problems = self.last.problems
        return RoundEnd(problems, tuple(self.site.notes), "; ".join(problems))

    def start(self) -> None:
        """Begin the background work beside the rounds: pruning, traces."""
        self.pruner.start()
        if self.traces is not None:
            self.traces.start()

    def stop(self) -> None:
        """End the background work; after a single round for cron, send the traces of episodes that it ended."""
        self.pruner.stop()
        if self.traces is not None:
            if self.once:
                self.traces.send_now()
            self.traces.stop()

    def _waited(self, last: EpisodeRound) -> bool:
        """Wait for background work; whether there was any."""
        whys = [wait.why.partition(":")[0] for wait in last.waiting]
        if "evidence" in whys:
            self.site.gatherer.wait()
        elif "suite" in whys and self.site.prover is not None:
            return self.site.prover.wait()
        return "evidence" in whys

    def page(self) -> str:
        """See RoundWork."""
        assert self.last is not None
        text = render_metrics(self.site.store, self.last, self.totals)
        return text + "".join(family.render() for family in self.pruner.families())
