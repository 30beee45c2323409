"""The agent's sink for Kubernetes: this node's conditions and events, from the process that watches the node.

    [sinks.kubernetes]
    vocabularies = ["nhc", "npd"]

It touches its own node's status and writes events, nothing else: cordons, taints and drains are the
controller's. In a pod, NODE_NAME (the downward API's spec.nodeName) says which node that is.
"""

from __future__ import annotations

from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from nhc.core.model import Verdict
from nhc.core.settings import declared
from nhc.marks.ports.sinks import REFUSED, Delivery, Event, Standing, sink_settings
from nhc_adapters.kubernetes.api import access
from nhc_adapters.kubernetes.api.client import Client, node_path
from nhc_adapters.kubernetes.api.events import NORMAL, WARNING
from nhc_adapters.kubernetes.nodes.conditions import HEARTBEAT, Condition, read_conditions
from nhc_adapters.kubernetes.nodes.vocabulary import Vocabulary, conditions_of
from nhc_adapters.kubernetes.nodes.vocabulary_file import load
from nhc_adapters.kubernetes.sink.reporter import Reporter

RETRIED_FOR = 3.0
"""Seconds over which one request is tried again: what is to be said may be another by then."""


@declared.settings
class KubernetesSink(NamedTuple):
    """The table [sinks.kubernetes]."""

    vocabularies: Tuple[str, ...] = declared.texts("vocabularies", ("nhc",), "docs/kubernetes.md", one=True)
    kubeconfig: str = declared.text("kubeconfig", "", "default: this pod's service account")
    context: str = declared.text("context")
    node: str = declared.text("node", "", "default: the agent's node")
    heartbeat: float = declared.seconds("heartbeat", HEARTBEAT)


def sink(settings: Mapping[str, object], node: str, log: Callable[[str], None]) -> NodeSink:
    """A sink from the table [sinks.kubernetes]. Raises ValueError or AdapterError."""
    own = sink_settings(KubernetesSink, settings, "kubernetes")
    client = Client(access.find(own.kubeconfig, own.context), retry_for=RETRIED_FOR, connections=2, agent="nhc-agent")
    return NodeSink(client, own.node or node, [load(name) for name in own.vocabularies], own.heartbeat, log)


def event_of(event: Event) -> Optional[Tuple[str, str, str]]:
    """The Event (type, reason, message) of Kubernetes that one of the agent's becomes. Pure.

    What a log tells once is one, and so is a warning that begins or ends, as of an out-of-memory kill, a hung task or a
    bad sector: no condition turns for it. A failure is reported with its condition.
    """
    reason, message = event.get("reason") or "Warning", event.get("message", "")
    if event["event"] == "log.event":
        return (NORMAL if event.get("severity") == "info" else WARNING), reason, message
    about = ": ".join(part for part in (event.get("check"), event.get("target")) if part)
    if event["event"] in ("problem.began", "problem.changed") and event.get("verdict") == Verdict.WARN.name:
        return WARNING, reason, f"{about}: {message}"
    if event["event"] == "problem.ended" and event.get("before") == Verdict.WARN.name:
        return NORMAL, reason, f"ended: {about}: {message}"
    return None


class NodeSink:
    """One node's sink, as `nhc.marks.ports.sinks.Sink`."""

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
        self._made: Set[str] = set()
        """The types that the agent's rule files have given."""

    def standing(self) -> List[Standing]:
        """The faults that this node's conditions, of our types, tell of already."""
        node = self.client.get(node_path(self.node))
        bad = {rule.type: rule.bad for rule in self.reporter.rules}
        return [
            Standing(condition.type, condition.reason, condition.message, condition.since)
            for kind, condition in read_conditions(node).items()
            if condition.status == bad.get(kind)
        ]

    def deliver(self, delivery: Delivery) -> None:
        """Hand over what is so. Its writing, and writing it again, is the reporter's."""
        self.reporter.say(self._conditions(delivery))
        made = {row["type"] for row in delivery.conditions}
        self.reporter.let_go(self._made - made)
        self._made = made
        for event in delivery.events:
            shown_event = event_of(event)
            if shown_event is not None:
                kind, reason, message = shown_event
                self.reporter.recorder.say(kind, self.node, reason, message, self.reporter.conditions.uid)
        if not self._started:
            self.reporter.start()
            self._started = True
        if delivery.events:
            self.reporter.wake()

    def problem(self) -> str:
        """What keeps the node's conditions or events from being written."""
        reporter, events = self.reporter, self.reporter.recorder.refused
        refused = reporter.refused()
        return reporter.error or (f"{REFUSED}{refused}" if refused else f"events: {events}" if events else "")

    def close(self) -> None:
        self.reporter.close()
        self.client.close()

    def _conditions(self, delivery: Delivery) -> List[Condition]:
        bad: Dict[str, str] = {rule.type: rule.bad for rule in self.reporter.rules}
        conditions = conditions_of(delivery.report, self.reporter.rules)
        if not delivery.complete:
            conditions = [condition for condition in conditions if condition.status == bad[condition.type]]
        else:
            conditions += self._ended({condition.type for condition in conditions})
        made = delivery.conditions
        return conditions + [Condition(row["type"], row["status"], row["reason"], row["message"]) for row in made]

    def _ended(self, types: Set[str]) -> List[Condition]:
        """Conditions that stand although every check has been judged and no result belongs to them any more.

        A kernel finding that has ended leaves nothing behind in the report, nor does a check that is configured no
        more.
        """
        standing = self.reporter.conditions.standing
        ended = []
        for rule in self.reporter.rules:
            known = standing.get(rule.type)
            if rule.type not in types and known is not None and known.status == rule.bad:
                ended.append(rule.good())
        return ended
