"""Nodes that belong to both Slurm and Kubernetes: a node's state in Slurm, and whether Slurm jobs run on it.

Slinky shows a Slurm node's state as conditions of its slurmd pod, each with Slurm's reason as its message
(slurm-operator pkg/conditions, slurmcontrol.go: nodeState). SUNK writes the reason of a drain as an annotation of the
Kubernetes node, and locks the node for a job (docs.coreweave.com, discover_sunk/node-controller, node-locking).

A drain that nhc's hooks set in Slurm is ours here, too. Any other belongs to someone else: a person, `k8s:` of SUNK's
syncer, `slurm-operator:` of Slinky's, `[node_problem]` of soperator's. That includes drains that they derived from our
own cordon. Pure.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence

from nhc.marks.ports.adapter import Mark
from nhc.marks.ports.marks import read_mark_text
from nhc_adapters.kubernetes.api.objects import get, notes_of, true_conditions
from nhc_adapters.kubernetes.nodes.evidence import SLURM, SLURM_NOTE
from nhc_adapters.kubernetes.nodes.own_marks import annotations_of

SLURMD = "app.kubernetes.io/name=slurmd"
"""The label of Slinky's worker pods."""

_STATE = "SlurmNodeState"
_BUSY = ("Allocated", "Mixed", "Completing")

SUNK_DRAIN, SUNK_LOCK = "sunk.coreweave.com/drain", "sunk.coreweave.com/lock"
"""Annotations: of a Kubernetes node, the reason of its drain in Slurm; of a slurmd pod, whether a job has the node
(false, pending, locked, locked_strict)."""


def runs_jobs(pod: Mapping[str, Any]) -> bool:
    """Whether Slurm's jobs run in this pod: they end by themselves, and an eviction would kill them."""
    states = true_conditions(pod)
    return any(f"{_STATE}{state}" in states for state in _BUSY) or notes_of(pod).get(SUNK_LOCK, "false") != "false"


class SlurmDrain(NamedTuple):
    """Our mark on a node in Slurm, and where it is read: the source of the mark here."""

    mark: Mark
    source: str


def drained_in_slurm(node: Mapping[str, Any], pods: Mapping[str, Optional[Mark]]) -> Optional[SlurmDrain]:
    """The drain that nhc has set on this node in Slurm, None if it has set none. `pods` is as `drains_of`."""
    noted = _ours(annotations_of(node).get(SUNK_DRAIN, ""))
    if noted is not None:
        return SlurmDrain(noted, SLURM_NOTE)
    shown = pods.get(str(get(node, "metadata", "name") or ""))
    return SlurmDrain(shown, SLURM) if shown is not None else None


def drains_of(pods: Sequence[Mapping[str, Any]]) -> Dict[str, Optional[Mark]]:
    """What slurmd pods say of their Slurm nodes, by Kubernetes node: our mark, or None for none of ours."""
    found: Dict[str, Optional[Mark]] = {}
    for pod in pods:
        conditions, node = true_conditions(pod), str(get(pod, "spec", "nodeName") or "")
        if not node or not any(kind.startswith(_STATE) for kind in conditions):
            continue
        drain = conditions.get(f"{_STATE}Drain", {}) if f"{_STATE}Undrain" not in conditions else {}
        found[node] = _ours(str(drain.get("message") or "")) or found.get(node)
    return found


def _ours(reason: str) -> Optional[Mark]:
    mark = read_mark_text(reason)
    return mark if mark is not None and mark.ours else None
