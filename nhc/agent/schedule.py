"""When each check runs: at its own cadence, with jitter, and never twice at the same time.

Pure: times go in, keys come out. Checks of one cadence share a beat, so that sixty of them cost one process a minute
and not sixty; beats that are close together are merged. The first run is at once, the second after a part of the
cadence that the node's name decides, so that a fleet that restarts together does not query one file server at the same
moment; every later beat varies at random by a few per cent.
"""

from __future__ import annotations

import random
from binascii import crc32
from typing import Dict, Iterable, List, Mapping, Optional, Set

LATE = 1.5
"""A check is overdue when it has not been judged for this many cadences plus its own longest run time."""
CLOSE = 0.05
"""Beats within this share of their cadence are merged."""


class CheckTimes:
    """One check's times, monotonic. `allowance` is how long one run of it may take, in seconds."""

    def __init__(self, key: str, every: float, allowance: float) -> None:
        self.key = key
        self.every = every
        self.allowance = allowance
        self.judged: Optional[float] = None
        self.running: Optional[float] = None
        self.soon: Optional[float] = None
        self.elapsed = 0.0


class Schedule:
    """All checks' times. `seed` is the node's name."""

    def __init__(self, seed: str, jitter: float = 0.05, draw: Optional[random.Random] = None) -> None:
        self.phase = crc32(seed.encode()) / 0xFFFFFFFF
        self.jitter = jitter
        self.draw = draw or random.Random()  # noqa: S311 (nothing secret)
        self.entries: Dict[str, CheckTimes] = {}
        self._beats: Dict[float, float] = {}
        self._since = 0.0

    def spread_by(self, jitter: float) -> None:
        """Set the jitter, a share of each cadence, from the next run of each check on."""
        self.jitter = jitter

    def set(self, wanted: Mapping[str, CheckTimes], now: float) -> List[str]:
        """Schedule these checks from now on; continuing ones keep their times. Returns the keys of those that end."""
        gone = [key for key in self.entries if key not in wanted]
        before, self.entries = self.entries, {}
        for key, entry in wanted.items():
            known = self.entries[key] = before.get(key, entry)
            known.every, known.allowance = entry.every, entry.allowance
            if key not in before:
                known.soon = now
        self._since = now
        cadences = {entry.every for entry in self.entries.values()}
        self._beats = {every: self._beats.get(every, now + every * (0.5 + self.phase / 2)) for every in cadences}
        return gone

    def due(self, now: float) -> List[CheckTimes]:
        """The checks to run now, in the configured order. The caller calls `begin` for each that it starts."""
        beating: Set[float] = {every for every, when in self._beats.items() if when <= now}
        if beating:
            beating |= {every for every, when in self._beats.items() if when <= now + every * CLOSE}
        for every in beating:
            self._beats[every] = now + every * self.draw.uniform(1 - self.jitter, 1 + self.jitter)
        return [
            entry
            for entry in self.entries.values()
            if entry.running is None and (entry.every in beating or (entry.soon is not None and entry.soon <= now))
        ]

    def begin(self, entries: Iterable[CheckTimes], now: float) -> None:
        for entry in entries:
            entry.running, entry.soon = now, None

    def end(self, key: str, now: float, elapsed: float, judged: bool = True) -> None:
        """A run of this check has ended. Its result is of the moment when the run began."""
        entry = self.entries.get(key)
        if entry is None:
            return
        if judged:
            entry.judged = now if entry.running is None else entry.running
        entry.running, entry.elapsed = None, elapsed

    def hurry(self, key: str, when: float) -> None:
        """Run this check by `when`, regardless of its beat."""
        entry = self.entries.get(key)
        if entry is not None and (entry.soon is None or when < entry.soon):
            entry.soon = when

    def next(self, now: float) -> float:
        """When the next check is due."""
        times = list(self._beats.values())
        times += [entry.soon for entry in self.entries.values() if entry.soon is not None and entry.running is None]
        return min(times, default=now + 60.0)

    def overdue(self, now: float) -> List[str]:
        """The checks that have not been judged for too long: their latest result must not count as a new one."""
        since = self._since
        return [
            entry.key for entry in self.entries.values()
            if now - max(entry.judged or since, since) > entry.every * LATE + entry.allowance + 10.0
        ]  # fmt: skip

    def oldest(self, now: float) -> float:
        """The age, in seconds, of the oldest result among the checks that must be fresh.

        A check whose line sets a slow cadence counts only when it is late: until then it is fresh enough.
        """
        shortest = min((entry.every for entry in self.entries.values()), default=0.0)
        age = 0.0
        for entry in self.entries.values():
            if entry.judged is None:
                return now - self._since + 1e9
            own = now - entry.judged
            if entry.every > shortest * 2 and own <= entry.every * LATE + entry.allowance:
                continue
            age = max(age, own)
        return age
