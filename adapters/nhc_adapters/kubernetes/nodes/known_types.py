"""Condition types that are known, so that a typing error in `--condition` is refused and never judged as health."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, FrozenSet, Iterable, List, Mapping, Sequence

from nhc_adapters.kubernetes.nodes.conditions import CLUSTER_SIDE, read_conditions
from nhc_adapters.kubernetes.nodes.overruled import Bad
from nhc_adapters.kubernetes.nodes.vocabulary import Fault, Vocabulary
from nhc_adapters.kubernetes.nodes.vocabulary_file import known, load

KUBELET = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")

NPD = (
    "FrequentKubeletRestart", "FrequentDockerRestart", "FrequentContainerdRestart", "FrequentUnregisterNetDevice",
    "CorruptDockerOverlay2", "DiskBadBlock", "KubeProxyUnhealthy", "NTPProblem",
)  # fmt: skip
"""The conditions of node-problem-detector's own rule files (v1.34, config/) that no vocabulary has."""


def known_types(spoken: Sequence[Vocabulary] = ()) -> FrozenSet[str]:
    """All condition types that we know of."""
    found = {*KUBELET, *NPD, *CLUSTER_SIDE}
    for one in (*spoken, *(load(name) for name in known())):
        found |= {rule.type for rule in one.conditions} | {fault.type for fault in one.faults}
    return frozenset(found)


def bad_statuses(faults: Iterable[Fault], spoken: Sequence[Vocabulary] = ()) -> Bad:
    """Each condition type with the statuses of it that are bad, as far as we know."""
    found = {(fault.type, fault.status) for fault in faults} | {(kind, "True") for kind in CLUSTER_SIDE}
    for one in (*spoken, *(load(name) for name in known())):
        found |= {(rule.type, rule.bad) for rule in one.conditions}
    return frozenset(found)


def strangers(
    faults: Sequence[Fault], nodes: Iterable[Mapping[str, Any]], spoken: Sequence[Vocabulary] = ()
) -> List[str]:
    """What is wrong with condition types that neither a vocabulary nor a node has; [] where there is no node at all.

    A site's own type is fine once a node carries it, or a vocabulary of the site names it.
    """
    left = {fault.type for fault in faults} - known_types(spoken)
    carried: FrozenSet[str] = frozenset()
    if not left:
        return []
    found_any = False
    for node in nodes:
        found_any = True
        carried |= read_conditions(node).keys()
        if left <= carried:
            return []
    if not found_any:
        return []
    everything = sorted(known_types(spoken) | carried)
    complaints = []
    for kind in sorted(left - carried):
        near = get_close_matches(kind, everything, 1)
        hint = f"did you mean {near[0]!r}?" if near else "a vocabulary of your own makes it known"
        complaints.append(f"no node has a condition {kind!r}, and no vocabulary knows it: {hint}")
    return complaints
