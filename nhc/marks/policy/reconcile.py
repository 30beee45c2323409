"""Bring a scheduler's nodes in line with reports: read, decide, write down, act, read again, show the results.

One run at a time holds the ledger. An operation is on disk before it is done. If the other side loses it (a controller
killed in the middle forgets its last seconds), it is done again until it stays.
"""

from __future__ import annotations

import json
import os
import time
from functools import partial
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.matching.node_ranges import NodeNames, fold
from nhc.core.model import Report, printable
from nhc.core.render.json import from_dict, loads
from nhc.core.system.bounded_read import cause
from nhc.marks.policy.ledger import Ledger
from nhc.marks.policy.mark_decision import (
    Decision,
    Policy,
    Withheld,
    history_needed,
    reconcile,
    shared_faults,
    without_effect,
)
from nhc.marks.ports.adapter import AdapterError, Applied, Effect, Marker, NodeState, Operation, PlannedOperation, Power
from nhc.marks.ports.marks import may_change, same_cause

Reports = Dict[str, Report]


class BadReports(ValueError):
    """A file of reports that cannot be read, in one line."""


class SyncResult(NamedTuple):
    """One round over nodes: what was decided, and the results if it was carried out.

    `notes` are lines for a person besides: a bound that holds nothing, a fault that nodes share. `nodes` is how many
    there are, `counts` what is known of them, in words, `calls` how often a controller was asked, None if that is not
    counted.
    """

    operations: Tuple[PlannedOperation, ...] = ()
    withheld: Tuple[Withheld, ...] = ()
    applied: Tuple[Tuple[Operation, Applied], ...] = ()
    dry_run: bool = True
    notes: Tuple[str, ...] = ()
    nodes: int = 0
    counts: str = ""
    calls: Optional[int] = None

    def __bool__(self) -> bool:
        return bool(self.operations or self.withheld)

    @property
    def failed(self) -> List[Tuple[Operation, Applied]]:
        return [(operation, applied) for operation, applied in self.applied if applied.effect is Effect.FAILED]


# Reports.


class ReportFiles(NamedTuple):
    """What files hold. `problems` name what could not be read, a line a file; `notes` the files that were skipped."""

    reports: List[Report]
    problems: Tuple[str, ...] = ()
    notes: Tuple[str, ...] = ()


ENDINGS = (".json", ".jsonl")
"""How the files of a directory are called that hold reports: what `--format json` and `--format jsonl` write."""


def load_reports(paths: Sequence[str], read: Callable[[str], str]) -> ReportFiles:
    """The reports in files and directories. A file that cannot be read loses only its own reports, and is a problem.

    Raises BadReports if a named path does not exist or holds nothing that can be read.
    """
    reports: List[Report] = []
    problems: List[str] = []
    notes: List[str] = []
    empty: List[str] = []
    for path in paths:
        names, note = files_of(path)
        notes += [note] if note else []
        empty += [] if names else [path]
        found = len(reports), len(problems)
        for name in names:
            try:
                some, problem = read_report_file(name, read)
            except BadReports as error:
                some, problem = [], str(error)
            reports += some
            problems += [problem] if problem else []
        if len(reports) == found[0] and len(problems) > found[1]:
            raise BadReports(problems[found[1]])
    if not reports:
        notes.append(f"No node has reported yet; reports come from {where_from(paths)}")
    else:
        notes += map(no_reports_in, empty)
    return ReportFiles(reports, tuple(problems), tuple(notes))


def no_reports_in(path: str) -> str:
    """The message about a directory without reports, if others have some."""
    return f"{path}: no *{' or *'.join(ENDINGS)} file in this directory"


def where_from(paths: Sequence[str]) -> str:
    """The place in which nhc looks for reports, for a person."""
    return f"{' and '.join(f'*{ending}' for ending in ENDINGS)} files in {', '.join(paths)}"


