"""Gates in Kubernetes: a node publishes its own status, and the taint is set and removed from outside.

scheduler = "kubernetes"
[adapter]
kubeconfig = ""              # as kubectl finds it, or this pod's own
context = ""
taint = "startup-taint.cluster-autoscaler.kubernetes.io/nhc-gate:NoSchedule"
hyperpod = "no"              # "yes": SageMaker HyperPod's labels and taint as well
"""

from __future__ import annotations

import re
import time
from collections import Counter
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set

from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.core.timestamps import utc_milliseconds
from nhc.core.units import seconds
from nhc.marks.ports.adapter import AdapterError, Applied, Effect
from nhc.marks.ports.gates import GateLimit, GateNews, GateOrder, GateStanding, GroupOfNodes, Turn
from nhc.marks.ports.part_settings import Given, read
from nhc_adapters.kubernetes.api.access import ClusterSettings
from nhc_adapters.kubernetes.api.client import READ_TIMEOUT, Client, node_path
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.gates.plan import (
    ORDER,
    TAINT,
    Change,
    GateMarks,
    condition_of,
    held,
    may_wait,
    plan,
    read_known,
    read_order,
)
from nhc_adapters.kubernetes.nodes.conditions import NodeConditions
from nhc_adapters.kubernetes.nodes.drain import DrainRules, sort_pods
from nhc_adapters.kubernetes.nodes.marks import Op, apply, plan_annotations
from nhc_adapters.kubernetes.nodes.own_marks import Node, cordoned
from nhc_adapters.kubernetes.nodes.pods import has_ended, pods_on
from nhc_adapters.kubernetes.nodes.vocabulary import NodeTaint, parse_taint, read_taint

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
    """On the node it publishes; `keep` acts for all nodes."""

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
        """How the cluster has the node; None where there is no such node."""
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
        """Carry a change out, planned anew where somebody wrote in between; what kept it from being done."""

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
