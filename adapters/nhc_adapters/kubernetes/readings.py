"""A cluster's nodes as the remedy loop reads them each round: only those that have changed are judged again."""

from __future__ import annotations

import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from nhc.core.model import CheckResult, Verdict
from nhc.marks.ports.adapter import ConditionReport, NodeState
from nhc.marks.ports.marks import cause_of
from nhc.marks.ports.repair import Machine
from nhc_adapters.kubernetes.controller.node_report import (
    ALL_OFFERED,
    NEVER,
    NOT_TAKEN_BACK,
    Accelerators,
    Judgement,
    judge,
    reported_at,
)
from nhc_adapters.kubernetes.nodes.accelerators import device_plugin, expected_accelerators, offered_before
from nhc_adapters.kubernetes.nodes.adapter import Kubernetes
from nhc_adapters.kubernetes.nodes.boots import BootsSeen
from nhc_adapters.kubernetes.nodes.condition_times import ConditionsSeen, HeardNode
from nhc_adapters.kubernetes.nodes.evidence import NEVER_STALE, SILENT_AFTER
from nhc_adapters.kubernetes.nodes.following import FollowedNodes, unpacked
from nhc_adapters.kubernetes.nodes.known_types import bad_statuses
from nhc_adapters.kubernetes.nodes.marks import work_moved
from nhc_adapters.kubernetes.nodes.overruled import OVERRULED, ended_since
from nhc_adapters.kubernetes.nodes.own_marks import annotations_of, read_own_mark, released
from nhc_adapters.kubernetes.nodes.view import unheard
from nhc_adapters.kubernetes.repair import requests_on_nodes
from nhc_adapters.kubernetes.repair.cluster import machine_of
from nhc_adapters.kubernetes.repair.requests_on_nodes import RequestRead

Node = Mapping[str, Any]

ONE_BY_ONE = 0.25
"""The share of the nodes up to which those that matter are read one by one, and above which all are listed at once. A
node that is read alone costs us twice the CPU of one in a list (docs/performance.md), and the server an authorization,
a read of etcd and a line of its audit log, which a list costs once for 500 nodes.
"""


class ReadNode(NamedTuple):
    """The stored part of a node as read last: a whole object is 20 kB.

    `machine` is its machine, `asked` what a person requests on it. `put_back`: a person undid by hand what our mark
    did. `overruled`: a person put it back in spite of faults; `ended` is what to write of those that have ended.
    `silent`: its kubelet does not report; `heard_again`: it does, and our out-of-service taint is still on it.
    `plugin`: the resource under which a device plugin offers its devices.
    """

    state: NodeState
    machine: Machine
    asked: RequestRead
    put_back: bool
    overruled: bool
    ended: Mapping[str, Optional[str]]
    silent: bool
    heard_again: bool
    plugin: str

    @property
    def matters(self) -> bool:
        """Whether the loop may do something to it: a watch may be behind what others have done to it."""
        return not self.state.available or self.state.mark is not None or self.state.silence is not None


class _Judged(NamedTuple):
    """A node by its conditions, and until when (Unix time) that holds while the node does not change."""

    judgement: Judgement
    heard: HeardNode
    results: Tuple[CheckResult, ...]
    until: float


