"""The agent's sink for Kubernetes: this node's conditions and events, from the process that watches the node.

    [sinks.kubernetes]
    vocabularies = ["nhc", "npd"]

It touches its own node's status and writes events, nothing else: cordons, taints and drains are the
controller's. In a pod, NODE_NAME (the downward API's spec.nodeName) says which node that is.
"""

from __future__ import annotations

import threading
from typing import Callable, Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from nhc.core.model import Report, Verdict
from nhc.core.settings import declared
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.sinks import REFUSED, Delivery, Event, Standing, sink_settings
from nhc_adapters.kubernetes.api import access
from nhc_adapters.kubernetes.api.client import Client, node_path
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.api.events import NORMAL, WARNING, EventRecorder
from nhc_adapters.kubernetes.api.outage import Outages
from nhc_adapters.kubernetes.nodes.conditions import (
    HEARTBEAT,
    UNKNOWN,
    Condition,
    NodeConditions,
    Turn,
    read_conditions,
)
from nhc_adapters.kubernetes.nodes.vocabulary import ConditionRule, Vocabulary, conditions_of
from nhc_adapters.kubernetes.nodes.vocabulary_file import load

# A node's reporter: takes reports, and writes the node's conditions and events, through outages of the API server.
#
# For the agent, and for `nhc kubernetes publish`. `submit` takes the newest report and never waits; a thread writes
# conditions at once when they change, and as a heartbeat otherwise. During an outage only events are kept, up to a
# bound; after it the conditions of that moment are written.


WRITING = "writing this node's conditions"

RETRY = 1.0
RETRY_LIMIT = 30.0


def condition_rules(vocabularies: Iterable[Vocabulary]) -> List[ConditionRule]:
    """The conditions of several vocabularies; the first that names a type defines it."""
    rules: Dict[str, ConditionRule] = {}
    for vocabulary in vocabularies:
        for rule in vocabulary.conditions:
            rules.setdefault(rule.type, rule)
    return list(rules.values())


class Reporter:
    """Writes for one node. `start` begins a thread; `submit` queues what must be written; `close` ends it."""

    def __init__(
        self,
        client: Client,
        node: str,
        vocabularies: Sequence[Vocabulary],
        *,
        heartbeat: float = HEARTBEAT,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.client, self.node, self.log = client, node, log
        self.rules = condition_rules(vocabularies)
        self.conditions = NodeConditions(client, node, heartbeat)
        self.recorder = EventRecorder(client, "nhc-agent", host=node)
        self.error = ""
        """What keeps us from writing, "" while all is written."""
        self._outages = Outages(log)
        self._refused: FrozenSet[str] = frozenset()
        """The condition types that were said to be refused."""
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._adopted = False
        self._thread: Optional[threading.Thread] = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="nhc-reporter", daemon=True)
        self._thread.start()

    def submit(self, report: Report) -> None:
        """The newest report. Returns at once."""
        self.say(conditions_of(report, self.rules))

    def say(self, conditions: Iterable[Condition]) -> None:
        """Conditions as they are now, which somebody else made."""
        with self._lock:
            turned = self.conditions.say(conditions)
            if self._adopted:
                self._queue_events(turned)
            changed = self.conditions.changed()
        if changed:
            self._wake.set()

    def let_go(self, types: Iterable[str]) -> None:
        """Conditions that are no longer reported."""
        with self._lock:
            self.conditions.let_go(types)

    def wake(self) -> None:
        """Something else is to be sent: an event."""
        self._wake.set()

    def flush(self) -> None:
        """Write now, in the caller's thread. Raises AdapterError."""
        with self._lock:
            if not self._adopted:
                before = dict(self.conditions.standing)
                standing = self.conditions.adopt(rule.type for rule in self.rules)
                # A condition that the node had before we came is no event; one that differs from it is.
                self._queue_events((standing.get(kind), now) for kind, now in before.items())
                self._adopted = True
            self.conditions.flush()
            self._say_refused()
            self.recorder.flush_quietly(self.log)

    def refused(self) -> str:
        """Which conditions the server refuses, and why; "" if it accepts all."""
        refused = self.conditions.refused
        if not refused:
            return ""
        why = next(iter(refused.values()))
        return f"the server does not take the conditions {', '.join(sorted(refused))}: {why}"

    def _say_refused(self) -> None:
        """A line of the log where other types are refused than before."""
        types = frozenset(self.conditions.refused)
        if types != self._refused:
            self._refused = types
            self.log(self.refused() or "the server takes all conditions again")

    def close(self, wait: float = 5.0) -> None:
        """Write what is still to be written, for at most so long, and end."""
        self._stop.set()
        self._wake.set()
        self.client.stopping.set()
        if self._thread is not None:
            self._thread.join(wait)

    def _queue_events(self, turned: Iterable[Turn]) -> None:
        """An event of each condition that turned bad, and of each that has recovered."""
        bad = {rule.type: rule.bad for rule in self.rules}
        for before, now in turned:
            is_bad = now.status == bad.get(now.type)
            was_bad = before is not None and before.status == bad.get(now.type)
            if is_bad == was_bad or now.status == UNKNOWN:
                continue
            # node-problem-detector's sentence, which dashboards and people search for.
            text = f'Node condition {now.type} is now: {now.status}, reason: {now.reason}, message: "{now.message}"'
            self.recorder.say(WARNING if is_bad else NORMAL, self.node, now.reason, text, self.conditions.uid)

    def _run(self) -> None:
        wait = 0.0
        while not self._stop.is_set():
            self._wake.wait(wait if self.error else self._until_due())
            if self.error and not self._stop.is_set() and wait:
                self._stop.wait(wait)  # a change during an outage does not hurry the next try
            self._wake.clear()
            try:
                self.flush()
            except AdapterError as error:
                self._outages.failed(WRITING, error)
                self.error = f"{REFUSED}{error}" if isinstance(error, ApiError) and error.status == 403 else str(error)
                wait = min(max(RETRY, wait * 2), RETRY_LIMIT)
            else:
                self._outages.works(WRITING)
                self.error, wait = "", 0.0

    def _until_due(self) -> float:
        return 0.0 if self.conditions.due() else min(self.conditions.heartbeat, 5.0)


RETRIED_FOR = 3.0
"""Seconds for which one request is retried: after that, the content may have changed."""


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
