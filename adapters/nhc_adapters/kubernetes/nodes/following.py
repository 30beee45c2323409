"""All nodes of a cluster for a process that needs them every round: listed once, then watched.

A node's object is 20 kB, most of it images and managed fields: without these, and compressed, it takes one or two.
"""

from __future__ import annotations

import json
import threading
import time
import zlib
from typing import Any, Callable, Dict, List, Mapping, Optional

from nhc_adapters.kubernetes.api.client import Client
from nhc_adapters.kubernetes.api.reflector import Reflector

NODES = "/api/v1/nodes"
SYNC = 60.0
"""Seconds in which the first list is awaited."""
AGAIN = 600.0
"""Seconds after which following is tried again where it failed: the right to watch may be missing."""


class Following:
    """Whether a process uses a watch for what it needs each round: from its second request on, and again some time
    after a watch has failed.
    """

    def __init__(self, thread: str) -> None:
        self._thread = thread
        self._stop = threading.Event()
        self._stop.set()
        self._began = float("-inf")
        self._asked = False

    def due(self) -> bool:
        """Asked at each question: whether to begin now."""
        asked, self._asked = self._asked, True
        return asked and not self.goes_on and time.monotonic() - self._began > AGAIN

    def begin(self, run: Callable[[threading.Event], None], settled: threading.Event) -> None:
        """Follow in a thread. Returns once it is settled what there is, or that it has failed."""
        self._stop, self._began = threading.Event(), time.monotonic()
        threading.Thread(target=run, args=(self._stop,), name=self._thread, daemon=True).start()
        while self.goes_on and not settled.is_set() and time.monotonic() - self._began < SYNC:
            self._stop.wait(0.02)

    @property
    def goes_on(self) -> bool:
        return not self._stop.is_set()

    def failed(self, cause: str) -> None:
        """What the watch reports: "" if it works."""
        if cause:
            self._stop.set()

    def close(self) -> None:
        """Follow no longer."""
        self._stop.set()


class FollowedNodes:
    """The nodes are listed the first time, for a command that asks once. After that a watch follows them."""

    def __init__(self, client: Client, selector: str = "") -> None:
        self._client, self._selector = client, selector
        self._query = {"labelSelector": selector} if selector else {}
        self._watch = Following("nhc-kubernetes-nodes")
        self._reflector = self._new()

    def _new(self) -> Reflector:
        return Reflector(
            self._client, NODES, lambda _name, _node: None, trim=_packed, selector=self._selector,
            report=self._watch.failed,
        )  # fmt: skip

    def packed(self) -> Optional[Dict[str, Mapping[str, Any]]]:
        """The nodes in the watch's copy, by name: a changed node is a new object.

        None if the watch may not be up to date: then they must be listed.
        """
        if self._watch.due():
            self._reflector = self._new()
            self._watch.begin(self._reflector.run, self._reflector.synced)
        return dict(self._reflector.objects) if self._reflector.current and self._watch.goes_on else None

    def listed(self) -> List[Dict[str, Any]]:
        """The node objects, read again. Raises AdapterError."""
        return list(self._client.items(NODES, **self._query))

    def put(self, node: Mapping[str, object]) -> None:
        """Take in what a write of ours returned: the watch may bring it a moment later."""
        self._reflector.put(node)

    def close(self) -> None:
        """Follow no longer."""
        self._watch.close()


def _packed(node: Mapping[str, Any]) -> Dict[str, Any]:
    metadata, status = node.get("metadata", {}), node.get("status", {})
    kept = {
        **node,
        "metadata": {name: value for name, value in metadata.items() if name != "managedFields"},
        "status": {name: value for name, value in status.items() if name != "images"},
    }
    named = {name: metadata.get(name) for name in ("name", "resourceVersion")}
    return {"metadata": named, "packed": zlib.compress(json.dumps(kept, separators=(",", ":")).encode(), 1)}


def unpacked(kept: Mapping[str, Any]) -> Dict[str, Any]:
    """The node object, without its images and managed fields."""
    node: Dict[str, Any] = json.loads(zlib.decompress(kept["packed"]))
    return node
