"""A Kubernetes node under the contract of nhc's adapters: a NodeState, with groups, holds and the owner of its mark."""

from __future__ import annotations

import time
from typing import Any, Dict, FrozenSet, Mapping, Optional, Sequence, Tuple

from nhc.core.model import printable
from nhc.marks.ports.adapter import Mark, NodeState, Silence
from nhc.marks.ports.marks import GATE_TAG, read_mark_text
from nhc_adapters.kubernetes.nodes.boots import boot_id
from nhc_adapters.kubernetes.nodes.conditions import FALSE, TRUE, UNKNOWN, Condition, read_conditions
from nhc_adapters.kubernetes.nodes.evidence import read_sources, source_types
from nhc_adapters.kubernetes.nodes.manual import read_manual
from nhc_adapters.kubernetes.nodes.overruled import OVERRULED
from nhc_adapters.kubernetes.nodes.own_marks import (
    MARK,
    Own,
    annotations_of,
    cordoned,
    labels_of,
    read_hold,
    read_own,
    read_own_mark,
    released,
    taints_of,
    undone,
)
from nhc_adapters.kubernetes.nodes.vocabulary import Foreign, NodeTaint

PLACES = {
    "topology.kubernetes.io/zone": "zone",
    "cloud.google.com/gke-nodepool": "pool",
    "eks.amazonaws.com/nodegroup": "pool",
    "kubernetes.azure.com/agentpool": "pool",
    "karpenter.sh/nodepool": "pool",
    "oci.oraclecloud.com/node-pool": "pool",
    "sagemaker.amazonaws.com/instance-group-name": "instance_group",
    "topology.kubernetes.io/rack": "rack",
    "topology.gke.io/rack": "rack",
    "cloud.google.com/gce-topology-subblock": "rack",
    "network.topology.nvidia.com/leaf": "leaf",
    "fabric.topograph.run/tier-1": "leaf",
    "topology.k8s.aws/network-node-layer-3": "leaf",
    "nvidia.com/gpu.clique": "nvlink_domain",
}
"""The kind of blast radius that a label names. Sources: Kubernetes' well-known labels, the clouds' documents of
their node pools and topologies, NVIDIA topograph, GPU feature discovery."""

TOPOLOGIES = tuple(label for label, kind in PLACES.items() if kind in ("zone", "pool", "instance_group"))
"""Labels that say which zone or pool a node is in; each with its value is a group with a ceiling of its own."""

LEAVING = ("ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler", "karpenter.sh/disrupted")
"""Taints under which an autoscaler takes the node away; under the second it may."""

# Labels and annotations only where there are any: a JSON patch has to know whether it adds to a map or makes one.
KEPT = ("name", "uid", "resourceVersion", "deletionTimestamp", "labels", "annotations")


def trim(node: Mapping[str, Any], types: FrozenSet[str]) -> Dict[str, Any]:
    """What a controller keeps of a node: no image list, no managed fields, only the conditions of these types.

    A real node's object is 20 kB; this is one or two. A mark's sources are kept, though they make no fault here, and so
    are all conditions of a node on which an operator overruled some.
    """
    everything = OVERRULED in annotations_of(node)
    types = types | source_types(read_sources(node))
    metadata, spec, status = node.get("metadata", {}), node.get("spec", {}), node.get("status", {})
    return {
        "metadata": {key: metadata[key] for key in KEPT if key in metadata},
        "spec": {key: spec[key] for key in ("taints", "unschedulable", "providerID") if key in spec},
        "status": {
            "conditions": [
                entry
                for entry in status.get("conditions") or ()
                if isinstance(entry, dict)
                and (everything or entry.get("type") in types or entry.get("type") == "Ready")
            ],
            "allocatable": status.get("allocatable") or {},
            "capacity": status.get("capacity") or {},
            "nodeInfo": {"bootID": (status.get("nodeInfo") or {}).get("bootID", "")},
        },
    }


