"""Node conditions: a node's own status, written so that conditions of others are never touched.

A strategic merge patch of `nodes/status` merges the list of conditions by their `type`, so a patch with only ours
leaves those of the kubelet, node-problem-detector and all others alone, even if they write at the same time. Changes go
out at once, a heartbeat with everything every five minutes (node-problem-detector's rhythm). The conditions that are on
the node when we start are taken over: a restart neither clears a fault nor makes it look new.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from nhc.core.model import printable
from nhc.core.timestamps import from_utc, utc
from nhc_adapters.kubernetes.api.client import STRATEGIC, Client, node_path
from nhc_adapters.kubernetes.api.errors import ApiError

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

PREFLIGHT_FAILED = "NhcPreflightFailed"
"""The suite before a pod found the node at fault: the controller writes it, from the pod's init container."""

KUBELET = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
"""The conditions that Kubernetes itself writes."""

CLUSTER_SIDE = (JOB_ERROR, KERNEL_LOG, PREFLIGHT_FAILED, ALLOCATABLE)
"""The conditions that the controller itself sets. It writes each once, when it changes."""


@dataclass(frozen=True)
class Condition:
    """One node condition. `since` and `seen` are Unix times: of the last change of status, and of the last heartbeat.

    `renewed` is false for one without a heartbeat, which its writer writes once. `findings` are the base of a condition
    that the controller itself sets, each a place and a time (Unix); they are stored beside it (`acknowledged`).
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

    def at(self, since: float, seen: float) -> Condition:
        """The same with other times."""
        return replace(self, since=since, seen=seen)

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


RBAC = "cannot patch resource"
"""The API server's words (403) for an account that may write no condition at all."""


def write_what_is_allowed(
    client: Client, node: str, conditions: Sequence[Condition]
) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """The same, but an admission policy may refuse some (403): the others are written. Returns the node, and the reason
    for each refused type. Raises AdapterError if all are refused.

    The server does not say which one of a patch it refuses: a refused half is halved again.
    """
    try:
        return write_conditions(client, node, conditions), {}
    except ApiError as error:
        if error.status != 403 or len(conditions) < 2 or RBAC in error.message:
            raise
        whole = error
    written: Dict[str, Any] = {}
    refused: Dict[str, str] = {}
    middle = len(conditions) // 2
    for half in (conditions[:middle], conditions[middle:]):
        try:
            taken, more = write_what_is_allowed(client, node, half)
        except ApiError as error:
            if error.status != 403:
                raise
            refused.update((condition.type, error.message) for condition in half)
        else:
            written, refused = taken, {**refused, **more}
    if not written:
        raise whole
    return written, refused


@dataclass
class NodeConditions:
    """The conditions that one agent keeps on one node.

    `say` takes the conditions as they are now, as often as wanted; `flush` writes when something changed or the
    heartbeat is due. After a failure, the next flush writes the conditions of that time. `refused` are the types that
    the server did not take (403), and why: they do not block the others, and are tried again with each heartbeat.
    """

    client: Client
    node: str
    heartbeat: float = HEARTBEAT
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    uid: str = ""
    refused: Dict[str, str] = field(default_factory=dict)
    _none_taken: float = float("-inf")
    """When the server took none, and each was tried."""
    _left: Set[str] = field(default_factory=set)
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
            self._left.discard(condition.type)
            before = self._wanted.get(condition.type)
            same = before is not None and before.status == condition.status
            since = before.since if same and before else now
            self._wanted[condition.type] = replace(condition, since=since, seen=now)
            if not same:
                turned.append((before, self._wanted[condition.type]))
        return turned

    def let_go(self, types: Iterable[str]) -> None:
        """Conditions that are no longer reported: after their last state is written, they are not renewed."""
        self._left.update(types)

    @property
    def standing(self) -> Mapping[str, Condition]:
        """The conditions by type, as `say` took them last."""
        return self._wanted

    def changed(self) -> bool:
        """Whether a condition differs from what is written on the node."""
        return any(
            not condition.says_the_same(self._written.get(kind))
            for kind, condition in self._wanted.items()
            if kind not in self.refused
        )

    def due(self) -> bool:
        """Whether `flush` would write."""
        if not self._wanted:
            return False
        return self.changed() or self._beats()

    def _beats(self) -> bool:
        return self._flushed is None or self.monotonic() - self._flushed >= self.heartbeat

    def flush(self) -> bool:
        """Write the conditions, if that is due. Returns whether they were written. Raises AdapterError."""
        if not self.due():
            return False
        now, anew = self.clock(), self._beats() or not self.refused
        current = [
            replace(wanted, since=wanted.since or now, seen=now)
            for kind, wanted in self._wanted.items()
            if anew or kind not in self.refused
        ]
        node, refused = self._write(current)
        self.uid = str(node.get("metadata", {}).get("uid", self.uid))  # a node may have registered again since
        self.refused = refused if anew else {**self.refused, **refused}
        self._written.update((condition.type, condition) for condition in current if condition.type not in refused)
        if anew:
            self._flushed = self.monotonic()
        for kind in self._left & self._written.keys():
            if self._wanted[kind].says_the_same(self._written[kind]):
                del self._wanted[kind], self._written[kind]
        self._left &= self._wanted.keys()
        return True

    def _write(self, conditions: Sequence[Condition]) -> Tuple[Dict[str, Any], Dict[str, str]]:
        if self.monotonic() - self._none_taken < self.heartbeat:  # a server that takes nothing is not asked for each
            return write_conditions(self.client, self.node, conditions), {}
        try:
            return write_what_is_allowed(self.client, self.node, conditions)
        except ApiError as error:
            if error.status == 403:
                self._none_taken = self.monotonic()
            raise
