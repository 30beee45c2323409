"""Every node of a cluster, judged by its conditions: those that changed, and those whose time has come.

The judging belongs to one thread; `changed` may be called from any.
"""

from __future__ import annotations

import threading
from typing import Dict, List, NamedTuple, Optional, Set

from nhc.core.model import Verdict
from nhc.core.system.service_log import failure
from nhc.marks.ports.adapter import Mark, NodeState
from nhc_adapters.kubernetes.api.client import Client
from nhc_adapters.kubernetes.api.outage import Outages
from nhc_adapters.kubernetes.controller.context import Node, RoundContext
from nhc_adapters.kubernetes.controller.device_view import DeviceView
from nhc_adapters.kubernetes.controller.maintenance_requests import MaintenanceRequests
from nhc_adapters.kubernetes.controller.node_report import Accelerators, Judgement, judge
from nhc_adapters.kubernetes.nodes.accelerators import asked_for, expected_accelerators
from nhc_adapters.kubernetes.nodes.condition_times import ConditionsSeen, HeardNode
from nhc_adapters.kubernetes.nodes.maintenance import Maintenance, read_maintenance
from nhc_adapters.kubernetes.nodes.own_marks import read_own_mark, released
from nhc_adapters.kubernetes.nodes.slurm_nodes import SLURMD, SlurmDrain, drained_in_slurm, drains_of

MAX_WAIT = 60.0


class Agenda:
    """Which nodes are to be looked at: those that changed, and those whose time has come."""

    def __init__(self) -> None:
        self.wake = threading.Event()
        """Set when a node changed."""
        self._lock = threading.Lock()
        self._changed: Set[str] = set()
        self._times: Dict[str, float] = {}
        self._soonest = float("inf")

    def changed(self, name: str) -> None:
        """A node is new, different or gone. May be called from any thread."""
        with self._lock:
            self._changed.add(name)
        self.wake.set()

    def retry(self, name: str, when: float) -> None:
        """Look at a node again at that time."""
        self._times[name] = min(when, self._times.get(name, when))
        self._soonest = min(self._soonest, when)

    def has_time(self, name: str) -> bool:
        """Whether a node is to be looked at though nothing changed."""
        return name in self._times

    def forget(self, name: str) -> None:
        """A node is looked at now."""
        self._times.pop(name, None)

    def due(self, now: float) -> float:
        """Seconds until some node has to be looked at though nothing changed."""
        return min(max(self._soonest - now, 0.0), MAX_WAIT)

    def take(self, now: float) -> Set[str]:
        """The nodes to be looked at now."""
        with self._lock:
            names, self._changed = self._changed, set()
        if now >= self._soonest:
            names |= {name for name, when in self._times.items() if when <= now}
            self._soonest = min((when for name, when in self._times.items() if name not in names), default=float("inf"))
        return names


class SlurmMarks:
    """What slurmd pods show of our marks in Slurm, by node, as read last."""

    def __init__(self) -> None:
        self.of_nodes: Dict[str, Optional[Mark]] = {}
        self.known = False
        """Whether they could be read once: before, no drain has ended."""

    def read(self, client: Client) -> List[str]:
        """Read what Slinky's pods say of Slurm's nodes; returns the nodes of which it changed. Raises AdapterError."""
        before, self.of_nodes = self.of_nodes, drains_of(list(client.items("/api/v1/pods", labelSelector=SLURMD)))
        self.known = True
        now = self.of_nodes
        return [name for name in {*before, *now} if (name in before, before.get(name)) != (name in now, now.get(name))]


class JudgedNode(NamedTuple):
    """A node as it was judged. `heard` are its conditions by our clock; `judgement` is None if judging it failed."""

    node: Node
    heard: HeardNode
    state: NodeState
    judgement: Optional[Judgement]


