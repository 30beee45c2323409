"""A local copy of a collection that follows the server: list once, then watch, and list again when it asks for that.

Objects are trimmed before they are stored, so that memory is bounded. A watch that breaks continues from the same
version. A version that the server no longer has (410) means a new list; objects that are missing from it are reported
as deleted.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Dict, Mapping, Optional

from nhc.marks.ports.adapter import AdapterError
from nhc_adapters.kubernetes.api.client import WATCH_IDLE, Client, JsonObject
from nhc_adapters.kubernetes.api.errors import Gone, Unreachable

FRESH = 90.0
"""Seconds without an answer of the server after which a copy may be old: its bookmarks come each minute."""

Trim = Callable[[Mapping[str, Any]], JsonObject]
Changed = Callable[[str, Optional[JsonObject]], None]


class Reflector:
    """Follows one collection. `changed` gets every object that is new or different, None for one that is gone.

    It is called from the thread that runs `run`, and from callers of `put`.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        changed: Changed,
        *,
        trim: Trim = dict,
        idle: float = WATCH_IDLE,
        retry: float = 1.0,
        monotonic: Callable[[], float] = time.monotonic,
        selector: str = "",
        report: Callable[[str], None] = lambda cause: None,
    ) -> None:
        """`report` is called with why following fails, and "" when it works again."""
        self.client, self.path, self._report = client, path, report
        self.query = {"labelSelector": selector} if selector else {}
        self.objects: Dict[str, JsonObject] = {}
        self.synced = threading.Event()
        self.lists = 0
        """How often the whole collection was read."""
        self.error = ""
        """Why following fails, "" while it works."""
        self.last_answer = self._resumed = float("-inf")
        """When the server last said anything, on the monotonic clock."""
        self.gap = FRESH
        """Seconds without an answer after which reports may be missing because no one could send them."""
        self._changed, self._trim = changed, trim
        self._idle, self._retry, self._clock = idle, retry, monotonic
        self._lock = threading.RLock()
        self._version = ""

    @property
    def current(self) -> bool:
        """Whether `objects` is as the server had it a moment ago."""
        return self.synced.is_set() and not self.error and self._clock() - self.last_answer < FRESH

    def followed_for(self) -> float:
        """Seconds since the last gap in which the collection was not followed; infinity where there was none."""
        return self._clock() - self._resumed if self.current else 0.0

    def move(self, path: str) -> None:
        """The collection is served under another path from now on; after a failure it is listed there."""
        self.path = path

    def run(self, stop: threading.Event) -> None:
        """Follow until `stop` is set. For a thread of its own."""
        failures = 0
        while not stop.is_set():
            try:
                if not self._version:
                    self._list()
                self._watch(stop)
                failures = 0
                continue
            except Gone:
                self._version = ""  # one that says so of every fresh list is not asked for it without a pause
            except Unreachable as error:
                self.error = str(error)
                if self._clock() - self.last_answer < self._idle:
                    failures = 0  # it was alive a moment ago: a broken connection, not a dead server
            except AdapterError as error:
                self.error = str(error)
                self._version = ""
            failures += 1
            if failures > 1 and self.error:  # a connection that breaks is no outage: a server ends watches now and then
                self._report(self.error)
            stop.wait(0.0 if failures == 1 else min(self._retry * 2 ** (failures - 2), 30.0))

    def put(self, item: Mapping[str, object]) -> None:
        """Take in an object that a write of ours returned, unless a newer one is here already, or it is gone."""
        with self._lock:
            if _key(item) in self.objects:
                self._keep(item)

    def _list(self) -> None:
        listed: Dict[str, JsonObject] = {}
        version = ""
        for page in self.client.pages(self.path, **self.query):
            version = str(page.get("metadata", {}).get("resourceVersion", ""))
            for item in page.get("items") or ():
                listed[_key(item)] = self._trim(item)
        self.lists += 1
        with self._lock:
            for key in [key for key in self.objects if key not in listed]:
                del self.objects[key]
                self._changed(key, None)
            for key, item in listed.items():
                if _version(self.objects.get(key)) != _version(item):
                    self.objects[key] = item
                    self._changed(key, item)
        self._version = version
        self._alive()
        self.synced.set()

    def _watch(self, stop: threading.Event) -> None:
        for event in self.client.watch(self.path, self._version, idle=self._idle, **self.query):
            self._alive()
            if event.kind != "BOOKMARK":
                if event.kind == "DELETED":
                    with self._lock:
                        if self.objects.pop(_key(event.object), None) is not None:
                            self._changed(_key(event.object), None)
                else:
                    self._keep(event.object)
            self._version = str(event.object.get("metadata", {}).get("resourceVersion") or self._version)
            if stop.is_set():
                return
        self._alive()

    def _keep(self, item: Mapping[str, Any]) -> None:
        key = _key(item)
        with self._lock:
            standing = self.objects.get(key)
            # Versions are numbers that grow, by the API's promise since 1.35 (KEP-5504) and in fact ever since.
            if standing is not None and _number(standing) >= _number(item):
                return
            kept = self._trim(item)
            self.objects[key] = kept
            self._changed(key, kept)

    def _alive(self) -> None:
        now = self._clock()
        if self.gap < now - self.last_answer < float("inf"):
            self._resumed = now
        self.last_answer = now
        self.error = ""
        self._report("")


def _key(item: Mapping[str, Any]) -> str:
    metadata = item.get("metadata", {})
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata.get('name')}" if namespace else str(metadata.get("name"))


def _version(item: Optional[Mapping[str, Any]]) -> str:
    return "" if item is None else str(item.get("metadata", {}).get("resourceVersion", ""))


def _number(item: Mapping[str, object]) -> int:
    try:
        return int(_version(item))
    except ValueError:
        return 0
