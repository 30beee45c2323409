"""What a loop does about a clock that was set: waits begin anew, and rates can no longer be counted."""

from __future__ import annotations

from typing import List, Optional

from nhc.policy.breaker import NAME
from nhc.store import holds
from nhc.store.clocks import KeptClock
from nhc.store.database import Fence, Store
from nhc.system.steady_time import FAR


def mind_the_clock(
    clock: KeptClock, store: Store, fence: Optional[Fence], actor: str, now: float, apply: bool
) -> List[str]:
    """Begin a round. Returns the lines to log about the clock. Raises StoreError, LeadershipLost."""
    step = clock.begin_round(apply)
    if not step:
        return []
    why = f"the clock jumped by {step:.0f} s"
    if abs(step) > FAR and apply:
        open_breaker(store, fence, actor, f"{why}: rates cannot be counted", now)
    return [f"{why}: waits begin anew"]


def open_breaker(store: Store, fence: Optional[Fence], actor: str, why: str, now: float) -> None:
    """Open the breaker; a person closes it. Raises StoreError, LeadershipLost."""
    with store.write(fence) as connection:
        holds.set_breaker(connection, NAME, "open", by=actor, why=why, now=now)