class NodeReadings:
    """Reads the nodes of `cluster`. `sources`: the vocabularies in which persons request a repair."""

    def __init__(self, cluster: Kubernetes, sources: Sequence[str]) -> None:
        self.cluster, self.sources = cluster, sources
        self.bad = bad_statuses((), cluster.treatment.vocabularies)
        """Condition types, each with a status that is bad, in the spoken vocabularies."""
        self.nodes: Dict[str, ReadNode] = {}
        """The nodes as they were read last."""
        self.healthy: Set[str] = set()
        """The nodes of which the conditions said nothing bad when they were read last."""
        self._followed = FollowedNodes(cluster.client, cluster.selector)
        self._boots = BootsSeen()
        self._conditions = ConditionsSeen()
        self._read: Dict[str, Tuple[object, ReadNode]] = {}
        """What was made of each followed node, with what it was made of."""
        self._judged: Dict[str, Tuple[object, _Judged]] = {}

    def close(self) -> None:
        """Follow no longer."""
        self._followed.close()

    def read(self, names: Optional[Sequence[str]] = None) -> List[ReadNode]:
        """The nodes of these names, by name; all where None. Raises AdapterError.

        All nodes are listed once, and then followed; those that the loop may change are read again, because a watch may
        be behind changes by a person or another controller.
        """
        if names is None:
            self.nodes = self._all()
            return list(self.nodes.values())
        found = {_name(node): self._reading(node) for node in self.cluster.objects(names)}
        self.nodes = {**self.nodes, **found}
        return list(found.values())

    def _all(self) -> Dict[str, ReadNode]:
        self._take_changed()
        packed = self._followed.packed()
        if packed is None:
            return _sorted({_name(node): self._reading(node) for node in self._followed.listed()})
        read = {name: self._read.get(name) for name in packed}
        self._read = {}
        for name, kept in packed.items():
            known = read[name]
            if known is None or known[0] is not kept or known[1].overruled:
                known = (kept, self._reading(unpacked(kept)))
            self._read[name] = known
        found = {name: entry[1] for name, entry in self._read.items()}
        behind = {name for name, known in found.items() if known.matters}
        many = len(behind) > len(found) * ONE_BY_ONE
        anew = self.cluster.objects(None if many else sorted(behind)) if behind else []
        for node in anew:
            self._followed.put(node)
        renewed = {_name(node): self._reading(node) for node in anew}
        if many:
            return _sorted(renewed)
        return _sorted({**{name: known for name, known in found.items() if name not in behind}, **renewed})

    def _take_changed(self) -> None:
        """What our own writes returned: the watch may bring it a moment later."""
        for name in list(self.cluster.changed):
            self._followed.put(self.cluster.changed.pop(name))

    def _reading(self, node: Node) -> ReadNode:
        silent, now = bool(unheard([node])), time.time()
        overruled = OVERRULED in annotations_of(node)
        return ReadNode(
            self.cluster.state(node),
            machine_of(node),
            requests_on_nodes.asked(node, self.sources),
            read_own_mark(node) is not None and released(node),
            overruled,
            ended_since(node, self.bad, now, self._conditions.of(node, now)) if overruled else {},
            silent,
            work_moved(node) and not silent,
            device_plugin(node),
        )

    def reports(self) -> List[ConditionReport]:
        """What the conditions of the spoken vocabularies say of each node that has any; as
        `nhc.marks.ports.adapter`.
        """
        self._take_changed()
        now, packed, before = time.time(), self._followed.packed(), self._judged
        self._judged = {}
        if packed is None:
            judged = {_name(node): self._judge(node, now) for node in self._followed.listed()}
        else:
            for name, kept in packed.items():
                known = before.get(name)
                if known is None or known[0] is not kept or now >= known[1].until:
                    known = (kept, self._judge(unpacked(kept), now))
                self._judged[name] = known
            judged = {name: entry[1] for name, entry in self._judged.items()}
        reports = [self._report(name, judged[name], now) for name in sorted(judged) if judged[name].results]
        self.healthy = {entry.report.host for entry in reports if entry.report.verdict is Verdict.OK}
        return reports

    def _judge(self, node: Node, now: float) -> _Judged:
        vocabularies = self.cluster.treatment.vocabularies
        faults = tuple(dict.fromkeys(fault for entry in vocabularies for fault in entry.faults))
        heard = self._conditions.of(node, now)
        judged = judge(node, faults, now, accelerators_of=_accelerators_of(node), heard=heard)
        # If a mark's own source is not taken back, that proves nothing about the node: who marked it clears it.
        # That devices can be given out proves nothing of a node whose agent never said anything.
        nothing = (NEVER, NOT_TAKEN_BACK)
        results = tuple(
            entry
            for entry in judged.report.results
            if entry.outcome.reason not in nothing and entry.check != ALL_OFFERED
        )
        until = now
        if (judged.report.verdict is Verdict.OK or not results) and OVERRULED not in annotations_of(node):
            stale = [
                entry.seen + SILENT_AFTER
                for kind, entry in heard.conditions.items()
                if entry.renewed and kind not in NEVER_STALE
            ]
            until = min([*stale, judged.again] if judged.again is not None else stale, default=float("inf"))
        return _Judged(judged, heard, results, until)

    def _report(self, name: str, known: _Judged, now: float) -> ConditionReport:
        judged, conditions = known.judgement, known.heard.conditions
        report = judged.report
        failures = [(cause_of(entry), kind) for entry, kind in zip(report.failures(), judged.types)]
        since = {cause: conditions[kind].since for cause, kind in failures if kind in conditions}
        at = reported_at(judged, conditions, now)
        boot = self._boots.of(name, report.boot_id, at, now)
        standing = frozenset(cause for cause, kind in failures if kind in NEVER_STALE)
        return ConditionReport(report._replace(results=known.results, started=at, boot_id=boot), since, standing)


def _accelerators_of(node: Node) -> Accelerators:
    """What a node is to give out: what it had registered when it was marked, and what it shows itself."""
    before = offered_before(node)
    expected = dict(expected_accelerators(node, {}))
    wanted = {name: max(before.get(name, 0), expected.get(name, 0)) for name in {**expected, **before}}
    return Accelerators(sorted(wanted.items()), asked=bool(before))


def _name(node: Node) -> str:
    return str(node["metadata"]["name"])


def _sorted(nodes: Mapping[str, ReadNode]) -> Dict[str, ReadNode]:
    return {name: nodes[name] for name in sorted(nodes)}
