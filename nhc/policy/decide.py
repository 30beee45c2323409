"""Decide what to do to a fleet: reports and the nodes' states in, operations out. Pure: it reads no clock and no file.

Every automatic action passes a ceiling (how many nodes may be out at once, overall and in each partition)
and a rate (how many operations of a kind within a time), counted from what the scheduler says now and from the
history that the ledger kept. What does not pass is listed with the reason, never dropped.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.model import Action, Report, Verdict
from nhc.policy.limits import Limit, Rate
from nhc.ports.adapter import Effect, Mark, NodeState, Operation, PlannedOperation
from nhc.ports.marks import healthy, mark_of, may_change, may_clear, may_mark, out_by_nhc

HOUR = 3600.0


class Past(NamedTuple):
    """An operation of the history: what was begun on a node, and when (Unix time)."""

    when: float
    node: str
    operation: Operation


class Policy(NamedTuple):
    """What nhc may do by itself.

    `ceiling` bounds the nodes out at once in the whole fleet, `groups` in each partition (`*` is for those
    not named). Counted are the nodes that carry our mark; with `count_all` every node that takes no work.
    `rates` bounds operations in time. `repairs` are the operations beyond marking that are allowed at all, each on one
    node again only after `cooldown` seconds; after `attempts` reboots within `window` seconds that left the
    node unhealthy, a reboot becomes a replacement. `protected` are patterns of nodes never touched.
    `max_age` (seconds) is how old a report may be and still count; `healthy_for` how long a node must have
    been marked before it returns to service.
    """

    ceiling: Limit = Limit(share=0.1)
    groups: Mapping[str, Limit] = {}
    count_all: bool = False
    rates: Mapping[Operation, Rate] = {}
    repairs: FrozenSet[Operation] = frozenset()
    cooldown: float = HOUR
    attempts: int = 3
    window: float = 24 * HOUR
    protected: Tuple[str, ...] = ()
    max_age: float = HOUR
    healthy_for: float = 0.0


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
    return max([policy.cooldown, policy.window, *(rate.seconds for rate in policy.rates.values())])


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
        if any(fnmatchcase(node, pattern) for pattern in policy.protected):
            run.withhold(node, Operation.MARK, "protected by the policy", report.verdict is Verdict.CRIT)
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
        self.size: Dict[str, int] = {"": sum(not state.absent for state in states)}
        self.out: Dict[str, int] = {"": 0}
        self.spent: Dict[Operation, set[str]] = {
            operation: {past.node for past in history if past.operation is operation and now - past.when < rate.seconds}
            for operation, rate in policy.rates.items()
        }
        for state in states:
            counted = self.counted(state)
            for group in state.groups:
                self.size[group] = self.size.get(group, 0) + (not state.absent)
                self.out[group] = self.out.get(group, 0) + counted
            self.out[""] += counted

    def counted(self, state: NodeState) -> bool:
        return out_by_nhc(state) or (not state.available and self.policy.count_all)

    def withhold(self, node: str, operation: Operation, why: str, called_for: bool = True) -> None:
        if called_for:
            self.withheld.append(Withheld(node, operation, why))

    def over_rate(self, node: str, operation: Operation) -> str:
        """Why the rate forbids an operation, "" where it does not. The same node does not count twice."""
        rate = self.policy.rates.get(operation)
        if rate is None or node in self.spent[operation] or len(self.spent[operation]) < rate.operations:
            return ""
        return f"{len(self.spent[operation])} nodes within {rate.seconds:.0f} s already, at most {rate.operations}"

    def spend(self, node: str, operation: Operation) -> None:
        if operation in self.spent:
            self.spent[operation].add(node)

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
        over = self.over_rate(node, Operation.CLEAR)
        if over:
            self.withhold(node, Operation.CLEAR, over)
            return
        self.spend(node, Operation.CLEAR)
        self.operations.append(PlannedOperation(node, Operation.CLEAR, f"healthy again; was: {state.mark.why}"))
        self.count(state, -1 if self.counted(state) else 0)

    def count(self, state: NodeState, change: int) -> None:
        for group in ("", *state.groups):
            self.out[group] += change

    def consider_mark(self, node: str, state: Optional[NodeState], mark: Mark) -> None:
        if state is not None and state.mark is not None and state.mark.ours and not state.available:
            mark = mark._replace(since=state.mark.since)  # out since then, whatever the newest reason is
        effect, why = may_mark(state, mark)
        if effect is not Effect.CHANGED or state is None:
            self.withhold(node, Operation.MARK, why, effect is not Effect.UNCHANGED)
            return
        if state.available:
            over = self.over_ceiling(state) or self.over_rate(node, Operation.MARK)
            if over:
                self.withhold(node, Operation.MARK, over)
                return
            self.spend(node, Operation.MARK)
            self.count(state, 1)
        self.operations.append(PlannedOperation(node, Operation.MARK, mark.why, mark))

    def over_ceiling(self, state: NodeState) -> str:
        """Why a ceiling forbids one more node out, "" where none does."""
        for group in ("", *state.groups):
            ceiling = self.policy.groups.get(group, self.policy.groups.get("*")) if group else self.policy.ceiling
            if ceiling is not None and self.out[group] >= ceiling.of(self.size[group]):
                where = f"in {group}" if group else "in the fleet"
                total = self.size[group]
                return f"{self.out[group]} of {total} nodes {where} are out already, at most {ceiling.show()}"
        return ""

    def consider_repair(self, node: str, state: Optional[NodeState], mark: Mark) -> None:
        """Order a reboot or a replacement of a node that our mark took out and whose work has ended."""
        operation = {Action.REBOOT: Operation.REBOOT, Action.REPLACE: Operation.REPLACE}.get(mark.action)
        if operation is None or not self.policy.repairs or state is None or state.hold:
            return
        if state.available or state.mark is None or not may_change(state.mark):
            return  # not out yet, or not by us: a later round, or nobody's business here
        repairs = self.repaired.get(node, ())
        tried = sum(
            1 for past in repairs if past.operation is Operation.REBOOT and self.now - past.when < self.policy.window
        )
        if operation is Operation.REBOOT and tried >= self.policy.attempts:
            operation = Operation.REPLACE
        because = mark.why + (f" ({tried} reboots did not help)" if operation is Operation.REPLACE and tried else "")
        last = max((past.when for past in repairs), default=None)
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
        elif self.over_rate(node, operation):
            self.withhold(node, operation, self.over_rate(node, operation))
        else:
            self.spend(node, operation)
            self.operations.append(PlannedOperation(node, operation, because))
