"""What is costly to find out and is the same for all who ask at once: one look serves them all."""

from __future__ import annotations

import threading
import time
from typing import Callable, Generic, Optional, TypeVar

T = TypeVar("T")


class SharedLook(Generic[T]):
    """The first caller starts the look, in a thread of its own; what it returns is kept for `keep` seconds.

    A look that raises counts as None.
    """

    def __init__(self, look: Callable[[], T], keep: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._look, self._keep, self._clock = look, keep, clock
        self._condition = threading.Condition()
        self._value: Optional[T] = None
        self._ended = float("-inf")
        self._turns = 0
        self._running = False

    def get(self, wait: float) -> Optional[T]:
        """What the look returned; None where it took longer than `wait` seconds. It then goes on for the next caller.

        Raises RuntimeError where no thread can be started.
        """
        with self._condition:
            if self._clock() - self._ended < self._keep:
                return self._value
            turn = self._turns
            if not self._running:
                threading.Thread(target=self._carry_out, daemon=True).start()
                self._running = True
            self._condition.wait_for(lambda: self._turns != turn, max(wait, 0.0))
            return self._value if self._turns != turn else None

    def _carry_out(self) -> None:
        value: Optional[T] = None
        try:
            value = self._look()
        finally:
            with self._condition:
                self._value, self._ended, self._running = value, self._clock(), False
                self._turns += 1
                self._condition.notify_all()
