"""Carries out the policy for faulty devices as DeviceTaintRules: the same ceilings, rates, holds and ledger as for
nodes, counted in devices.

A unit is a device of a node, `NODE/PCI`. All state is in the cluster: if a controller dies between two steps, the next
one continues from the existing rules. A name that now belongs to another device is never selected, even if the policy
asks for it.
"""

from __future__ import annotations

from functools import partial
from typing import Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from nhc.core.matching.node_ranges import fold
from nhc.core.model import DeviceId, Report, Verdict
from nhc.core.system.service_log import problem
from nhc.marks.policy.devices import DeviceFault
from nhc.marks.policy.mark_decision import Decision, Withheld, history_needed, reconcile
from nhc.marks.policy.reconcile import SyncResult
from nhc.marks.ports.adapter import AdapterError, Applied, Effect, Mark, NodeState, Operation, PlannedOperation
from nhc.marks.ports.marks import most_drastic
from nhc_adapters.kubernetes.api.client import node_path
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.controller.context import RoundContext
from nhc_adapters.kubernetes.controller.device_view import DeviceView, NodeDevices
from nhc_adapters.kubernetes.devices.eviction import Evictions, ours
from nhc_adapters.kubernetes.devices.rules import NONE, DeviceRule, RuleWriter, rule_body, rule_name
from nhc_adapters.kubernetes.devices.slices import PhysicalDevice, agree
from nhc_adapters.kubernetes.devices.watch import follow_names

AFTER_FAILURE = 5.0
LATER = 0.5
"""Seconds after which a change that may not be made now is tried again: the right to act may be back."""


def node_of(unit: str) -> str:
    """The node of a unit `NODE/PCI`; a node's name is its own."""
    return unit.partition("/")[0]


def note_withheld(
    withheld: Sequence[Withheld], before: Mapping[Tuple[str, Operation], str], log: Callable[[str], None],
    retry: Callable[[str, float], None], when: float,
) -> Dict[Tuple[str, Operation], str]:  # fmt: skip
    """The changes that are blocked now, with the reason. Those that are not in `before` are logged, one line for all
    units of one reason; each node is judged again then.
    """
    reasons = {(unit, operation): why for unit, operation, why in withheld}
    new: Dict[Tuple[Operation, str], List[str]] = {}
    for (unit, operation), why in reasons.items():
        if (unit, operation) not in before:
            new.setdefault((operation, why), []).append(unit)
        retry(node_of(unit), when)
    for (operation, why), units in new.items():
        log(f"{fold(units)}: {operation.value} withheld{f' on {len(units)}' if len(units) > 1 else ''}: {why}")
    return reasons


class Unit(NamedTuple):
    """A device that has a rule, or should have one."""

    node: str
    device: DeviceId
    rules: Tuple[DeviceRule, ...]
    fault: Optional[DeviceFault] = None
    physical: Optional[PhysicalDevice] = None

    @property
    def name(self) -> str:
        return f"{self.node}/{self.device}"

    @property
    def standing(self) -> Tuple[DeviceRule, ...]:
        """The rules that keep it out; a dry run and a released rule do not."""
        return tuple(rule for rule in self.rules if rule.out)


