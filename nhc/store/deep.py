"""The results of deep checks for each node, and the sweeps over many nodes with their tests.

A sweep's tests are written down before they are launched, and their results as they come: a sweep that is killed
continues from these rows alone.
"""

from __future__ import annotations

import json
from statistics import median
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from nhc.core.model import Report, Verdict, printable
from nhc.marks.policy.deep_due import LastVerdict
from nhc.store.episodes import MESSAGE_LIMIT
from nhc.store.errors import Conflict
from nhc.store.machines import of_this_machine
from nhc.store.schema import batches, deep_results, sweep_tests, sweeps

PLANNED, RUNNING, MEASURED = "planned", "running", "measured"
"""The states of a test before its result; afterwards its state is what was seen: good, bad or unknown.

A measured one has a figure, which is judged with the others of its round.
"""
OPEN, STOPPING, DONE, STOPPED = "open", "stopping", "done", "stopped"
"""The states of a sweep. STOPPING: its end was requested; the process that runs it sees this when it next reads the
row."""


class DeepResult(NamedTuple):
    """One value or verdict of one node. `versions` is JSON of versions, the node's kind and the reason of its verdict;
    `sweep` is its sweep, if one tested it. `serial` is the board's number if the check knew it: it moves with the
    board.
    """

    node: str
    suite: str
    test: str
    device: str
    value: Optional[float]
    unit: str
    verdict: str
    message: str
    at: float
    boot_id: str = ""
    versions: str = "{}"
    sweep: Optional[int] = None
    serial: str = ""


_RESULT = [deep_results.c[name] for name in DeepResult._fields]


class StoredSweep(NamedTuple):
    """One row. `plan` and `findings` are JSON that only nhc.deep reads."""

    id: int
    state: str
    by: str
    launcher: str
    began: float
    updated: float
    ended: Optional[float]
    plan: str
    findings: str
    message: str


class SweepTest(NamedTuple):
    """One row. `turn` is the round, from 1; `nodes` and `missing` are words with spaces between them.

    `rails` is the only rail that the test may use, "" for all.
    """

    sweep: int
    name: str
    turn: int
    layer: str
    nodes: str
    repeat: int
    state: str = PLANNED
    value: Optional[float] = None
    missing: str = ""
    rails: str = ""
    why: str = ""
    handle: str = ""
    began: Optional[float] = None
    ended: Optional[float] = None


# Results of nodes.


def add(connection: Connection, rows: Iterable[DeepResult]) -> int:
    """Store results; returns how many."""
    values = [{name: _text(value) for name, value in row._asdict().items()} for row in rows]
    if values:
        connection.execute(sa.insert(deep_results), values)
    return len(values)


def _text(value: object) -> object:
    return printable(value, MESSAGE_LIMIT) if isinstance(value, str) else value


def add_report(connection: Connection, report: Report, suite: str) -> int:
    """Store the results of a suite's run on one node: a row for each value measured, and for each verdict without one.

    A run that is stored already stays as it is: it may be sent twice. Returns how many rows were new.
    """
    same = sa.and_(
        deep_results.c.node == report.host, deep_results.c.suite == suite, deep_results.c.at == report.started
    )
    if connection.execute(sa.select(deep_results.c.id).where(same).limit(1)).first() is not None:
        return 0
    rows = []
    for result in report.results:
        outcome = result.outcome
        if outcome.verdict is Verdict.SKIP:
            continue
        about = {"nhc": report.version, "kind": report.labels.get("kind", ""), "reason": outcome.reason}
        versions = json.dumps({name: printable(value, 100) for name, value in about.items() if value})
        for name, value, unit, *_levels in outcome.metrics or (("", None, ""),):
            test = f"{result.check}:{name}" if name else result.check
            rows.append(DeepResult(
                report.host, suite, test, outcome.target, value, unit, outcome.verdict.name, outcome.message,
                report.started, report.boot_id, versions, serial=outcome.device.serial,
            ))  # fmt: skip
    return add(connection, rows)


def last_verdicts(connection: Connection, node: str = "") -> List[LastVerdict]:
    """The last verdict of each suite, of one node or of all. Tests without a result for a node do not count."""
    newest = sa.select(deep_results.c.node, deep_results.c.suite, sa.func.max(deep_results.c.at).label("at"))
    newest = newest.where(of_this_machine(deep_results.c.node, deep_results.c.at))
    if node:
        newest = newest.where(deep_results.c.node == node)
    last = newest.group_by(deep_results.c.node, deep_results.c.suite).subquery()
    same = sa.and_(
        deep_results.c.node == last.c.node, deep_results.c.suite == last.c.suite, deep_results.c.at == last.c.at
    )
    asked = sa.select(deep_results.c.node, deep_results.c.suite, deep_results.c.verdict, deep_results.c.at).join_from(
        last, deep_results, same
    )
    verdicts: Dict[Tuple[str, str], LastVerdict] = {}
    for row in connection.execute(asked.distinct().order_by(deep_results.c.node, deep_results.c.suite)):
        verdict = LastVerdict._make(row)
        other = verdicts.get((verdict.node, verdict.suite))
        if other is None or Verdict[verdict.verdict] > Verdict[other.verdict]:
            verdicts[verdict.node, verdict.suite] = verdict
    return list(verdicts.values())


