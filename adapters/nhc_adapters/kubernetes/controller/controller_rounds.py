"""Rounds over a cluster's nodes: each round carries out what the policy decides for the fleet.

A round looks only at nodes that changed, or whose time has come, but decides for all that are sick or marked
at once, since the ceilings are common. It belongs to one thread.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, Optional, Sequence, Set, Tuple

from nhc.marks.policy.mark_decision import Decision, history_needed, reconcile, shared_faults, without_effect
from nhc.marks.policy.reconcile import SyncResult, carry_out, repair
from nhc.marks.ports.adapter import Applied, Effect, Mark, NodeState, Operation, PlannedOperation
from nhc_adapters.kubernetes.controller.context import RoundContext
from nhc_adapters.kubernetes.controller.device_rounds import LATER, DeviceRounds, node_of, note_withheld
from nhc_adapters.kubernetes.controller.device_view import DeviceView
from nhc_adapters.kubernetes.controller.fleet import Fleet
from nhc_adapters.kubernetes.controller.node_report import Judgement
from nhc_adapters.kubernetes.controller.node_updates import NodeUpdates
from nhc_adapters.kubernetes.devices.watch import DeviceWatch
from nhc_adapters.kubernetes.nodes.manual import Manual
from nhc_adapters.kubernetes.nodes.marks import Facts

CHUNK = 200
"""Nodes changed between two looks at the Lease: a fifth of a second's work."""

BOUNDS_EVERY = 60.0
"""Seconds between two looks for bounds that hold nothing."""