class Fleet:
    """All nodes. `devices` says which faults are a single device's, None if each is its node's."""

    def __init__(self, context: RoundContext) -> None:
        self.context = context
        self.agenda = Agenda()
        self.nodes: Dict[str, JudgedNode] = {}
        self.slurm = SlurmMarks()
        self.requests: Optional[MaintenanceRequests] = None
        """What others request by objects of their own, None if that is not read."""
        if "nvsentinel" in context.settings.maintenance:
            self.requests = MaintenanceRequests(context.client, self.changed, context.log)
        self.devices: Optional[DeviceView] = None
        self._sick: Set[str] = set()
        self._ours: Set[str] = set()
        self._short: Dict[str, float] = {}
        """Since when nodes have offered too few accelerators."""
        self._conditions = ConditionsSeen()
        self._unjudged = Outages(context.log)
        """The nodes that cannot be judged, and why."""

    def changed(self, name: str) -> None:
        """A node is new, different or gone."""
        self.agenda.changed(name)

    def judgement(self, name: str) -> Optional[Judgement]:
        """How a node was judged, None if it was not."""
        known = self.nodes.get(name)
        return known.judgement if known is not None else None

    def heard(self, name: str) -> Optional[HeardNode]:
        """A node's conditions by our clock, as it was judged."""
        known = self.nodes.get(name)
        return known.heard if known is not None else None

    def states(self) -> List[NodeState]:
        """The states of all nodes, as they were judged."""
        return [known.state for known in list(self.nodes.values())]

    def marked(self) -> List[str]:
        """The nodes that carry our mark."""
        return sorted(self._ours)

    def sick(self) -> List[str]:
        """The nodes that are CRIT."""
        return sorted(self._sick)

    def unknown(self) -> int:
        """How many nodes nothing certain is known of: they are left as they are."""
        judgements = (known.judgement for known in list(self.nodes.values()))
        return sum(1 for made in judgements if made is not None and made.report.verdict is Verdict.UNKNOWN)

    def look(self, now: float) -> List[str]:
        """Judge the nodes that changed or are due; returns the names of those that were judged."""
        return sorted(name for name in self.agenda.take(now) if self._could_look_at(name, now))

    def _could_look_at(self, name: str, now: float) -> bool:
        """Judge a node. If it cannot be judged for any reason, it is left as it is, and the others are judged."""
        try:
            self._look_at(name, now)
        except Exception as error:
            if name in self.nodes:
                self.nodes[name] = self.nodes[name]._replace(judgement=None)
            self._sick.discard(name)
            self._ours.discard(name)
            self.agenda.retry(name, now + self.context.again)
            self._unjudged.failed(f"judging {name}", f"{name}: {failure(error)}")
            return False
        self._unjudged.works(f"judging {name}")
        return True

    def _look_at(self, name: str, now: float) -> None:
        node = self.context.objects.get(name)
        self.agenda.forget(name)
        self._sick.discard(name)
        self._ours.discard(name)
        if node is None:
            self._forget(name)
            return
        settings = self.context.settings
        heard = self._conditions.of(node, now)
        judgement = judge(
            node,
            settings.faults,
            now,
            verdict=settings.verdict,
            silent_after=settings.silent_after,
            accelerators_of=self._accelerators(name, node),
            heard=heard,
            maintenance=self.maintenance_of(name, node),
            slurm=self.slurm_of(node),
            slurm_silent=settings.slurm and name not in self.slurm.of_nodes,
        )
        if self.devices is not None:
            judgement = self.devices.judged(name, node, judgement, now)
        if judgement.offer is not None and judgement.offer.short:
            self._short.setdefault(name, now)
        else:
            self._short.pop(name, None)
        state = self.context.adapter.state(node)
        self.nodes[name] = JudgedNode(node, heard, state, judgement)
        if judgement.again is not None:
            self.agenda.retry(name, judgement.again)
        if read_own_mark(node) is not None and released(node):
            return  # somebody put it back by hand: what is left of our mark is only to be taken off
        if judgement.report.verdict is Verdict.CRIT:
            self._sick.add(name)
        if state.mark is not None and state.mark.ours:
            self._ours.add(name)
            # A mark is kept for a while by policy: look again when that is over.
            since, kept = state.mark.since, settings.policy.healthy_for
            if since is not None and kept and not self.agenda.has_time(name):
                self.agenda.retry(name, max(since + kept, now + 1.0))

    def _forget(self, name: str) -> None:
        """A node is gone."""
        if self.devices is not None:
            self.devices.nodes.pop(name, None)
        self.nodes.pop(name, None)
        self._short.pop(name, None)
        self._conditions.forget(name)

    def maintenance_of(self, name: str, node: Node) -> Optional[Maintenance]:
        """The maintenance that others ask for on a node, by whom we are to listen to."""
        by_annotation = read_maintenance(node) if "nhc" in self.context.settings.maintenance else None
        return by_annotation or (self.requests.of(name) if self.requests is not None else None)

    def slurm_of(self, node: Node) -> Optional[SlurmDrain]:
        """The drain that nhc has set on a node in Slurm."""
        return drained_in_slurm(node, self.slurm.of_nodes) if self.context.settings.slurm else None

    def look_at_slurm(self) -> None:
        """Read what Slinky's pods say of their Slurm nodes. Raises AdapterError."""
        for name in self.slurm.read(self.context.client):
            self.changed(name)

    def _accelerators(self, name: str, node: Node) -> Optional[Accelerators]:
        settings = self.context.settings
        if not settings.watch_allocatable:
            return None
        return Accelerators(
            expected_accelerators(node, settings.expected),
            bool(asked_for(node, settings.expected)),
            settings.allocatable_grace,
            self._short.get(name),
        )
