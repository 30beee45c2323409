"""Every node of a cluster judged, and in each round what policy makes of it carried out.

A round looks only at nodes that changed, or whose time has come, but decides for all that are sick or marked
at once, since the ceilings are common. It belongs to one thread; `changed` may be called from any.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from nhc.core.model import Verdict
from nhc.core.system.service_log import failure
from nhc.marks.policy.mark_decision import Decision, history_needed, reconcile, shared_faults, without_effect
from nhc.marks.policy.reconcile import SyncResult, carry_out, repair
from nhc.marks.ports.adapter import Applied, Effect, Mark, NodeState, Operation, PlannedOperation
from nhc_adapters.kubernetes.api.client import Client
from nhc_adapters.kubernetes.api.outage import Outages
from nhc_adapters.kubernetes.controller.device_rounds import LATER, DeviceRounds, node_of, note_withheld
from nhc_adapters.kubernetes.controller.device_view import DeviceView
from nhc_adapters.kubernetes.controller.ledger import ClusterLedger
from nhc_adapters.kubernetes.controller.maintenance_requests import MaintenanceRequests
from nhc_adapters.kubernetes.controller.node_report import Accelerators, Judgement, judge
from nhc_adapters.kubernetes.controller.node_updates import NodeUpdates
from nhc_adapters.kubernetes.controller.settings import ControllerSettings
from nhc_adapters.kubernetes.devices.watch import DeviceWatch
from nhc_adapters.kubernetes.nodes.accelerators import asked_for, expected_accelerators
from nhc_adapters.kubernetes.nodes.adapter import Kubernetes
from nhc_adapters.kubernetes.nodes.condition_times import ConditionsSeen, HeardNode
from nhc_adapters.kubernetes.nodes.maintenance import Maintenance, read_maintenance
from nhc_adapters.kubernetes.nodes.manual import Manual
from nhc_adapters.kubernetes.nodes.marks import Facts
from nhc_adapters.kubernetes.nodes.own_marks import read_own_mark, released
from nhc_adapters.kubernetes.nodes.slurm_nodes import SLURMD, SlurmDrain, drained_in_slurm, drains_of
from nhc_adapters.kubernetes.nodes.view import node_state

CHUNK = 200
"""Nodes changed between two looks at the Lease: a fifth of a second's work."""

MAX_WAIT = 60.0
AGAIN = 30.0
"""Seconds after which what was withheld is decided anew: a rate has room again, or work has ended."""

BOUNDS_EVERY = 60.0
"""Seconds between two looks for bounds that hold nothing."""

Log = Callable[[str], None]


