"""How often somebody may do something: buckets that fill with time. Pure but for the clock that it is given."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple, Tuple


class BucketRate(NamedTuple):
    """So many at once, and so many a second after that."""

    burst: float
    a_second: float


class NodeVolume(NamedTuple):
    """What one push brings: its bytes, unpacked, its reports, and the problems that they name, each once."""

    bytes: int
    reports: int
    problems: int


LEAST = 30
"""Pushes a minute for which a node always has room."""
A_PUSH = NodeVolume(256 << 10, 10, 12)
"""What a node may bring in a minute, by the pushes that it may send then. A report of 150 results has some 60 kB; one
node says the same few problems again and again."""


class NodeVolumes:
    """How much each node may bring: with its token alone, which is on the node, nobody fills the store."""

    def __init__(self, pushes: int) -> None:
        each = max(pushes, LEAST)
        self._most = NodeVolume(*(each * part for part in A_PUSH))
        self._buckets = [Buckets(BucketRate(float(most), most / 60)) for most in self._most]

    def take(self, node: str, volume: NodeVolume, now: float) -> Tuple[float, str]:
        """Take a push. Returns 0.0 and "", or the seconds until there is room, and of what there is too much."""
        for name, most, count, bucket in zip(NodeVolume._fields, self._most, volume, self._buckets):
            wait = bucket.take(node, now, count)
            if wait:
                return wait, f"too many {name}: at most {most} a minute"
        return 0.0, ""


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
