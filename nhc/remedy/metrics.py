"""The loop's metrics in Prometheus' text, from the store and the last round, so that a restart loses nothing."""

from __future__ import annotations

from collections import Counter
from typing import Counter as CounterOf
from typing import List, Tuple

from nhc.core.prometheus_family import Family, counter, gauge
from nhc.marks.policy.breaker import NAME
from nhc.remedy.controller import RemedyRound
from nhc.remedy.machine import EpisodeState
from nhc.store import attempts, episodes, holds
from nhc.store.database import Store

DAY = 86400.0


class Totals:
    """What was counted since this process began."""

    def __init__(self) -> None:
        self.moves: CounterOf[str] = Counter()
        self.decisions = 0

    def add(self, done: RemedyRound) -> None:
        """One round more."""
        self.decisions += done.decisions
        for written in done.moved:
            self.moves[written.case.state.value] += 1


def render(store: Store, last: RemedyRound, totals: Totals) -> str:
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
    """The stable name in front of a reason; what has none is an admission that was refused."""
    name, colon, _ = why.partition(": ")
    return name if colon and " " not in name else "refused"
