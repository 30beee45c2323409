"""How long to wait before the next try."""

from __future__ import annotations

import random


class Backoff:
    """Seconds that double from try to try, from the first to the most; a success begins anew.

    With `spread` each wait is a random part of that, and no less than half: those of a fleet do not come back at once.
    """

    def __init__(self, first: float, most: float, *, spread: bool = False) -> None:
        self._first, self._most, self._spread = first, most, spread
        self._next = first

    def next(self) -> float:
        """The seconds to wait now."""
        wait, self._next = self._next, min(self._next * 2, self._most)
        return random.uniform(wait / 2, wait) if self._spread else wait  # noqa: S311 (nothing secret)

    def reset(self) -> None:
        """It went well: the next wait is the first one again."""
        self._next = self._first
