"""What autoscalers do to a node that is not ready yet: Karpenter's NodePools, cluster-autoscaler's flags.

Karpenter deletes a machine that has not registered within 15 minutes (its registration TTL), and waits for startup
taints without a limit; it must know them, or it counts the node as full and launches others. cluster-autoscaler
removes one that has not registered within --max-node-provision-time (15 min), and one that is registered and not ready
after --max-node-startup-time (15 min) and then --scale-down-unready-time (20 min). A node with a taint that it does not
know as a startup taint is ready to it: it buys no node for pods that cannot go there, or too many.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Optional

from nhc.ports.adapter import AdapterError
from nhc.ports.gates import GateLimit
from nhc.units import seconds
from nhc_adapters.kubernetes.api.client import Client
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.nodes.vocabulary import NodeTaint, read_taint

PREFIX = "startup-taint.cluster-autoscaler.kubernetes.io/"
NODEPOOLS = "/apis/karpenter.sh/v1/nodepools"
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
    found: List[GateLimit] = []
    startup = [read_taint(one) for one in spec.get("startupTaints") or ()]
    if not any((one.key, one.effect) == (taint.key, taint.effect) for one in startup):
        found.append(GateLimit(
            f"{who} startupTaints", None,
            f"does not list {taint}: new nodes take work before their gate is closed, or Karpenter launches more",
            f"spec.template.spec.startupTaints: [{{key: {taint.key}, effect: {taint.effect}}}]",
        ))  # fmt: skip
    expires = _duration(spec.get("expireAfter"))
    if expires is not None:
        found.append(GateLimit(f"{who} expireAfter", expires, "the node is replaced at this age, tested or not",
                               "a longer expireAfter"))  # fmt: skip
    return found


def _cluster_autoscaler(client: Client, taint: NodeTaint) -> Iterator[GateLimit]:
    for kind in client.items("/apis/apps/v1/deployments"):
        for container in kind.get("spec", {}).get("template", {}).get("spec", {}).get("containers") or ():
            words = [str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ()))]
            about = f"{container.get('image', '')} {words[:1]}"
            if "cluster-autoscaler" in about:
                where = f"{kind['metadata'].get('namespace')}/{kind['metadata'].get('name')}"
                yield from autoscaler(f"cluster-autoscaler {where}", words, taint)


def autoscaler(who: str, words: List[str], taint: NodeTaint) -> List[GateLimit]:
    """What one cluster-autoscaler with these words on its command line does. Pure; raises AdapterError."""
    flags = _flags(words)
    found: List[GateLimit] = []
    known = [*flags.get("startup-taint", ()), *flags.get("ignore-taint", ())]
    prefixes = [PREFIX, "ignore-taint.cluster-autoscaler.kubernetes.io/", *flags.get("startup-taint-prefix", ())]
    if taint.key not in known and not any(taint.key.startswith(prefix) for prefix in prefixes):
        found.append(GateLimit(
            f"{who} --startup-taint", None,
            f"does not know {taint.key}: a node behind its gate counts as ready, and no node is bought for what waits",
            f"--startup-taint={taint.key}",
        ))  # fmt: skip
        return found
    startup = _flag(who, flags, "max-node-startup-time", STARTUP)
    unready = _flag(who, flags, "scale-down-unready-time", UNREADY)
    found.append(GateLimit(
        f"{who} --max-node-startup-time and --scale-down-unready-time", startup + unready,
        "a node that is behind its gate for longer is removed", "raise both, or those of the node group",
    ))  # fmt: skip
    return found


def _flags(words: List[str]) -> Dict[str, List[str]]:
    """`--name=value` and `--name value`, each value of a repeated flag."""
    found: Dict[str, List[str]] = {}
    rest = iter(range(len(words)))
    for at in rest:
        for word in words[at].split():  # a command in one string, as of sh -c
            if word.startswith("-"):
                name, equals, value = word.lstrip("-").partition("=")
                following = words[at + 1] if at + 1 < len(words) else ""
                found.setdefault(name, []).append(value if equals else following)
    return found


def _flag(who: str, flags: Mapping[str, List[str]], name: str, default: float) -> float:
    values = flags.get(name)
    if not values:
        return default
    found = _duration(values[-1])
    if found is None:
        raise AdapterError(f"{who}: --{name}={values[-1]} is no duration")
    return found


def _duration(text: object) -> Optional[float]:
    """Go's durations (`1h30m`, `720h`); None for `Never` and for what is none."""
    whole, number = 0.0, ""
    word = str(text or "")
    if not word or word == "Never":
        return None
    at = 0
    while at < len(word):
        begin = at
        while at < len(word) and (word[at].isdigit() or word[at] == "."):
            at += 1
        number = word[begin:at]
        begin = at
        while at < len(word) and word[at].isalpha():
            at += 1
        try:
            whole += seconds(f"{number}{word[begin:at]}")
        except ValueError:
            return None
        if begin == at:
            return None
    return whole
