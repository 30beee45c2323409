"""Decide what to do to a fleet: reports and the nodes' states in, operations out. Pure: it reads no clock and no file.

Every automatic action passes the bounds (`nhc.marks.policy.bounds`): how many nodes may be out at once, in the fleet,
in each
partition and rack, and how many operations of a kind within a time, counted from what the scheduler says now and from
the history that the ledger kept. What does not pass is listed with the reason, never dropped.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.limits import Limit
from nhc.core.model import Action, Report, Verdict
from nhc.marks.policy import bounds as bounding
from nhc.marks.policy.bounds import FLEET, BegunAction, Bounds, RadiusBounds, Usage
from nhc.marks.ports.adapter import Effect, Mark, NodeState, Operation, PlannedOperation
from nhc.marks.ports.marks import healthy, mark_of, may_change, may_clear, may_mark, out_by_nhc

HOUR = 3600.0


class Past(NamedTuple):
    """An operation of the history: what was begun on a node, and when (Unix time)."""

    when: float
    node: str
    operation: Operation


class Policy(NamedTuple):
    """What nhc may do by itself.

    `bounds` hold as for the remedy loop, but for the first run's, those on repairs at one time and approvals. Out are
    the nodes that carry our mark; with `count_all` every node that takes no work. `repairs` are the operations beyond
    marking that are allowed at all, each on one node again only after `cooldown` seconds; after `bounds.attempts`
    reboots within `bounds.window` seconds that left the node unhealthy, a reboot becomes a replacement. `max_age`
    (seconds) is how old a report may be and still count; `healthy_for` how long a node must have been marked before it
    returns to service.
    """

    bounds: Bounds = Bounds({FLEET: RadiusBounds(Limit(share=0.1))}, window=24 * HOUR)
    count_all: bool = False
    repairs: FrozenSet[Operation] = frozenset()
    cooldown: float = HOUR
    max_age: float = HOUR
    healthy_for: float = 0.0

    @property
    def ceiling(self) -> Limit:
        """How many nodes of the fleet may be out."""
        return self.bounds.radii[FLEET].out or Limit()

    def with_ceiling(self, limit: Limit) -> Policy:
        """The same with another limit of the nodes out in the fleet."""
        fleet = self.bounds.radii[FLEET]._replace(out=limit)
        return self._replace(bounds=self.bounds._replace(radii={**self.bounds.radii, FLEET: fleet}))

    @property
    def rates(self) -> FrozenSet[Operation]:
        """The operations that some rate bounds."""
        return frozenset(operation for operation in Operation if self.windows(operation))

    def windows(self, operation: Operation) -> Tuple[float, ...]:
        """The times, in seconds, of the rates that bound an operation."""
        rates = [radius.rates.get(kind) for radius in self.bounds.radii.values() for kind in kinds(operation)]
        return tuple(rate.seconds for rate in rates if rate is not None)


def kinds(operation: Operation) -> Tuple[str, ...]:
    """What the bounds on an operation are named by."""
    return (operation.value, "repair") if operation.value in bounding.EVERY_REPAIR else (operation.value,)


class Withheld(NamedTuple):
    """Something that was called for and not ordered, and why."""

    node: str
    operation: Operation
    why: str


class Decision(NamedTuple):
    operations: Tuple[PlannedOperation, ...]
    withheld: Tuple[Withheld, ...]


def history_needed(policy: Policy) -> float:
    """How many seconds of history `decide` looks back on."""
    times = (seconds for operation in Operation for seconds in policy.windows(operation))
    return max([policy.cooldown, policy.bounds.window, *times])


def decide(
    reports: Mapping[str, Report],
    states: Sequence[NodeState],
    policy: Policy,
    history: Iterable[Past] = (),
    now: float = 0.0,
) -> Decision:
    """The operations that the reports call for and the policy allows, clearing first, then marking, then repairs.

    `states` are all nodes of the fleet, not only those with a report: shares are counted on them. A node
    whose report is UNKNOWN, or too old, is left as it is.
    """
    known = {state.name: state for state in states}
    run = _Deciding(policy, states, list(history), now)
    marks: Dict[str, Tuple[Mark, int]] = {}
    for node in sorted(reports):
        report, state = reports[node], known.get(node)
        protected = bounding.protected(policy.bounds, node)
        if protected:
            run.withhold(node, Operation.MARK, protected.why, report.verdict is Verdict.CRIT)
        elif not 0 <= now - report.started <= policy.max_age:
            run.withhold(node, Operation.MARK, _age(now - report.started, policy.max_age), True)
        elif healthy(report):
            run.consider_clear(node, state)
        else:
            mark = mark_of(report)
            if mark is not None:
                marks[node] = (mark, len(report.failures()))
    # The nodes with most failures go first, where there is not room for all.
    for node in sorted(marks, key=lambda name: (-marks[name][1], name)):
        run.consider_mark(node, known.get(node), marks[node][0])
    for node in sorted(marks):
        run.consider_repair(node, known.get(node), marks[node][0])
    return Decision(tuple(run.operations), tuple(run.withheld))


def unmatched(policy: Policy, states: Sequence[NodeState]) -> Tuple[str, ...]:
    """The kinds of radii that the policy bounds and that none of the nodes is in: such a bound holds nothing here."""
    return tuple(policy.bounds.unmatched(_unused(states).sizes))


def without_effect(policy: Policy, states: Sequence[NodeState]) -> List[str]:
    """The bounds of the policy that hold nothing here, since no node is in such a group; a line each."""
    sizes = _unused(states).sizes
    kinds = ", ".join(sorted({kind for kind, _name in sizes} - {FLEET})) or "none"
    lines = [
        f"bounds.{kind}: no effect: no node is in such a group: the nodes' groups are of these kinds: {kinds}"
        for kind in policy.bounds.unmatched(sizes)
    ]
    named = policy.bounds.unmatched_names(sizes)
    return lines + [f"the bound on {name} holds for nothing: no node is in such a group" for name in named]


def _unused(states: Sequence[NodeState]) -> Usage:
    """The nodes in their radii, with nothing out and nothing begun."""
    groups = {state.name: bounding.radii_of(state) for state in states}
    return Usage(groups, bounding.sizes(groups, {state.name for state in states if state.absent}))


def _age(age: float, limit: float) -> str:
    if age < 0:
        return f"its report is from {-age:.0f} s in the future: check the node's clock"
    return f"its report is {age:.0f} s old; at most {limit:.0f} s count"


class _Deciding:
    """What is out, and what was spent, while a decision is made."""

    def __init__(self, policy: Policy, states: Sequence[NodeState], history: List[Past], now: float) -> None:
        self.policy, self.now = policy, now
        self.repaired: Dict[str, List[Past]] = {}
        for past in history:
            if past.operation in (Operation.REBOOT, Operation.REPLACE):
                self.repaired.setdefault(past.node, []).append(past)
        self.operations: List[PlannedOperation] = []
        self.withheld: List[Withheld] = []
        self.usage = _unused(states)
        for state in states:
            if self.counted(state):
                self.usage.count_out(state.name)
        self.spent: Dict[Operation, set[str]] = {operation: set() for operation in Operation}
        for past in {(past.node, past.operation): past for past in sorted(history)}.values():
            self.usage.begin(BegunAction(past.when, past.node, past.operation.value))
            if now - past.when < min(policy.windows(past.operation), default=0.0):
                self.spent[past.operation].add(past.node)

    def counted(self, state: NodeState) -> bool:
        return out_by_nhc(state) or (not state.available and self.policy.count_all)

    def withhold(self, node: str, operation: Operation, why: str, called_for: bool = True) -> None:
        if called_for:
            self.withheld.append(Withheld(node, operation, why))

    def over(self, node: str, operation: Operation) -> str:
        """Why the hours or a rate forbid an operation, "" where they do not. The same node does not count twice."""
        bounds = self.policy.bounds
        held = bounding.never_now(bounds, operation.value, node, self.now)
        if not held and node not in self.spent[operation]:
            held = bounding.rate(bounds, self.usage, node, kinds(operation), self.now)
        return held.why if held else ""

    def spend(self, node: str, operation: Operation) -> None:
        if node not in self.spent[operation]:
            self.spent[operation].add(node)
            self.usage.begin(BegunAction(self.now, node, operation.value))

    def consider_clear(self, node: str, state: Optional[NodeState]) -> None:
        effect, why = may_clear(state)
        if effect is not Effect.CHANGED or state is None or state.mark is None:
            self.withhold(node, Operation.CLEAR, why, effect is not Effect.UNCHANGED)
            return
        since = state.mark.since
        if since is not None and self.now - since < self.policy.healthy_for:
            self.withhold(
                node, Operation.CLEAR, f"marked {self.now - since:.0f} s ago, kept {self.policy.healthy_for:.0f} s"
            )
            return
        over = self.over(node, Operation.CLEAR)
        if over:
            self.withhold(node, Operation.CLEAR, over)
            return
        self.spend(node, Operation.CLEAR)
        self.operations.append(PlannedOperation(node, Operation.CLEAR, f"healthy again; was: {state.mark.why}"))
        if self.counted(state):
            self.usage.count_out(node, -1)

    def consider_mark(self, node: str, state: Optional[NodeState], mark: Mark) -> None:
        if state is not None and state.mark is not None and state.mark.ours and not state.available:
            mark = mark._replace(since=state.mark.since)  # out since then, whatever the newest reason is
        effect, why = may_mark(state, mark)
        if effect is not Effect.CHANGED or state is None:
            self.withhold(node, Operation.MARK, why, effect is not Effect.UNCHANGED)
            return
        if state.available:
            full = bounding.room(self.policy.bounds, self.usage, node)
            over = full.why if full else self.over(node, Operation.MARK)
            if over:
                self.withhold(node, Operation.MARK, over)
                return
            self.spend(node, Operation.MARK)
            self.usage.count_out(node)
        self.operations.append(PlannedOperation(node, Operation.MARK, mark.why, mark))

    def consider_repair(self, node: str, state: Optional[NodeState], mark: Mark) -> None:
        """Order a reboot or a replacement of a node that our mark took out and whose work has ended."""
        operation = {Action.REBOOT: Operation.REBOOT, Action.REPLACE: Operation.REPLACE}.get(mark.action)
        if operation is None or not self.policy.repairs or state is None or state.hold:
            return
        if state.available or state.mark is None or not may_change(state.mark):
            return  # not out yet, or not by us: a later round, or nobody's business here
        repairs = self.repaired.get(node, ())
        tried = sum(
            1
            for past in repairs
            if past.operation is Operation.REBOOT and self.now - past.when < self.policy.bounds.window
        )
        if operation is Operation.REBOOT and tried >= self.policy.bounds.attempts:
            operation = Operation.REPLACE
        because = mark.why + (f" ({tried} reboots did not help)" if operation is Operation.REPLACE and tried else "")
        last = max((past.when for past in repairs), default=None)
        over = self.over(node, operation)
        if operation not in self.policy.repairs:
            self.withhold(node, operation, f"the policy allows no {operation.value}")
        elif state.busy:
            self.withhold(node, operation, "work still runs on it")
        elif last is not None and self.now - last < self.policy.cooldown:
            self.withhold(
                node,
                operation,
                f"last repaired {self.now - last:.0f} s ago, at most every {self.policy.cooldown:.0f} s",
            )
        elif over:
            self.withhold(node, operation, over)
        else:
            self.spend(node, operation)
            self.operations.append(PlannedOperation(node, operation, because))