def node_state(
    node: Mapping[str, Any],
    foreign: Sequence[Foreign] = (),
    topologies: Sequence[str] = TOPOLOGIES,
    busy: bool = False,
    places: Mapping[str, str] = PLACES,
) -> NodeState:
    """A node object as a NodeState.

    `available` is what somebody decided, nhc or a person or another controller; whether the kubelet is Ready
    is in `shown` and `flags` only, since that comes and goes by itself.
    """
    name = str(node.get("metadata", {}).get("name", ""))
    ready = read_conditions(node).get("Ready")
    flags = ["Ready" if ready and ready.status == TRUE else "NotReady"]
    if ready is not None and ready.status == UNKNOWN:
        flags.append("Unreachable")
    if cordoned(node):
        flags.append("SchedulingDisabled")
    ours, own, taints = read_own_mark(node), read_own(node), taints_of(node)
    theirs = read_foreign(node, foreign, own, taints)
    # The rest of a mark that somebody undid by hand no longer keeps work away: it is removed.
    tainted = set() if ours is not None and released(node) else {str(taint) for taint in taints} & set(own.taints)
    theirs = theirs or _gate(labels_of(node))
    out = cordoned(node) or bool(tainted) or theirs is not None
    mark = ours if ours is not None else theirs
    if mark is None and cordoned(node):
        # An operator may give a reason where ours would stand.
        mark = read_mark_text(annotations_of(node).get(MARK, "")) or Mark("cordoned, no reason given", owner="")
    return NodeState(
        name,
        ",".join(flags),
        not out,
        busy,
        mark,
        hold(node),
        groups(node, topologies),
        frozenset(flag.upper() for flag in flags),
        silence_of(ready),
        str(node.get("metadata", {}).get("uid") or ""),
        placed(node, places),
        undone=undone(node)[0] if ours is not None and len(undone(node)) == 1 else "",
        boot_id=boot_id(node),
    )


GATE, LETS_IN = "nhc/gate", ("passed", "opened")
"""The label with a gate's state (the annotation of this name is what `nhc sync gate` knows and set), and its values on
nodes that take work.
"""


def _gate(labels: Mapping[str, str]) -> Optional[Mark]:
    """What keeps a node out whose gate is closed: no mark of ours to clear, and one that ceilings count."""
    state = labels.get(GATE, "")
    return Mark(f"{GATE_TAG} {state}", owner="nhc gate") if state and state not in LETS_IN else None


def silence_of(ready: Optional[Condition]) -> Optional[Silence]:
    """The kubelet's state by the condition Ready. The node controller writes Unknown if the kubelet is silent."""
    if ready is None or ready.status == TRUE:
        return None
    why = ready.message or ready.reason or f"Ready is {ready.status}"
    return Silence(ready.since, printable(why, 200), ready.status == FALSE)


def read_foreign(
    node: Mapping[str, Any], foreign: Sequence[Foreign], own: Own, taints: Sequence[NodeTaint]
) -> Optional[Mark]:
    """Somebody else's mark: one that a vocabulary describes and that we did not set ourselves."""
    labels = labels_of(node)
    for mark in foreign:
        if mark.taint:
            for taint in taints:
                if taint.key == mark.taint and str(taint) not in own.taints:
                    return Mark(f"taint {taint}", owner=mark.owner)
        elif mark.label:
            value = labels.get(mark.label)
            if value in mark.values and own.labels.get(mark.label) != value:
                return Mark(f"label {mark.label}={value}", owner=mark.owner)
        elif mark.annotation in annotations_of(node) and cordoned(node) and not own.cordon:
            # Such an annotation says who cordoned; without a cordon it says nothing.
            return Mark(printable(annotations_of(node)[mark.annotation], 120) or mark.annotation, owner=mark.owner)
    return None


def hold(node: Mapping[str, Any], now: Optional[float] = None) -> str:
    """Why nhc must leave this node's state alone, "" if it may act. `now` is Unix time, the clock's by default."""
    if node.get("metadata", {}).get("deletionTimestamp"):
        return "it is being deleted"
    asked = read_hold(annotations_of(node))
    if asked:
        return asked
    for taint in taints_of(node):
        if taint.key in LEAVING and taint.effect == "NoSchedule":
            return f"an autoscaler removes it ({taint.key})"
    manual = read_manual(node)
    if manual is not None and read_own_mark(node) is not None and not released(node):
        return manual.line() if manual.stands(time.time() if now is None else now) else ""
    return ""


def groups(node: Mapping[str, Any], topologies: Sequence[str]) -> Tuple[str, ...]:
    """`label=value` of every topology label that the node carries."""
    labels = labels_of(node)
    return tuple(f"{key}={labels[key]}" for key in topologies if labels.get(key))


def placed(node: Mapping[str, Any], places: Mapping[str, str]) -> Tuple[Tuple[str, str], ...]:
    """The kind and name of each blast radius that a node's labels name."""
    labels = labels_of(node)
    return tuple(dict.fromkeys((kind, labels[key]) for key, kind in places.items() if labels.get(key)))


def unheard(nodes: Sequence[Mapping[str, Any]]) -> FrozenSet[str]:
    """The nodes whose kubelet does not report."""
    silences = ((node, silence_of(read_conditions(node).get("Ready"))) for node in nodes)
    return frozenset(str(node["metadata"]["name"]) for node, silence in silences if silence and not silence.heard)
