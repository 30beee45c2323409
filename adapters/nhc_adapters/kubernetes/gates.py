"""Gates in Kubernetes: a node publishes its own status, and the taint is set and removed from outside.

scheduler = "kubernetes"
[adapter]
kubeconfig = ""              # as kubectl finds it, or this pod's own
context = ""
taint = "startup-taint.cluster-autoscaler.kubernetes.io/nhc-gate:NoSchedule"
hyperpod = "no"              # "yes": SageMaker HyperPod's labels and taint as well
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from nhc.core.json_values import number_of, object_from, object_of, texts_of
from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.core.timestamps import from_iso, from_utc, utc, utc_milliseconds
from nhc.core.units import seconds
from nhc.marks.ports.adapter import AdapterError, Applied, Effect
from nhc.marks.ports.gates import GateLimit, GateNews, GateOrder, GateStanding, GroupOfNodes, Turn
from nhc.marks.ports.part_settings import Given, read
from nhc_adapters.kubernetes.api.access import ClusterSettings
from nhc_adapters.kubernetes.api.client import READ_TIMEOUT, Client, node_path
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.nodes.conditions import FALSE, TRUE, UNKNOWN, Condition, NodeConditions, read_conditions
from nhc_adapters.kubernetes.nodes.drain import DrainRules, sort_pods
from nhc_adapters.kubernetes.nodes.marks import Op, Patch, apply, plan_annotations
from nhc_adapters.kubernetes.nodes.own_marks import HOLD, Node, annotations_of, cordoned, labels_of, taints_of
from nhc_adapters.kubernetes.nodes.pods import has_ended, pods_on
from nhc_adapters.kubernetes.nodes.view import GATE
from nhc_adapters.kubernetes.nodes.vocabulary import NodeTaint, parse_taint, read_taint

# What is to be done to one node's gate in a cluster. Pure: a node object in, one change out.
#
# The gate on the node says in a condition how its suite went; it may write nothing else of its node. Whoever sees all
# nodes (`nhc sync gate`) sets and removes the startup taint by that status. A status from before a reboot, or from
# before the gate was closed, opens nothing.


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
    """The gate's taint, and whether HyperPod's labels and taint are set as well."""

    taint: NodeTaint = NodeTaint(TAINT)
    hyperpod: bool = False


class GateVerdict(NamedTuple):
    """The last report of the node's gate: its state, when, and in which boot."""

    state: str
    at: float
    boot: str
    why: str

    @property
    def lets_in(self) -> bool:
        return STATUS[self.state] == TRUE


class GateNotes(NamedTuple):
    """Our record: why and when the node was opened, when it was closed, and the HyperPod values that we set."""

    seen: Mapping[str, str] = {}
    opened: float = 0.0
    closed: float = 0.0
    labels: Mapping[str, str] = {}
    taints: Tuple[str, ...] = ()


class Change(NamedTuple):
    """The next change: close, open, note or show; one line why; and the patch."""

    what: str
    why: str
    ops: List[Op]


def condition_of(news: GateNews) -> Condition:
    """The node's verdict as a condition."""
    text = f"{news.suite}: {printable(news.why, 600)} [boot: {news.boot_id}] [at: {utc(news.at)}]"
    return Condition(CONDITION, STATUS[news.state], REASONS[news.state], text)


def read_verdict(node: Node) -> Optional[GateVerdict]:
    """The report of the node's gate, None if there is no valid one."""
    condition = read_conditions(node).get(CONDITION)
    if condition is None or condition.reason not in _STATES:
        return None
    tail, state = _TAIL.search(condition.message), _STATES[condition.reason]
    if tail is None or condition.status != STATUS[state]:
        return None
    return GateVerdict(state, from_utc(tail[2]), tail[1], condition.message[: tail.start()])


def read_known(node: Node) -> GateNotes:
    """Our record; empty if it is not valid."""
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
    """Whether the gate's taint is on the node, set by its kubelet, a NodePool, or nhc."""
    return any((taint.key, taint.effect) == (marks.taint.key, marks.taint.effect) for taint in taints_of(node))


