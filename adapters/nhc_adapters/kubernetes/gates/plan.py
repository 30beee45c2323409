"""What is to be done to one node's gate in a cluster. Pure: a node object in, one change out.

The gate on the node says in a condition how its suite went; it may write nothing else of its node. Whoever sees all
nodes (`nhc sync gate`) sets and removes the startup taint by that status. A status from before a reboot, or from
before the gate was closed, opens nothing.
"""

from __future__ import annotations

import json
import re
from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple

from nhc.core.json_values import number_of, object_from, object_of, texts_of
from nhc.core.model import printable
from nhc.core.timestamps import from_iso, from_utc, utc
from nhc.marks.ports.gates import GateNews, GroupOfNodes
from nhc_adapters.kubernetes.nodes.conditions import FALSE, TRUE, UNKNOWN, Condition, read_conditions
from nhc_adapters.kubernetes.nodes.marks import Op, Patch
from nhc_adapters.kubernetes.nodes.own_marks import HOLD, Node, annotations_of, labels_of, taints_of
from nhc_adapters.kubernetes.nodes.view import GATE
from nhc_adapters.kubernetes.nodes.vocabulary import NodeTaint

CONDITION = "NhcGatePassed"
"""The node's own verdict: True lets work in."""
TAINT = "startup-taint.cluster-autoscaler.kubernetes.io/nhc-gate"
"""A prefix that cluster-autoscaler knows: the node counts as not ready yet, and no other is bought for its pods."""
ORDER = "nhc/gate-order"
"""Annotation: a person's order, `open 2026-11-01T10:00:00Z by anna: why`."""
DRIVERS = ("nvidia.com/cuda.driver-version.full", "nvidia.com/cuda.driver.rev", "amd.com/gpu.driver-version")
"""Labels of feature discovery that name a driver's version."""
INFO = ("kernelVersion", "osImage", "kubeletVersion", "containerRuntimeVersion", "bootID")
POD = "sagemaker.amazonaws.com/"
HYPERPOD_TAINT = NodeTaint(f"{POD}node-health-status", "Unschedulable")
STATUS = {"passed": TRUE, "opened": TRUE, "failed": FALSE, "held": FALSE, "testing": FALSE, "could-not-tell": UNKNOWN}
REASONS = {"passed": "Passed", "opened": "Opened", "failed": "Failed", "held": "Held", "testing": "Testing",
           "could-not-tell": "CouldNotTell"}  # fmt: skip
_STATES = {reason: state for state, reason in REASONS.items()}
_TAIL = re.compile(r" \[boot: ([0-9A-Za-z-]*)\] \[at: ([0-9TZ:.-]+)\]$")
_ORDER = re.compile(r"(open|close|adopt) (\S+) by (.*)")


class GateMarks(NamedTuple):
    """What the gate is called: its taint, and whether HyperPod's labels and taint say the same."""

    taint: NodeTaint = NodeTaint(TAINT)
    hyperpod: bool = False


class GateVerdict(NamedTuple):
    """What the node's gate last said: its state, when, and in which boot."""

    state: str
    at: float
    boot: str
    why: str

    @property
    def lets_in(self) -> bool:
        return STATUS[self.state] == TRUE


class GateNotes(NamedTuple):
    """What we wrote down: for what the node was opened and when, when it was closed, and HyperPod's values of ours."""

    seen: Mapping[str, str] = {}
    opened: float = 0.0
    closed: float = 0.0
    labels: Mapping[str, str] = {}
    taints: Tuple[str, ...] = ()


class Change(NamedTuple):
    """What is to be done: close, open, note or show; one line why; and the patch."""

    what: str
    why: str
    ops: List[Op]


def condition_of(news: GateNews) -> Condition:
    """The node's verdict as a condition."""
    text = f"{news.suite}: {printable(news.why, 600)} [boot: {news.boot_id}] [at: {utc(news.at)}]"
    return Condition(CONDITION, STATUS[news.state], REASONS[news.state], text)


def read_verdict(node: Node) -> Optional[GateVerdict]:
    """What the node's gate said, None where it said nothing that makes sense."""
    condition = read_conditions(node).get(CONDITION)
    if condition is None or condition.reason not in _STATES:
        return None
    tail, state = _TAIL.search(condition.message), _STATES[condition.reason]
    if tail is None or condition.status != STATUS[state]:
        return None
    return GateVerdict(state, from_utc(tail[2]), tail[1], condition.message[: tail.start()])


