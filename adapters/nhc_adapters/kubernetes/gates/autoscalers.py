"""What autoscalers do to a node that is not ready yet: Karpenter's NodePools, cluster-autoscaler's flags.

Karpenter deletes a machine that has not registered within 15 minutes (its registration TTL), and waits for startup
taints without a limit; it must know them, or it counts the node as full and launches others. cluster-autoscaler
removes one that has not registered within --max-node-provision-time (15 min), and one that is registered and not ready
after --max-node-startup-time (15 min) and then --scale-down-unready-time (20 min). A node with a taint that it does not
know as a startup taint is ready to it: it buys no node for pods that cannot go there, or too many.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, List, Mapping, Optional

from nhc.core.units import seconds
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.gates import GateLimit
from nhc_adapters.kubernetes.api.client import Client
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.nodes.vocabulary import NodeTaint, read_taint

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
