"""A pause, for work on the node: no check runs, and results of a running check are not published."""

from __future__ import annotations

from typing import Mapping, Optional, Tuple

from nhc.agent import agent_plan
from nhc.agent.check_round import Finished
from nhc.core.host import Host
from nhc.core.light import NamedTuple
from nhc.core.model import printable
from nhc.core.plan import Item

LONGEST = 30 * 86400.0
"""Seconds that a pause may last."""


class Pause(NamedTuple):
    """Checks do not run until this Unix time."""

    until: float
    by: str = ""
    why: str = ""

    def __str__(self) -> str:
        return f"paused by {self.by}{f': {self.why}' if self.why else ''}"


class PauseTimer:
    """The current pause, if any. Its end is kept on the monotonic clock: a step of the wall clock does not move it."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._ends = 0.0
        self.current: Optional[Pause] = None

    def begin(self, seconds: float, by: str, why: str) -> None:
        self.go_on(Pause(self._host.time() + seconds, printable(by, 80), printable(why, 200)), seconds)

    def go_on(self, kept: Pause, seconds: float) -> None:
        """Go on with an earlier agent's pause, which has so many seconds left."""
        self.current = kept
        self._ends = self._host.monotonic() + seconds

    def end(self) -> None:
        self.current = None

    def is_over(self) -> bool:
        """Whether there is a pause whose time has ended."""
        return self.current is not None and self._ends <= self._host.monotonic()


def interrupted(finished: Finished, items: Mapping[str, Item]) -> Tuple[Finished, Tuple[str, ...]]:
    """Of a round during which a pause began: the kernel's results from before; the rest may show the work on the node.

    Also returns the keys of that rest.
    """
    kept = tuple(key for key in finished.keys if key in items and agent_plan.is_kernel_log(items[key]))
    rest = tuple(key for key in finished.keys if key not in kept)
    return finished._replace(keys=kept, problem=finished.problem if kept else ""), rest
