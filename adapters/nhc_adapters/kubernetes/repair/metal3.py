"""Metal3 reboots a host whose BareMetalHost is annotated: softly for a reboot, by its power for a power cycle.

`reboot.metal3.io` with `{"mode": "hard"}` is asked for once; the operator takes it off when the host has been off
[metal3-io/baremetal-operator, apis/metal3.io/v1alpha1/baremetalhost_types.go]. Another's annotation of that prefix,
`paused` and `detached` are respected.
"""

from __future__ import annotations

import json
from typing import FrozenSet, List, Mapping, Optional

from nhc.marks.ports.repair import Machine, Order, Progress, Rung, Sent, Sighting, Stage
from nhc_adapters.kubernetes.api.objects import notes_of
from nhc_adapters.kubernetes.api.rights import ClusterRight
from nhc_adapters.kubernetes.repair.actor_kinds import is_host_of
from nhc_adapters.kubernetes.repair.cluster import KubeNode, Object
from nhc_adapters.kubernetes.repair.handover import Actor, annotate, booted, is_of, order_notes
from nhc_adapters.repair.calls import LATER, RepairRefused, accepted

GROUP = "metal3.io"
REBOOT = "reboot.metal3.io"
MODES = {Rung.REBOOT: "soft", Rung.POWER_CYCLE: "hard"}


class Metal3(Actor):
    """Asked by an annotation of a BareMetalHost."""

    rungs: FrozenSet[Rung] = frozenset(MODES)

    def can(self, machine: Machine) -> str:
        if machine.provider_id and not machine.provider_id.startswith("metal3://"):
            return f"{machine.node} is no host of Metal3's ({machine.provider_id})"
        return ""

    def needed(self) -> List[ClusterRight]:
        purpose = "to ask for a host's reboot, and to watch it"
        return [ClusterRight(verb, "baremetalhosts", GROUP, purpose=purpose) for verb in ("get", "list", "patch")]

    def instance(self, node: KubeNode) -> str:
        host = self._host(node)
        return f"{host['metadata']['namespace']}/{host['metadata']['name']}" if host is not None else ""

    def ask(self, order: Order, node: KubeNode) -> Sent:
        host = self._host(node)
        if host is None:
            raise RepairRefused(f"there is no BareMetalHost for {node.name} ({node.provider_id})")
        meta = host["metadata"]
        what = f"the BareMetalHost {meta['namespace']}/{meta['name']}"
        notes, status = notes_of(host), host.get("status") or {}
        for key in ("paused", "detached"):
            if f"baremetalhost.{GROUP}/{key}" in notes:
                raise RepairRefused(f"{what} is {key}")
        asked = [key for key in notes if key.startswith(REBOOT)]
        if asked:
            raise RepairRefused(f"{what} is to be rebooted already ({asked[0]})", LATER)
        if (host.get("spec") or {}).get("online") is False:
            raise RepairRefused(f"{what} is to be off (spec.online)")
        if status.get("operationalStatus") in ("error", "detached"):
            raise RepairRefused(f"{what}: {status.get('errorMessage') or status.get('operationalStatus')}")
        mode = MODES[order.rung]
        change = {**order_notes(order), REBOOT: json.dumps({"mode": mode})}
        annotate(self.objects, self._path(meta["namespace"], meta["name"]), host, change)
        name = f"{meta['namespace']}/{meta['name']}"
        return accepted(f"asked Metal3 for a {mode} reboot of {name}", name)

    def progress(self, order: Order, sent: Sent, before: Sighting, node: Optional[KubeNode]) -> Progress:
        done = booted(before, order, node)
        if done is not None:
            return done
        namespace, _, name = (sent.request_id or before.instance).partition("/")
        host = self.objects.find(self._path(namespace, name)) if name else None
        if host is None or not is_of(host, order):
            return Progress(Stage.WORKING, "no BareMetalHost carries the order")
        status: Mapping[str, object] = host.get("status") or {}
        if status.get("errorType") == "power management error":
            return Progress(Stage.FAILED, f"Metal3: {status.get('errorMessage') or status.get('errorType')}")
        begun = REBOOT not in notes_of(host)
        return Progress(Stage.WORKING, "the host was off, and boots" if begun else "Metal3 has not begun yet")

    def _host(self, node: KubeNode) -> Optional[Object]:
        """The host that the node's providerID names. Raises CallFailed."""
        parts = node.provider_id[len("metal3://") :].strip("/").split("/")
        if len(parts) > 1:
            host = self.objects.find(self._path(parts[0], parts[1]))
            return host if host is not None and is_host_of(host, node) else None
        every = self.objects.items(self._path(""))
        return next((item for item in every if is_host_of(item, node)), None)

    def _path(self, namespace: str, name: str = "") -> str:
        return self.objects.kind(GROUP, "baremetalhosts", namespace, name)
