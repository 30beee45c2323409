"""Taints, labels, annotations and cordons on a node. Each change is one JSON patch, which fails if another wrote first.

A patch begins with a test of the node's resourceVersion, so it applies only to the version that was read: a taint that
somebody added in between is never lost; nhc reads again and plans again. The values that nhc set are listed on the node
itself (`nhc/set`), so that clearing removes those and nothing else; a value that somebody changed meanwhile stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.model import printable
from nhc.core.timestamps import utc
from nhc.marks.ports.adapter import Mark, NodeStep
from nhc.marks.ports.marks import mark_text
from nhc_adapters.kubernetes.api.client import Client, node_path
from nhc_adapters.kubernetes.nodes.accelerators import OFFERED, offer_text
from nhc_adapters.kubernetes.nodes.boots import boot_id
from nhc_adapters.kubernetes.nodes.evidence import REPORT, SOURCE
from nhc_adapters.kubernetes.nodes.manual import MANUAL, Manual
from nhc_adapters.kubernetes.nodes.own_marks import (
    DRAIN,
    MANAGER,
    MARK,
    REMEDY,
    REPAIR,
    SET,
    Node,
    annotations_of,
    cordoned,
    labels_of,
    read_own,
    read_own_mark,
    taints_of,
    we_cordoned,
)
from nhc_adapters.kubernetes.nodes.view import unheard
from nhc_adapters.kubernetes.nodes.vocabulary import NodeTaint, StateFields, Vocabulary, fill, label_value, read_taint

Op = Dict[str, Any]
Plan = Callable[[Node], List[Op]]


@dataclass(frozen=True)
class Treatment:
    """What marking a node does to it. `vocabularies` give taints, labels and annotations."""

    vocabularies: Tuple[Vocabulary, ...] = ()
    cordon: bool = True
    taint: bool = True
    label: bool = True
    drain: bool = False

    def state(
        self, name: str, mark: Mark, reasons: Sequence[str] = (), types: Sequence[str] = (), repair: str = ""
    ) -> StateFields:
        """What all vocabularies together put on a node in one state, places filled in.

        `repair` is the operation that a vocabulary's trigger value asks the platform for; none by default.
        """
        taints: List[NodeTaint] = []
        labels: Dict[str, str] = {}
        annotations: Dict[str, str] = {}
        for vocabulary in self.vocabularies:
            state = vocabulary.states.get(name)
            if state is None:
                continue
            trigger = vocabulary.trigger(repair)
            if self.taint:
                taints += [taint for taint in state.taints if taint not in taints]
            if self.label:
                for key, value in state.labels.items():
                    labels[key] = label_value(fill(value, mark, trigger, reasons, types))
                for key, value in state.annotations.items():
                    annotations[key] = fill(value, mark, trigger, reasons, types)
        return StateFields(tuple(taints), labels, annotations)

    def knows(self, name: str) -> bool:
        return any(name in vocabulary.states for vocabulary in self.vocabularies)


class Facts(NamedTuple):
    """What is known of a mark beside its text: reasons and condition types for labels, and its sources.

    `manual` says who drained the node by hand, if a person did.
    """

    reasons: Sequence[str] = ()
    types: Sequence[str] = ()
    sources: Sequence[str] = (REPORT,)
    manual: Optional[Manual] = None


class Patch:
    """Collects the changes to one node and turns them into one JSON patch."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.labels: Dict[str, Optional[str]] = {}
        self.annotations: Dict[str, Optional[str]] = {}
        self._taints: Optional[List[NodeTaint]] = None
        self.unschedulable: Optional[bool] = None

    def leave_taints(self, taints: Sequence[NodeTaint]) -> None:
        """The node is to have these taints, and no other."""
        self._taints = list(taints)

    def ops(self) -> List[Op]:
        """The operations, the test first; empty where nothing would change."""
        ops: List[Op] = []
        for kind, wanted in (("labels", self.labels), ("annotations", self.annotations)):
            standing = self.node.get("metadata", {}).get(kind)
            changed = {key: value for key, value in wanted.items() if (standing or {}).get(key) != value}
            if changed and standing is None:
                ops.append({"op": "add", "path": f"/metadata/{kind}", "value": {}})
            for key, value in sorted(changed.items()):
                path = f"/metadata/{kind}/{_escape(key)}"
                ops.append({"op": "remove", "path": path} if value is None else _add(path, value))
        ops += self._taint_ops()
        if self.unschedulable is not None and self.unschedulable != cordoned(self.node):
            path = "/spec/unschedulable"
            ops.append(_add(path, True) if self.unschedulable else {"op": "remove", "path": path})
        if not ops:
            return []
        version = self.node.get("metadata", {}).get("resourceVersion")
        return [{"op": "test", "path": "/metadata/resourceVersion", "value": version}, *ops]

    def _taint_ops(self) -> List[Op]:
        standing = self.node.get("spec", {}).get("taints") or []
        if self._taints is None:
            return []
        kept = [entry for entry in standing if read_taint(entry) in self._taints]  # as it is, timeAdded and all
        present = [read_taint(entry) for entry in kept]
        kept += [taint.manifest() for taint in self._taints if taint not in present]
        if kept == standing:
            return []
        if not kept:
            return [{"op": "remove", "path": "/spec/taints"}]
        return [_add("/spec/taints", kept)]


