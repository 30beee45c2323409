"""What is costly to find out and is the same for all who ask at once: one look serves them all."""

from __future__ import annotations

import threading
import time
from typing import Callable, Generic, Optional, TypeVar

T = TypeVar("T")


class SharedLook(Generic[T]):
    """Whoever asks first starts the look, in a thread of its own; what it finds is kept for `keep` seconds.

    A look that raises finds None.
    """

    def __init__(self, look: Callable[[], T], keep: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._look, self._keep, self._clock = look, keep, clock
        self._condition = threading.Condition()
        self._found: Optional[T] = None
        self._ended = float("-inf")
        self._turns = 0
        self._running = False

    def get(self, wait: float) -> Optional[T]:
        """What was found; None where that took longer than `wait` seconds. The look then goes on for the next caller.

        Raises RuntimeError where no thread can be started.
        """
        with self._condition:
            if self._clock() - self._ended < self._keep:
                return self._found
            turn = self._turns
            if not self._running:
                threading.Thread(target=self._carry_out, daemon=True).start()
                self._running = True
            self._condition.wait_for(lambda: self._turns != turn, max(wait, 0.0))
            return self._found if self._turns != turn else None

    def _carry_out(self) -> None:
        found: Optional[T] = None
        try:
            found = self._look()
        finally:
            with self._condition:
                self._found, self._ended, self._running = found, self._clock(), False
                self._turns += 1
                self._condition.notify_all()
