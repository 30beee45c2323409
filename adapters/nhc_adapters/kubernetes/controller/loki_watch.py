"""The controller's reader of Loki: asks, turns kernel lines into conditions, and remembers how far the log was read.

The position is stored in a ConfigMap, so that a restarted controller or a new leader continues there. It is written
only after the conditions, so a line whose condition is not written yet is read again.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Callable, Dict, Iterable, List, Mapping, Optional, Sequence

from nhc.core.json_values import object_from, whole_of
from nhc.core.model import Action, printable
from nhc.marks.ports.adapter import AdapterError
from nhc.node.kernlog import findings, node_context, xid
from nhc.node.kernlog.catalogue import Matcher, rows
from nhc.node.kernlog.collect import add
from nhc.node.kernlog.match import FATAL, Match
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, Client, namespaced
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.api.outage import Outages
from nhc_adapters.kubernetes.controller.acknowledged import covers
from nhc_adapters.kubernetes.controller.context import RoundContext
from nhc_adapters.kubernetes.controller.loki import SECOND, LogLine, Loki
from nhc_adapters.kubernetes.nodes.conditions import FALSE, KERNEL_LOG, TRUE, Condition

if TYPE_CHECKING:
    from nhc.node.kernlog.state_types import Finding, LogState

NODES = 20_000
"""How many nodes are remembered: those with the latest lines."""


class _NodeLog:
    def __init__(self) -> None:
        self.matcher = Matcher()
        self.state: LogState = {}
        self.reported = False


class KernelLogs:
    """The faults in the kernel logs of all nodes so far, judged as the node itself would judge them.

    Each line goes through nhc's own catalogue and findings, one memory a node, so application faults take no node out,
    harmless ones are counted, and a burst is one finding. An active finding becomes a condition of the node.
    """

    def __init__(
        self,
        acknowledged: Callable[[str], Mapping[str, float]] = lambda node: {},
        standing: Callable[[str], Mapping[str, float]] = lambda node: {},
    ) -> None:
        self.acknowledged = acknowledged
        """Up to which time each of a node's errors was acknowledged, by the key of its finding."""
        self.standing = standing
        """The findings that a node's condition already has: their keys and times."""
        self._nodes: OrderedDict[str, _NodeLog] = OrderedDict()

    def take(self, lines: Sequence[LogLine], now: float) -> Dict[str, Condition]:
        """Take in lines; the conditions that changed by them, by node."""
        touched: Dict[str, _NodeLog] = {}
        for line in lines:
            node = self._nodes.get(line.node)
            if node is None:
                node = self._nodes[line.node] = self._recalled(line.node, now)
                while len(self._nodes) > NODES:
                    self._nodes.popitem(last=False)
            self._nodes.move_to_end(line.node)
            match = node.matcher.judge(line.text)
            if match is not None:
                add(node.state, match, line.when / 1e9, now)
                touched[line.node] = node
        changed = {}
        for name, node in sorted(touched.items()):
            condition = condition_of(node.state, self.acknowledged(name), now)
            if condition.status == TRUE and dict(condition.findings) == dict(self.standing(name)):
                node.reported = True
                continue  # nothing new: what was said of it stays as it was said
            if condition.status == TRUE or node.reported:
                changed[name] = condition
            node.reported = condition.status == TRUE
        return changed

    def _recalled(self, name: str, now: float) -> _NodeLog:
        """A node by its condition: an earlier process's finding is active until a line or a person ends it."""
        node = _NodeLog()
        for key, when in self.standing(name).items():
            match = recall(key)
            if match is not None:
                add(node.state, match, when, now)
                finding = node.state.get("findings", {}).get(key)
                if finding is not None:
                    finding["severity"] = FATAL  # as it was judged, whatever else there was then
        node.reported = bool(node.state.get("findings"))
        return node


def recall(key: str) -> Optional[Match]:
    """A finding as the catalogue describes it, by its key alone; None for one that it does not have."""
    kind, _, rest = key.partition("/")
    code, _, device = rest.partition("/")
    if kind in ("xid", "sxid") and code.isdigit():
        if kind == "xid":
            return xid.read_xid(int(code), device, "", "")
        return xid.read_sxid(int(code), device, "", "Fatal", "")
    if kind == "neuron":
        return xid.read_neuron(code, "", "")._replace(device=device)
    for row in rows():
        if (row.kind, row.code) == (kind, code):
            return Match(kind, code, FATAL, Action(row.action), device, row.message)
    return None


def condition_of(state: LogState, acks: Optional[Mapping[str, float]] = None, now: Optional[float] = None) -> Condition:
    """The condition that a node's findings ask for: the fatal ones count, unless they were acknowledged.

    What only the node itself could tell (whether a volume is its own) is never fatal here.
    """
    standing = [
        (key, finding)
        for key, finding in findings.current(state, (), now)
        for finding in [node_context.apart(state, finding)]
        if finding["severity"] == FATAL and not covers(acks or {}, key, float(finding["last"]))
    ]
    fatal: List[Finding] = [finding for _key, finding in standing]
    if not fatal:
        return Condition(KERNEL_LOG, FALSE, "NoKernelLogFault", "no fault in the kernel log that stands")
    first = max(fatal, key=lambda finding: float(finding["last"]))
    more = f" (and {len(fatal) - 1} more)" if len(fatal) > 1 else ""
    device = f"{first['device']}: " if first["device"] else ""
    action = f" [action: {first['action']}]" if first["action"] != Action.NONE.value else ""
    kind = "Xid" if first["kind"] == "xid" else "SXid" if first["kind"] == "sxid" else ""
    message = printable(f"{device}{first['message']}", 600)
    return Condition(
        KERNEL_LOG,
        TRUE,
        f"{kind}{first['code']}" or "KernelLogFault",
        f"{message}{more}{action}",
        findings=tuple((key, float(finding["last"])) for key, finding in standing),
    )


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
        """The place, 0 if none is known for this query. Raises AdapterError."""
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

    In a dry run the position is not written, since no condition was.
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
        """Seconds of the log that are not read yet; 0 if we do not read it."""
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