def last_conclusive(
    connection: Connection, nodes: Optional[Sequence[str]] = None, suites: Sequence[str] = (), since: float = 0.0
) -> Dict[Tuple[str, str], LastVerdict]:
    """The newest conclusive run of each suite, by node and suite: its worst verdict and its age.

    A run with an UNKNOWN part proves nothing, and does not replace an older conclusive one. A run on a machine that had
    the node's name before does not count for the present machine. `nodes` None is all; without `suites` all count; runs
    from before `since` (Unix seconds) do not. This is what a gate asks: is there a verdict, which, and how old.
    """
    verdicts: Dict[Tuple[str, str], LastVerdict] = {}
    rank = sa.case({verdict.name: int(verdict) for verdict in Verdict}, value=deep_results.c.verdict, else_=0)
    runs = sa.select(
        deep_results.c.node, deep_results.c.suite, deep_results.c.at, sa.func.max(rank).label("worst")
    ).where(of_this_machine(deep_results.c.node, deep_results.c.at)).group_by(
        deep_results.c.node, deep_results.c.suite, deep_results.c.at
    )  # fmt: skip
    # A run with one UNKNOWN part and one bad part is bad: CRIT outranks UNKNOWN.
    telling = runs.having(sa.func.max(rank).in_([int(Verdict.OK), int(Verdict.WARN), int(Verdict.CRIT)]))
    if suites:
        telling = telling.where(deep_results.c.suite.in_(list(suites)))
    if since:
        telling = telling.where(deep_results.c.at >= since)
    chosen = [telling] if nodes is None else [
        telling.where(deep_results.c.node.in_(names)) for names in batches(sorted(set(nodes)))
    ]  # fmt: skip
    for query in chosen:
        inner = query.subquery()
        newest = sa.func.row_number().over(
            partition_by=(inner.c.node, inner.c.suite), order_by=inner.c.at.desc()
        )  # fmt: skip
        numbered = sa.select(inner, newest.label("place")).subquery()
        for row in connection.execute(sa.select(numbered).where(numbered.c.place == 1)):
            verdicts[row.node, row.suite] = LastVerdict(row.node, row.suite, Verdict(row.worst).name, row.at)
    return verdicts


def newest_id(connection: Connection) -> int:
    """The number of the newest result, 0 if there is none."""
    return int(connection.scalar(sa.select(sa.func.max(deep_results.c.id))) or 0)


def nodes_since(connection: Connection, number: int) -> List[str]:
    """The nodes that have a result with a larger number than this one."""
    # Without DISTINCT, for which SQLite reads the index of all nodes from end to end.
    asked = sa.select(deep_results.c.node).where(deep_results.c.id > number)
    return sorted({str(row.node) for row in connection.execute(asked)})


def history(connection: Connection, node: str = "", limit: int = 100, serial: str = "") -> List[DeepResult]:
    """The results of a node, of the board with a serial number on any node, or of the board while it was in the node.
    The newest first.
    """
    asked = sa.select(*_RESULT)
    if node:
        asked = asked.where(deep_results.c.node == node)
    if serial:
        asked = asked.where(deep_results.c.serial == serial)
    asked = asked.order_by(deep_results.c.at.desc(), deep_results.c.id.desc()).limit(limit)
    return [DeepResult._make(row) for row in connection.execute(asked)]


def since(connection: Connection, then: float) -> List[DeepResult]:
    """All results since then (Unix time), the oldest first, those of sweeps left out."""
    asked = sa.select(*_RESULT).where(deep_results.c.at >= then, deep_results.c.sweep.is_(None))
    return [DeepResult._make(row) for row in connection.execute(asked.order_by(deep_results.c.at, deep_results.c.id))]


# Sweeps.


def begin_sweep(connection: Connection, plan: str, *, launcher: str, by: str, now: float) -> StoredSweep:
    """A new sweep, open."""
    values = {"state": OPEN, "by": by, "launcher": launcher, "began": now, "updated": now, "plan": plan}
    return StoredSweep._make(connection.execute(sa.insert(sweeps).values(values).returning(sweeps)).one())


