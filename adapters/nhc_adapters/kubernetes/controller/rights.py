"""The rights that the controller and agents need in a cluster, and the controller's check for missing ones."""

from __future__ import annotations

import threading
from typing import Callable, List, Tuple

from nhc.core.system.service_log import problem
from nhc.marks.ports.adapter import AdapterError
from nhc_adapters.kubernetes.api.client import Client
from nhc_adapters.kubernetes.api.outage import Outages
from nhc_adapters.kubernetes.api.rights import ClusterRight, denied, of_lease
from nhc_adapters.kubernetes.controller.maintenance_requests import GROUP as GROUP_OF_REQUESTS
from nhc_adapters.kubernetes.controller.maintenance_requests import RESOURCE as RESOURCE_OF_REQUESTS
from nhc_adapters.kubernetes.controller.settings import ControllerSettings

RESOURCE = "resource.k8s.io"
EVENTS = "default"
"""The namespace of events about nodes, which have none themselves."""

AGAIN, SOON = 300.0, 10.0
"""Seconds between two askings: while all is granted, and while something is missing."""


def of_controller(settings: ControllerSettings) -> List[ClusterRight]:
    """What the controller needs under these settings."""
    own = settings.namespace
    rights = [
        *(ClusterRight(verb, "nodes", purpose="to follow the nodes") for verb in ("get", "list", "watch")),
        *of_lease(own, settings.object_name("controller"), "this controller"),
        ClusterRight("patch", "nodes", purpose="to mark and clear nodes", acting=True),
        ClusterRight("patch", "nodes/status", purpose="to say that a node's agent is silent", acting=True),
        ClusterRight("create", "events", "", EVENTS, purpose="to tell what was done", acting=True),
        ClusterRight("patch", "events", "", EVENTS, purpose="to count what was done again", acting=True),
    ]
    if "nvsentinel" in settings.maintenance:
        purpose = "to read who asks for maintenance (maintenance)"
        rights.append(ClusterRight("list", RESOURCE_OF_REQUESTS, GROUP_OF_REQUESTS, purpose=purpose))
    if settings.devices.on:
        rights += _devices()
    policy = settings.policy
    kept = {settings.object_name("ledger"): "to remember rates and repairs"} if policy.rates or policy.repairs else {}
    if settings.loki.url:
        kept[settings.object_name("cursors")] = "to remember how far Loki was read"
    if kept:
        rights.append(ClusterRight("create", "configmaps", "", own, purpose=", ".join(kept.values()), acting=True))
    for name, purpose in kept.items():
        rights += [ClusterRight(verb, "configmaps", "", own, name, purpose, True) for verb in ("get", "patch")]
    drains = settings.treatment.drain or settings.maintenance
    if drains or policy.repairs or settings.podlogs.namespaces or settings.preflight.on or settings.slurm:
        rights.append(ClusterRight("list", "pods", purpose="to see what runs on a node"))
    if drains or settings.preflight.on:
        purpose = "to drain nodes" if drains else "to move on pods whose preflight failed"
        rights.append(ClusterRight("create", "pods/eviction", purpose=purpose, acting=True))
    if settings.rules.requests:
        asks = "to ask for evictions ([drain-rules] eviction-requests)"
        rights += [ClusterRight(verb, "evictionrequests", "lifecycle.k8s.io", purpose=asks, acting=True)
                   for verb in ("create", "get", "delete")]  # fmt: skip
    for namespace in settings.podlogs.namespaces:
        rights.append(ClusterRight("get", "pods/log", "", namespace, purpose="[podlogs] namespaces"))
    return rights


def _devices() -> Tuple[ClusterRight, ...]:
    slices, rules = "to know the devices of DRA drivers ([devices] keep)", "to take a device out ([devices] keep)"
    return (
        *(ClusterRight(verb, "resourceslices", RESOURCE, purpose=slices) for verb in ("get", "list", "watch")),
        *(ClusterRight(verb, "devicetaintrules", RESOURCE, purpose=rules) for verb in ("get", "list", "watch")),
        *(ClusterRight(verb, "devicetaintrules", RESOURCE, purpose=rules, acting=True)
          for verb in ("create", "patch", "delete")),
    )  # fmt: skip


def of_agent() -> List[ClusterRight]:
    """What an agent needs: to say how its own node is."""
    return [
        ClusterRight("get", "nodes", purpose="to see what its node's conditions say"),
        ClusterRight("patch", "nodes/status", purpose="to write its node's conditions"),
        ClusterRight("create", "events", "", EVENTS, purpose="to tell what happened"),
        ClusterRight("patch", "events", "", EVENTS, purpose="to count what happens again"),
    ]


class RightsWatch:
    """Checks rights at the start and periodically; logs each missing one once, and when it is granted."""

    def __init__(
        self, client: Client, settings: ControllerSettings, outages: Outages, log: Callable[[str], None]
    ) -> None:
        self.client, self.outages, self.log = client, outages, log
        self.rights = of_controller(settings)
        self.apply = settings.apply
        self.asked = threading.Event()
        """Whether the API server has answered once."""
        self.missing: List[ClusterRight] = []
        self.soon = SOON

    def blocking(self) -> List[ClusterRight]:
        """The missing rights without which the controller cannot do what its settings ask for."""
        return [right for right in self.missing if self.apply or not right.acting]

    def run(self, stop: threading.Event) -> None:
        """Until `stop` is set. For a thread of its own."""
        while not stop.is_set():
            self.look()
            stop.wait(AGAIN if self.asked.is_set() and not self.missing else self.soon)

    def look(self) -> None:
        try:
            missing = denied(self.client, self.rights)
        except AdapterError as error:
            self.outages.failed("asking for rights", error)
            return
        self.outages.works("asking for rights")
        for right in missing:
            if right not in self.missing:
                later = "" if self.apply or not right.acting else " [once apply = true]"
                self.log(problem(f"{right.missing()}{later}"))
        for right in self.missing:
            if right not in missing:
                self.log(f"right granted: {right}")
        self.missing = missing
        self.asked.set()
