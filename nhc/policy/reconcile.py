"""Bring a scheduler's nodes in line with reports: read, decide, write down, act, look again.

One run at a time holds the ledger. What is to be done is on disk before it is done, and what the other side
lost (a controller killed in the middle forgets its last seconds) is done again until it holds.
"""

from __future__ import annotations

import json
import os
import time
from typing import (
    Any,
    Callable,
    Dict,
    FrozenSet,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

from nhc.model import Report
from nhc.policy.decide import Decision, Policy, decide, history_needed
from nhc.policy.ledger import Ledger
from nhc.ports import AdapterError, Applied, Deed, Effect, Marker, NodeState, Power, Remedy, same_cause
from nhc.render.json import from_dict

Reports = Dict[str, Report]


class BadReports(ValueError):
    """A file of reports that cannot be read, in one line."""


class Round(NamedTuple):
    """One run: what was decided, and, where it was carried out, what became of it."""

    decision: Decision
    applied: Tuple[Tuple[Deed, Applied], ...] = ()
    dry_run: bool = True

    @property
    def failed(self) -> List[Tuple[Deed, Applied]]:
        return [(deed, applied) for deed, applied in self.applied if applied.effect is Effect.FAILED]


# Reports.


def load_reports(paths: Sequence[str], read: Callable[[str], str]) -> List[Report]:
    """The reports in files: one, a list, one a line, or an object with a list of them in `reports`."""
    reports: List[Report] = []
    for path in paths:
        names = [path]
        if path != "-" and os.path.isdir(path):
            names = [f"{path}/{name}" for name in sorted(os.listdir(path)) if name.endswith(".json")]
        for name in names:
            try:
                reports.extend(from_dict(value) for value in _documents(read(name)))
            except OSError as error:
                raise BadReports(f"{name}: {error.strerror}") from None
            except (ValueError, RecursionError) as error:
                raise BadReports(f"{name}: {error}") from None
    return reports


def _documents(text: str) -> Iterator[Any]:
    try:
        values = [json.loads(text)]
    except ValueError:
        values = [json.loads(line) for line in text.splitlines() if line.strip()]
        if not values:
            raise ValueError("no report in it") from None
    for value in values:
        inner = value["reports"] if isinstance(value, dict) and "reports" in value else value
        yield from inner if isinstance(inner, list) else [inner]


def by_node(reports: Iterable[Report], nodes: Iterable[str]) -> Reports:
    """The newest report of each node, under the name that the scheduler has for it."""
    known = set(nodes)
    found: Reports = {}
    for report in reports:
        short = report.host.partition(".")[0]
        name = report.host if report.host in known or short not in known else short
        if name not in found or found[name].started < report.started:
            found[name] = report
    return found


# Acting.


def plan(
    adapter: Marker, reports: Iterable[Report], policy: Policy, ledger: Ledger, now: float
) -> Tuple[Decision, List[NodeState]]:
    """Decide, without doing anything. Raises AdapterError, LedgerError."""
    states = adapter.nodes()
    history = ledger.history(now - history_needed(policy))
    return decide(by_node(reports, (state.name for state in states)), states, policy, history, now), states


def sync(
    adapter: Marker,
    reports: Sequence[Report],
    policy: Policy,
    ledger: Ledger,
    *,
    apply: bool,
    patience: float = 60.0,
    clock: Callable[[], float] = time.time,
    pause: Callable[[float], None] = time.sleep,
) -> Round:
    """Decide, and with `apply` carry it out. `patience` is how long a failing controller is tried again, in seconds.

    Raises AdapterError when the nodes cannot be read, LedgerError when nothing may be done.
    """
    if not apply:
        return Round(plan(adapter, reports, policy, ledger, clock())[0])
    with ledger:
        decision, states = plan(adapter, reports, policy, ledger, clock())
        ledger.begin(decision.remedies, clock())
        done: Dict[Tuple[Deed, str], Applied] = {}
        todo = list(decision.remedies)
        seen: Optional[List[NodeState]] = states
        deadline = time.monotonic() + patience
        wait = 0.5
        while todo:
            for deed, applied in _carry_out(adapter, todo, seen):
                done[deed, applied.node] = applied
            todo = _not_done(adapter, todo, done)
            if not todo or time.monotonic() + wait > deadline:
                break
            pause(wait)
            wait, seen = min(wait * 2, 8.0), None
        for deed in Deed:
            ledger.end(deed, (applied for (kind, _node), applied in done.items() if kind is deed), clock())
    return Round(decision, tuple((deed, applied) for (deed, _node), applied in done.items()), dry_run=False)


def _carry_out(
    adapter: Marker, remedies: Sequence[Remedy], seen: Optional[List[NodeState]]
) -> Iterator[Tuple[Deed, Applied]]:
    """Do each kind of deed in one go; a controller that cannot be reached fails them all."""
    for deed in (Deed.CLEAR, Deed.MARK, Deed.REBOOT, Deed.REPLACE):
        some = [remedy for remedy in remedies if remedy.deed is deed]
        if not some:
            continue
        names = [remedy.node for remedy in some]
        try:
            if deed is Deed.CLEAR:
                applied = adapter.clear(names, seen)
            elif deed is Deed.MARK:
                applied = adapter.mark({r.node: r.mark for r in some if r.mark is not None}, seen)
            else:
                applied = _repair(adapter, deed, some)
        except AdapterError as error:
            applied = [Applied(name, Effect.FAILED, str(error)) for name in names]
        for one in applied:
            yield deed, one


def _repair(adapter: Any, deed: Deed, remedies: Sequence[Remedy]) -> List[Applied]:
    can: FrozenSet[Deed] = adapter.repairs() if isinstance(adapter, Power) else frozenset()
    if deed not in can:
        return [Applied(r.node, Effect.REFUSED, f"this adapter cannot {deed.value} a node") for r in remedies]
    found: List[Applied] = []
    for because in dict.fromkeys(remedy.because for remedy in remedies):
        found += adapter.repair(deed, [r.node for r in remedies if r.because == because], because)
    return found


def _not_done(adapter: Marker, remedies: Sequence[Remedy], done: Dict[Tuple[Deed, str], Applied]) -> List[Remedy]:
    """The remedies that failed, or that the other side took and then lost. Repairs are never repeated."""
    again = [r for r in remedies if done[r.deed, r.node].effect is Effect.FAILED and r.deed in (Deed.CLEAR, Deed.MARK)]
    changed = [
        r for r in remedies if done[r.deed, r.node].effect is Effect.CHANGED and r.deed in (Deed.CLEAR, Deed.MARK)
    ]
    if not changed:
        return again
    try:
        now: Mapping[str, NodeState] = {state.name: state for state in adapter.nodes([r.node for r in changed])}
    except AdapterError as error:
        # Nobody can tell now whether it held: once the controller answers again, doing it again is harmless.
        for remedy in changed:
            done[remedy.deed, remedy.node] = Applied(remedy.node, Effect.FAILED, f"not confirmed: {error}")
        return again + changed
    for remedy in changed:
        if not _holds(remedy, now.get(remedy.node)):
            done[remedy.deed, remedy.node] = Applied(remedy.node, Effect.FAILED, "taken, and lost again")
            again.append(remedy)
    return again


def _holds(remedy: Remedy, state: Optional[NodeState]) -> bool:
    if state is None:
        return True  # gone from the cluster: nothing to repeat
    if remedy.deed is Deed.CLEAR:
        # Somebody else may have taken it out since; that is theirs.
        return state.available or state.mark is None or not state.mark.ours
    if state.mark is None or remedy.mark is None:
        return False
    return not state.available and (not state.mark.ours or same_cause(state.mark, remedy.mark))