def read_known(node: Node) -> GateNotes:
    """What we wrote down; nothing where that makes no sense."""
    raw = object_from(annotations_of(node).get(GATE, ""))
    return GateNotes(
        {key: str(value) for key, value in object_of(raw.get("seen")).items()},
        number_of(raw.get("opened")) or 0.0, number_of(raw.get("closed")) or 0.0,
        {key: str(value) for key, value in object_of(raw.get("labels")).items()},
        tuple(texts_of(raw.get("taints"))),
    )  # fmt: skip


def read_order(node: Node) -> Tuple[str, float, str]:
    """A person's order: open, close, adopt or "", when (Unix time, with its fraction), and the rest of it."""
    match = _ORDER.fullmatch(annotations_of(node).get(ORDER, ""))
    when = from_iso(match[2]) if match else None
    return (match[1], when, match[3]) if match and when else ("", 0.0, "")


def facts(node: Node) -> Dict[str, str]:
    """What a verdict holds for, as the cluster sees it."""
    info: Mapping[str, object] = node.get("status", {}).get("nodeInfo") or {}
    values = {name: str(info.get(name, "")) for name in INFO}
    values["uid"] = str(node.get("metadata", {}).get("uid", ""))
    labels = labels_of(node)
    values.update({name: labels[name] for name in DRIVERS if name in labels})
    return {name: value for name, value in values.items() if value}


def held(node: Node, marks: GateMarks) -> bool:
    """Whether the gate's taint is on the node, whoever put it there: its kubelet, a NodePool, or we."""
    return any((taint.key, taint.effect) == (marks.taint.key, marks.taint.effect) for taint in taints_of(node))


def why_closed(node: Node, group: GroupOfNodes, known: GateNotes) -> str:
    """Why the gate of a node that takes work has to close, "" where it may stay open."""
    now = facts(node)
    if not known.seen:
        return "a new node" if "new" in group.on else ""
    if "new" in group.on and known.seen.get("uid") != now.get("uid"):
        return "another node under the same name"
    if "start" in group.on and known.seen.get("bootID") != now.get("bootID"):
        return "it has started anew"
    if "update" in group.on:
        for name in sorted({*known.seen, *now} - {"bootID", "uid"}):
            if known.seen.get(name) != now.get(name):
                return f"updated: {name} {known.seen.get(name, 'none')} -> {now.get(name, 'none')}"
    return ""


def may_wait(node: Node, group: GroupOfNodes) -> bool:
    """Whether the gate of a node that takes work may close later: what runs there has changed, and nothing else."""
    known, verdict = read_known(node), read_verdict(node)
    order, ordered, _rest = read_order(node)
    asked = order == "close" and ordered > max(known.opened, known.closed)
    bad = verdict is not None and not verdict.lets_in and verdict.state not in ("held", "testing")
    others = group._replace(on=tuple(trigger for trigger in group.on if trigger != "update"))
    return bool(known.seen) and not asked and not bad and not why_closed(node, others, known)


def proved(node: Node, group: GroupOfNodes, known: GateNotes) -> bool:
    """Whether the node's verdict is one of a suite that passed, in this boot where boots count, since it was closed."""
    verdict = read_verdict(node)
    if verdict is None or not verdict.lets_in or verdict.at < int(known.closed):
        return False
    boot = facts(node).get("bootID", "")
    return "start" not in group.on or not boot or verdict.boot == boot