class RoundLog:
    """What rounds log once, for as long as it lasts."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.no_effect: Tuple[str, ...] = ()
        """The bounds that hold nothing, as they were said last."""
        self._bounds_due = float("-inf")
        self._shared: Set[str] = set()
        """The faults that nodes share, as they were logged."""
        self._announced: Set[Tuple[str, Operation, str]] = set()

    def bounds(self, now: float, states: Sequence[NodeState]) -> None:
        """Say which bounds hold nothing, once until that is another; all nodes are gone through now and then."""
        if now < self._bounds_due:
            return
        self._bounds_due = now + BOUNDS_EVERY
        lines = without_effect(self._fleet.context.settings.policy, states)
        for line in lines if lines != self.no_effect else ():
            self._fleet.context.log(line)
        self.no_effect = lines

    def shared(self, decision: Decision, several: bool) -> None:
        """Log which faults nodes share that are not all marked, each once while that lasts; only where `several` are
        held back.
        """
        sick = {name: self._fleet.judgement(name) for name in self._fleet.sick()} if several else {}
        reports = {name: judgement.report for name, judgement in sick.items() if judgement is not None}
        found = shared_faults(reports, decision, len(self._fleet.nodes))
        lines = {line.partition(": the same")[0]: line for line in found}
        for cause, line in lines.items():
            if cause not in self._shared:
                self._fleet.context.log(line)
        self._shared = set(lines)

    def first(self, operations: Iterable[PlannedOperation]) -> Tuple[PlannedOperation, ...]:
        """Those that a dry run says for the first time."""
        keys = {(planned.node, planned.operation, planned.because): planned for planned in operations}
        new = {key: planned for key, planned in keys.items() if key not in self._announced}
        if new:
            objects = self._fleet.context.objects
            self._announced = {known for known in self._announced if node_of(known[0]) in objects} | set(new)
        return tuple(new.values())


class ControllerRounds:
    """`devices` is what is done about single devices, None if each fault is its node's."""

    def __init__(self, context: RoundContext) -> None:
        self.context = context
        self.fleet = Fleet(context)
        self.devices: Optional[DeviceRounds] = None
        self.withheld: Dict[Tuple[str, Operation], str] = {}
        self.log = RoundLog(self.fleet)
        self._updates = NodeUpdates(self.fleet)

    def attend_devices(self, watch: DeviceWatch) -> None:
        """Take single devices out, if the settings ask for it."""
        settings, retry = self.context.settings, self.fleet.agenda.retry
        view = DeviceView(settings.devices, watch, settings.silent_after, retry, self.fleet.heard)
        self.fleet.devices = view
        self.devices = DeviceRounds(self.context, view, retry)

    def decide(self, now: float, looked_at: Iterable[str]) -> Decision:
        """The policy's decision about the unhealthy and marked nodes looked at, and about those held back before.

        A marked node with the same faults as before needs no decision, unless it might be repaired.
        """
        fleet, policy = self.fleet, self.context.settings.policy
        names = {*fleet.sick(), *fleet.marked()}
        if not policy.repairs:
            names &= {*looked_at, *(node for node, _operation in self.withheld)}
        reports = {name: self._judgement(name).report._replace(started=now) for name in names}
        if not reports:
            return Decision((), ())
        states = fleet.states()
        if policy.count_all:
            states = _not_ready_as_out(states, set(fleet.sick()))
        if policy.repairs:
            states = self._with_work(states)
        return reconcile(reports, states, policy, self.context.ledger.history(now - history_needed(policy)), now)

    def _with_work(self, states: List[NodeState]) -> List[NodeState]:
        """Whether work still runs on the nodes that may be repaired: asked only for those."""
        ours = set(self.fleet.marked()) & set(self.fleet.sick())
        asked = [state.name for state in states if state.name in ours and not state.available]
        if not asked:
            return states
        busy = {state.name: state.busy for state in self.context.adapter.nodes(asked)}
        # One that could not be found is taken for busy: nothing is rebooted in doubt.
        return [s._replace(busy=busy.get(s.name, True)) if s.name in asked else s for s in states]

    def round(self) -> SyncResult:
        """One round: look, decide, act. Raises AdapterError when ledger or pods could not be read or written."""
        context, fleet = self.context, self.fleet
        now = context.clock()
        names = fleet.look(now)
        if not names:
            return SyncResult()
        self.log.bounds(now, fleet.states())
        rules = SyncResult()
        if self.devices is not None:
            rules = self.devices.round(names, {state.name: state for state in fleet.states()}, now)
        if context.settings.apply:
            names = self._updates.write(names, now)
        decision = self.decide(now, names)
        self.withheld = note_withheld(
            decision.withheld, self.withheld, context.log, fleet.agenda.retry, now + context.again
        )
        self.log.shared(decision, len(self.withheld) > 1)
        withheld = (*rules.withheld, *decision.withheld)
        if not context.settings.apply:
            planned = (*rules.operations, *decision.operations)
            return SyncResult(self.log.first(planned), withheld)
        if decision.operations and not context.allowed():
            self._later(planned.node for planned in decision.operations)
            return SyncResult(rules.operations, withheld, rules.applied, False)
        if decision.operations:
            context.ledger.begin(decision.operations, now)
        applied = (*rules.applied, *self._carry_out(decision.operations))
        return SyncResult((*rules.operations, *decision.operations), withheld, applied, False)

    def _carry_out(self, operations: Sequence[PlannedOperation]) -> List[Tuple[Operation, Applied]]:
        done: List[Tuple[Operation, Applied]] = []
        for operation, applied in carry_out(operations, self._act, self._allowed, CHUNK):
            self.context.ledger.end(operation, applied, self.context.clock())
            for result in applied:
                done.append((operation, result))
                if result.effect is Effect.FAILED:
                    self.fleet.agenda.retry(result.node, self.context.clock() + 5.0)
        tried = {(operation, result.node) for operation, result in done}
        left = [planned for planned in operations if (planned.operation, planned.node) not in tried]
        if left:
            self.context.log(f"lost the lease: {len(left)} operations left undone")
            self._later(planned.node for planned in left)
        return done

    def _act(self, operation: Operation, operations: Sequence[PlannedOperation]) -> List[Applied]:
        adapter = self.context.adapter
        objects = {planned.node: self.fleet.nodes[planned.node].node for planned in operations}
        if operation is Operation.CLEAR:
            return adapter.clear([planned.node for planned in operations], judged=objects)
        if operation is Operation.MARK:
            marks: Dict[str, Mark] = {planned.node: planned.mark for planned in operations if planned.mark is not None}
            return adapter.mark(marks, objects=objects, facts={name: self._facts(name) for name in marks})
        return repair(adapter, operation, operations)

    def _facts(self, name: str) -> Facts:
        known = self._judgement(name)
        return Facts(known.reasons, known.types, known.sources, self._asked(name))

    def _judgement(self, name: str) -> Judgement:
        """Of a node that is sick or ours: it was judged."""
        known = self.fleet.judgement(name)
        if known is None:
            raise KeyError(name)
        return known

    def _asked(self, name: str) -> Optional[Manual]:
        """Who asked for a node's maintenance, for its mark: that holds it until the maintenance has ended."""
        now, wanted = self.context.clock(), self.fleet.maintenance_of(name, self.fleet.nodes[name].node)
        if wanted is None or not wanted.stands(now):
            return None
        return Manual(wanted.by, now, wanted.until, asked=True)

    def _allowed(self) -> bool:
        return self.context.allowed()

    def _later(self, names: Iterable[str]) -> None:
        """If a change may not be made now, it is tried again soon: the right to act may be back."""
        when = self.context.clock() + LATER
        for name in names:
            self.fleet.agenda.retry(name, when)


def _not_ready_as_out(states: Iterable[NodeState], sick: Set[str]) -> List[NodeState]:
    """With `count-all`, a node that is not Ready takes no work either; one that we are to mark still may be."""
    return [
        state._replace(available=False) if "NOTREADY" in state.flags and state.name not in sick else state
        for state in states
    ]
