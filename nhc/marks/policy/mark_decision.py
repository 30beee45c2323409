"""Decide what to do to a fleet, from reports and the nodes' states. Pure: it reads no clock and no file.

Every automatic action passes the door (`nhc.marks.policy.door`), within the bounds: how many nodes may be out at once,
in the fleet, in each partition and rack, and how many operations of a kind may begin within a time. They are counted
from the scheduler's present state and from the ledger's history. An action that does not pass is listed with the
reason.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.limits import Limit
from nhc.core.model import Action, Report
from nhc.core.settings import declared
from nhc.marks.policy import bounds as bounding
from nhc.marks.policy import door
from nhc.marks.policy.bounds import AT_FIRST, FLEET, BegunAction, Bounds, Held, RadiusBounds, read_bounds
from nhc.marks.ports.adapter import Effect, Mark, NodeState, Operation, PlannedOperation
from nhc.marks.ports.marks import (
    healthy,
    in_place_of,
    machine_held,
    mark_of,
    may_change,
    out_by_nhc,
    work_on_machine,
)

HOUR = 3600.0
HERE = tuple(name for name in Bounds._fields if name not in (*AT_FIRST, "asked"))
"""The bounds that a policy has."""


@declared.settings
class Policy(NamedTuple):
    """What nhc may do by itself.

    `bounds` apply as for the remedy loop, except those of the first run, of repairs at one time and of approvals. Nodes
    with our mark count as out; with `count_all`, every node that takes no work. `repairs` are the operations beyond
    marking that are allowed at all, each on one node again only after `cooldown` seconds; after `bounds.attempts`
    reboots within `bounds.window` seconds that left the node unhealthy, a reboot becomes a replacement. `max_age`
    (seconds) is how old a report may be and still count; `healthy_for` how long a node must have been marked before it
    returns to service.
    """

    bounds: Bounds = declared.own(
        "", Bounds(radii={FLEET: RadiusBounds(Limit(share=0.1))}, window=24 * HOUR),
        lambda file, _key, usual: read_bounds(file, usual, HERE), group=Bounds, only=HERE,
    )  # fmt: skip
    count_all: bool = declared.flag(
        "count-all", False,
        "count every node that takes no work against the ceilings, not only those that carry our mark",
    )  # fmt: skip
    repairs: FrozenSet[Operation] = declared.choices(
        "repair.allow", {"reboot": Operation.REBOOT, "replace": Operation.REPLACE}, frozenset(), made=frozenset
    )
    cooldown: float = declared.seconds("repair.cooldown", HOUR, "between two repairs of one node")
    max_age: float = declared.seconds("max-age", HOUR, "a report older than this counts for nothing")
    healthy_for: float = declared.seconds(
        "healthy-for", 0.0, "a node stays out at least this long, so that it does not come and go"
    )

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
        """The periods, in seconds, of the rates that bound an operation."""
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
    """How many seconds of history `reconcile` looks back on."""
    times = (seconds for operation in Operation for seconds in policy.windows(operation))
    return max([policy.cooldown, policy.bounds.window, *times])


def reconcile(
    reports: Mapping[str, Report],
    states: Sequence[NodeState],
    policy: Policy,
    history: Iterable[BegunAction] = (),
    now: float = 0.0,
) -> Decision:
    """The operations that the reports call for and the door (`nhc.marks.policy.door`) lets through: clearing first,
    then marking, then repairs.

    `states` are all nodes of the fleet, with what is marked, not only those with a report: shares are counted on them.
    `history` is what was begun (`Ledger`). A node whose report is UNKNOWN, or does not count, is left as it is.
    """
    known = {state.name: state for state in states}
    run = _Deciding(policy, states, list(history), now)
    marks: Dict[str, Tuple[Mark, int]] = {}
    doubts: Dict[str, List[Held]] = {}
    for node in sorted(reports):
        report, state, mark = reports[node], known.get(node), mark_of(reports[node])
        doubts[node] = door.report_doubts(report.started, report.boot_id, state, now, policy.max_age)
        if mark is not None:
            marks[node] = (mark, len(report.failures()))
        elif doubts[node]:
            run.withhold(node, Operation.MARK, doubts[node][0].why)
        elif healthy(report):
            run.consider_clear(node, state)
    # The nodes with most failures go first if there is not room for all.
    for node in sorted(marks, key=lambda name: (-marks[name][1], name)):
        run.consider_mark(node, known.get(node), marks[node][0], doubts[node])
    for node in sorted(marks):
        if not doubts[node] and bounding.protected(policy.bounds, node) is None:
            run.consider_repair(node, known.get(node), marks[node][0])
    return Decision(tuple(run.operations), tuple(run.withheld))


def shared_faults(reports: Mapping[str, Report], decision: Decision, fleet: int) -> Tuple[str, ...]:
    """A line for each check that fails alike on nodes of which several are not marked: most likely one common cause,
    not a fault of these nodes. `fleet` is how many nodes there are.
    """
    denied = {withheld.node for withheld in decision.withheld if withheld.operation is Operation.MARK}
    alike: Dict[Tuple[str, ...], List[str]] = {}
    for node, report in reports.items():
        mark = mark_of(report)
        if mark is not None:
            alike.setdefault(tuple(mark.cause.split("|")[:2]), []).append(node)
    return tuple(
        f"{': '.join(filter(None, cause))}: the same on {len(nodes)} of {fleet} nodes, {count} of them not marked: "
        "look for a common cause"
        for cause, nodes in sorted(alike.items())
        if (count := len(denied.intersection(nodes))) > 1
    )


def without_effect(policy: Policy, states: Sequence[NodeState]) -> Tuple[str, ...]:
    """The bounds of the policy that have no effect, since no node is in their group; a line each."""
    return tuple(policy.bounds.without_nodes(bounding.usage_of(states).sizes))


class _Deciding:
    """What is out, and what was spent, while a decision is made."""

    def __init__(self, policy: Policy, states: Sequence[NodeState], history: List[BegunAction], now: float) -> None:
        self.policy, self.now = policy, now
        # A bound without effect is reported (`without_effect`), and blocks nothing.
        self.bounds = policy.bounds._replace(asked=frozenset())
        self.repaired: Dict[str, List[BegunAction]] = {}
        for past in history:
            if past.action in (Operation.REBOOT, Operation.REPLACE):
                self.repaired.setdefault(past.node, []).append(past)
        self.operations: List[PlannedOperation] = []
        self.withheld: List[Withheld] = []
        self.usage = bounding.usage_of(states)
        for state in states:
            if self.counted(state):
                self.usage.count_out(state.name)
        self.spent: Dict[Operation, set[str]] = {operation: set() for operation in Operation}
        for past in {(past.node, past.action): past for past in sorted(history)}.values():
            self.usage.begin(past)
            operation = Operation(past.action)
            if now - past.when < min(policy.windows(operation), default=0.0):
                self.spent[operation].add(past.node)

    def counted(self, state: NodeState) -> bool:
        return out_by_nhc(state) or (not state.available and self.policy.count_all)

    def withhold(self, node: str, operation: Operation, why: str, called_for: bool = True) -> None:
        if called_for:
            self.withheld.append(Withheld(node, operation, why))

    def over(self, node: str, operation: Operation) -> str:
        """Why the hours or a rate forbid an operation, "" if they do not. The same node does not count twice."""
        bounds = self.policy.bounds
        held = bounding.never_now(bounds, operation.value, node, self.now)
        if not held and node not in self.spent[operation]:
            held = bounding.rate(bounds, self.usage, node, kinds(operation), self.now)
        return held.why if held else ""

    def spend(self, node: str, operation: Operation) -> None:
        if node not in self.spent[operation]:
            self.spent[operation].add(node)
            self.usage.begin(BegunAction(self.now, node, operation.value))

    def ask(self, ask: door.MarkRequest, operation: Operation) -> bool:
        """Whether the door lets an operation through; if not, it is listed, unless nothing needs to change."""
        ask = ask._replace(again=ask.node in self.spent[operation])
        ruling = door.rule(ask, self.bounds, self.usage, self.now)
        if not ruling.may:
            self.withhold(ask.node, operation, ruling.why, ruling.effect is not Effect.UNCHANGED)
        return ruling.may

    def consider_clear(self, node: str, state: Optional[NodeState]) -> None:
        since = state.mark.since if state is not None and state.mark is not None else None
        early = since is not None and self.now - since < self.policy.healthy_for
        kept = f"marked {self.now - (since or 0.0):.0f} s ago, kept {self.policy.healthy_for:.0f} s" if early else ""
        if not self.ask(door.MarkRequest(node, state, held=(Held("healthy-for", kept),)), Operation.CLEAR):
            return
        assert state is not None
        assert state.mark is not None
        self.spend(node, Operation.CLEAR)
        self.operations.append(PlannedOperation(node, Operation.CLEAR, f"healthy again; was: {state.mark.why}"))
        if self.counted(state):
            self.usage.count_out(node, -1)

    def consider_mark(self, node: str, state: Optional[NodeState], mark: Mark, doubts: Sequence[Held]) -> None:
        mark = in_place_of(state, mark) if state is not None else mark
        if not self.ask(door.MarkRequest(node, state, mark, doubts=doubts), Operation.MARK):
            return
        if state is not None and state.available:
            self.spend(node, Operation.MARK)
            self.usage.count_out(node)
        self.operations.append(PlannedOperation(node, Operation.MARK, mark.why, mark))

    def consider_repair(self, node: str, state: Optional[NodeState], mark: Mark) -> None:
        """Order a reboot or a replacement of a node that our mark took out and whose work has ended."""
        operation = {Action.REBOOT: Operation.REBOOT, Action.REPLACE: Operation.REPLACE}.get(mark.action)
        if operation is None or not self.policy.repairs or state is None or state.hold:
            return
        if state.available or state.mark is None or not may_change(state.mark):
            return  # not out yet (a later round), or not taken out by us (never)
        repairs = self.repaired.get(node, ())
        tried = sum(
            1
            for past in repairs
            if past.action == Operation.REBOOT and self.now - past.when < self.policy.bounds.window
        )
        if operation is Operation.REBOOT and tried >= self.policy.bounds.attempts:
            operation = Operation.REPLACE
        because = mark.why + (f" ({tried} reboots did not help)" if operation is Operation.REPLACE and tried else "")
        last = max((past.when for past in repairs), default=None)
        over = self.over(node, operation)
        on_machine = work_on_machine(state) or machine_held(state, self.usage.under_repair)
        if operation not in self.policy.repairs:
            self.withhold(node, operation, f"the policy allows no {operation.value}")
        elif on_machine:
            self.withhold(node, operation, on_machine)
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
            self.usage.count_repairing(node)
            self.operations.append(PlannedOperation(node, operation, because))
