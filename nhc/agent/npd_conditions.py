"""The node conditions and events of node-problem-detector's rules, without its flaws.

Several rules may speak for one condition: it is bad while any of them says so (the detector's last rule wins, so
that it flaps). A condition that a log rule set stands until a restart of the node or an acknowledgement, and
outlives the agent (the detector's own restart clears it). A plugin's temporary problem is counted each time and
published when it begins or says something else, not again with every run.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple, cast

from nhc.agent.npd_config import Default
from nhc.core.light import NamedTuple
from nhc.core.model import printable
from nhc.core.timestamps import utc_milliseconds
from nhc.marks.ports.sinks import EventDetails, NodeCondition

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"
MESSAGE = 1024
REMOVED = 600.0
"""Seconds for which a condition whose rules are gone is published at its default: two heartbeats of a sink's."""


class RuleStatus(NamedTuple):
    """What one rule says of its condition."""

    status: str
    reason: str
    message: str


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
        self.statuses: Dict[str, RuleStatus] = {}
        self.standing: Dict[str, NodeCondition] = {}
        self.gauges: Dict[Tuple[str, str], float] = {}
        self._published: Dict[str, str] = {}
        self.removed: Dict[str, NodeCondition] = {}
        """Conditions whose rules are gone, as they are published for REMOVED seconds more: at their default."""
        self._leaving: List[EventDetails] = []
        self._beginning = False

    def connect(self, emit: Callable[[str, EventDetails], None], count: Callable[[str, str, int], None]) -> None:
        """From now on events go to `emit`, and problems are counted by `count`."""
        self.emit, self.count = emit, count

    def begin(self) -> None:
        """The logs are opened now. That one cannot be read then is no change: no event tells of it."""
        self._beginning = True

    def begun(self) -> None:
        """From now on it is one."""
        self._beginning = False

    def define(self, defaults: Sequence[Default], source: str) -> None:
        for default in defaults:
            self.defaults.setdefault(default.type, default)
            self.sources.setdefault(default.type, source)
            self.standing.setdefault(default.type, self._entry(default.type, FALSE, default.reason, default.message))

    def rule(self, name: str, condition: str, reason: str, metrics: bool) -> None:
        """A permanent rule, by a name that is its own."""
        self.rules.setdefault(condition, []).append(name)
        if metrics:
            self.gauges.setdefault((condition, reason), 0.0)
            self.count("", reason, 0)

    def say(self, name: str, condition: str, status: str, reason: str, message: str) -> bool:
        """What one rule says now. Returns whether the condition changed its status or its reason."""
        self.statuses[name] = RuleStatus(status, reason, printable(message, MESSAGE))
        return self._settle(condition)

    def cannot_tell(self, name: str, condition: str, reason: str, problem: str) -> bool:
        """A rule that has found nothing cannot tell whether there is anything; "" for it can. Returns as `say` does."""
        known = self.statuses.get(name)
        if known is not None and known.status != UNKNOWN:
            return False
        if problem:
            return self.say(name, condition, UNKNOWN, reason, problem)
        return self.statuses.pop(name, None) is not None and self._settle(condition)

    def end(self, condition: str) -> bool:
        """An acknowledgement: what the rules said of this condition is over. Returns whether it stood."""
        for name in self.rules.get(condition, ()):
            self.statuses.pop(name, None)
        if condition not in self.standing or self.standing[condition]["status"] == FALSE:
            return False
        self._settle(condition)
        return True

    def temporary(self, name: str, source: str, reason: str, message: str, *, every: bool, metrics: bool) -> None:
        """A temporary problem: an event. With `every` unset it is published only where it says something new."""
        if metrics:
            self.count("", reason, 1)
        text = printable(message, MESSAGE)
        if every or self._published.get(name) != text:
            self._published[name] = text
            self.emit("log.event", {"type": source, "reason": reason, "severity": "warn", "message": text})

    def over(self, name: str) -> None:
        """A temporary problem that is not there this time."""
        self._published.pop(name, None)

    def _settle(self, condition: str) -> bool:
        default = self.defaults[condition]
        statuses = [self.statuses[name] for name in self.rules.get(condition, ()) if name in self.statuses]
        bad = next((rule for rule in statuses if rule.status == TRUE), None)
        unknown = next((rule for rule in statuses if rule.status == UNKNOWN), None)
        if bad:
            status, reason, message = bad
        elif unknown:
            status, reason, message = UNKNOWN, default.reason, unknown.message
        else:
            status, reason, message = FALSE, default.reason, default.message
        before = self.standing[condition]
        for kind, known in self.gauges:
            if kind == condition:
                self.gauges[kind, known] = float(any(rule[:2] == (TRUE, known) for rule in statuses))
        if (before["status"], before["reason"]) == (status, reason):
            if before["message"] == message:
                return False
            before["message"] = message
            return True
        self.standing[condition] = self._entry(condition, status, reason, message)
        if status == TRUE and (condition, reason) in self.gauges:
            self.count(condition, reason, 1)
        source = self.sources.get(condition, "")
        details: EventDetails = {
            "type": condition, "status": status, "reason": reason, "message": message, "source": source,
        }  # fmt: skip
        if not (self._beginning and status == UNKNOWN):
            self.emit("condition.changed", details)
        return True

    def published(self) -> List[NodeCondition]:
        """The conditions as they are shown: those that stand, and for a while those whose rules are gone."""
        late = utc_milliseconds(self.clock() - REMOVED)
        self.removed = {kind: entry for kind, entry in self.removed.items() if entry["transition"] > late}
        return [*self.standing.values(), *self.removed.values()]

    def _remove(self, condition: str, entry: NodeCondition, default: object) -> None:
        """End a condition whose rules are gone: nobody else would ever take it back."""
        words = default if isinstance(default, list) and len(default) == 2 else ["RuleRemoved", ""]
        self.removed[condition] = self._entry(condition, FALSE, str(words[0]), str(words[1]))
        details: EventDetails = {
            "type": condition, "status": FALSE, "reason": str(words[0]), "message": "its rules were removed",
            "source": entry["reason"],
        }  # fmt: skip
        self._leaving.append(details)

    def tell_removed(self) -> None:
        """Emit what `load` has ended, once there is somebody to hear it."""
        leaving, self._leaving = self._leaving, []
        for details in leaving:
            self.emit("condition.changed", details)

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
            "said": {name: list(rule) for name, rule in self.statuses.items()},
            "standing": self.standing,
            "defaults": {kind: [default.reason, default.message] for kind, default in self.defaults.items()},
            "removed": self.removed,
        }

    def load(self, kept: Mapping[str, object]) -> None:
        """Take over what `dump` gave before a restart, as far as the rules are still there."""
        names = {name for known in self.rules.values() for name in known}
        statuses, standing = kept.get("said"), kept.get("standing")
        for name, rule in statuses.items() if isinstance(statuses, dict) else ():
            if name in names and isinstance(rule, list) and len(rule) == 3 and all(isinstance(x, str) for x in rule):
                self.statuses[name] = RuleStatus(*rule)
        for condition, entry in standing.items() if isinstance(standing, dict) else ():
            if condition in self.standing and isinstance(entry, dict) and set(entry) == set(self.standing[condition]):
                self.standing[condition] = cast("NodeCondition", {key: str(value) for key, value in entry.items()})
        self._load_removed(standing, kept)
        emit, count = self.emit, self.count
        self.connect(lambda _what, _more: None, lambda _kind, _reason, _times: None)
        try:
            for condition in self.standing:
                self._settle(condition)
        finally:
            self.connect(emit, count)

    def _load_removed(self, standing: object, kept: Mapping[str, object]) -> None:
        """Take over the conditions whose rules are not there any more."""
        defaults, removed = kept.get("defaults"), kept.get("removed")
        shape = set(self._entry("", "", "", ""))
        for condition, entry in removed.items() if isinstance(removed, dict) else ():
            if condition not in self.standing and isinstance(entry, dict) and set(entry) == shape:
                self.removed[condition] = cast("NodeCondition", {key: str(value) for key, value in entry.items()})
        for condition, entry in standing.items() if isinstance(standing, dict) else ():
            known = condition in self.standing or not isinstance(entry, dict) or set(entry) != shape
            if not known and entry["status"] != FALSE:
                default = defaults.get(condition) if isinstance(defaults, dict) else None
                self._remove(str(condition), cast("NodeCondition", entry), default)
