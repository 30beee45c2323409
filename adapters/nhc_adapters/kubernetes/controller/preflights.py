"""Results of preflights (`preflight.webhook`): the nodes on which they failed, and the pods to be moved to other nodes.

A failed suite leaves its fault in its container's termination message. The node gets the condition
`NhcPreflightFailed`, which takes it out like any other. The kubelet would restart the pod on the same node for ever, so
it is evicted once the node is out: its controller makes another, which the scheduler puts elsewhere. The pod has never
run, so no budget protects it.

If a suite fails on many nodes at once, it is the suite that is at fault, or its image, and no node is blamed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Sequence, Set

from nhc.core.json_values import objects_of
from nhc.core.model import Report, printable
from nhc.core.system.service_log import failure, problem
from nhc.core.timestamps import from_utc
from nhc.marks.ports.adapter import AdapterError
from nhc_adapters.kubernetes.api.client import Client
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.api.objects import controller_of, get
from nhc_adapters.kubernetes.controller.acknowledged import covers
from nhc_adapters.kubernetes.nodes.conditions import MESSAGE_LIMIT, PREFLIGHT_FAILED, TRUE, Condition
from nhc_adapters.kubernetes.nodes.drain import eviction_of
from nhc_adapters.kubernetes.nodes.pods import pod_name
from nhc_adapters.kubernetes.nodes.vocabulary import ConditionRule, conditions_of
from nhc_adapters.kubernetes.preflight.webhook import CONTAINER, PREFLIGHT, PreflightSettings, altered

BAD = 1
"""The exit status of a preflight that found its node at fault; any other says nothing of the node."""

UNREAD = "PreflightFailed"
"""The reason where a fault is known by the exit status alone."""

UNDECIDED = "status.phase!=Running,status.phase!=Succeeded"
"""Pods that wait, or have failed."""

KEPT = 4096
"""Ends of preflights that are remembered: those of the window are weighed together."""

_RULE = ConditionRule(PREFLIGHT_FAILED, TRUE, ("*",), (), (), (), "PreflightPassed", "the suite before a pod passes")


def fault_text(report: Report) -> str:
    """What a preflight leaves as its termination message: the reason on a line of its own, then the message, with the
    tags that an agent's condition has.
    """
    condition = conditions_of(report, [_RULE])[0]
    return f"{condition.reason}\n{printable(condition.message, MESSAGE_LIMIT)}"


class PreflightEnd(NamedTuple):
    """One preflight that has ended. `when` is by the node's clock (Unix time)."""

    node: str
    place: str
    pod: str
    when: float
    passed: bool
    message: str = ""

    def condition(self) -> Condition:
        """The condition of the node at fault."""
        reason, _line, message = self.message.partition("\n")
        if not message or not reason.isidentifier():
            reason, message = (
                UNREAD,
                f"the preflight of pod {self.pod} failed: {printable(self.message, 200) or 'no message'}",
            )
        return Condition(PREFLIGHT_FAILED, TRUE, reason, printable(message, MESSAGE_LIMIT),
                         findings=((self.place, self.when),))  # fmt: skip


def ends_of(pod: Mapping[str, Any]) -> List[PreflightEnd]:
    """The preflights of a pod that have ended, the one before its last restart too. Pure."""
    node, uid = str(get(pod, "spec", "nodeName") or ""), str(get(pod, "metadata", "uid") or "")
    found: List[PreflightEnd] = []
    for status in objects_of(get(pod, "status", "initContainerStatuses")):
        if status.get("name") != CONTAINER or not node:
            continue
        restarts = status.get("restartCount")
        number = restarts if isinstance(restarts, int) else 0
        for state, at in ((status.get("state"), number), (status.get("lastState"), number - 1)):
            ended = get(state, "terminated")
            code = get(ended, "exitCode")
            if code in (0, BAD) and isinstance(code, int):
                when = from_utc(get(ended, "finishedAt"))
                text = str(get(ended, "message") or "")
                found.append(PreflightEnd(node, f"{uid}/{CONTAINER}/{at}", pod_name(pod), when, code == 0, text))
    return found


def doubted(ends: Sequence[PreflightEnd], settings: PreflightSettings, now: float) -> bool:
    """Whether so many nodes failed at about the same time that the suite is at fault, and no node. Pure."""
    near = [end for end in ends if now - end.when <= settings.window]
    bad, ran = {end.node for end in near if not end.passed}, {end.node for end in near}
    return len(bad) > settings.spread and len(bad) > settings.share * len(ran)


