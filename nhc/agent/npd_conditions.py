"""The node conditions and events of node-problem-detector's rules, without its flaws.

Several rules may speak for one condition: it is bad while any of them says so (the detector's last rule wins, so
that it flaps). A condition that a log rule set stands until a restart of the node or an acknowledgement, and
outlives the agent (the detector's own restart clears it). A plugin's temporary problem is counted each time and
published when it begins or says something else, not again with every run.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple, cast

from nhc.agent.npd_config import Default
from nhc.model import printable
from nhc.ports.sinks import EventDetails, NodeCondition
from nhc.timestamps import utc_milliseconds

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"
MESSAGE = 1024


class RuleStatus:
    """What one rule says of its condition."""

    def __init__(self, status: str, reason: str, message: str) -> None:
        self.status, self.reason, self.message = status, reason, message


class RuleConditions:
    """All conditions of all monitors. `emit` takes events, `count` problems, `clock` is the wall's."""

    def __init__(
        self,
        clock: Callable[[], float],
        count: Callable[[str, str, int], None] = lambda _kind, _reason, _times: None,
    ) -> None:
        self.clock, self.count = clock, count
        self.emit: Callable[[str, EventDetails], None] = lambda _what, _more: None
        self.defaults: Dict[str, Default] = {}
        self.sources: Dict[str, str] = {}
        self.rules: Dict[str, List[str]] = {}
        self.said: Dict[str, RuleStatus] = {}
        self.standing: Dict[str, NodeCondition] = {}
        self.gauges: Dict[Tuple[str, str], float] = {}
        self._told: Dict[str, str] = {}

    def connect(
        self,
        emit: Callable[[str, EventDetails], None],
        count: Callable[[str, str, int], None],
    ) -> None:
        """From now on events go to `emit`, and problems are counted by `count`."""
        self.emit, self.count = emit, count

    def define(self, defaults: Sequence[Default], source: str) -> None:
        for one in defaults:
            self.defaults.setdefault(one.type, one)
            self.sources.setdefault(one.type, source)
            self.standing.setdefault(one.type, self._entry(one.type, FALSE, one.reason, one.message))

    def rule(self, name: str, condition: str, reason: str, metrics: bool) -> None:
        """A permanent rule, by a name that is its own."""
        self.rules.setdefault(condition, []).append(name)
        if metrics:
            self.gauges.setdefault((condition, reason), 0.0)
            self.count("", reason, 0)

    def say(self, name: str, condition: str, status: str, reason: str, message: str) -> bool:
        """What one rule says now. Returns whether the condition changed its status or its reason."""
        self.said[name] = RuleStatus(status, reason, printable(message, MESSAGE))
        return self._settle(condition)

    def end(self, condition: str) -> bool:
        """An acknowledgement: what the rules said of this condition is over. Returns whether it stood."""
        for name in self.rules.get(condition, ()):
            self.said.pop(name, None)
        if condition not in self.standing or self.standing[condition]["status"] == FALSE:
            return False
        self._settle(condition)
        return True

    def temporary(self, name: str, source: str, reason: str, message: str, *, every: bool, metrics: bool) -> None:
        """A temporary problem: an event. With `every` unset it is published only where it says something new."""
        if metrics:
            self.count("", reason, 1)
        text = printable(message, MESSAGE)
        if every or self._told.get(name) != text:
            self._told[name] = text
            self.emit("log.event", {"type": source, "reason": reason, "severity": "warn", "message": text})

    def over(self, name: str) -> None:
        """A temporary problem that is not there this time."""
        self._told.pop(name, None)

    def shown(self) -> List[NodeCondition]:
        return list(self.standing.values())

    def _settle(self, condition: str) -> bool:
        default = self.defaults[condition]
        words = [self.said[name] for name in self.rules.get(condition, ()) if name in self.said]
        bad = next((word for word in words if word.status == TRUE), None)
        dim = next((word for word in words if word.status == UNKNOWN), None)
        if bad:
            status, reason, message = TRUE, bad.reason, bad.message
        elif dim:
            status, reason, message = UNKNOWN, default.reason, dim.message
        else:
            status, reason, message = FALSE, default.reason, default.message
        before = self.standing[condition]
        for kind, known in self.gauges:
            if kind == condition:
                self.gauges[kind, known] = float(any(w.status == TRUE and w.reason == known for w in words))
        if (before["status"], before["reason"]) == (status, reason):
            if before["message"] == message:
                return False
            before["message"] = message
            return True
        self.standing[condition] = self._entry(condition, status, reason, message)
        if status == TRUE:
            self.count(condition, reason, 1)
        source = self.sources.get(condition, "")
        self.emit(
            "condition.changed",
            {"type": condition, "status": status, "reason": reason, "message": message, "source": source},
        )
        return True

    def _entry(self, condition: str, status: str, reason: str, message: str) -> NodeCondition:
        return {
            "type": condition,
            "status": status,
            "transition": utc_milliseconds(self.clock()),
            "reason": reason,
            "message": message,
        }

    # Across restarts of the agent.

    def dump(self) -> Dict[str, Any]:
        return {
            "said": {name: [word.status, word.reason, word.message] for name, word in self.said.items()},
            "standing": self.standing,
        }

    def load(self, kept: Mapping[str, object]) -> None:
        """Take over what `dump` gave before a restart, as far as the rules are still there."""
        names = {name for known in self.rules.values() for name in known}
        said, standing = kept.get("said"), kept.get("standing")
        for name, word in said.items() if isinstance(said, dict) else ():
            if name in names and isinstance(word, list) and len(word) == 3 and all(isinstance(w, str) for w in word):
                self.said[name] = RuleStatus(*word)
        for condition, entry in standing.items() if isinstance(standing, dict) else ():
            if condition in self.standing and isinstance(entry, dict) and set(entry) == set(self.standing[condition]):
                self.standing[condition] = cast("NodeCondition", {key: str(value) for key, value in entry.items()})
        for condition in self.standing:
            emit, count = self.emit, self.count
            self.emit, self.count = (lambda _what, _more: None), (lambda _kind, _reason, _times: None)
            try:
                self._settle(condition)
            finally:
                self.emit, self.count = emit, count
