"""The controller's reader of Loki: asks, turns lines into conditions, and remembers how far the log was read.

The place reached is kept in a ConfigMap, so that a restart or a new leader goes on where the last one ended. It is
written only after the conditions were, so a line whose condition is not written yet is read again.
"""

from __future__ import annotations

import json
import threading
from typing import Callable, Dict, Iterable, Mapping

from nhc.core.json_values import object_from, whole_of
from nhc.marks.ports.adapter import AdapterError
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, Client, namespaced
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.api.outage import Outages
from nhc_adapters.kubernetes.controller.context import RoundContext
from nhc_adapters.kubernetes.controller.kernlogs import KernelLogs
from nhc_adapters.kubernetes.controller.loki import SECOND, Loki
from nhc_adapters.kubernetes.nodes.conditions import Condition

KEY = "loki"

OLDEST = 7 * 86400 * SECOND
"""Nanoseconds after which a cursor is too old: a Loki may have forgotten what came then."""

WRITE_EVERY = 60.0
"""Seconds between two writings of a cursor that only time has moved."""

Say = Callable[[Mapping[str, Condition]], Iterable[str]]
"""Writes conditions, and returns the nodes whose could not be written."""


class Cursor:
    """A place in a log, in a ConfigMap of our own."""

    def __init__(self, client: Client, namespace: str, name: str, query: str) -> None:
        self.client, self.namespace, self.name, self.query = client, namespace, name, query

    def load(self) -> int:
        """The place, 0 where none is known for this query. Raises AdapterError."""
        item = self.client.find(namespaced(self.namespace, "configmaps", self.name)) or {}
        value = object_from((item.get("data") or {}).get(KEY, ""))
        return (whole_of(value.get("since")) or 0) if value.get("query") == self.query else 0

    def save(self, since: int) -> None:
        """Raises AdapterError."""
        data = {"data": {KEY: json.dumps({"query": self.query, "since": since})}}
        try:
            self.client.patch(namespaced(self.namespace, "configmaps", self.name), data, MERGE_PATCH)
        except ApiError as error:
            if error.status != 404:
                raise
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": self.name}, **data}
            self.client.post(namespaced(self.namespace, "configmaps"), body)


class LokiWatch:
    """Looks at Loki while we may act. `say` writes conditions.

    In a dry run the place reached is not written down, since no condition was.
    """

    def __init__(self, context: RoundContext, say: Say, logs: KernelLogs) -> None:
        settings = context.settings
        self.context, self.say, self.logs = context, say, logs
        self.loki = Loki(settings.loki, clock=context.clock)
        self.cursor = Cursor(context.client, settings.namespace, settings.object_name("cursors"), settings.loki.query)
        self.outages = Outages(context.log, "Loki")
        self._unwritten: Dict[str, Condition] = {}
        self._leading = False
        self._saved = 0.0
        self._aside_reported = False

    def run(self, stop: threading.Event) -> None:
        """Until `stop` is set. For a thread of its own."""
        while not stop.wait(self.loki.asked.every):
            if not self.context.allowed():
                self._leading = False
                continue
            if self._leading or self._resume():
                self.look()

    def behind(self) -> float:
        """Seconds of the log that are not read yet; 0 where we do not read it."""
        return max(0.0, self.context.clock() - self.loki.since / 1e9) if self._leading and self.loki.since else 0.0

    def look(self) -> None:
        """One look: new lines into conditions, and the place reached written down."""
        try:
            lines = self.loki.look()
        except AdapterError as error:
            self.outages.failed("reading Loki", error)
            lines = []
        else:
            self.outages.works("reading Loki")
        self._tell_set_aside()
        conditions = {**self._unwritten, **self.logs.take(lines, self.context.clock())}
        failed = set(self.say(conditions)) if conditions else set()
        self._unwritten = {name: condition for name, condition in conditions.items() if name in failed}
        due = bool(lines) or self.context.clock() - self._saved >= WRITE_EVERY
        if self.context.settings.apply and not self._unwritten and due:
            self._save()

    def _resume(self) -> bool:
        """Begin where the last leader ended. Whether that is known."""
        try:
            since = self.cursor.load()
        except AdapterError as error:
            if not isinstance(error, ApiError) or error.status != 403:
                self.outages.failed("reading how far Loki was read", error)
                return False
            since = 0  # the missing right is reported with all others
        self.outages.works("reading how far Loki was read")
        now = int(self.context.clock() * SECOND)
        self.loki.go_on_from(min(max(since, now - OLDEST), now) if since else 0)
        self._leading = True
        return True

    def _save(self) -> None:
        try:
            self.cursor.save(self.loki.since)
        except AdapterError as error:
            self.outages.failed("writing how far Loki was read", error)
        else:
            self.outages.works("writing how far Loki was read")
            self._saved = self.context.clock()

    def _tell_set_aside(self) -> None:
        if not self.loki.aside or self._aside_reported:
            return
        self._aside_reported = True
        label = self.loki.asked.node_label
        labels = ", ".join(self.loki.labels) or "none"
        self.context.log(
            f"Loki: {self.loki.aside} lines set aside: their streams have no label {label!r} that names "
            f"the node (they have: {labels}); set node-label under [loki]"
        )
