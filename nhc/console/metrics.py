"""The fleet's own series: bounded, whatever the number of nodes. What one node has is its agent's to say.

No node, no reason and no message is a label here: a fleet of 100,000 nodes has as many series as one of ten.
"""

from __future__ import annotations

from collections import Counter
from typing import Dict, List, Optional, Sequence, Tuple

from nhc.console.hub import Hub
from nhc.store import attempts, episodes, holds
from nhc.store.database import Store

WORDS = {"o": "ok", "w": "warn", "u": "unknown", "c": "crit", "s": "stale", "n": "never"}
HOUR = 3600.0
CHECKS = 200
"""Checks with a series of their own; what is beyond them, the rarest, is counted as `other`."""


def exposition(hub: Hub, store: Optional[Store], now: float) -> str:
    """The Prometheus text."""
    lines: List[str] = []
    snapshot = hub.snapshot
    _add(
        lines, "nhc_fleet_source_up", "gauge", "Whether the fleet could be read the last time.", [("", not hub.problem)]
    )
    _add(lines, "nhc_fleet_age_seconds", "gauge", "Seconds since the fleet was read.", [("", now - hub.read_at)])
    _add(lines, "nhc_console_viewers", "gauge", "Browsers with a stream.", [("", hub.viewers)])
    _add(lines, "nhc_console_dropped_total", "counter", "Streams ended because nobody read them.", [("", hub.dropped)])
    if snapshot is not None:
        rows = [(f'state="{WORDS[letter]}"', count) for letter, count in snapshot.counts().items()]
        _add(lines, "nhc_fleet_nodes", "gauge", "Nodes by state.", rows)
        standing = Counter((row.check, row.verdict.lower()) for row in snapshot.problems if row.ended is None)
        _add(lines, "nhc_fleet_problems", "gauge", "Problems that stand, by check and verdict.", _by_check(standing))
    if store is not None:
        _repairs(lines, store, now)
    return "\n".join([*lines, ""])


def _by_check(standing: Counter[Tuple[str, str]]) -> List[Tuple[str, float]]:
    rows: Dict[str, float] = {}
    for place, ((check, verdict), count) in enumerate(standing.most_common()):
        name = check if place < CHECKS else "other"
        label = f'check="{_escaped(name)}",verdict="{_escaped(verdict)}"'
        rows[label] = rows.get(label, 0) + count
    return sorted(rows.items())


def _repairs(lines: List[str], store: Store, now: float) -> None:
    with store.read() as connection:
        standing = episodes.list_episodes(connection, is_open=True)
        tried = attempts.attempts_since(connection, now - HOUR)
        held = holds.in_force(connection, now)
        breakers = holds.breakers(connection)
    states = Counter(one.state for one in standing)
    _add(lines, "nhc_fleet_episodes", "gauge", "Open episodes by state.",
         [(f'state="{_escaped(state)}"', count) for state, count in sorted(states.items())])  # fmt: skip
    ends = Counter((one.rung, str(getattr(one.outcome, "value", one.outcome)) or "open") for one in tried)
    rungs = [
        (f'rung="{_escaped(str(rung))}",outcome="{_escaped(end)}"', count)
        for (rung, end), count in sorted(ends.items())
    ]
    _add(lines, "nhc_fleet_attempts_last_hour", "gauge", "Repairs of the last hour, by rung and outcome.", rungs)
    _add(lines, "nhc_fleet_holds", "gauge", "Holds in force.", [("", len(held))])
    _add(lines, "nhc_fleet_breaker_open", "gauge", "Whether a breaker holds marks and repairs back.",
         [(f'name="{_escaped(one.name)}"', one.state == "open") for one in breakers.values()])  # fmt: skip


def _add(lines: List[str], name: str, kind: str, told: str, rows: Sequence[Tuple[str, float]]) -> None:
    lines += [f"# HELP {name} {told}", f"# TYPE {name} {kind}"]
    lines += [
        f"{name}{{{labels}}} {float(value):g}" if labels else f"{name} {float(value):g}" for labels, value in rows
    ]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
