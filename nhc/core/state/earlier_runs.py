"""What a run knows of the runs before it: strikes, and checks that nothing could kill.

Strikes: a failure counts only when it is the Nth in a row (`|strikes N|` on a line, or a reason of one moment). With
`|strikes N of M|` it is the Nth among the last M runs. One bad sample must not take a node out, nor one good one
forget three bad ones that came close. Below the Nth strike a CRIT is reported as WARN, with its place in the row.

Stuck checks are remembered by pid and start time until they are gone. Without this a node with one dead mount gains a
process in uninterruptible sleep on every run, which is how health checks themselves have taken nodes down.
"""

from __future__ import annotations

import time

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import CheckResult, Outcome, Verdict
from nhc.core.state.store import State

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Set, Tuple, Union

    from typing_extensions import TypeAlias

    from nhc.core.system.process_identity import KnownProcess

MACHINE = "machine"
"""Of the memory: the boot in which its machine was looked at; of the lasting one beside it: that machine's marks."""
MARKS = ("product_uuid", "product_serial", "board_serial")
"""What /sys/class/dmi/id knows a machine by; root alone may read it."""
WRITE = 2.0
"""Seconds that the disk has to forget a machine; the next boot tries again."""

Row: TypeAlias = "Union[int, List[int]]"
"""Failures in a row; or what each of the last runs was, 1 for a failure, the newest last."""


def forget_another_machine(state: State, host: Host) -> None:
    """Begin anew where another machine has this node's disk, or its image: the faults and the strikes that are
    remembered are none of its own. A warning of the memory says so. Asked once a boot.
    """
    boot = host.boot_id().encode()
    if not boot or state.load_bytes(MACHINE) == boot:
        return
    state.save_bytes(MACHINE, boot)
    marks = {name: value for name in MARKS if (value := host.read_or(f"/sys/class/dmi/id/{name}").strip())}
    lasting = state.lasting()
    before = lasting.load(MACHINE)
    if not marks or before == marks:
        return
    from nhc.core.same_machine import another_machine
    from nhc.core.system.children import ask_child

    another = another_machine(before, marks)

    def write() -> bool:
        gone = another and lasting.forget()
        lasting.save(MACHINE, marks)
        return bool(gone)

    try:
        ask_child(write, WRITE)
    except OSError:  # no process can be started
        return
    if another:
        state.forget()
        state.warnings.append(
            "another machine has this node's name: what was remembered of the one before is forgotten"
            f" ({_named(before)} -> {_named(marks)})"
        )


def _named(marks: Dict[str, Any]) -> str:
    return str(next((marks[name] for name in MARKS if marks.get(name)), "unknown"))


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


GRACE = 10.0
"""Seconds given to a killed process that merely waits for a processor before the next run calls it stuck."""


class StuckCheck(NamedTuple):
    """A process left behind by the check `key`, first seen stuck at `since` (Unix time)."""

    process: KnownProcess
    since: float

    def since_text(self) -> str:
        from nhc.core.timestamps import utc  # only where something is stuck

        return utc(self.since)


class StuckChecks:
    """What earlier runs left behind, and what this one does."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.known: Dict[str, StuckCheck] = {}
        self.gone = set()
        self.added: Dict[str, StuckCheck] = {}
        for key, record in state.load("stuck").items():
            from nhc.core.system.process_identity import identify  # only where something was stuck

            stuck = _read(record)
            process = identify(stuck.process.pid) if stuck is not None else None
            if stuck is None or process is None or process.start != stuck.process.start:
                self.gone.add(key)
            elif process.unkillable or not 0 <= time.time() - stuck.since < GRACE:
                self.known[key] = stuck

    def get(self, key: str) -> Optional[StuckCheck]:
        return self.known.get(key)

    def add(self, key: str, process: KnownProcess, now: float) -> None:
        self.added[key] = StuckCheck(process, now)

    def save(self) -> None:
        if not self.gone and not self.added:
            return

        def change(records: Dict[str, Any]) -> None:
            for key in self.gone:
                records.pop(key, None)
            for key, stuck in self.added.items():
                records[key] = {"pid": stuck.process.pid, "start": stuck.process.start, "since": stuck.since}

        self.state.update("stuck", change)


def _read(record: Any) -> Optional[StuckCheck]:
    from nhc.core.system.process_identity import KnownProcess

    try:
        stuck = StuckCheck(KnownProcess(int(record["pid"]), int(record["start"])), float(record["since"]))
        stuck.since_text()
        return stuck
    except (TypeError, KeyError, ValueError, OverflowError, OSError):
        return None
