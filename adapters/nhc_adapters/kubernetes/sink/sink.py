"""The agent's sink for Kubernetes: this node's conditions and events, from the process that watches the node.

    [sinks.kubernetes]
    vocabularies = ["nhc", "npd"]

It touches its own node's status and writes events, nothing else: cordons, taints and drains are the
controller's. In a pod, NODE_NAME (the downward API's spec.nodeName) says which node that is.
"""

from __future__ import annotations

from typing import Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from nhc.model import Verdict
from nhc.ports.adapter import AdapterError
from nhc.ports.sinks import Delivery, Event, Standing
from nhc.settings.settings_file import SettingsError, of
from nhc_adapters.kubernetes.api import access
from nhc_adapters.kubernetes.api.client import Client, node_path
from nhc_adapters.kubernetes.api.events import NORMAL, WARNING
from nhc_adapters.kubernetes.nodes.conditions import HEARTBEAT, Condition, read_conditions
from nhc_adapters.kubernetes.nodes.vocabulary import Vocabulary, conditions_of
from nhc_adapters.kubernetes.nodes.vocabulary_file import load
from nhc_adapters.kubernetes.sink.reporter import Reporter

RETRIED_FOR = 3.0
"""Seconds over which one request is tried again: what is to be said may be another by then."""


def sink(settings: Mapping[str, object], node: str, log: Callable[[str], None]) -> NodeSink:
    """A sink from the table [sinks.kubernetes]. Raises ValueError or AdapterError."""
    table = of(settings, "sinks", "kubernetes")
    try:
        names = table.text_or_texts("vocabularies", ("nhc",))
        heartbeat = table.seconds("heartbeat", HEARTBEAT)
        kubeconfig, context, other = table.text("kubeconfig"), table.text("context"), table.text("node")
        table.finish()
    except SettingsError as error:
        raise AdapterError(str(error)) from None
    where = access.find(kubeconfig, context)
    client = Client(where, retry_for=RETRIED_FOR, connections=2, agent="nhc-agent")
    return NodeSink(client, other or node, [load(name) for name in names], heartbeat, log)


def event_of(event: Event) -> Optional[Tuple[str, str, str]]:
    """The Event (type, reason, message) of Kubernetes that one of the agent's becomes. Pure.

    What a log tells once is one, and so is a warning that begins or ends, as of an out-of-memory kill, a hung task or a
    bad sector: no condition turns for it. A failure is reported with its condition.
    """
    reason, message = event.get("reason") or "Warning", event.get("message", "")
    if event["event"] == "log.event":
        return (NORMAL if event.get("severity") == "info" else WARNING), reason, message
    about = ": ".join(word for word in (event.get("check"), event.get("target")) if word)
    if event["event"] in ("problem.began", "problem.changed") and event.get("verdict") == Verdict.WARN.name:
        return WARNING, reason, f"{about}: {message}"
    if event["event"] == "problem.ended" and event.get("before") == Verdict.WARN.name:
        return NORMAL, reason, f"ended: {about}: {message}"
    return None


class NodeSink:
    """One node's sink, as `nhc.ports.sinks.Sink`."""

    def __init__(
        self,
        client: Client,
        node: str,
        vocabularies: Sequence[Vocabulary],
        heartbeat: float = HEARTBEAT,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.client, self.node, self.log = client, node, log
        self.reporter = Reporter(client, node, vocabularies, heartbeat=heartbeat, log=log)
        self._started = False

    def standing(self) -> List[Standing]:
        """The faults that this node's conditions, of our types, tell of already."""
        node = self.client.get(node_path(self.node))
        bad = {one.type: one.bad for one in self.reporter.rules}
        return [
            Standing(found.type, found.reason, found.message, found.since)
            for kind, found in read_conditions(node).items()
            if found.status == bad.get(kind)
        ]

    def deliver(self, delivery: Delivery) -> None:
        """Hand over what is so. Its writing, and writing it again, is the reporter's."""
        self.reporter.say(self._conditions(delivery))
        for event in delivery.events:
            shown = event_of(event)
            if shown is not None:
                kind, reason, message = shown
                self.reporter.recorder.say(kind, self.node, reason, message, self.reporter.conditions.uid)
        if not self._started:
            self.reporter.start()
            self._started = True
        if delivery.events:
            self.reporter.wake()

    def problem(self) -> str:
        """What keeps the node's conditions or events from being written."""
        refused = self.reporter.recorder.refused
        return self.reporter.error or (f"events: {refused}" if refused else "")

    def close(self) -> None:
        self.reporter.close()
        self.client.close()

    def _conditions(self, delivery: Delivery) -> List[Condition]:
        bad: Dict[str, str] = {one.type: one.bad for one in self.reporter.rules}
        found = conditions_of(delivery.report, self.reporter.rules)
        if not delivery.complete:
            found = [one for one in found if one.status == bad[one.type]]
        else:
            found += self._ended({one.type for one in found})
        return found + [
            Condition(one["type"], one["status"], one["reason"], one["message"]) for one in delivery.conditions
        ]

    def _ended(self, shown: Set[str]) -> List[Condition]:
        """Conditions that stand although every check has been judged and no result belongs to them any more.

        A kernel finding that has ended leaves nothing behind in the report, nor does a check that is configured no
        more.
        """
        standing = self.reporter.conditions.standing
        ended = []
        for one in self.reporter.rules:
            known = standing.get(one.type)
            if one.type not in shown and known is not None and known.status == one.bad:
                ended.append(one.good())
        return ended
