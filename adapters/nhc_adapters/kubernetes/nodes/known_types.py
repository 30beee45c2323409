"""Condition types that are known, so that a typing error in `--condition` is refused and never counts as health."""

from __future__ import annotations

from typing import Any, FrozenSet, Iterable, Mapping, NamedTuple, Sequence

from nhc_adapters.kubernetes.nodes.conditions import CLUSTER_SIDE, KUBELET, TRUE, read_conditions
from nhc_adapters.kubernetes.nodes.overruled import Bad
from nhc_adapters.kubernetes.nodes.vocabulary import Fault, Vocabulary
from nhc_adapters.kubernetes.nodes.vocabulary_file import known, load

NPD = (
    "FrequentKubeletRestart", "FrequentDockerRestart", "FrequentContainerdRestart", "FrequentUnregisterNetDevice",
    "CorruptDockerOverlay2", "DiskBadBlock", "KubeProxyUnhealthy", "NTPProblem",
)  # fmt: skip
"""The conditions of node-problem-detector's own rule files (v1.34, config/) that no vocabulary has."""


CLOUDS = (
    "FilesystemCorruptionProblem", "KubeletProblem", "ContainerRuntimeProblem", "VMEventScheduled",
    "GPUMissing", "NVLinkStatusInactive", "XIDErrors", "IBLinkFlapping", "GPUClockThrottling",
    "UnhealthyNvidiaDevicePlugin",
    "KernelReady", "NetworkingReady", "StorageReady", "ContainerRuntimeReady", "AcceleratedHardwareReady",
)  # fmt: skip
"""The conditions that managed nodes carry: AKS's (https://learn.microsoft.com/azure/aks/node-problem-detector), some of
them on GPU nodes alone, and of EKS's node monitoring agent
(https://docs.aws.amazon.com/eks/latest/userguide/node-health.html)."""


def _with_ours(spoken: Sequence[Vocabulary]) -> Sequence[Vocabulary]:
    return (*spoken, *map(load, known()))


def known_types(spoken: Sequence[Vocabulary] = ()) -> FrozenSet[str]:
    """All condition types that we know of."""
    types = {*KUBELET, *NPD, *CLOUDS, *CLUSTER_SIDE}
    for vocabulary in _with_ours(spoken):
        types.update(rule.type for rule in vocabulary.conditions)
        types.update(fault.type for fault in vocabulary.faults)
    return frozenset(types)


def bad_statuses(faults: Iterable[Fault], spoken: Sequence[Vocabulary] = ()) -> Bad:
    """Each condition type with the statuses of it that are bad, as far as we know."""
    rules = {(rule.type, rule.bad) for vocabulary in _with_ours(spoken) for rule in vocabulary.conditions}
    return frozenset(rules | {(fault.type, fault.status) for fault in faults} | {(kind, TRUE) for kind in CLUSTER_SIDE})


class StrangeTypes(NamedTuple):
    """The messages about condition types that neither a vocabulary nor a node has, a line each. `refused` are typing
    errors; `unseen` may be those of a pool that has no node now, and count once a node carries them.
    """

    refused: Sequence[str] = ()
    unseen: Sequence[str] = ()


def strangers(
    faults: Sequence[Fault], nodes: Iterable[Mapping[str, Any]], spoken: Sequence[Vocabulary] = ()
) -> StrangeTypes:
    """The condition types of faults that are unknown; none if there is no node at all.

    A site's own type is known once a node carries it, or a vocabulary of the site names it. One that is nearly equal to
    a known one is a typing error, which would count as health for ever.
    """
    everything = set(known_types(spoken))
    left = {fault.type for fault in faults} - everything
    if not left:
        return StrangeTypes()
    carried = [read_conditions(node).keys() for node in nodes]
    everything.update(*carried)
    refused, unseen = [], []
    for kind in sorted(left - everything) if carried else ():
        said = f"no node has a condition {kind!r}, and no vocabulary knows it"
        near = next((known for known in sorted(everything) if _nearly(kind, known)), "")
        if near:
            refused.append(f"{said}: did you mean {near!r}?")
        else:
            unseen.append(f"{said}: it counts once a node carries it")
    return StrangeTypes(refused, unseen)


def _nearly(kind: str, known: str) -> bool:
    """Whether a type is another in all but capitals, or but one or two letters, as far as it is long."""
    most = 2 if min(len(kind), len(known)) >= 8 else 1
    return kind.lower() == known.lower() or _distance(kind, known, most) <= most


def _distance(one: str, other: str, most: int) -> int:
    """The letters to add, to leave out or to change that make one text the other (Levenshtein); more than `most` is
    not counted further.
    """
    if abs(len(one) - len(other)) > most:
        return most + 1
    row = list(range(len(other) + 1))
    for number, letter in enumerate(one, 1):
        before, row = row, [number]
        for place, beside in enumerate(other, 1):
            row.append(min(row[-1] + 1, before[place] + 1, before[place - 1] + (letter != beside)))
    return row[-1]