def _add(path: str, value: object) -> Op:
    return {"op": "add", "path": path, "value": value}


def plan_mark(
    node: Node, mark: Mark, treatment: Treatment, facts: Optional[Facts] = None, repair: str = ""
) -> List[Op]:
    """The patch that puts our mark on a node; empty if it is there already.

    `repair` asks the platform for that operation besides; one asked for before stays asked for. Without `facts` the
    mark keeps the sources that it has.
    """
    repair = repair or annotations_of(node).get(REPAIR, "")
    known = facts or Facts()
    wanted = treatment.state("faulty", mark, known.reasons or _reason_of(mark), known.types, repair)
    own, patch = read_own(node), Patch(node)
    if read_own_mark(node) is None:
        own.keep_note(annotations_of(node).get(MARK, ""))  # an operator's, who may be about to cordon
    standing = taints_of(node)
    taints = list(standing)
    for taint in wanted.taints:
        if taint not in standing:
            # One key and effect hold one value: ours would replace a value that somebody else set.
            if any((other.key, other.effect) == (taint.key, taint.effect) for other in standing):
                continue
            taints.append(taint)
            own.hold_taints([*own.taints, str(taint)], boot_id(node))
    patch.leave_taints(taints)
    for values, mine, current, wish in (
        (patch.labels, own.labels, labels_of(node), wanted.labels),
        (patch.annotations, own.annotations, annotations_of(node), wanted.annotations),
    ):
        for key, value in wish.items():
            if current.get(key) != value or key in mine:
                values[key] = mine[key] = value
    if treatment.cordon and not cordoned(node):
        patch.unschedulable = True
        own.hold_cordon(boot_id(node))
    patch.annotations[MARK] = mark_text(mark, with_since=True)
    patch.annotations[SET] = own.text()
    patch.annotations[OFFERED] = annotations_of(node).get(OFFERED) or offer_text(node) or None
    if facts is not None:
        patch.annotations[SOURCE] = " ".join(facts.sources) or None
        patch.annotations[MANUAL] = facts.manual.text() if facts.manual is not None else None
    if repair:
        patch.annotations[REPAIR] = repair
    return patch.ops()


def _reason_of(mark: Mark) -> Sequence[str]:
    """The reason that a mark's cause names (`nhc.marks.ports.marks.cause_of`); none where it is only that of another
    mark.
    """
    check, reason, _target = (*mark.cause.split("|", 2), "", "")[:3]
    return (reason,) if reason and check != "mark" else ()


def plan_annotations(node: Node, texts: Mapping[str, Optional[str]]) -> List[Op]:
    """The patch that sets these annotations, and removes those that are None."""
    patch = Patch(node)
    patch.annotations.update(texts)
    return patch.ops()


OUT_OF_SERVICE = NodeTaint("node.kubernetes.io/out-of-service", "nodeshutdown", "NoExecute")
"""Kubernetes' taint for a node whose machine is known to be dead: its pods are deleted, its volumes detached at once.
Whoever sets it takes it off again (https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/)."""