def why_closed(node: Node, group: GroupOfNodes, known: GateNotes) -> str:
    """Why the gate of a node that takes work has to close, "" if it may stay open."""
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
    """The next change of a node's gate, None if all is as it should be."""
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
    """Take back HyperPod's labels that still have the value that we set; a changed value stays."""
    for key, value in known.labels.items():
        if labels_of(node).get(key) == value:
            patch.labels[key] = None


def _text(known: GateNotes) -> str:
    parts = {name: value for name, value in known._asdict().items() if value}
    return json.dumps(parts, separators=(",", ":"), sort_keys=True)


# What autoscalers do to a node that is not ready yet: Karpenter's NodePools, cluster-autoscaler's flags.
#
# Karpenter deletes a machine that has not registered within 15 minutes (its registration TTL), and waits for startup
# taints without a limit; it must know them, or it counts the node as full and launches others. cluster-autoscaler
# removes one that has not registered within --max-node-provision-time (15 min), and one that is registered and not
# ready after --max-node-startup-time (15 min) and then --scale-down-unready-time (20 min). A node with a taint that it
# does not know as a startup taint is ready to it: it buys no node for pods that cannot go there, or too many.


PREFIX = "startup-taint.cluster-autoscaler.kubernetes.io/"
NODEPOOLS = "/apis/karpenter.sh/v1/nodepools"
_PART = re.compile(r"[0-9.]+[A-Za-z]+")
STARTUP, UNREADY = 900.0, 1200.0
"""Seconds: the defaults of --max-node-startup-time and --scale-down-unready-time (cluster-autoscaler's FAQ)."""


def limits(client: Client, taint: NodeTaint) -> List[GateLimit]:
    """Every limit that applies. Raises AdapterError."""
    return [*_karpenter(client, taint), *_cluster_autoscaler(client, taint)]


def _karpenter(client: Client, taint: NodeTaint) -> Iterator[GateLimit]:
    try:
        pools = list(client.items(NODEPOOLS))
    except ApiError as error:
        if error.status == 404:
            return  # no Karpenter here
        raise
    for pool in pools:
        yield from nodepool(pool, taint)


def nodepool(pool: Mapping[str, Any], taint: NodeTaint) -> List[GateLimit]:
    """What one NodePool does. Pure."""
    who = f"Karpenter NodePool {pool.get('metadata', {}).get('name', '?')}"
    spec: Mapping[str, Any] = pool.get("spec", {}).get("template", {}).get("spec") or {}
    result: List[GateLimit] = []
    startup = [read_taint(entry) for entry in spec.get("startupTaints") or ()]
    if not any((entry.key, entry.effect) == (taint.key, taint.effect) for entry in startup):
        result.append(GateLimit(
            f"{who} startupTaints", None,
            f"does not list {taint}: new nodes take work before their gate is closed, or Karpenter launches more",
            f"spec.template.spec.startupTaints: [{{key: {taint.key}, effect: {taint.effect}}}]",
        ))  # fmt: skip
    expires = _duration(spec.get("expireAfter"))
    if expires is not None:
        result.append(GateLimit(f"{who} expireAfter", expires, "the node is replaced at this age, tested or not",
                               "a longer expireAfter"))  # fmt: skip
    return result


def _cluster_autoscaler(client: Client, taint: NodeTaint) -> Iterator[GateLimit]:
    for kind in client.items("/apis/apps/v1/deployments"):
        for container in kind.get("spec", {}).get("template", {}).get("spec", {}).get("containers") or ():
            args = [str(arg) for arg in (*(container.get("command") or ()), *(container.get("args") or ()))]
            about = f"{container.get('image', '')} {args[:1]}"
            if "cluster-autoscaler" in about:
                where = f"{kind['metadata'].get('namespace')}/{kind['metadata'].get('name')}"
                yield from autoscaler(f"cluster-autoscaler {where}", args, taint)


