"""The metrics of the fleet, in a bounded number of series for any number of nodes. A node's own metrics come from its
agent.

No node, no reason and no message is a label here: a fleet of 100,000 nodes has as many series as one of ten.
"""

from __future__ import annotations

from collections import Counter
from typing import List, Mapping, Optional, Sequence

from nhc.console.hub import Hub
from nhc.console.snapshot import Snapshot
from nhc.core.prometheus_family import Family, counter, gauge
from nhc.marks.policy.breaker import NAME
from nhc.remedy.machine import ENDS, EpisodeState
from nhc.store import attempts, episodes, fleet_rates, holds
from nhc.store.database import Store

Rates = Mapping[str, Sequence[fleet_rates.RateRow]]
"""By fact ("" for the fleet as one)."""

WORDS = {"o": "ok", "w": "warn", "u": "unknown", "c": "crit", "s": "stale", "n": "never"}
HOUR = 3600.0
RATES_OVER = 30 * 86400.0
VALUES = 20
"""Values of a fact (drivers, racks) with series of their own: those of the most node-days."""
CHECKS = 200
"""Checks with a series of their own; what is beyond them, the rarest, is counted as `other`."""


def exposition(hub: Hub, store: Optional[Store], now: float, rates: Optional[Rates] = None) -> str:
    """The Prometheus text. `rates` says how often nodes fail, by fact, if that was counted."""
    families = [
        gauge("nhc_fleet_source_up", "Whether the fleet could be read the last time.", int(not hub.problem)),
        gauge("nhc_fleet_age_seconds", "Seconds since the fleet was read.", round(now - hub.read_at, 3)),
        gauge("nhc_console_viewers", "Browsers with a stream.", hub.viewers),
        counter("nhc_console_dropped_total", "Streams ended because nobody read them.", hub.dropped),
    ]
    if hub.snapshot is not None:
        families += _fleet(hub.snapshot)
    if store is not None:
        families += _repairs(store, now)
    families += _rates(rates or {})
    return "".join(family.render() for family in families)


def count_rates(store: Store, now: float, gap: float) -> Rates:
    """How often nodes failed within RATES_OVER, as one fleet ("") and by each fact."""
    with store.read() as connection:
        counted = fleet_rates.rates(connection, now - RATES_OVER, now, ("", *fleet_rates.FACTS), gap=gap)
    return {fact: rows[:VALUES] for fact, rows in counted.items()}


def _rates(rates: Rates) -> List[Family]:
    """Counts rather than ratios: an alert sums and divides them by the node-days beside them."""
    days = Family("nhc_fleet_node_days", "gauge", "Days in which nodes were watched, within the last 30.")
    events = Family("nhc_fleet_node_events", "gauge", "Faults, failed proofs and days out of service in these days.")
    for fact, rows in rates.items():
        for row in rows:
            days.add(row.rate.node_days, by=fact, value=row.value)
            for measure in fleet_rates.MEASURES:
                events.add(float(getattr(row.rate, measure)), by=fact, value=row.value, kind=measure)
    return [days, events]


def _fleet(snapshot: Snapshot) -> List[Family]:
    states = Family("nhc_fleet_nodes", "gauge", "Nodes by state.")
    for letter, count in snapshot.counts().items():
        states.add(count, state=WORDS[letter])
    problems = Family("nhc_fleet_problems", "gauge", "Problems that stand, by check and verdict.")
    standing = Counter((row.check, row.verdict.lower()) for row in snapshot.problems if row.ended is None)
    sums: Counter[tuple[str, str]] = Counter()
    for place, ((check, verdict), count) in enumerate(standing.most_common()):
        sums[check if place < CHECKS else "other", verdict] += count
    for (check, verdict), count in sorted(sums.items()):
        problems.add(count, check=check, verdict=verdict)
    return [states, problems]


def _repairs(store: Store, now: float) -> List[Family]:
    with store.read() as connection:
        standing = episodes.list_episodes(connection, is_open=True)
        tried = attempts.attempts_since(connection, now - HOUR)
        held = holds.in_force(connection, now)
        breakers = holds.breakers(connection)
    states = Family("nhc_fleet_episodes", "gauge", "Open episodes by state.")
    by_state = Counter(row.state for row in standing)
    for each in EpisodeState:
        if each not in ENDS:
            states.add(by_state[each.value], state=each.value)
    rungs = Family("nhc_fleet_attempts_last_hour", "gauge", "Repairs begun within the last hour, by rung and outcome.")
    ends = Counter((row.rung, row.outcome or "open") for row in tried)
    for (rung, end), count in sorted(ends.items()):
        rungs.add(count, rung=rung, outcome=end)
    tripped = Family("nhc_fleet_breaker_open", "gauge", "Whether a breaker holds marks and repairs back.")
    for name in sorted({NAME, *breakers}):
        tripped.add(int(name in breakers and breakers[name].state == "open"), name=name)
    return [states, rungs, gauge("nhc_fleet_holds", "Holds in force.", len(held)), tripped]
