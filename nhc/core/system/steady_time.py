"""Elapsed time of waits that outlive a process: what a clock that was set adds or takes away is none of it.

The beginning of a wait is kept as Unix time. Whoever reads it later compares the clock with the kernel's monotonic one:
where the two have moved apart, the clock was set, and everything that began before then counts from then on. A wait
gets longer by that, never shorter: a node is not called healthy, and no deadline is over, before the time has passed.
"""

from __future__ import annotations

import time
from typing import Callable, NamedTuple, Optional

STEP = 5.0
"""Seconds by which the two clocks may differ from what they did. NTP's slewing moves both in the same way; a loaded
machine may read them a moment apart."""
FAR = 600.0
"""Seconds of a step after which what was done within an hour or a day can no longer be counted."""
DAY = 86400.0
GAP = 7200.0
"""Seconds for which nobody may have looked: after a longer pause, waits begin anew as after a step."""


def boot_id() -> str:
    """The kernel's name of this boot, "" where it has none: the monotonic clock counts within one boot alone."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


class SteadyTime(NamedTuple):
    """The time now, and since when the clock that says so was not set. Both are Unix times in seconds."""

    now: float
    since: float = 0.0

    def moment(self, at: float) -> float:
        """A moment of the past as far as it can be counted from: not before the clock was set, not in the future."""
        return self.since if at > self.now else max(at, self.since)

    def elapsed(self, at: float) -> float:
        """Seconds that have passed for certain since then."""
        return max(0.0, self.now - self.moment(at))

    def deadline(self, at: float) -> float:
        """A moment to wait for, at most a day after the clock was set back: who set it was told seconds."""
        return min(at, self.since + DAY) if at > self.now + DAY else at


class ClockAnchor(NamedTuple):
    """What a later process needs to go on counting: in boot `boot` the clock is `ahead` seconds ahead of the monotonic
    one since `since` (Unix time), and was read last at the monotonic time `looked`.
    """

    boot: str
    ahead: float
    since: float
    looked: float


class SteadyClock:
    """Reads the clock, and notices where it was set."""

    def __init__(self, clock: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.monotonic, self._boot = clock, monotonic, boot_id()
        now, ticks = clock(), monotonic()
        self.anchor = ClockAnchor(self._boot, now - ticks, now, ticks)
        self._step = 0.0

    def resume(self, kept: Optional[ClockAnchor]) -> None:
        """Go on from where an earlier process was, in the same boot."""
        if kept is not None and self._boot and kept.boot == self._boot and kept.looked <= self.anchor.looked:
            self.anchor = kept

    def read(self) -> SteadyTime:
        """The time now. Where the clock was set since the last reading, waits begin anew here."""
        now, ticks = self.clock(), self.monotonic()
        boot, ahead, since, looked = self.anchor
        step = now - ticks - ahead
        if abs(step) > STEP:
            self._step += step
            ahead, since = now - ticks, now
        elif ticks - looked > GAP:
            since = now
        self.anchor = ClockAnchor(boot, ahead, since, ticks)
        return SteadyTime(now, since)

    def take_step(self) -> float:
        """The seconds by which the clock was set since this was asked for last, 0.0 where it was not."""
        step, self._step = self._step, 0.0
        return step