def autoscaler(who: str, args: List[str], taint: NodeTaint) -> List[GateLimit]:
    """What one cluster-autoscaler with these words on its command line does. Pure; raises AdapterError."""
    flags = _flags(args)
    result: List[GateLimit] = []
    known = [*flags.get("startup-taint", ()), *flags.get("ignore-taint", ())]
    prefixes = [PREFIX, "ignore-taint.cluster-autoscaler.kubernetes.io/", *flags.get("startup-taint-prefix", ())]
    if taint.key not in known and not any(taint.key.startswith(prefix) for prefix in prefixes):
        result.append(GateLimit(
            f"{who} --startup-taint", None,
            f"does not know {taint.key}: a node behind its gate counts as ready, and no node is bought for what waits",
            f"--startup-taint={taint.key}",
        ))  # fmt: skip
        return result
    startup = _flag(who, flags, "max-node-startup-time", STARTUP)
    unready = _flag(who, flags, "scale-down-unready-time", UNREADY)
    result.append(GateLimit(
        f"{who} --max-node-startup-time and --scale-down-unready-time", startup + unready,
        "a node that is behind its gate for longer is removed", "raise both, or those of the node group",
    ))  # fmt: skip
    return result


def _flags(args: List[str]) -> Dict[str, List[str]]:
    """`--name=value` and `--name value`, each value of a repeated flag."""
    flags: Dict[str, List[str]] = {}
    for argument, following in zip(args, [*args[1:], ""]):
        for part in argument.split():  # a command in one string, as of sh -c
            if part.startswith("-"):
                name, equals, value = part.lstrip("-").partition("=")
                flags.setdefault(name, []).append(value if equals else following)
    return flags


def _flag(who: str, flags: Mapping[str, List[str]], name: str, default: float) -> float:
    values = flags.get(name)
    if not values:
        return default
    duration = _duration(values[-1])
    if duration is None:
        raise AdapterError(f"{who}: --{name}={values[-1]} is no duration")
    return duration


def _duration(text: object) -> Optional[float]:
    """Go's durations (`1h30m`, `720h`); None for `Never` and for what is none."""
    duration = str(text or "")
    if not duration or _PART.sub("", duration):
        return None
    try:
        return sum(map(seconds, _PART.findall(duration)))
    except ValueError:
        return None


@declared.settings
class KubernetesGateSettings(NamedTuple):
    """The table [adapter] of gate.toml."""

    cluster: ClusterSettings = declared.part("", ClusterSettings)
    taint: NodeTaint = declared.converted(
        "taint", parse_taint, parse_taint(f"{TAINT}:NoSchedule"), "what keeps a node closed", form="taint",
        show=str,
    )  # fmt: skip
    hyperpod: bool = declared.flag("hyperpod", False, "also while HyperPod's own deep checks run")


