"""Spare nodes in Kubernetes: a node with the pool's label and taint takes no pods until both are removed.

    [pools.gpu]
    type = "kubernetes"
    spare = "gpu"                # the value of the label and the taint nhc/spare
    kubeconfig = ""              # as kubectl finds it, or this pod's own
    context = ""

The site makes the first ones: `kubectl label node n9 nhc/spare=gpu; kubectl taint node n9 nhc/spare=gpu:NoSchedule`.
"""

from __future__ import annotations

import os
import re
from typing import List, NamedTuple

from nhc.core.settings import declared
from nhc.marks.ports.adapter import AdapterError, Applied, Effect
from nhc.marks.ports.part_settings import Given, read
from nhc_adapters.kubernetes.api.access import ClusterSettings, find
from nhc_adapters.kubernetes.api.client import Client
from nhc_adapters.kubernetes.nodes.marks import Op, Patch, Plan, apply
from nhc_adapters.kubernetes.nodes.own_marks import Node, labels_of, taints_of
from nhc_adapters.kubernetes.nodes.pods import pod_name, pods_on, workload
from nhc_adapters.kubernetes.nodes.view import hold
from nhc_adapters.kubernetes.nodes.vocabulary import NodeTaint

SPARE = "nhc/spare"
"""Label and taint: the node waits as a spare of the pool that the value names."""

_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


def _spare(text: str) -> str:
    if not _VALUE.fullmatch(text):
        raise ValueError(f"{text!r} is not the value of a label: up to 63 letters, digits, _ . and -")
    return text


@declared.settings
class KubernetesSpareSettings(NamedTuple):
    """A pool of spares in Kubernetes."""

    spare: str = declared.converted(
        "spare", _spare, declared.NEEDED, "the value of the label and the taint nhc/spare of the pool's nodes",
        shown='"gpu"',
    )  # fmt: skip
    cluster: ClusterSettings = declared.part("", ClusterSettings)


class KubernetesSpares:
    """The nodes that carry the pool's label and its taint. Other pools' nodes and others' taints are left alone."""

    SETTINGS = KubernetesSpareSettings

    def __init__(self, settings: Given = None, environ: Given = None, timeout: float = 30.0) -> None:
        own = read(KubernetesSpareSettings, settings)
        self.spare = own.spare
        given = own.cluster.kubeconfig or (os.environ if environ is None else environ).get("NHC_KUBECONFIG", "")
        self.taint = NodeTaint(SPARE, self.spare)
        self.client = Client(find(given, own.cluster.context), read_timeout=timeout)

    def waiting(self) -> List[str]:
        """The nodes with the label and the taint; one alone makes no spare. Raises AdapterError."""
        nodes = self.client.items("/api/v1/nodes", labelSelector=f"{SPARE}={self.spare}")
        return sorted(str(node["metadata"]["name"]) for node in nodes if self.taint in taints_of(node))

    def into_service(self, node: str) -> Applied:
        """Remove the pool's taint and label."""

        def plan(seen: Node) -> List[Op]:
            if self.taint not in taints_of(seen):
                return []
            _let_alone(seen)
            patch = Patch(seen)
            patch.leave_taints([taint for taint in taints_of(seen) if taint != self.taint])
            if labels_of(seen).get(SPARE) == self.spare:
                patch.labels[SPARE] = None
            return patch.ops()

        return self._change(node, plan, "removed", "it waits no more")

    def back(self, node: str) -> Applied:
        """Set both again, first of all: so no new pod comes. FAILED while pods that were there before still run."""

        def plan(seen: Node) -> List[Op]:
            other = labels_of(seen).get(SPARE, self.spare)
            taken = [taint for taint in taints_of(seen) if (taint.key, taint.effect) == (SPARE, self.taint.effect)]
            if other != self.spare or any(taint != self.taint for taint in taken):
                raise AdapterError(f"it is a spare of another pool ({SPARE})")
            if not taken or SPARE not in labels_of(seen):
                _let_alone(seen)
            patch = Patch(seen)
            patch.labels[SPARE] = self.spare
            patch.leave_taints(taints_of(seen) if taken else [*taints_of(seen), self.taint])
            return patch.ops()

        done = self._change(node, plan, "set", "it waits already")
        if done.effect is Effect.FAILED:
            return done
        try:
            busy = [pod_name(pod) for pod in workload(pods_on(self.client, node))]
        except AdapterError as error:
            return Applied(node, Effect.FAILED, f"it takes no new pods, and its pods cannot be seen: {error}")
        if busy:
            more = f" and {len(busy) - 1} more" if len(busy) > 1 else ""
            return Applied(node, Effect.FAILED, f"it takes no new pods, and {busy[0]}{more} still runs on it")
        return done

    def _change(self, node: str, plan: Plan, changed: str, already: str) -> Applied:
        try:
            after = apply(self.client, node, plan)
        except AdapterError as error:
            return Applied(node, Effect.FAILED, str(error))
        if after is None:
            return Applied(node, Effect.UNCHANGED, already)
        return Applied(node, Effect.CHANGED, f"{SPARE}={self.spare} is {changed}")


def _let_alone(node: Node) -> None:
    """Raises AdapterError where a person, or an autoscaler, has the node."""
    held = hold(node)
    if held:
        raise AdapterError(f"left alone: {held}")
