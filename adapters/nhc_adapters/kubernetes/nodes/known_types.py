"""Condition types that are known, so that a typing error in `--condition` is refused and never counts as health."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, FrozenSet, Iterable, List, Mapping, Sequence

from nhc_adapters.kubernetes.nodes.conditions import CLUSTER_SIDE, TRUE, read_conditions
from nhc_adapters.kubernetes.nodes.overruled import Bad
from nhc_adapters.kubernetes.nodes.vocabulary import Fault, Vocabulary
from nhc_adapters.kubernetes.nodes.vocabulary_file import known, load

KUBELET = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")

NPD = (
    "FrequentKubeletRestart", "FrequentDockerRestart", "FrequentContainerdRestart", "FrequentUnregisterNetDevice",
    "CorruptDockerOverlay2", "DiskBadBlock", "KubeProxyUnhealthy", "NTPProblem",
)  # fmt: skip
"""The conditions of node-problem-detector's own rule files (v1.34, config/) that no vocabulary has."""


def _with_ours(spoken: Sequence[Vocabulary]) -> Sequence[Vocabulary]:
    return (*spoken, *map(load, known()))


def known_types(spoken: Sequence[Vocabulary] = ()) -> FrozenSet[str]:
    """All condition types that we know of."""
    types = {*KUBELET, *NPD, *CLUSTER_SIDE}
    for vocabulary in _with_ours(spoken):
        types.update(rule.type for rule in vocabulary.conditions)
        types.update(fault.type for fault in vocabulary.faults)
    return frozenset(types)


def bad_statuses(faults: Iterable[Fault], spoken: Sequence[Vocabulary] = ()) -> Bad:
    """Each condition type with the statuses of it that are bad, as far as we know."""
    rules = {(rule.type, rule.bad) for vocabulary in _with_ours(spoken) for rule in vocabulary.conditions}
    return frozenset(rules | {(fault.type, fault.status) for fault in faults} | {(kind, TRUE) for kind in CLUSTER_SIDE})


def strangers(
    faults: Sequence[Fault], nodes: Iterable[Mapping[str, Any]], spoken: Sequence[Vocabulary] = ()
) -> List[str]:
    """What is wrong with condition types that neither a vocabulary nor a node has; [] where there is no node at all.

    A site's own type is fine once a node carries it, or a vocabulary of the site names it.
    """
    everything = set(known_types(spoken))
    left = {fault.type for fault in faults} - everything
    if not left:
        return []
    carried = [read_conditions(node).keys() for node in nodes]
    everything.update(*carried)
    complaints = []
    for kind in sorted(left - everything) if carried else ():
        near = get_close_matches(kind, sorted(everything), 1)
        hint = f"did you mean {near[0]!r}?" if near else "a vocabulary of your own makes it known"
        complaints.append(f"no node has a condition {kind!r}, and no vocabulary knows it: {hint}")
    return complaints