class DeviceRounds:
    """`view` gives the state of devices. `retry` schedules a node's next look."""

    def __init__(self, context: RoundContext, view: DeviceView, retry: Callable[[str, float], None]) -> None:
        self.context, self.view, self.retry = context, view, retry
        self.withheld: Dict[Tuple[str, Operation], str] = {}

    # Units.

    def units(self, node: str) -> List[Unit]:
        """The devices of a node that have a rule, or should have one."""
        known = self.view.nodes.get(node, NodeDevices())
        left = self.view.watch.rules(node)
        units = []
        for physical, fault in known.faults:
            mine = tuple(rule for rule in left if agree(rule.device, physical.device))
            left = [rule for rule in left if rule not in mine]
            units.append(Unit(node, physical.device, mine, fault, physical))
        while left:
            mine = tuple(rule for rule in left if agree(rule.device, left[0].device))
            left = [rule for rule in left if rule not in mine]
            there = self.view.watch.slices.find(node, mine[0].device)
            units.append(Unit(node, there.device if there is not None else mine[0].device, mine, None, there))
        return units

    def out(self) -> int:
        """How many devices rules of ours keep out."""
        return len({(rule.node, rule.device) for rule in self.view.watch.rules() if rule.out})

    def state(self, unit: Unit, node: NodeState) -> NodeState:
        """A unit as policy sees it."""
        standing = unit.standing
        hold = node.hold or next((rule.hold for rule in unit.rules if rule.hold), "")
        mark = standing[0].mark if standing else None
        text = f"taint {standing[0].effect}" if standing else "free"
        return NodeState(unit.name, text, not standing, False, mark, hold, node.groups, placed=node.placed)

    def fleet(self, units: Sequence[Unit], states: Mapping[str, NodeState]) -> List[NodeState]:
        """All devices of the drivers that these units are of, those of nodes that are out among them."""
        known = {unit.name: unit for unit in units}
        drivers = {name.driver for unit in units if unit.physical for name in unit.physical.names}
        drivers |= {rule.driver for unit in units for rule in unit.rules}
        others = []
        for node in self.view.watch.slices.nodes():
            state = states.get(node)
            if state is None:
                continue
            for physical in self.view.watch.slices.physical(node):
                name = f"{node}/{physical.device}"
                if name not in known and any(slice_device.driver in drivers for slice_device in physical.names):
                    others.append(state._replace(name=name, hold=""))
        return others + [self.state(unit, states[unit.node]) for unit in units]

    # A round.

    def round(self, names: Iterable[str], states: Mapping[str, NodeState], now: float) -> SyncResult:
        """Decide about the devices of these nodes and about those that were blocked, and act. Blocked devices alone
        cause no round: their node is due by itself. Raises AdapterError.
        """
        if self.view.watch.why_not():
            return SyncResult()
        looked, ruled = set(names), {rule.node for rule in self.view.watch.rules()}
        if any(name in ruled or self._faulty(name) for name in looked):
            looked |= {node_of(name) for name, _operation in self.withheld}
        if self._may_act(looked & ruled, now):
            self._remove_orphans(looked & ruled, now)
        concerned = sorted(name for name in looked if name in states and (name in ruled or self._faulty(name)))
        if not concerned:
            self._note((), now, looked)
            return SyncResult()
        if self._may_act(concerned, now):
            for name in concerned:
                self._keep_to_names(name, now)
        units = {unit.name: unit for name in concerned for unit in self.units(name)}
        decision = self.decide(units, states, now)
        self._note(decision.withheld, now, looked)
        if not self._may_act(concerned, now):
            return SyncResult(*decision)
        applied = self._act(units, decision.operations, now)
        for name in concerned:
            for unit in self.units(name):
                self._guarded(name, now, partial(self._forget_released, unit, now))
            self._evictions(name, now)
        return SyncResult(*decision, tuple(applied))

    def _act(
        self, units: Mapping[str, Unit], operations: Sequence[PlannedOperation], now: float
    ) -> List[Tuple[Operation, Applied]]:
        if operations:
            self.context.ledger.begin(operations, now)
        applied = self.context.adapter.each(
            operations, lambda planned: (planned.operation, self._carry_out(units[planned.node], planned))
        )
        for operation, result in applied:
            self.context.ledger.end(operation, [result], now)
            if result.effect is Effect.FAILED:
                self.retry(node_of(result.node), self.context.clock() + AFTER_FAILURE)
            elif operation is Operation.CLEAR:  # there is room for what was blocked
                for name, _operation in self.withheld:
                    self.retry(node_of(name), now)
        return applied

    def _may_act(self, names: Iterable[str], now: float) -> bool:
        """Whether to act now. If the Lease has lapsed, these nodes are looked at again soon."""
        if not self.context.settings.apply or self.context.allowed():
            return self.context.settings.apply
        for name in names:
            self.retry(name, now + LATER)
        return False

    def _faulty(self, name: str) -> bool:
        known = self.view.nodes.get(name, NodeDevices())
        return bool(known.faults or known.contradicted)

    def decide(self, units: Mapping[str, Unit], states: Mapping[str, NodeState], now: float) -> Decision:
        """What policy makes of these units, counted among all devices."""
        others = {rule.node for rule in self.view.watch.rules()} - {unit.node for unit in units.values()}
        everyone = [*units.values(), *(unit for node in others if node in states for unit in self.units(node))]
        reports: Dict[str, Report] = {}
        for unit in units.values():
            released = [rule for rule in unit.rules if not rule.dry and rule.effect == NONE]
            if unit.fault is not None and released and all(rule.reason == _reason(unit.fault) for rule in released):
                continue  # a person's decision is valid until this fault has ended, or another comes
            if unit.fault is not None:
                reports[unit.name] = Report(unit.name, "", now, 0.0, unit.fault.results)
            elif unit.rules:
                report = self.view.rule_report(unit.rules, self.context.objects.get(unit.node), unit.name, now)
                reports[unit.name] = report
        protected = self.context.settings.policy.bounds.protected
        bounds = self.context.settings.policy.bounds._replace(
            protected=(*protected, *(f"{pattern}/*" for pattern in protected))
        )
        policy = self.context.settings.policy._replace(repairs=frozenset(), bounds=bounds)
        decision = Decision((), ())
        if reports:  # a driver's contradiction alone may stand for weeks
            history = self.context.ledger.history(now - history_needed(policy))
            decision = reconcile(reports, self.fleet(everyone, states), policy, history, now)
        # The bounds count what they are given, and call it nodes.
        withheld = [denied._replace(why=denied.why.replace(" nodes ", " devices ")) for denied in decision.withheld]
        contradicted = [
            Withheld(f"{node}/{physical.device}", Operation.MARK, against)
            for node in {unit.node for unit in units.values()} | set(self.view.nodes)
            for physical, _fault, against in self.view.nodes.get(node, NodeDevices()).contradicted
        ]
        return Decision(decision.operations, (*withheld, *contradicted))

    # Acting.

    def _carry_out(self, unit: Unit, planned: PlannedOperation) -> Applied:
        try:
            if planned.operation is Operation.CLEAR:
                for rule in unit.rules:
                    self._writer().delete(rule)
            elif planned.mark is not None and unit.fault is not None:
                self.view.watch.renew(unit.node)
                physical = self.view.watch.slices.find(unit.node, unit.device)
                if physical is None:
                    return Applied(unit.name, Effect.FAILED, f"no ResourceSlice has {unit.device} any more")
                self._write(unit, physical, unit.fault, planned.mark)
        except AdapterError as error:
            return Applied(unit.name, Effect.FAILED, str(error))
        return Applied(unit.name, Effect.CHANGED)

    def _write(self, unit: Unit, physical: PhysicalDevice, fault: DeviceFault, mark: Mark) -> None:
        """A rule for each name of the device; an existing rule, released or of an older fault, gets this fault."""
        writer, node = self._writer(), self.context.objects[unit.node]
        uid = str(node["metadata"]["uid"])
        sources = self.view.nodes[unit.node].sources
        standing = {rule.name: rule for rule in unit.rules}
        testimonies = (heard for heard in self.view.nodes[unit.node].testimonies if agree(heard.device, unit.device))
        testimony = next(testimonies, None)
        witness = testimony.text if testimony is not None and testimony.agreed else ""
        for name in physical.names:
            body = rule_body(writer.api, name, unit.device, uid, mark, _reason(fault), sources, witness)
            before = standing.get(rule_name(name))
            if before is not None:
                writer.renew(before, body)
            else:
                writer.create(body)

    def _keep_to_names(self, node: str, now: float) -> None:
        """Update rules after a driver has published its devices again. The remedy loop does so for its own rules."""
        for unit in self.units(node):
            rules = [rule for rule in unit.rules if ours(rule)]
            if rules:
                follow = partial(follow_names, self._writer(), self.view.watch, unit.physical, rules, self.context.log)
                self._guarded(node, now, follow)

    def _forget_released(self, unit: Unit, now: float) -> None:
        """A rule that a person released has served when its fault has ended: the next one is to be answered again."""
        if unit.fault is None and unit.rules and not unit.standing:
            report = self.view.rule_report(unit.rules, self.context.objects.get(unit.node), unit.name, now)
            for rule in unit.rules if report.verdict is Verdict.OK else ():
                self._writer().delete(rule)

    def _remove_orphans(self, nodes: Iterable[str], now: float) -> None:
        """The rules of a deleted node are deleted with it, also if a new node has its name."""
        for name in nodes:
            node = self.context.objects.get(name)
            uid = str(node["metadata"]["uid"]) if node is not None else ""
            rules = [rule for rule in self.view.watch.rules(name) if rule.node_uid != uid]
            if rules:
                self._guarded(name, now, partial(self._remove_of_gone, name, rules))

    def _remove_of_gone(self, name: str, rules: Sequence[DeviceRule]) -> None:
        item = self.context.client.find(node_path(name))  # it may be there, and not among those that we look after
        for rule in rules:
            if item is None or str(item["metadata"]["uid"]) != rule.node_uid:
                self.context.log(f"{name}: the node is gone: the rule of its {rule.slice_name} goes")
                self._writer().delete(rule)

    def _evictions(self, node: str, now: float) -> None:
        evictions = Evictions(self._writer(), self.context.settings.devices, self.context.log)
        for unit in self.units(node):
            self._guarded(node, now, partial(evictions.step, unit.rules, unit.physical))

    def _guarded(self, node: str, now: float, work: Callable[[], object]) -> None:
        """What fails for one device is tried again later, and holds up no other."""
        try:
            work()
        except ApiError as error:
            self.context.log(problem(f"{node}: {error}"))
            self.retry(node, now + AFTER_FAILURE)

    def _writer(self) -> RuleWriter:
        api = self.view.watch.api
        if api is None:
            raise AdapterError(self.view.watch.why_not())
        return RuleWriter(self.context.client, api, self.view.watch.take_rule)

    def _note(self, withheld: Sequence[Withheld], now: float, looked: Set[str]) -> None:
        kept = {key: why for key, why in self.withheld.items() if node_of(key[0]) not in looked}
        self.withheld = {
            **kept,
            **note_withheld(withheld, self.withheld, self.context.log, self.retry, now + self.context.again),
        }


def _reason(fault: DeviceFault) -> str:
    """The reason that a rule's taint carries: the fault's that calls for the most drastic repair."""
    return most_drastic(fault.results).outcome.reason
