"""Strikes: a failure counts only when it is the Nth in a row (`|strikes N|` on a line, or a reason of one moment).

With `|strikes N of M|` it is the Nth among the last M runs.

One bad sample must not take a node out, nor one good one forget three bad ones that came close. Below
the Nth strike a CRIT is reported as WARN, with its place in the row.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING
from nhc.core.model import CheckResult, Outcome, Verdict
from nhc.core.state.store import State

if TYPE_CHECKING:
    from typing import Any, Dict, List, Set, Tuple, Union

    from typing_extensions import TypeAlias

Row: TypeAlias = "Union[int, List[int]]"
"""Failures in a row; or what each of the last runs was, 1 for a failure, the newest last."""


class Strikes:
    """The rows of failures known before this run, and what this run adds to them."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.before: Dict[str, Row] = {name: _row(row) for name, row in state.load("strikes").items()}
        self.failed: Set[str] = set()
        self.passed: Set[str] = set()
        self.of: Dict[str, int] = {}

    def judge(self, key: str, outcome: Outcome, needed: int, of: int = 0) -> Tuple[Outcome, int]:
        """The outcome as it counts now, and which strike this is (0 when it is no failure).

        `of` is among how many runs, this one included, the failures are counted; 0 for those in a row.
        """
        if outcome.verdict is not Verdict.CRIT:
            return outcome, 0
        row = self.before.get(f"{key} {outcome.target}".rstrip(), 0)
        known = sum(_runs(row)[1 - of :]) if of > 1 else row if isinstance(row, int) and not of else 0
        strike = min(known + 1, needed)
        if strike < needed:
            among = f" in {of} runs" if of else ""
            message = f"{outcome.message} (strike {strike} of {needed}{among})"
            outcome = outcome._replace(verdict=Verdict.WARN, message=message)
        return outcome, strike

    def note(self, key: str, result: CheckResult, of: int = 0) -> None:
        """Remember what became of one result. UNKNOWN and SKIP neither add to a row nor end it."""
        row = f"{key} {result.outcome.target}".rstrip()
        rows = {row}
        if result.strike:
            self.failed.add(row)
        elif result.verdict in (Verdict.OK, Verdict.WARN):
            if not result.outcome.target:  # a check that found nothing wrong names no target: every row of it ends
                rows.update(known for known in self.before if known.startswith(f"{key} "))
            self.passed |= rows
        if of and (result.strike or self.passed & rows):
            others = {known for known in self.before if known.startswith(f"{key} ")}
            self.passed |= others  # a run that found another fault is one without this one
            self.of.update(dict.fromkeys(rows | others, of))

    def end_row(self, key: str) -> None:
        """Note that a check returned, whatever it found: a hang, which is of the check as a whole, has ended."""
        self.passed.add(key)

    def save(self) -> None:
        if not self.failed and not self.passed & set(self.before):
            return

        def change(rows: Dict[str, Any]) -> None:
            for name in self.passed - self.failed:
                before = rows.pop(name, None)
                left = [*_runs(_row(before)), 0][-self.of[name] :] if name in self.of else []
                if any(left):
                    rows[name] = left
            for name in self.failed:
                row = _row(rows.get(name))
                if name in self.of:
                    rows[name] = [*_runs(row), 1][-self.of[name] :]
                else:
                    rows[name] = (row if isinstance(row, int) else 0) + 1

        self.state.update("strikes", change)


def _runs(row: Row) -> List[int]:
    """A row as single runs."""
    return [1] * min(row, _LONGEST) if isinstance(row, int) else row


_LONGEST = 1000


def _row(value: object) -> Row:
    """A row as it was remembered; 0 where that cannot be one."""
    if isinstance(value, list):
        return value[-_LONGEST:] if all(each in (0, 1) for each in value) else 0
    return value if isinstance(value, int) and 0 < value < 1 << 31 else 0
