"""How often somebody may do something: buckets that fill with time. Pure but for the clock that it is given."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple


class BucketRate(NamedTuple):
    """So many at once, and so many a second after that."""

    burst: float
    a_second: float


class Buckets:
    """One bucket a name; those that were not used for longest are forgotten, which refills them."""

    def __init__(self, rate: BucketRate, most: int = 200_000) -> None:
        self._rate, self._most = rate, most
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str, now: float, count: float = 1.0) -> float:
        """Take some out. Returns 0.0, or for how many seconds there will not be enough."""
        level, at = self._levels.pop(name, (self._rate.burst, now))
        level = min(self._rate.burst, level + max(0.0, now - at) * self._rate.a_second)
        wait = 0.0
        if level >= min(count, self._rate.burst):
            level -= count  # below nothing for a push larger than the bucket: the next waits for longer
        else:
            wait = (min(count, self._rate.burst) - level) / self._rate.a_second
        self._levels[name] = (level, now)
        if len(self._levels) > self._most:
            self._levels.popitem(last=False)
        return wait