def plan(node: Node, group: GroupOfNodes, marks: GateMarks, now: float) -> Optional[Change]:
    """The next change of a node's gate, None where all is as it should be."""
    if HOLD in annotations_of(node):
        return None
    known, verdict = read_known(node), read_verdict(node)
    order, ordered, by = read_order(node)
    newer = ordered > max(known.opened, known.closed)
    good = proved(node, group, known)
    if held(node, marks):
        if order == "open" and ordered >= int(known.closed) and newer:
            return _open(node, marks, known, now, f"opened by {by}", "opened")
        if order == "adopt" and newer and not known.seen and (verdict is None or verdict.state == "held"):
            return _open(node, marks, known, now, f"adopted as it is by {by}", "opened")
        if good and verdict is not None and not (order == "close" and newer):
            return _open(node, marks, known, now, verdict.why, verdict.state)
        return _show(node, marks, known, verdict)
    if order == "close" and newer:
        return _close(node, marks, known, now, f"closed by {by}")
    if not known.seen and order == "adopt":
        return _note(node, known, now, f"adopted as it is by {by}")
    why = why_closed(node, group, known)
    fresh = good and verdict is not None and verdict.at > known.opened
    if why and not fresh:
        return _close(node, marks, known, now, why)
    if why or not known.seen:
        return _note(node, known, now, why or "no gate is asked for on new nodes")
    if verdict is not None and not verdict.lets_in and verdict.at > known.opened:
        return _close(node, marks, known, now, verdict.why)
    return None


def _open(node: Node, marks: GateMarks, known: GateNotes, now: float, why: str, state: str) -> Change:
    patch = Patch(node)
    gone = {str(marks.taint), *known.taints}
    ours = (marks.taint.key, marks.taint.effect)
    patch.leave_taints([kept for kept in taints_of(node) if str(kept) not in gone and (kept.key, kept.effect) != ours])
    _drop_hyperpod(node, patch, known)
    patch.labels[GATE] = state
    known = GateNotes(facts(node), now, 0.0)
    if marks.hyperpod:
        known = _hyperpod(patch, known, {"node-health-status": "Schedulable", "deep-health-check-status": "Passed"})
    patch.annotations[GATE] = _text(known)
    return Change("open", why, patch.ops())


def _close(node: Node, marks: GateMarks, known: GateNotes, now: float, why: str) -> Change:
    patch = Patch(node)
    taints = [*taints_of(node), marks.taint]
    patch.labels[GATE] = "held"
    known = GateNotes(known.seen, known.opened, now, known.labels, known.taints)
    if marks.hyperpod:
        if not any((taint.key, taint.effect) == (HYPERPOD_TAINT.key, HYPERPOD_TAINT.effect) for taint in taints):
            taints.append(HYPERPOD_TAINT)
            known = known._replace(taints=(str(HYPERPOD_TAINT),))
        known = _hyperpod(
            patch, known, {"node-health-status": "Unschedulable", "deep-health-check-status": "InProgress"}
        )
    patch.leave_taints(taints)
    patch.annotations[GATE] = _text(known)
    return Change("close", why, patch.ops())


def _show(node: Node, marks: GateMarks, known: GateNotes, verdict: Optional[GateVerdict]) -> Optional[Change]:
    """The state of a gate that stays closed, as a label; a failed one in HyperPod's marks."""
    patch = Patch(node)
    current = verdict is not None and verdict.at >= int(known.closed)
    state = verdict.state if verdict is not None and current and not verdict.lets_in else "held"
    patch.labels[GATE] = state
    if marks.hyperpod:
        status = "Failed" if state in ("failed", "could-not-tell") else "InProgress"
        known = _hyperpod(patch, known, {"node-health-status": "Unschedulable", "deep-health-check-status": status})
        patch.annotations[GATE] = _text(known)
    ops = patch.ops()
    why = verdict.why if verdict is not None else "its gate has not said anything yet"
    return Change("show", why, ops) if ops else None


def _note(node: Node, known: GateNotes, now: float, why: str) -> Change:
    patch = Patch(node)
    patch.annotations[GATE] = _text(known._replace(seen=facts(node), opened=now, closed=0.0))
    return Change("note", why, patch.ops())


def _hyperpod(patch: Patch, known: GateNotes, values: Mapping[str, str]) -> GateNotes:
    wanted = {f"{POD}{name}": value for name, value in values.items()}
    patch.labels.update(wanted)
    return known._replace(labels={**known.labels, **wanted})


def _drop_hyperpod(node: Node, patch: Patch, known: GateNotes) -> None:
    """Take back HyperPod's labels that still have the value that we set; another's value is theirs."""
    for key, value in known.labels.items():
        if labels_of(node).get(key) == value:
            patch.labels[key] = None


def _text(known: GateNotes) -> str:
    parts = {name: value for name, value in known._asdict().items() if value}
    return json.dumps(parts, separators=(",", ":"), sort_keys=True)
