"""Waiting for something to become so: asked again and again, up to a deadline. No test sleeps for a time and hopes."""

from __future__ import annotations

import time
from typing import Callable, Optional, TypeVar

T = TypeVar("T")


def until(
    condition: Callable[[], T],
    within: float = 60.0,
    every: float = 0.05,
    *,
    what: str = "",
    said: Optional[Callable[[], object]] = None,
) -> T:
    """Ask until the answer is true, and return it. Raises AssertionError where it is not so `within` seconds.

    `what` names what is waited for; `said` is asked for more to show then, such as the end of a log. A `condition` that
    sees that it can never come true raises by itself.
    """
    deadline = time.monotonic() + within
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            name = what or getattr(condition, "__name__", "it")
            more = "" if said is None else f"\n{said()}"
            raise AssertionError(f"waited {within:g} s in vain for {name}: {found!r}{more}")
        time.sleep(every)
