"""Maintenance that others request with NVSentinel's MaintenanceRequest, if the cluster has that kind.

The object is the request, and its deletion is the end: `spec.healthEvent` gives the node, the reason and the requester,
`spec.startTime` the start (NVSentinel's docs/configuration/lifecycle-manager.md, v1.31; its kind is generated from
health_event.proto). nhc only reads it: its finalizer and its status belong to its own controller, if that runs. That
controller lets a node have one request at a time; of several the earliest counts here.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Optional

from nhc.core.json_values import text_of
from nhc.core.model import printable
from nhc.core.system.service_log import problem
from nhc.core.timestamps import from_utc
from nhc.marks.ports.adapter import AdapterError
from nhc_adapters.kubernetes.api.client import Client
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.api.objects import get, name_of
from nhc_adapters.kubernetes.nodes.maintenance import Maintenance

GROUP, RESOURCE = "nvsentinel.dgxc.nvidia.com", "maintenancerequests"
PATH = f"/apis/{GROUP}/v1/{RESOURCE}"

EVERY, ABSENT_EVERY = 10.0, 300.0
"""Seconds between two lists, and while there is no such kind."""


def read_request(item: Mapping[str, Any]) -> Optional[tuple[str, Maintenance]]:
    """The node and the maintenance of a request; None for one that is being deleted or names no node. Pure."""
    event = get(item, "spec", "healthEvent")
    node = text_of(get(event, "nodeName"))
    if not node or get(event, "isHealthy") is True or get(item, "metadata", "deletionTimestamp"):
        return None
    why = text_of(get(event, "message")) or text_of(get(event, "checkName")) or "maintenance"
    by = text_of(get(event, "agent")) or "another"
    start = from_utc(get(item, "spec", "startTime"))
    return node, Maintenance(
        printable(why, 300), printable(f"{by}, MaintenanceRequest {name_of(item)}", 160), None, start
    )


class MaintenanceRequests:
    """The requests as read last. `changed` is called for each node whose request came, went or changed."""

    def __init__(self, client: Client, changed: Callable[[str], None], log: Callable[[str], None]) -> None:
        self.client, self.changed, self.log = client, changed, log
        self.known = False
        """Whether they were read at least once: before that, no request counts as ended."""
        self.absent = False
        self._wanted: Dict[str, Maintenance] = {}
        self._problem = ""

    def of(self, node: str) -> Optional[Maintenance]:
        """The request for a node."""
        return self._wanted.get(node)

    def look(self) -> float:
        """Read them; the seconds after which to look again. What cannot be read stays as it was, and is said once."""
        found: Dict[str, Maintenance] = {}
        trouble = ""
        try:
            for item in self.client.items(PATH):
                asked = read_request(item)
                if asked is not None and (asked[0] not in found or asked[1].start < found[asked[0]].start):
                    found[asked[0]] = asked[1]
        except ApiError as error:
            if error.status != 404:
                trouble = str(error)
            elif not self.absent:
                self.log(f"this cluster has no {RESOURCE}.{GROUP}: nobody asks for maintenance by them")
            self.absent = error.status == 404
        except AdapterError as error:
            trouble = str(error)
        else:
            self.absent = False
        if trouble != self._problem:
            self.log(problem(f"{RESOURCE}: {trouble}") if trouble else f"{RESOURCE}: read again")
        self._problem = trouble
        if trouble:
            return EVERY
        before, self._wanted, first = self._wanted, found, not self.known
        self.known = True
        for node in {*before, *found} if not first else found:
            if before.get(node) != found.get(node):
                self.changed(node)
        return ABSENT_EVERY if self.absent else EVERY