def files_of(path: str) -> Tuple[List[str], str]:
    """The files of reports that a path names, and the messages about other files in that directory."""
    if path == "-" or not os.path.isdir(path):
        return [path], ""
    try:
        names = sorted(name for name in os.listdir(path) if not name.startswith("."))
    except OSError as error:
        raise BadReports(f"{path}: {cause(error)}") from None
    strange = [name for name in names if not name.endswith((*ENDINGS, ".tmp"))]
    note = ""
    if strange:
        count = "1 file is" if len(strange) == 1 else f"{len(strange)} files are"
        note = f"{path}: {count} passed over, not named *{' or *'.join(ENDINGS)}: {', '.join(map(ascii, strange[:3]))}"
    return [f"{path}/{name}" for name in names if name.endswith(ENDINGS)], note


def read_report_file(name: str, read: Callable[[str], str]) -> Tuple[List[Report], str]:
    """The reports in a file: one, a list, one a line, or an object with a list of them in `reports`.

    The text names the entries that are no reports, "" if all are. Raises BadReports if the file has none.
    """
    try:
        text = read(name)
        reports: List[Report] = []
        wrong: List[Tuple[str, Exception]] = []
        for where, value in _documents(text):
            try:
                if isinstance(value, ValueError):
                    raise value
                reports.append(from_dict(value))
            except ValueError as error:
                wrong.append((where, error))
    except json.JSONDecodeError as error:
        raise BadReports(f"{name}: not a report in JSON: {error}") from None
    except (OSError, ValueError) as error:
        raise BadReports(f"{name}: {cause(error)}") from None
    if not wrong:
        return reports, ""
    if not reports:
        raise BadReports(f"{name}: {wrong[0][0] if len(wrong) > 1 else ''}{wrong[0][1]}")
    first = "".join(map(str, wrong[0]))
    return reports, f"{name}: {len(wrong)} of {len(wrong) + len(reports)} reports cannot be read, the first: {first}"