@dataclass
class PreflightReader:
    """Reads the pods with a preflight periodically. `out` says whether a node takes no work."""

    client: Client
    settings: PreflightSettings
    log: Callable[[str], None]
    out: Callable[[str], bool]
    acknowledged: Callable[[str], Mapping[str, float]] = lambda node: {}
    apply: bool = False
    _ends: Dict[str, PreflightEnd] = field(default_factory=dict)
    _evicted: Set[str] = field(default_factory=set)
    _altered: Set[str] = field(default_factory=set)
    _failing: str = ""
    _doubts: bool = False

    def look(self, now: float) -> Dict[str, Condition]:
        """The nodes that new failures speak against, with their condition. Never raises AdapterError."""
        try:
            pods = self._pods(UNDECIDED)
            fresh = self._read(pods)
            if any(not end.passed for end in fresh):
                self._read(self._pods(""))  # those that passed, against which the failures are weighed
        except AdapterError as error:
            self._report(str(error))
            return {}
        self._report("")
        self._move_on(pods)
        bad = [end for end in fresh if not end.passed]
        if not bad or self._note_doubts(doubted(list(self._ends.values()), self.settings, now)):
            return {}
        blamed: Dict[str, Condition] = {}
        for end in sorted(bad, key=lambda one: one.when):
            if not covers(self.acknowledged(end.node), end.place, end.when):
                self.log(f"{end.node}: the preflight of pod {end.pod} failed")
                blamed[end.node] = end.condition()
        return blamed

    def _pods(self, fields: str) -> List[Mapping[str, Any]]:
        query = {"fieldSelector": fields} if fields else {}
        return list(self.client.items("/api/v1/pods", labelSelector=PREFLIGHT, **query))

    def _read(self, pods: Sequence[Mapping[str, Any]]) -> List[PreflightEnd]:
        """The ends that are new. A pod that makes no sense hides no other."""
        fresh: List[PreflightEnd] = []
        for pod in pods:
            try:
                ends = [end for end in ends_of(pod) if end.place not in self._ends]
                if ends and self._is_ours(pod):
                    fresh += ends
            except Exception as error:
                self.log(problem(f"a pod's preflight cannot be read: {failure(error)}"))
        self._ends.update((end.place, end) for end in fresh)
        while len(self._ends) > KEPT:
            del self._ends[next(iter(self._ends))]
        return fresh

    def _is_ours(self, pod: Mapping[str, Any]) -> bool:
        """Whether the webhook made a pod's preflight; of one that it did not, nothing is believed, and that is said."""
        why, uid = altered(pod, self.settings), str(get(pod, "metadata", "uid"))
        if why and uid not in self._altered:
            self.log(
                problem(f"{pod_name(pod)}: its preflight is not the webhook's ({printable(why, 80)}): not believed")
            )
            if len(self._altered) >= KEPT:
                self._altered.clear()
            self._altered.add(uid)
        return not why

    def _note_doubts(self, doubts: bool) -> bool:
        if doubts and not self._doubts:
            self.log(
                problem("preflights fail on most nodes that run them: the suite or its image is at fault, no node")
            )
        self._doubts = doubts
        return doubts

    def _report(self, cause: str) -> None:
        if cause != self._failing:
            self.log(problem(f"pods with a preflight: {cause}") if cause else "pods with a preflight: looked at again")
        self._failing = cause

    # Pods that would wait for ever on a node that is out.

    def _move_on(self, pods: Sequence[Mapping[str, Any]]) -> None:
        for pod in pods:
            uid = str(get(pod, "metadata", "uid"))
            if uid in self._evicted or not self.stuck(pod) or altered(pod, self.settings):
                continue
            name, node = pod_name(pod), str(get(pod, "spec", "nodeName"))
            if not self.apply:
                self.log(f"dry run: would evict {name} from {node}: its preflight failed there")
                self._evicted.add(uid)
                continue
            path, body = eviction_of(pod)
            try:
                self.client.post(path, body, retry=False)
            except ApiError as error:
                if error.status not in (404, 409, 429):
                    self.log(problem(f"{name}: it cannot be evicted from {node}: {error}"))
                if error.status == 429:
                    continue
            except AdapterError:
                continue
            else:
                self.log(f"{name}: evicted from {node}: its preflight failed there")
            self._evicted.add(uid)
        self._evicted &= {str(get(pod, "metadata", "uid")) for pod in pods}

    def stuck(self, pod: Mapping[str, Any]) -> bool:
        """Whether a pod waits on a node that is out for a preflight that failed there, and something makes another."""
        if get(pod, "status", "phase") != "Pending" or get(pod, "metadata", "deletionTimestamp"):
            return False
        ends = ends_of(pod)
        return bool(
            ends and not any(end.passed for end in ends) and controller_of(pod)
            and get(pod, "spec", "restartPolicy") != "Never" and self.out(ends[0].node)
        )  # fmt: skip
