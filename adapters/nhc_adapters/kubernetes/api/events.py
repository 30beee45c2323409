"""Events on a node, aggregated: a thousand equal findings are one object with a count, not a thousand objects.

The rules are client-go's (tools/record/events_cache.go): the same event again within ten minutes raises the count of
the first; more than ten that differ only in their text are counted under one "(combined from similar events)"; and one
source may send a burst of at most 25 about one object, then one in five minutes. Events that cannot be sent are kept,
newest last, up to a limit.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any, Callable, Deque, Dict, Optional, Tuple

from nhc.core.model import printable
from nhc.core.timestamps import utc
from nhc.marks.ports.adapter import AdapterError
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, Client, namespaced
from nhc_adapters.kubernetes.api.errors import ApiError

WARNING, NORMAL = "Warning", "Normal"

SAME_WITHIN = 600.0
SIMILAR_LIMIT = 10
BURST = 25
REFILL = 1 / 300.0
REMEMBERED = 4096
QUEUE = 256
MESSAGE_LIMIT = 1000

Key = Tuple[str, ...]


@dataclass
class _Seen:
    name: str
    count: int
    last: float


@dataclass
class _Similar:
    last: float
    messages: set[str] = field(default_factory=set)


@dataclass
class _Bucket:
    left: float
    at: float


@dataclass
class EventRecorder:
    """Sends events about nodes. `component` is their source, as `kubectl describe node` shows it."""

    client: Client
    component: str = "nhc"
    namespace: str = "default"
    host: str = ""
    clock: Callable[[], float] = time.time
    queue: int = QUEUE
    dropped: int = 0
    """Events that were lost to a flood or a long outage."""
    refused: str = ""
    """Why the server takes no events from us, "" while it does."""
    _seen: OrderedDict[Key, _Seen] = field(default_factory=OrderedDict)
    _similar: OrderedDict[Key, _Similar] = field(default_factory=OrderedDict)
    _buckets: OrderedDict[str, _Bucket] = field(default_factory=OrderedDict)
    _queue: Deque[Tuple[Key, str, str, str, float]] = field(default_factory=deque)

    def say(self, kind: str, node: str, reason: str, message: str, uid: str = "") -> None:
        """Queue one event about a node; `flush` sends. Never raises."""
        now = self.clock()
        message = printable(message, MESSAGE_LIMIT)
        key, message = self._aggregate(kind, node, reason, message, now)
        if key not in self._seen and not self._allowed(node, now):
            self.dropped += 1
            return
        if len(self._queue) >= self.queue:
            self._drop_first()
        # The name is chosen now: where a create is sent again after a broken connection, the answer is "exists".
        name = f"{node[:200]}.{int(now * 1e6):x}{os.urandom(3).hex()}"
        self._queue.append((key, name, message, uid, now))

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def _drop_first(self) -> None:
        self._queue.popleft()
        self.dropped += 1

    def flush(self, limit: int = QUEUE) -> int:
        """Send what is queued, at most so many. Returns how many; raises AdapterError with the rest still queued."""
        sent = 0
        while self._queue and sent < limit:
            self._send(*self._queue[0])
            self.refused = ""
            self._queue.popleft()
            sent += 1
        return sent

    def flush_quietly(self, warn: Optional[Callable[[str], None]] = None, limit: int = QUEUE) -> None:
        """Send what is queued, at most so many; what the server refuses outright is dropped with a warning."""
        while self._queue:
            try:
                self.flush(limit)
                return
            except ApiError as error:
                if error.status not in (400, 403, 404, 422):
                    return
                self._drop_first()
                known, self.refused = self.refused, str(error) if error.status == 403 else ""
                if warn is not None and (not known or known != self.refused):
                    warn(f"event refused: {error}")
            except AdapterError:
                return

    def _aggregate(self, kind: str, node: str, reason: str, message: str, now: float) -> Tuple[Key, str]:
        group = (kind, node, reason)
        similar = self._similar.get(group)
        if similar is None or now - similar.last > SAME_WITHIN:
            similar = _bounded(self._similar, group, _Similar(now))
        similar.last = now
        if message not in similar.messages:
            if len(similar.messages) >= SIMILAR_LIMIT:
                return (*group, ""), f"(combined from similar events): {message}"
            similar.messages.add(message)
        return (*group, message), message

    def _allowed(self, node: str, now: float) -> bool:
        bucket = self._buckets.get(node)
        if bucket is None:
            bucket = _bounded(self._buckets, node, _Bucket(BURST, now))
        bucket.left = min(BURST, bucket.left + max(0.0, now - bucket.at) * REFILL)
        bucket.at = now
        if bucket.left < 1:
            return False
        bucket.left -= 1
        return True

    def _send(self, key: Key, name: str, message: str, uid: str, when: float) -> None:
        seen = self._seen.get(key)
        if seen is not None and when - seen.last <= SAME_WITHIN:
            change = {"count": seen.count + 1, "lastTimestamp": utc(when), "message": message}
            try:
                self.client.patch(namespaced(self.namespace, "events", seen.name), change, MERGE_PATCH)
            except ApiError as error:
                if error.status != 404:  # expired on the server: begin a new one
                    raise
            else:
                seen.count += 1
                seen.last = when
                return
        try:
            self.client.post(namespaced(self.namespace, "events"), self._manifest(key, name, message, uid, when))
        except ApiError as error:
            if error.status != 409:
                raise
        _bounded(self._seen, key, _Seen(name, 1, when))

    def _manifest(self, key: Key, name: str, message: str, uid: str, when: float) -> Dict[str, Any]:
        kind, node, reason, _text = key
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": self.namespace},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid or node},
            "type": kind,
            "reason": reason,
            "message": message,
            "source": {"component": self.component, **({"host": self.host} if self.host else {})},
            "reportingComponent": self.component,
            "reportingInstance": self.host,
            "firstTimestamp": utc(when),
            "lastTimestamp": utc(when),
            "count": 1,
        }


def _bounded(kept: OrderedDict[Any, Any], key: object, value: object) -> Any:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > REMEMBERED:
        kept.popitem(last=False)
    return value