def _documents(text: str) -> Iterator[Tuple[str, Any]]:
    """The position of each report in the text, and the report; a ValueError in its place if a line is no JSON."""
    try:
        values = [("", loads(text))]
    except ValueError as whole:
        lines = [(f"line {number}: ", line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        if not lines:
            raise ValueError("no report in it") from None
        values = [(where, _value(line)) for where, line in lines]
        if all(isinstance(value, ValueError) for _where, value in values):
            raise whole from None
    for where, value in values:
        inner = value["reports"] if isinstance(value, dict) and "reports" in value else value
        if isinstance(inner, list):
            yield from ((f"{where}report {place}: ", each) for place, each in enumerate(inner, 1))
        else:
            yield where, inner


def _value(line: str) -> Any:
    try:
        return loads(line)
    except ValueError as error:
        return ValueError(f"not a report in JSON: {error}")


def by_node(reports: Iterable[Report], nodes: Iterable[str]) -> Reports:
    """The newest report of each node, under the name that the scheduler has for it."""
    names = NodeNames(nodes, ())
    newest: Reports = {}
    for report in reports:
        name = names.scheduler_name(report.host)
        if name not in newest or newest[name].started < report.started:
            newest[name] = report
    return newest


# Acting.


def plan(
    adapter: Marker, reports: Iterable[Report], policy: Policy, ledger: Ledger, now: float
) -> Tuple[Decision, List[NodeState]]:
    """Decide, without doing anything. Raises AdapterError, LedgerError."""
    states = adapter.nodes()
    history = ledger.history(now - history_needed(policy))
    return reconcile(by_node(reports, (state.name for state in states)), states, policy, history, now), states


def sync(
    adapter: Marker,
    reports: Sequence[Report],
    policy: Policy,
    ledger: Ledger,
    *,
    apply: bool,
    retry_for: float = 60.0,
    clock: Callable[[], float] = time.time,
    pause: Callable[[float], None] = time.sleep,
) -> SyncResult:
    """Decide, and with `apply` carry it out. `retry_for` is how long a failing controller is tried again, in seconds.

    Raises AdapterError when the nodes cannot be read, LedgerError when nothing may be done.
    """
    if not apply:
        decision, states = plan(adapter, reports, policy, ledger, clock())
        notes = _notes(reports, decision, states, policy)
        return SyncResult(*decision, notes=notes, nodes=len(states), calls=_calls(adapter))
    with ledger:
        decision, states = plan(adapter, reports, policy, ledger, clock())
        ledger.begin(decision.operations, clock())
        done: Dict[Tuple[Operation, str], Applied] = {}
        todo = list(decision.operations)
        seen: Optional[List[NodeState]] = states
        deadline = time.monotonic() + retry_for
        wait = 0.5
        while todo:
            for operation, results in carry_out(todo, partial(_act, adapter, seen)):
                done.update({(operation, applied.node): applied for applied in results})
            done.update(_lost(adapter, todo, done))
            todo = [planned for planned in todo if _again(done[planned.operation, planned.node], planned)]
            if not todo or time.monotonic() + wait > deadline:
                break
            pause(wait)
            wait, seen = min(wait * 2, 8.0), None
        for operation in Operation:
            ledger.end(operation, (applied for (kind, _node), applied in done.items() if kind is operation), clock())
    applied = tuple((operation, result) for (operation, _node), result in done.items())
    notes = _notes(reports, decision, states, policy)
    return SyncResult(*decision, applied, False, notes, len(states), calls=_calls(adapter))


def _calls(adapter: Marker) -> Optional[int]:
    calls: Optional[int] = getattr(adapter, "calls", None)
    return calls


def _notes(
    reports: Sequence[Report], decision: Decision, states: Sequence[NodeState], policy: Policy
) -> Tuple[str, ...]:  # fmt: skip
    newest = by_node(reports, (state.name for state in states))
    shared = shared_faults(newest, decision, sum(not state.absent for state in states))
    return (*without_effect(policy, states), *shared)


Act = Callable[[Operation, Sequence[PlannedOperation]], List[Applied]]
"""Does operations of one kind, and returns the result of each."""


def carry_out(
    operations: Sequence[PlannedOperation], act: Act, may: Callable[[], bool] = lambda: True, at_once: int = 0
) -> Iterator[Tuple[Operation, List[Applied]]]:
    """Do each kind of operation in one go, or so many nodes `at_once`, for as long as we `may`."""
    for operation in (Operation.CLEAR, Operation.MARK, Operation.REBOOT, Operation.REPLACE):
        some = [planned for planned in operations if planned.operation is operation]
        for begin in range(0, len(some), at_once or len(some) or 1):
            if not may():
                return
            yield operation, act(operation, some[begin : begin + (at_once or len(some))])


def _act(
    adapter: Marker, seen: Optional[List[NodeState]], operation: Operation, some: Sequence[PlannedOperation]
) -> List[Applied]:  # fmt: skip
    """By any adapter; a controller that cannot be reached fails them all."""
    names = [planned.node for planned in some]
    try:
        if operation is Operation.CLEAR:
            return adapter.clear(names, seen)
        if operation is Operation.MARK:
            return adapter.mark({r.node: r.mark for r in some if r.mark is not None}, seen)
        return repair(adapter, operation, some)
    except AdapterError as error:
        return [Applied(name, Effect.FAILED, str(error)) for name in names]


def repair(adapter: object, operation: Operation, operations: Sequence[PlannedOperation]) -> List[Applied]:
    """Ask for reboots or replacements, if the adapter can. Raises AdapterError."""
    if not isinstance(adapter, Power) or operation not in adapter.repairs():
        return [Applied(r.node, Effect.REFUSED, f"this adapter cannot {operation.value} a node") for r in operations]
    applied: List[Applied] = []
    for because in dict.fromkeys(planned.because for planned in operations):
        applied += adapter.repair(operation, [r.node for r in operations if r.because == because], because)
    return applied


def _again(applied: Applied, planned: PlannedOperation) -> bool:
    """Whether an operation that failed is done again. Repairs are never repeated."""
    return applied.effect is Effect.FAILED and planned.operation in (Operation.CLEAR, Operation.MARK)


def _lost(
    adapter: Marker, operations: Sequence[PlannedOperation], done: Mapping[Tuple[Operation, str], Applied]
) -> Dict[Tuple[Operation, str], Applied]:
    """The marks and their removals that the other side accepted and then lost, or that cannot be confirmed."""
    changed = [
        planned
        for planned in operations
        if planned.operation in (Operation.CLEAR, Operation.MARK)
        and done[planned.operation, planned.node].effect is Effect.CHANGED
    ]
    if not changed:
        return {}
    try:
        now: Mapping[str, NodeState] = {state.name: state for state in adapter.nodes([r.node for r in changed])}
    except AdapterError as error:
        # It is not known now whether it took effect: once the controller answers again, doing it again is harmless.
        lost, why = changed, f"not confirmed: {error}"
    else:
        lost, why = [r for r in changed if not _holds(r, now.get(r.node))], "taken, and lost again"
    return {(planned.operation, planned.node): Applied(planned.node, Effect.FAILED, why) for planned in lost}


def _holds(planned: PlannedOperation, state: Optional[NodeState]) -> bool:
    if state is None:
        return True  # gone from the cluster: nothing to repeat
    if planned.operation is Operation.CLEAR:
        # Someone else may have taken it out since; their mark stays.
        return state.available or state.mark is None or not may_change(state.mark)
    if state.mark is None or planned.mark is None:
        return False
    return not state.available and (not may_change(state.mark) or same_cause(state.mark, planned.mark))


NAMES = {operation: operation.value for operation in Operation}
"""The names of operations if the scheduler has none of its own."""


def show_text(done: SyncResult, names: Mapping[Operation, str] = NAMES) -> str:
    """One line for each reason: what is done, to which nodes, why."""
    lines: List[str] = []
    fates = {(operation, applied.node): applied for operation, applied in done.applied}
    rows: Dict[Tuple[str, str], List[str]] = {}
    for planned in done.operations:
        fate = fates.get((planned.operation, planned.node))
        verb = f"would {names[planned.operation]}" if done.dry_run else names[planned.operation]
        why = planned.because
        if fate is not None and fate.effect is not Effect.CHANGED:
            verb = f"{'FAILED to' if fate.effect is Effect.FAILED else 'did not'} {verb}"
            why = fate.message
        rows.setdefault((verb, why), []).append(planned.node)
    for withheld in done.withheld:
        rows.setdefault((f"not {names[withheld.operation]}", withheld.why), []).append(withheld.node)
    width = max((len(verb) for verb, _why in rows), default=0)
    for (verb, why), nodes in rows.items():
        lines.append(f"{verb:<{width}}  {printable(fold(nodes))}  {printable(why)}")
    count = len(done.operations)
    summary = f"{count - len(done.failed)} of {count} done"
    if done.dry_run:
        summary = f"{count} to do, dry run: nothing changed (--apply does it)"
    asked = "" if done.calls is None else f"; {done.calls} controller calls"
    lines.append(f"{summary}; {len(done.withheld)} left as they are{asked}")
    lines += [done.counts] if done.counts else []
    return "\n".join(lines) + "\n"


def show_json(done: SyncResult) -> str:
    """The same as JSON."""
    fates = {(operation, applied.node): applied for operation, applied in done.applied}
    value = {
        "dry_run": done.dry_run,
        "nodes": done.nodes,
        **({} if done.calls is None else {"calls": done.calls}),
        "remedies": [
            {
                "node": printable(planned.node),
                "deed": planned.operation.value,
                "because": printable(planned.because),
                "action": planned.mark.action.value if planned.mark else "none",
                **_fate(fates.get((planned.operation, planned.node))),
            }
            for planned in done.operations
        ],
        "withheld": [
            {"node": printable(withheld.node), "deed": withheld.operation.value, "why": printable(withheld.why)}
            for withheld in done.withheld
        ],
    }
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _fate(applied: Optional[Applied]) -> Dict[str, str]:
    return {} if applied is None else {"effect": applied.effect.value, "message": printable(applied.message)}