class KubernetesGate:
    """On the node it publishes the state; `keep` acts for all nodes."""

    SETTINGS = KubernetesGateSettings

    def __init__(self, settings: Given, environ: Given = None, timeout: float = READ_TIMEOUT) -> None:
        own = read(KubernetesGateSettings, settings, "adapter")
        self.marks = GateMarks(own.taint, own.hyperpod)
        self.client = Client(own.cluster.find(environ), read_timeout=timeout)
        self._conditions: Optional[NodeConditions] = None
        self._waiting: Set[str] = set()
        """The nodes whose gates were shown to wait for room."""

    # On the node.

    def standing(self, node: str) -> Optional[GateStanding]:
        """The node as the cluster has it; None if it does not exist."""
        item = self.client.find(node_path(node))
        if item is None:
            return None
        order, ordered, _rest = read_order(item)
        closed = read_known(item).closed
        opened = order == "open" and ordered >= closed
        pods = sort_pods(pods_on(self.client, node), DrainRules())
        running = [pod for pod in pods.evict if not has_ended(pod)]
        other = "somebody has cordoned it" if cordoned(item) else ""
        tainted = held(item, self.marks)
        return GateStanding(
            tainted, bool(running or pods.block), "" if tainted else other, max(closed, ordered), opened,
            "tainted" if tainted else other or "schedulable", order == GateOrder.ADOPT.value,
        )  # fmt: skip

    def hold(self, node: str, why: str) -> Applied:
        """The taint is not the node's to set: `nhc sync gate` sets it by what the node publishes."""
        item = self.client.find(node_path(node))
        if item is None:
            return Applied(node, Effect.FAILED, "there is no such node")
        if held(item, self.marks):
            return Applied(node, Effect.UNCHANGED, "held already")
        return Applied(node, Effect.UNCHANGED, "nhc sync gate has to set the taint")

    def release(self, node: str) -> Applied:
        """The taint goes by `nhc sync gate`."""
        return Applied(node, Effect.UNCHANGED, "nhc sync gate removes the taint")

    def publish(self, node: str, news: GateNews) -> None:
        """The gate's state as a condition of the node."""
        if self._conditions is None or self._conditions.node != node:
            self._conditions = NodeConditions(self.client, node)
            self._conditions.adopt([])
        self._conditions.say([condition_of(news)])
        self._conditions.flush()

    # From outside.

    def keep(self, groups: Sequence[GroupOfNodes], *, apply: bool) -> List[Turn]:
        """One round over all nodes. Raises AdapterError where they cannot be read."""
        turns: List[Turn] = []
        nodes = {str(node["metadata"]["name"]): node for node in self.client.items("/api/v1/nodes")}
        group_of = {name: group for name in nodes for group in [self._group(groups, name)] if group is not None}
        out = Counter(group.name for name, group in group_of.items() if held(nodes[name], self.marks))
        size = Counter(group.name for group in group_of.values())
        waiting: Set[str] = set()
        for name, group in group_of.items():
            node = nodes[name]
            change = plan(node, group, self.marks, time.time())
            if change is None:
                continue
            if change.what == "close":
                if out[group.name] >= group.out.of(size[group.name]) and may_wait(node, group):
                    waiting.add(name)
                    room = f"{out[group.name]} of {size[group.name]} nodes of {group.name} are out"
                    if name not in self._waiting:
                        turns.append(Turn(name, "wait", f"{change.why}; {room}, {group.out.show()} may be", False))
                    continue
                out[group.name] += 1
            failed = self._change(name, node, group) if apply else ""
            turns.append(Turn(name, change.what, change.why, apply and not failed, failed))
        self._waiting = waiting
        return turns

    @staticmethod
    def _group(groups: Sequence[GroupOfNodes], name: str) -> Optional[GroupOfNodes]:
        return next((candidate for candidate in groups if candidate.contains(name)), None)

    def _change(self, name: str, node: Node, group: GroupOfNodes) -> str:
        """Carry a change out; plan it again if somebody wrote in between. Returns what prevented it."""

        def ops(seen: Node) -> List[Op]:
            change: Optional[Change] = plan(seen, group, self.marks, time.time())
            return change.ops if change is not None else []

        try:
            apply(self.client, name, ops, node)
        except AdapterError as error:
            return printable(str(error))
        return ""

    def order(self, node: str, what: GateOrder, why: str, by: str) -> Applied:
        """A person's order, as an annotation; `keep` carries it out."""
        if self.client.find(node_path(node)) is None:
            return Applied(node, Effect.FAILED, "there is no such node")
        text = f"{what.value} {utc_milliseconds(time.time())} by {printable(by, 60)}: {printable(why, 200)}"
        apply(self.client, node, lambda seen: plan_annotations(seen, {ORDER: text}))
        return Applied(node, Effect.CHANGED, "carried out by the next nhc sync gate")

    def limits(self) -> List[GateLimit]:
        """What autoscalers do to nodes whose gate takes long."""
        return limits(self.client, self.marks.taint)
