"""Faults that an operator overruled: uncordoning a marked node puts it back in service despite its conditions.

The conditions that were bad then are stored on the node (`nhc/overruled`). They do not mark it again until they have
ended once, or the node has booted. Another fault marks it: faults differ by reason, check and device, and by the number
of other faults beside them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import AbstractSet, Any, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Tuple

from nhc.core.json_values import list_in, object_in, parse_object, text_of, whole_in
from nhc.core.timestamps import from_utc, utc
from nhc.marks.ports.marks import TAG, read_mark_text
from nhc_adapters.kubernetes.nodes.boots import boot_id, booted_since
from nhc_adapters.kubernetes.nodes.condition_times import HeardNode
from nhc_adapters.kubernetes.nodes.conditions import ALLOCATABLE, UNKNOWN, Condition, read_conditions
from nhc_adapters.kubernetes.nodes.device_tags import read_device_tags
from nhc_adapters.kubernetes.nodes.evidence import SILENT_AFTER, fresh
from nhc_adapters.kubernetes.nodes.own_marks import annotations_of

OVERRULED = "nhc/overruled"
"""Annotation: the faults that an operator overruled, by condition."""

Bad = FrozenSet[Tuple[str, str]]
"""Condition types, each with a status that is bad."""

_MORE = re.compile(r" \(and (\d+) more\)$")
_OFFERED = re.compile(r"(\d+) of (\d+) (\S+) can be given out")
_CHECK = re.compile(r"check_\w+(?=: )")


class OverruledCondition(NamedTuple):
    """A condition at that time. `fault` says what is at fault and how; `more` how many other faults it counted."""

    fault: str
    more: int


@dataclass(frozen=True)
class Overruled:
    """What was overruled, by condition type, when (Unix time), by whom and in which boot, as far as that is known."""

    entries: Mapping[str, OverruledCondition]
    since: float
    by: str = ""
    boot: str = ""

    def covers(self, condition: Condition) -> bool:
        """Whether this bad condition shows nothing but what was overruled."""
        now, before = entry_of(condition), self.entries.get(condition.type)
        if now.fault in {entry.fault for entry in self.entries.values()}:
            return before is None or now.more <= before.more
        # One of the faults that were only counted is named now, since the one that was named has ended.
        return before is not None and now.more < before.more

    def line(self) -> str:
        by = f" by {self.by}" if self.by else ""
        return f"overruled{by} at {utc(self.since)}, until it has ended once or the node has booted"

    def text(self) -> str:
        """The annotation's text."""
        value: Dict[str, Any] = {"since": utc(self.since), "faults": {k: [*v] for k, v in self.entries.items()}}
        value.update({key: text for key, text in (("by", self.by), ("boot", self.boot)) if text})
        return json.dumps(value, separators=(",", ":"), sort_keys=True)


def entry_of(condition: Condition) -> OverruledCondition:
    """The fault in a condition: from the message if we wrote it, else its reason."""
    if condition.type == ALLOCATABLE:  # one more device that cannot be given out is another fault
        offered = _OFFERED.match(condition.message)
        if offered:
            return OverruledCondition(offered[3], int(offered[2]) - int(offered[1]))
    mark = read_mark_text(f"{TAG} {read_device_tags(condition.message)[0]}")
    why = mark.why if mark is not None else ""
    more = _MORE.search(why)
    check = _CHECK.match(why)
    target = ""
    if check:
        first, colon, _rest = why[check.end() + 2 :].partition(": ")
        target = first if colon and " " not in first else ""
    parts = (condition.reason, check[0] if check else "", target)
    return OverruledCondition(" ".join(filter(None, parts)), int(more[1]) if more else 0)


def read_overruled(node: Mapping[str, Any], before_boot: AbstractSet[str] = frozenset()) -> Optional[Overruled]:
    """What is overruled on this node in its present boot, None if nothing is or the annotation is not valid.

    `before_boot` are the condition types not reported since it booted: they describe the previous boot.
    """
    overruled = _read(node)
    if overruled is None or not booted_since(node, overruled.boot):
        return overruled
    left = {kind: entry for kind, entry in overruled.entries.items() if kind in before_boot}
    return replace(overruled, entries=left) if left else None


def _read(node: Mapping[str, Any]) -> Optional[Overruled]:
    text = annotations_of(node).get(OVERRULED)
    if text is None:
        return None
    try:
        raw = parse_object(text)
        faults = object_in(raw, "faults")
        entries = {kind: OverruledCondition(*_fault(list_in(faults, kind))) for kind in faults}
    except ValueError:
        return None
    return Overruled(entries, from_utc(raw.get("since")), text_of(raw.get("by")), text_of(raw.get("boot")))


def _fault(pair: List[Any]) -> Tuple[str, int]:
    """A condition's first fault and how many more there were. Raises ValueError."""
    fault, more = pair
    return str(fault), whole_in({"more": more}, "more")


def overrule(node: Mapping[str, object], bad: Bad, now: float, by: str = "") -> Optional[Overruled]:
    """What an operator overrules by putting this node back now; None if nothing is bad."""
    before = read_overruled(node)
    entries = dict(before.entries) if before is not None else {}
    for condition in read_conditions(node).values():
        if (condition.type, condition.status) in bad:
            entries[condition.type] = entry_of(condition)
    return Overruled(entries, now, by, boot_id(node)) if entries else None


def ended_since(
    node: Mapping[str, Any], bad: Bad, now: float, heard: HeardNode, silent_after: float = SILENT_AFTER
) -> Dict[str, Optional[str]]:
    """The annotation without what has ended since it was overruled (None: to be removed); nothing without a change."""
    before = _read(node)
    if before is None:
        return {}
    if booted_since(node, before.boot):
        return {} if before.entries.keys() & heard.before_boot else {OVERRULED: None}
    conditions = heard.conditions
    entries: Dict[str, OverruledCondition] = {}
    for kind, entry in before.entries.items():
        condition = conditions.get(kind)
        if condition is None or condition.status == UNKNOWN or not fresh(condition, now, silent_after):
            entries[kind] = entry  # only a fresh and positive condition ends a fault
        elif (kind, condition.status) in bad:
            entries[kind] = entry_of(condition) if before.covers(condition) else entry
    if entries == before.entries:
        return {} if entries else {OVERRULED: None}
    return {OVERRULED: replace(before, entries=entries).text() if entries else None}
