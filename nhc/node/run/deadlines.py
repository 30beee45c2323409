"""How long one line may take: one rule, for the engine's watchdog and for the agent's rounds.

The line's own `timeout` option comes first. Without it a built-in check has what its declaration and its arguments ask
for (`nhc.core.declare.declare`), and any other line the whole run's time.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING
from nhc.core.plan import COMMAND

if TYPE_CHECKING:
    from typing import Optional

    from nhc.core.plan import Declared, Item, Plan

DEFAULT = 30.0
"""Seconds for a whole run where nothing else is said: LBNL NHC's TIMEOUT."""

MARGIN = 0.2
"""Seconds by which the watchdog lets a line that keeps a deadline of its own say that it has passed."""

UNLIMITED = 86400.0
"""Seconds for a line of a run without a limit."""


def of_run(plan: Plan) -> float:
    """The plan's TIMEOUT in seconds, which counts wherever it is set; 30 where it is not or makes no sense."""
    try:
        return max(0.0, float(plan.settings.get("TIMEOUT", "") or DEFAULT))
    except ValueError:
        return DEFAULT


def of_line(item: Item, run: float, declared: Optional[Declared] = None) -> float:
    """Seconds for one line of a run that may take `run` seconds (0: without a limit)."""
    return item.timeout or (declared.timeout if declared is not None else run) or UNLIMITED


def of_watchdog(item: Item, run: float, declared: Optional[Declared] = None) -> float:
    """Seconds after which the line is ended from outside."""
    keeps = item.kind == COMMAND if declared is None else declared.own_deadline
    return of_line(item, run, declared) + (MARGIN if keeps else 0.0)


def of_command(watchdog: float) -> float:
    """What a line that is a command keeps itself, of what the watchdog has for it."""
    return watchdog - MARGIN
