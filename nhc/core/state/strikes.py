"""Strikes: a failure counts only when it is the Nth in a row (`|strikes N|` on a line, or a reason of one moment).

One bad sample must not take a node out, nor one good one forget three bad ones that came close. Below
the Nth strike a CRIT is reported as WARN, with its place in the row.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING
from nhc.core.model import CheckResult, Outcome, Verdict
from nhc.core.state.store import State

if TYPE_CHECKING:
    from typing import Any, Dict, Set, Tuple


class Strikes:
    """The rows of failures known before this run, and what this run adds to them."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.before = {name: _count(count) for name, count in state.load("strikes").items()}
        self.failed: Set[str] = set()
        self.passed: Set[str] = set()

    def judge(self, key: str, outcome: Outcome, needed: int) -> Tuple[Outcome, int]:
        """The outcome as it counts now, and which strike this is (0 when it is no failure)."""
        if outcome.verdict is not Verdict.CRIT:
            return outcome, 0
        strike = min(self.before.get(f"{key} {outcome.target}".rstrip(), 0) + 1, needed)
        if strike < needed:
            message = f"{outcome.message} (strike {strike} of {needed})"
            outcome = outcome._replace(verdict=Verdict.WARN, message=message)
        return outcome, strike

    def note(self, key: str, result: CheckResult) -> None:
        """Remember what became of one result. UNKNOWN and SKIP neither add to a row nor end it."""
        row = f"{key} {result.outcome.target}".rstrip()
        if result.strike:
            self.failed.add(row)
        elif result.verdict in (Verdict.OK, Verdict.WARN):
            self.passed.add(row)
            if not result.outcome.target:  # a check that found nothing wrong names no target: every row of it ends
                self.passed.update(known for known in self.before if known.startswith(f"{key} "))

    def end_row(self, key: str) -> None:
        """Note that a check returned, whatever it found: a hang, which is of the check as a whole, has ended."""
        self.passed.add(key)

    def save(self) -> None:
        if not self.failed and not self.passed & set(self.before):
            return

        def change(rows: Dict[str, Any]) -> None:
            for row in self.passed - self.failed:
                rows.pop(row, None)
            for row in self.failed:
                rows[row] = _count(rows.get(row)) + 1

        self.state.update("strikes", change)


def _count(value: object) -> int:
    """A row's length as it was remembered; 0 where that cannot be one."""
    return value if isinstance(value, int) and 0 < value < 1 << 31 else 0
