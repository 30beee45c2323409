"""Node conditions: a node's own status, written so that nobody else's condition is touched.

A strategic merge patch of `nodes/status` merges the list of conditions by their `type`, so a patch that holds
only ours leaves the kubelet's, node-problem-detector's and everybody's alone, whatever they write meanwhile.
Changes go out at once, a heartbeat with everything every five minutes (node-problem-detector's rhythm). The
conditions that stand on the node when we start are taken over: a restart neither clears a fault nor makes it
look new.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple

from nhc.core.model import printable
from nhc.core.timestamps import from_utc, utc
from nhc_adapters.kubernetes.api.client import STRATEGIC, Client, node_path

HEARTBEAT = 300.0
"""Seconds between two writings of conditions that did not change."""

MESSAGE_LIMIT = 1024
"""Characters of a message. The API sets no limit; events stop at 1024 bytes, and so do we."""

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"

JOB_ERROR = "NhcJobDeviceError"
"""A device error in the log of a pod that failed on the node: the controller writes it, from pod logs."""

KERNEL_LOG = "NhcKernelLogFault"
"""A fatal line of the node's kernel: the controller writes it, from Loki."""

ALLOCATABLE = "NhcAllocatableProblem"
"""Fewer accelerators can be given out than should be: the controller writes it, from the node's status."""

CLUSTER_SIDE = (JOB_ERROR, KERNEL_LOG, ALLOCATABLE)
"""The conditions that the controller itself sets. It writes each once, when it changes."""


@dataclass(frozen=True)
class Condition:
    """One node condition. `since` and `seen` are Unix times: of the last change of status, and of the last heartbeat.

    `renewed` is false for one without a heartbeat, which its writer writes once. `findings` are what a condition of the
    controller's own stands on, each a place and a time (Unix); they are kept beside it (`acknowledged`).
    """

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: float = 0.0
    seen: float = 0.0
    renewed: bool = True
    findings: Tuple[Tuple[str, float], ...] = ()

    def says_the_same(self, other: Optional[Condition]) -> bool:
        """Whether the two differ in nothing but times."""
        return other is not None and (self.status, self.reason, self.message) == (
            other.status,
            other.reason,
            other.message,
        )

    def manifest(self) -> Dict[str, str]:
        return {
            "type": self.type,
            "status": self.status,
            "reason": self.reason,
            "message": printable(self.message, MESSAGE_LIMIT),
            "lastTransitionTime": utc(self.since),
            "lastHeartbeatTime": utc(self.seen),
        }


Turn = Tuple[Optional[Condition], Condition]


def read_conditions(node: Mapping[str, object]) -> Dict[str, Condition]:
    """The conditions on a node object, by type; entries that are not understood are left out."""
    conditions: Dict[str, Condition] = {}
    status = node.get("status")
    for entry in (status.get("conditions") if isinstance(status, dict) else None) or ():
        if not isinstance(entry, dict) or not entry.get("type"):
            continue
        since = from_utc(entry.get("lastTransitionTime"))
        conditions[str(entry["type"])] = Condition(
            str(entry["type"]),
            str(entry.get("status", UNKNOWN)),
            str(entry.get("reason") or ""),
            str(entry.get("message") or ""),
            since,
            from_utc(entry.get("lastHeartbeatTime"), since),
            bool(entry.get("lastHeartbeatTime")),
        )
    return conditions


def write_conditions(client: Client, node: str, conditions: Iterable[Condition], version: str = "") -> Dict[str, Any]:
    """Set these conditions on a node and leave all others. Returns the node as it is then. Raises AdapterError.

    `version` is the node's resourceVersion that they were judged from: a node that has changed since is refused (409).
    """
    body: Dict[str, Any] = {"status": {"conditions": [condition.manifest() for condition in conditions]}}
    if version:
        body["metadata"] = {"resourceVersion": version}
    return client.patch(f"{node_path(node)}/status", body, STRATEGIC, fieldManager="nhc")


@dataclass
class NodeConditions:
    """The conditions that one agent keeps on one node.

    `say` takes the conditions as they are now, as often as wanted; `flush` writes when something changed or the
    heartbeat is due. After a failure, the next flush writes the conditions of that time.
    """

    client: Client
    node: str
    heartbeat: float = HEARTBEAT
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    uid: str = ""
    _wanted: Dict[str, Condition] = field(default_factory=dict)
    _written: Dict[str, Condition] = field(default_factory=dict)
    _flushed: Optional[float] = None

    def adopt(self, types: Iterable[str]) -> Dict[str, Condition]:
        """Take over the node's conditions of these types; returns them. Raises AdapterError."""
        node = self.client.get(node_path(self.node))
        self.uid = str(node.get("metadata", {}).get("uid", ""))
        wanted = set(types)
        standing = {kind: condition for kind, condition in read_conditions(node).items() if kind in wanted}
        self._written.update(standing)
        # This process knows better than its predecessor; but a status that is the same has not changed just now.
        for kind, condition in standing.items():
            newer = self._wanted.get(kind)
            if newer is None:
                self._wanted[kind] = condition
            elif newer.status == condition.status:
                self._wanted[kind] = replace(newer, since=condition.since)
        return standing

    def say(self, conditions: Iterable[Condition]) -> List[Turn]:
        """Take the conditions as they are now. Returns those whose status changed, after the one before (or None)."""
        now = self.clock()
        turned: List[Turn] = []
        for condition in conditions:
            before = self._wanted.get(condition.type)
            same = before is not None and before.status == condition.status
            since = before.since if same and before else now
            self._wanted[condition.type] = replace(condition, since=since, seen=now)
            if not same:
                turned.append((before, self._wanted[condition.type]))
        return turned

    @property
    def standing(self) -> Mapping[str, Condition]:
        """The conditions by type, as `say` took them last."""
        return self._wanted

    def changed(self) -> bool:
        """Whether a condition differs from what is written on the node."""
        return any(not condition.says_the_same(self._written.get(kind)) for kind, condition in self._wanted.items())

    def due(self) -> bool:
        """Whether `flush` would write."""
        if not self._wanted:
            return False
        return self.changed() or self._flushed is None or self.monotonic() - self._flushed >= self.heartbeat

    def flush(self) -> bool:
        """Write the conditions, if that is due. Returns whether they were written. Raises AdapterError."""
        if not self.due():
            return False
        now = self.clock()
        current = [replace(wanted, since=wanted.since or now, seen=now) for wanted in self._wanted.values()]
        node = write_conditions(self.client, self.node, current)
        self.uid = str(node.get("metadata", {}).get("uid", self.uid))  # a node may have registered anew since
        self._written.update((condition.type, condition) for condition in current)
        self._flushed = self.monotonic()
        return True
