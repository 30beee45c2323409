"""An operator's actions on nodes: take them out and drain them, return them. Each returns its exit status.

A person's decision has priority: a drain by hand has an owner and an end, and no controller undoes it; a node returned
to service stays in service until the faults that it had then have ended once.
"""

from __future__ import annotations

import time
from typing import Any, Callable, List, Mapping, Optional, Sequence, Tuple

from nhc.core.model import printable
from nhc.marks.ports.adapter import Effect, Mark
from nhc_adapters.kubernetes.api.client import Client, node_path
from nhc_adapters.kubernetes.api.cluster import Cluster
from nhc_adapters.kubernetes.nodes.adapter import Kubernetes
from nhc_adapters.kubernetes.nodes.conditions import write_conditions
from nhc_adapters.kubernetes.nodes.drain import Drain, DrainRules, sort_pods
from nhc_adapters.kubernetes.nodes.evidence import OPERATOR, read_sources
from nhc_adapters.kubernetes.nodes.known_types import bad_statuses
from nhc_adapters.kubernetes.nodes.maintenance import lifecycle_changes
from nhc_adapters.kubernetes.nodes.manual import MANUAL, Manual, read_manual
from nhc_adapters.kubernetes.nodes.marks import Facts
from nhc_adapters.kubernetes.nodes.own_marks import HOLD, annotations_of, read_own_mark, released
from nhc_adapters.kubernetes.nodes.pods import pod_name, pods_on

DONE, FAILED = 0, 1


def drain(
    cluster: Cluster,
    names: Sequence[str],
    rules: DrainRules,
    *,
    apply: bool,
    by: str,
    why: str = "",
    lasting: Optional[float] = None,
) -> int:
    """Cordon nodes and evict their pods, showing how far it has come.

    The mark is `by`'s, and ends after `lasting` seconds, or when the node is uncordoned.
    """
    client = cluster.client()
    if not apply:
        return _show(cluster, client, names, rules)
    adapter = Kubernetes(client)
    failed = False
    now = time.time()
    manual = Manual(by, now, None if lasting is None else now + lasting)
    mark = Mark(why or f"drained by {manual.by}", since=now)
    nodes = {str(node["metadata"]["name"]): node for node in adapter.objects(list(names))}
    facts = {
        name: Facts(sources=list(dict.fromkeys([OPERATOR, *read_sources(node)])), manual=manual)
        for name, node in nodes.items()
    }
    states = {state.name: state for state in adapter.nodes(list(nodes))}
    drained = {name: _drained_already(cluster, adapter, nodes.get(name), manual) for name in dict.fromkeys(names)}
    for name in (name for name, already in drained.items() if already):
        failed |= not drain_one(cluster, adapter, name, rules)
    for applied in adapter.mark({name: mark for name, already in drained.items() if not already}, facts=facts):
        if applied.effect is Effect.FAILED:
            cluster.complain(f"{applied.node}: {applied.message}")
            failed = True
            continue
        if applied.effect is Effect.REFUSED:
            state = states.get(applied.node)
            if state is None or state.available or state.hold:
                # New pods would come as fast as the old ones go; and a node on hold is to stay as it is.
                cluster.complain(f"{applied.node}: not drained: {applied.message}")
                failed = True
                continue
            cluster.say(f"{applied.node}: not marked: {applied.message}")
        failed |= not drain_one(cluster, adapter, applied.node, rules)
    return FAILED if failed else DONE


def _drained_already(cluster: Cluster, adapter: Kubernetes, node: Optional[Mapping[str, Any]], asked: Manual) -> bool:
    """Whether a drain by hand keeps a node out already: this one continues it, and its owner may give it an end."""
    before = read_manual(node) if node is not None else None
    if node is None or before is None or not before.stands(asked.since):
        return False
    if read_own_mark(node) is None or released(node) or HOLD in annotations_of(node):
        return False
    name = str(node["metadata"]["name"])
    if before.by == asked.by and asked.until is not None:
        before = Manual(before.by, before.since, asked.until)
        adapter.annotate({name: {MANUAL: before.text()}})
    cluster.say(f"{name}: {before.line()} already")
    return True


def known_nodes(cluster: Cluster, adapter: Kubernetes, names: Sequence[str]) -> Tuple[List[str], bool]:
    """The nodes that there are, and whether some are not: each of those is a line."""
    there = {str(node["metadata"]["name"]) for node in adapter.objects(names)}
    missing = [name for name in dict.fromkeys(names) if name not in there]
    for name in missing:
        cluster.complain(f"{name}: there is no such node")
    return [name for name in dict.fromkeys(names) if name in there], bool(missing)


def _show(cluster: Cluster, client: Client, names: Sequence[str], rules: DrainRules) -> int:
    """What a drain would do."""
    known, failed = known_nodes(cluster, Kubernetes(client), names)
    for name in known:
        pods = sort_pods(pods_on(client, name, rules.selector), rules)
        for pod in pods.evict:
            cluster.say(f"would evict {pod_name(pod)} from {name}")
        for title, reasons in (("leave", pods.leave), ("in the way", pods.block)):
            for pod_text, reason in sorted(reasons.items()):
                cluster.say(f"{title}: {pod_text}: {reason}")
    cluster.say("Nothing was changed: say --apply to carry this out.")
    return FAILED if failed else DONE


def drain_one(
    cluster: Cluster, adapter: Kubernetes, name: str, rules: DrainRules, allowed: Callable[[], bool] = lambda: True
) -> bool:
    """Evict one node's pods while it is out of service. Whether all that had to go are gone. Raises AdapterError."""

    def may_evict() -> bool:
        return allowed() and not _over(adapter, name)

    state, clean = "", False
    for progress in Drain(adapter.client, name, rules, allowed=may_evict).run():
        if progress.state() != state:
            state = progress.state()
            cluster.say(progress.line())
        clean = progress.clean
        why = _over(adapter, name) if allowed() else "lost the lease in the middle of the drain"
        if why and not clean:
            cluster.complain(f"{name}: {why}")
            return False
    return clean


def _over(adapter: Kubernetes, name: str) -> str:
    """Why a drain that is under way stops evicting, "" if it goes on. Raises AdapterError."""
    node = adapter.client.find(node_path(name))
    if node is None:
        return "the node is gone"
    if adapter.state(node).available:
        return "somebody has put it back: its drain ends"
    held = annotations_of(node).get(HOLD)
    return "" if held is None else f"its drain ends: {HOLD}: {printable(held, 120)}"


def uncordon(cluster: Cluster, names: Sequence[str], by: str) -> int:
    """Put back in service despite the conditions: our marks are removed, and present faults are overruled until they
    end.
    """
    adapter = Kubernetes(cluster.client())
    failed = False
    for applied in adapter.release(names, bad_statuses(()), time.time(), by):
        cluster.say(f"{applied.node}: {applied.effect.value}{f': {applied.message}' if applied.message else ''}")
        failed |= applied.effect in (Effect.FAILED, Effect.REFUSED)
        said = lifecycle_changes(adapter.changed.get(applied.node) or {}, time.time())
        if said:  # of a drain or a repair that has ended with this
            write_conditions(adapter.client, applied.node, said)
    return FAILED if failed else DONE