def sweep(connection: Connection, number: int) -> Optional[StoredSweep]:
    """A sweep by its number, None if there is none."""
    row = connection.execute(sa.select(sweeps).where(sweeps.c.id == number)).first()
    return None if row is None else StoredSweep._make(row)


def newest_sweeps(connection: Connection, limit: int = 20, state: str = "") -> List[StoredSweep]:
    """Sweeps, the newest first, of one state or of any."""
    asked = sa.select(sweeps).order_by(sweeps.c.id.desc()).limit(limit)
    if state:
        asked = asked.where(sweeps.c.state == state)
    return [StoredSweep._make(row) for row in connection.execute(asked)]


def end_sweep(connection: Connection, number: int, state: str, findings: str, message: str, now: float) -> None:
    """Close a sweep with its findings. Raises Conflict if it is closed already."""
    values = {
        "state": state, "findings": findings, "message": printable(message, MESSAGE_LIMIT), "ended": now,
        "updated": now,
    }  # fmt: skip
    mine = sa.and_(sweeps.c.id == number, sweeps.c.state.in_([OPEN, STOPPING]))
    if not connection.execute(sa.update(sweeps).where(mine).values(values)).rowcount:
        raise Conflict(f"sweep {number} is not open")


def ask_to_stop(connection: Connection, number: int, why: str, now: float) -> None:
    """Ask for the end of a sweep; the first reason stays if it is asked for again. Raises Conflict if it is closed."""
    values = {"state": STOPPING, "message": printable(why, MESSAGE_LIMIT), "updated": now}
    mine = sa.and_(sweeps.c.id == number, sweeps.c.state == OPEN)
    if not connection.execute(sa.update(sweeps).where(mine).values(values)).rowcount:
        row = sweep(connection, number)
        if row is None or row.state != STOPPING:
            raise Conflict(f"sweep {number} is {row.state if row else 'not known'}")


def plan_tests(connection: Connection, tests: Sequence[SweepTest]) -> None:
    """Write down a round's tests, before one of them is launched."""
    if tests:
        connection.execute(sa.insert(sweep_tests), [test._asdict() for test in tests])


def tests_of(connection: Connection, number: int) -> List[SweepTest]:
    """A sweep's tests, in the order of its rounds."""
    asked = sa.select(sweep_tests).where(sweep_tests.c.sweep == number)
    return [SweepTest._make(row) for row in connection.execute(asked.order_by(sweep_tests.c.turn, sweep_tests.c.name))]


def save_test(connection: Connection, test: SweepTest, now: float) -> None:
    """Store a test as it is now: launched, or with its result. Raises Conflict if it has a result already."""
    values = test._replace(why=printable(test.why, MESSAGE_LIMIT))._asdict()
    mine = sa.and_(
        sweep_tests.c.sweep == test.sweep, sweep_tests.c.name == test.name,
        sweep_tests.c.state.in_([PLANNED, RUNNING, MEASURED]),
    )  # fmt: skip
    if not connection.execute(sa.update(sweep_tests).where(mine).values(values)).rowcount:
        raise Conflict(f"sweep {test.sweep}: {test.name} has a result already")
    connection.execute(sa.update(sweeps).where(sweeps.c.id == test.sweep).values(updated=now))


# What deep checks measured of each board over time, folded: how often, the range, the median, and the last.


class MeasuredRate(NamedTuple):
    """One value of one board (or, without a serial number, of one device of a node), over time.

    `node` and `device` are where it was measured last. `values` are Unix times and values, the oldest first.
    """

    serial: str
    node: str
    device: str
    test: str
    unit: str
    values: Tuple[Tuple[float, float], ...]

    @property
    def last(self) -> float:
        """The value that was measured last."""
        return self.values[-1][1]

    @property
    def middle(self) -> float:
        """The median of all."""
        return median(value for _at, value in self.values)

    @property
    def change(self) -> float:
        """How far the last is from the median, in percent; 0 if the median is 0."""
        return 100.0 * (self.last / self.middle - 1.0) if self.middle else 0.0


def rates(rows: Iterable[DeepResult]) -> List[MeasuredRate]:
    """The values of results, in the order of boards and tests. Results without a value or a device are left out."""
    results: Dict[Tuple[str, str, str, str, str], List[DeepResult]] = {}
    for row in sorted(rows, key=lambda row: row.at):
        if row.value is not None and row.device:
            where = ("", "") if row.serial else (row.node, row.device)
            results.setdefault((row.serial, *where, row.test, row.unit), []).append(row)
    folded = [
        MeasuredRate(
            serial, rows[-1].node, rows[-1].device, test, unit, tuple((row.at, float(row.value or 0)) for row in rows)
        )
        for (serial, _node, _device, test, unit), rows in results.items()
    ]
    return sorted(folded, key=lambda rate: (rate.node, rate.device, rate.serial, rate.test))
