"""Cluster API replaces a Machine that is annotated for remediation, if a MachineHealthCheck covers it.

The annotation is `cluster.x-k8s.io/remediate-machine` [kubernetes-sigs/cluster-api, api/core/v1beta2/common_types.go];
the MachineHealthCheck's controller treats it as a failed check, and the Machine's owner (a MachineSet, a control plane)
deletes the Machine and makes another. `skip-remediation` and `paused` are respected.
"""

from __future__ import annotations

from typing import FrozenSet, List, Mapping, Optional

from nhc.core.timestamps import from_utc
from nhc.marks.ports.repair import Order, Progress, Rung, Sent, Sighting, Stage
from nhc_adapters.kubernetes.api.objects import conditions_of, controller_of, get, notes_of
from nhc_adapters.kubernetes.api.rights import ClusterRight
from nhc_adapters.kubernetes.repair.cluster import KubeNode, Object
from nhc_adapters.kubernetes.repair.handover import Actor, annotate, is_of, order_notes
from nhc_adapters.repair import LATER, RepairRefused, accepted

GROUP = "cluster.x-k8s.io"
REMEDIATE = f"{GROUP}/remediate-machine"
GIVEN_UP = ("CannotBeRemediated", "RemediationFailed")
"""Reasons of OwnerRemediated under which the owner does nothing more."""
CLOCKS = 60.0
"""Seconds that the API server's clock may be behind ours."""


class ClusterApi(Actor):
    """Requested by an annotation of a Machine."""

    rungs: FrozenSet[Rung] = frozenset({Rung.REPLACE})

    def needed(self) -> List[ClusterRight]:
        purpose = "to ask for a Machine's replacement, and to watch it"
        return [ClusterRight(verb, "machines", GROUP, purpose=purpose) for verb in ("get", "list", "patch")]

    def instance(self, node: KubeNode) -> str:
        """NAMESPACE/OWNER/MACHINE."""
        machine = self._machine(node)
        return "" if machine is None else name_of(machine)

    def ask(self, order: Order, node: KubeNode) -> Sent:
        item = self._machine(node)
        if item is None:
            raise RepairRefused(f"{node.name} has no Machine of Cluster API (annotation {GROUP}/machine)")
        _may_be_asked(item, node)
        meta = item["metadata"]
        notes = {**order_notes(order), REMEDIATE: ""}
        annotate(self.objects, self._path(meta["namespace"], meta["name"]), item, notes)
        return accepted(f"asked Cluster API to replace the Machine {meta['namespace']}/{meta['name']}", name_of(item))

    def progress(self, order: Order, sent: Sent, before: Sighting, node: Optional[KubeNode]) -> Progress:
        namespace, owner, name = (*(sent.request_id or before.instance).split("/"), "", "")[:3]
        if not name:
            return Progress(Stage.WORKING, "it is not known which Machine it was")
        machine = self.objects.find(self._path(namespace, name))
        if machine is not None and not is_of(machine, order) and from_utc(
            machine["metadata"].get("creationTimestamp"), 0.0) <= before.at + CLOCKS:  # fmt: skip
            return Progress(Stage.WORKING, f"the Machine {name} does not carry the order")
        if machine is not None and is_of(machine, order):
            owned: Mapping[str, object] = conditions_of(machine).get("OwnerRemediated") or {}
            if owned.get("status") == "False" and owned.get("reason") in GIVEN_UP:
                return Progress(Stage.FAILED, f"Cluster API gave it up: {owned.get('message') or owned.get('reason')}")
            going = (
                "is being deleted" if machine["metadata"].get("deletionTimestamp") else owned.get("reason") or "stands"
            )
            return Progress(Stage.WORKING, f"the Machine {name} {going}")
        return self._successor(namespace, owner, name, before.at)

    def _successor(self, namespace: str, owner: str, name: str, since: float) -> Progress:
        """The Machine that the same owner has made since then, once its node is ready."""
        for item in self.objects.items(self._path(namespace)):
            if owner_of(item) != owner or from_utc(item["metadata"].get("creationTimestamp"), 0.0) < since - CLOCKS:
                continue
            reference = node_of(item)
            node = self.nodes.node(reference) if reference else None
            if item["metadata"]["name"] != name and node is not None and node.ready:
                return Progress(
                    Stage.DONE, f"the Machine {name} is gone; {item['metadata']['name']} is ready", reference
                )
        return Progress(Stage.WORKING, f"the Machine {name} is gone; no other one of {owner or namespace} is ready yet")

    def _machine(self, node: KubeNode) -> Optional[Object]:
        """The Machine that Cluster API has written on the node. Raises CallFailed."""
        name = node.annotations.get(f"{GROUP}/machine", "")
        namespace = node.annotations.get(f"{GROUP}/cluster-namespace", "default")
        return self.objects.find(self._path(namespace, name)) if name else None

    def _path(self, namespace: str, name: str = "") -> str:
        return self.objects.kind(GROUP, "machines", namespace, name)


def node_of(machine: Object) -> str:
    """The node of a Machine, "" if it has none yet."""
    return str(get(machine, "status", "nodeRef", "name") or "")


def owner_of(machine: Object) -> str:
    """The MachineSet or control plane that a Machine belongs to."""
    return str(controller_of(machine).get("name") or "")


def name_of(machine: Object) -> str:
    meta = machine["metadata"]
    return f"{meta['namespace']}/{owner_of(machine)}/{meta['name']}"


def _may_be_asked(machine: Object, node: KubeNode) -> None:
    """Raises RepairRefused."""
    meta, notes = machine["metadata"], notes_of(machine)
    what = f"the Machine {meta['namespace']}/{meta['name']}"
    reference = node_of(machine)
    provider = str(get(machine, "spec", "providerID") or "")
    if reference != node.name or (provider and node.provider_id and provider != node.provider_id):
        raise RepairRefused(f"{what} stands for {reference or 'no node'} ({provider}), not for {node.name}")
    for key in ("skip-remediation", "paused"):
        if f"{GROUP}/{key}" in notes:
            raise RepairRefused(f"{what} is not to be remediated: annotation {GROUP}/{key}")
    if meta.get("deletionTimestamp") or REMEDIATE in notes:
        raise RepairRefused(f"{what} is being replaced already", LATER)
    if not owner_of(machine):
        raise RepairRefused(f"{what} belongs to no MachineSet and no control plane: nothing would make another")
    if "HealthCheckSucceeded" not in conditions_of(machine):
        raise RepairRefused(f"no MachineHealthCheck looks after {what}: nobody would hear the annotation")