def plan_move_work(node: Node) -> List[Op]:
    """The patch that lets the work of a dead node start elsewhere; nothing if it does not have our mark, or if its
    kubelet reports again: pods that run there would lose their volumes.
    """
    if not carries_ours(node) or OUT_OF_SERVICE in taints_of(node) or not unheard([node]):
        return []
    own, patch = read_own(node), Patch(node)
    own.hold_taints([*own.taints, str(OUT_OF_SERVICE)])
    patch.leave_taints([*taints_of(node), OUT_OF_SERVICE])
    patch.annotations[SET] = own.text()
    return patch.ops()


def plan_work_back(node: Node) -> List[Op]:
    """The patch that removes our out-of-service taint from a node that reports: with the taint, nothing runs there."""
    if not work_moved(node) or unheard([node]):
        return []
    own, patch = read_own(node), Patch(node)
    own.hold_taints([taint for taint in own.taints if taint != str(OUT_OF_SERVICE)])
    patch.leave_taints([taint for taint in taints_of(node) if taint != OUT_OF_SERVICE])
    patch.annotations[SET] = own.text()
    return patch.ops()


def work_moved(node: Node) -> bool:
    """Whether our out-of-service taint is on a node."""
    return OUT_OF_SERVICE in taints_of(node) and str(OUT_OF_SERVICE) in read_own(node).taints


def plan_step(node: Node, step: Optional[NodeStep]) -> List[Op]:
    """The patch that shows a step of a repair on its node, or (None) that there is nothing to show."""
    patch = Patch(node)
    patch.labels[REMEDY] = step.state if step is not None else None
    why = f"episode {step.episode} {step.state} since {utc(step.at)}: {printable(step.why, 200)}" if step else None
    patch.annotations[REMEDY] = why
    return patch.ops()


def plan_clear(node: Node, treatment: Treatment) -> List[Op]:
    """The patch that takes our mark off: only what we set, and only where it still is as we set it.

    An operator's own text comes back, and the cordon stays for it: it says that somebody wants the node out.
    """
    return clear_patch(node, treatment).ops() if carries_ours(node) else []


def carries_ours(node: Node) -> bool:
    """Whether anything on this node says that we marked it. An operator's text in the mark's place does not."""
    return read_own_mark(node) is not None or SET in annotations_of(node)


def clear_patch(node: Node, treatment: Treatment) -> Patch:
    """What `plan_clear` does, for more to be added."""
    own, patch = read_own(node), Patch(node)
    patch.leave_taints([taint for taint in taints_of(node) if str(taint) not in own.taints])
    for values, mine, current in (
        (patch.labels, own.labels, labels_of(node)),
        (patch.annotations, own.annotations, annotations_of(node)),
    ):
        for key, value in mine.items():
            if current.get(key) == value:
                values[key] = None
    wanted = treatment.state("healthy", Mark(""))
    patch.labels.update(wanted.labels)
    patch.annotations.update(wanted.annotations)
    note = own.note if read_own_mark(node) is not None else annotations_of(node).get(MARK)
    if own.cordon and cordoned(node) and we_cordoned(node) and not note:
        patch.unschedulable = False
    patch.annotations.update(dict.fromkeys((SET, DRAIN, REPAIR, SOURCE, MANUAL, OFFERED, REMEDY)))
    patch.annotations[MARK] = note or None
    patch.labels[REMEDY] = None
    return patch


def plan_state(node: Node, name: str, treatment: Treatment) -> List[Op]:
    """The patch that puts a node in one of a vocabulary's states besides faulty and healthy (checking, passed ...)."""
    own, patch = read_own(node), Patch(node)
    wanted = treatment.state(name, Mark(""))
    keep = [taint for taint in taints_of(node) if str(taint) not in own.taints or taint in wanted.taints]
    new = [taint for taint in wanted.taints if taint not in keep]
    patch.leave_taints(keep + new)
    own.hold_taints([str(taint) for taint in wanted.taints if str(taint) in own.taints or taint in new])
    patch.labels.update(wanted.labels)
    patch.annotations.update(wanted.annotations)
    patch.annotations[SET] = own.text() if own.text() != "{}" else None
    return patch.ops()


def _escape(key: str) -> str:
    """A key as a JSON pointer wants it (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def apply(client: Client, name: str, plan: Plan, seen: Optional[Node] = None) -> Optional[Dict[str, Any]]:
    """Carry out a plan on a node; as `Client.change`."""
    return client.change(node_path(name), plan, seen, fieldManager=MANAGER)