@dataclass
class Fleet:
    """`objects` are the nodes as last seen, `allowed` says whether we may act at this moment (the Lease).

    `followed_for` are the seconds since the nodes were not followed.
    """

    settings: ControllerSettings
    adapter: Kubernetes
    ledger: ClusterLedger
    objects: Mapping[str, Mapping[str, Any]]
    clock: Callable[[], float]
    allowed: Callable[[], bool] = lambda: True
    log: Log = lambda line: None
    followed_for: Callable[[], float] = lambda: float("inf")
    again: float = AGAIN
    wake: threading.Event = field(default_factory=threading.Event)
    judged: Dict[str, Judgement] = field(default_factory=dict)
    states: Dict[str, NodeState] = field(default_factory=dict)
    withheld: Dict[Tuple[str, Operation], str] = field(default_factory=dict)
    no_effect: Tuple[str, ...] = ()
    """The bounds that hold nothing, as they were said last."""
    devices: Optional[DeviceRounds] = None
    """What is done about single devices, None where each fault is its node's."""
    requests: Optional[MaintenanceRequests] = None
    """What others ask for by objects of their own, None where that is not read."""
    slurm_marks: Dict[str, Optional[Mark]] = field(default_factory=dict)
    """What slurmd pods say of marks of ours in Slurm, by node."""
    slurm_known: bool = False
    _seen: Dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """The nodes as they were judged."""
    _dirty: Set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _again: Dict[str, float] = field(default_factory=dict)
    _sick: Set[str] = field(default_factory=set)
    _ours: Set[str] = field(default_factory=set)
    _announced: Set[Tuple[str, Operation, str]] = field(default_factory=set)
    _shared: Set[str] = field(default_factory=set)
    """The faults that nodes share, as they were logged."""
    _short: Dict[str, float] = field(default_factory=dict)
    _updates: NodeUpdates = field(init=False)
    _unjudged: Outages = field(init=False)
    """The nodes that cannot be judged, and why."""
    _conditions: ConditionsSeen = field(default_factory=ConditionsSeen)
    heard: Dict[str, HeardNode] = field(default_factory=dict)
    """The nodes' conditions by our clock, as they were judged."""
    _soonest: float = float("inf")
    _bounds_due: float = float("-inf")

    def __post_init__(self) -> None:
        self._unjudged = Outages(self.log)
        self._updates = NodeUpdates(
            self.settings, self.adapter, self.allowed_now, self.retry, self.log, self.followed_for, self.maintenance_of,
            self.slurm_of,
        )  # fmt: skip

    def attend_devices(self, watch: DeviceWatch, client: Client) -> None:
        """Take single devices out, where the settings ask for it."""
        settings = self.settings
        view = DeviceView(settings.devices, watch, settings.silent_after, self.retry, self.heard)
        self.devices = DeviceRounds(
            settings.devices, view, client, self.ledger, self.objects, settings.policy, self.allowed_now, self.retry,
            self.clock, self.log, self.adapter.each, settings.apply, self.again,
        )  # fmt: skip

    def attend_requests(self, client: Client) -> MaintenanceRequests:
        """Read what others ask for by objects of their own; it is to be looked at again and again."""
        self.requests = MaintenanceRequests(client, self.changed, self.log)
        return self.requests

    def allowed_now(self) -> bool:
        return self.allowed()

    def changed(self, name: str) -> None:
        """A node is new, different or gone."""
        with self._lock:
            self._dirty.add(name)
        self.wake.set()

    def due(self, now: float) -> float:
        """Seconds until some node has to be looked at though nothing changed."""
        return min(max(self._soonest - now, 0.0), MAX_WAIT)

    def marked(self) -> List[str]:
        """The nodes that carry our mark."""
        return sorted(self._ours)

    def sick(self) -> List[str]:
        """The nodes that are CRIT."""
        return sorted(self._sick)

    def unknown(self) -> int:
        """How many nodes nothing certain is known of: they are left as they are."""
        return sum(1 for judgement in list(self.judged.values()) if judgement.report.verdict is Verdict.UNKNOWN)

    def look(self, now: float) -> List[str]:
        """Judge the nodes that changed or are due; returns the names of those that were judged."""
        with self._lock:
            names, self._dirty = self._dirty, set()
        if now >= self._soonest:
            names |= {name for name, when in self._again.items() if when <= now}
            self._soonest = min((when for name, when in self._again.items() if name not in names), default=float("inf"))
        return sorted(name for name in names if self._could_look_at(name, now))

    def _could_look_at(self, name: str, now: float) -> bool:
        """Judge a node; one that cannot be judged, whatever the reason, is left as it is, and the others are judged."""
        try:
            self._look_at(name, now)
        except Exception as error:
            self.judged.pop(name, None)
            self._sick.discard(name)
            self._ours.discard(name)
            self.retry(name, now + self.again)
            self._unjudged.failed(f"judging {name}", f"{name}: {failure(error)}")
            return False
        self._unjudged.works(f"judging {name}")
        return True

    def _look_at(self, name: str, now: float) -> None:
        node = self.objects.get(name)
        self._again.pop(name, None)
        self._sick.discard(name)
        self._ours.discard(name)
        if node is None:
            if self.devices is not None:
                self.devices.view.nodes.pop(name, None)
            self.judged.pop(name, None)
            self._seen.pop(name, None)
            self.states.pop(name, None)
            self._short.pop(name, None)
            self._updates.forget(name)
            self._conditions.forget(name)
            self.heard.pop(name, None)
            return
        settings = self.settings
        heard = self.heard[name] = self._conditions.of(node, now)
        judgement = judge(
            node,
            settings.faults,
            now,
            verdict=settings.verdict,
            silent_after=settings.silent_after,
            accelerators_of=self._accelerators(name, node),
            heard=heard,
            maintenance=self.maintenance_of(name, node),
            slurm=self.slurm_of(name, node),
            slurm_silent=self.settings.slurm and name not in self.slurm_marks,
        )
        if self.devices is not None:
            judgement = self.devices.view.judged(name, node, judgement, now)
        if judgement.offer is not None and judgement.offer.short:
            self._short.setdefault(name, now)
        else:
            self._short.pop(name, None)
        state = node_state(node, self.adapter.foreign, settings.topologies)
        self.judged[name], self.states[name], self._seen[name] = judgement, state, node
        if judgement.again is not None:
            self.retry(name, judgement.again)
        if read_own_mark(node) is not None and released(node):
            return  # somebody put it back by hand: what is left of our mark is only to be taken off
        if judgement.report.verdict is Verdict.CRIT:
            self._sick.add(name)
        if state.mark is not None and state.mark.ours:
            self._ours.add(name)
            # A mark is kept for a while by policy: look again when that is over.
            since = state.mark.since
            if since is not None and settings.policy.healthy_for and name not in self._again:
                self.retry(name, max(since + settings.policy.healthy_for, now + 1.0))

    def maintenance_of(self, name: str, node: Mapping[str, Any]) -> Optional[Maintenance]:
        """The maintenance that others ask for on a node, by whom we are to listen to."""
        by_annotation = read_maintenance(node) if "nhc" in self.settings.maintenance else None
        return by_annotation or (self.requests.of(name) if self.requests is not None else None)

    def slurm_of(self, name: str, node: Mapping[str, Any]) -> Optional[SlurmDrain]:
        """The drain that nhc has set on a node in Slurm."""
        return drained_in_slurm(node, self.slurm_marks) if self.settings.slurm else None

    def look_at_slurm(self, client: Client) -> None:
        """Read what Slinky's pods say of their Slurm nodes. Raises AdapterError."""
        pods = list(client.items("/api/v1/pods", labelSelector=SLURMD))
        before, self.slurm_marks = self.slurm_marks, drains_of(pods)
        self.slurm_known = True
        for name in {*before, *self.slurm_marks}:
            if (name in before, before.get(name)) != (name in self.slurm_marks, self.slurm_marks.get(name)):
                self.changed(name)

    def _accelerators(self, name: str, node: Mapping[str, object]) -> Optional[Accelerators]:
        settings = self.settings
        if not settings.watch_allocatable:
            return None
        return Accelerators(
            expected_accelerators(node, settings.expected),
            bool(asked_for(node, settings.expected)),
            settings.allocatable_grace,
            self._short.get(name),
        )

    def decide(self, now: float, looked_at: Iterable[str]) -> Decision:
        """The policy's decision about the unhealthy and marked nodes looked at, and about those withheld before.

        A marked node with the same faults as before needs no decision, unless it might be repaired.
        """
        names = self._sick | self._ours
        if not self.settings.policy.repairs:
            names &= {*looked_at, *(node for node, _operation in self.withheld)}
        reports = {name: self.judged[name].report._replace(started=now) for name in names}
        if not reports:
            return Decision((), ())
        policy = self.settings.policy
        states = list(self.states.values())
        if policy.count_all:
            states = [self._counted(state) for state in states]
        if policy.repairs:
            states = self._with_work(states)
        return reconcile(reports, states, policy, self.ledger.history(now - history_needed(policy)), now)

    def _counted(self, state: NodeState) -> NodeState:
        """With `count-all`, a node that is not Ready takes no work either; one that we are to mark still may be."""
        if "NOTREADY" in state.flags and state.name not in self._sick:
            return state._replace(available=False)
        return state

    def _with_work(self, states: List[NodeState]) -> List[NodeState]:
        """Whether work still runs on the nodes that may be repaired: asked only for those."""
        asked = [s.name for s in states if s.name in self._sick and s.name in self._ours and not s.available]
        if not asked:
            return states
        busy = {state.name: state.busy for state in self.adapter.nodes(asked)}
        # One that could not be found is taken for busy: nothing is rebooted in doubt.
        return [s._replace(busy=busy.get(s.name, True)) if s.name in asked else s for s in states]

    def round(self) -> SyncResult:
        """One round: look, decide, act. Raises AdapterError when ledger or pods could not be read or written."""
        now = self.clock()
        names = self.look(now)
        if not names:
            return SyncResult()
        self._note_bounds(now)
        rules = self.devices.round(names, self.states, now) if self.devices is not None else SyncResult()
        if self.settings.apply:
            names = self._updates.write(names, self.judged, self._seen, self.heard, now)
        decision = self.decide(now, names)
        self.withheld = note_withheld(decision.withheld, self.withheld, self.log, self.retry, now + self.again)
        self._note_shared(decision)
        withheld = (*rules.withheld, *decision.withheld)
        if not self.settings.apply:
            planned = (*rules.operations, *decision.operations)
            return SyncResult(tuple(filter(self._first, planned)), withheld)
        if decision.operations and not self.allowed():
            self._later(planned.node for planned in decision.operations)
            return SyncResult(rules.operations, withheld, rules.applied, False)
        if decision.operations:
            self.ledger.begin(decision.operations, now)
        applied = (*rules.applied, *self._carry_out(decision.operations))
        return SyncResult((*rules.operations, *decision.operations), withheld, applied, False)

    def _note_bounds(self, now: float) -> None:
        """Say which bounds hold nothing, once until that is another; all nodes are gone through now and then."""
        if now < self._bounds_due:
            return
        self._bounds_due = now + BOUNDS_EVERY
        lines = without_effect(self.settings.policy, list(self.states.values()))
        for line in lines if lines != self.no_effect else ():
            self.log(line)
        self.no_effect = lines

    def _note_shared(self, decision: Decision) -> None:
        """Log which faults nodes share that are not all marked, each once while that lasts."""
        several = len(self.withheld) > 1
        reports = {name: self.judged[name].report for name in self._sick} if several else {}
        lines = {line.partition(": the same")[0]: line for line in shared_faults(reports, decision, len(self.states))}
        for cause, line in lines.items():
            if cause not in self._shared:
                self.log(line)
        self._shared = set(lines)

    def _carry_out(self, operations: Sequence[PlannedOperation]) -> List[Tuple[Operation, Applied]]:
        done: List[Tuple[Operation, Applied]] = []
        for operation, applied in carry_out(operations, self._act, self.allowed_now, CHUNK):
            self.ledger.end(operation, applied, self.clock())
            for result in applied:
                done.append((operation, result))
                if result.effect is Effect.FAILED:
                    self.retry(result.node, self.clock() + 5.0)
        tried = {(operation, result.node) for operation, result in done}
        left = [planned for planned in operations if (planned.operation, planned.node) not in tried]
        if left:
            self.log(f"lost the lease: {len(left)} operations left undone")
            self._later(planned.node for planned in left)
        return done

    def _act(self, operation: Operation, operations: Sequence[PlannedOperation]) -> List[Applied]:
        if operation is Operation.CLEAR:
            return self.adapter.clear([planned.node for planned in operations], judged=self._seen)
        if operation is Operation.MARK:
            marks: Dict[str, Mark] = {planned.node: planned.mark for planned in operations if planned.mark is not None}
            judged = {name: self.judged[name] for name in marks}
            facts = {
                name: Facts(known.reasons, known.types, known.sources, self._asked(name))
                for name, known in judged.items()
            }
            return self.adapter.mark(marks, objects=self._seen, facts=facts)
        return repair(self.adapter, operation, operations)

    def _asked(self, name: str) -> Optional[Manual]:
        """Who asked for a node's maintenance, for its mark: that holds it until the maintenance has ended."""
        now, wanted = self.clock(), self.maintenance_of(name, self._seen[name])
        if wanted is None or not wanted.stands(now):
            return None
        return Manual(wanted.by, now, wanted.until, asked=True)

    def retry(self, name: str, when: float) -> None:
        """Look at a node again at that time."""
        self._again[name] = min(when, self._again.get(name, when))
        self._soonest = min(self._soonest, when)

    def _later(self, names: Iterable[str]) -> None:
        """What may not be done at this moment is looked at again soon: the right to act may be back by then."""
        when = self.clock() + LATER
        for name in names:
            self.retry(name, when)

    def _first(self, planned: PlannedOperation) -> bool:
        """Whether a dry run says this for the first time."""
        key = (planned.node, planned.operation, planned.because)
        if key in self._announced:
            return False
        self._announced = {known for known in self._announced if node_of(known[0]) in self.objects} | {key}
        return True
