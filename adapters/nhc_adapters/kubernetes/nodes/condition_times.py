"""The times of a node's conditions by our own clock: a node's clock may be wrong, and one that is ahead hides a dead
node.

The rule of Kubernetes' node controller (pkg/controller/nodelifecycle): what counts is when *we* saw a condition change.
Conditions from before our first look have only their own stamps.
"""

from __future__ import annotations

import sys
from typing import Any, Dict, FrozenSet, Mapping, NamedTuple, Optional, Tuple

from nhc.core.timestamps import AHEAD
from nhc.core.units import show_seconds
from nhc_adapters.kubernetes.nodes.boots import boot_id
from nhc_adapters.kubernetes.nodes.conditions import UNKNOWN, Condition, read_conditions
from nhc_adapters.kubernetes.nodes.evidence import NEVER_STALE


class HeardNode(NamedTuple):
    """A node's conditions, their times by our clock as far as we saw them change.

    `looked` is when we saw the node first. `clock` is how many seconds its clock is ahead of ours (behind: negative),
    0.0 if it is right or not known. `before_boot` are the types last reported before the node's present boot.
    """

    conditions: Mapping[str, Condition] = {}
    looked: float = 0.0
    clock: float = 0.0
    before_boot: FrozenSet[str] = frozenset()

    def clock_text(self) -> str:
        """What is to be said of the node's clock, "" for nothing."""
        return wrong_clock(self.clock) if self.clock else ""


def wrong_clock(ahead: float) -> str:
    """A clock that is so many seconds ahead, or behind, in words."""
    apart = abs(ahead)
    shown = f"{apart / 60:.0f} min" if apart < 7200 else show_seconds(apart)
    return f"its clock is {shown} {'ahead' if ahead > 0 else 'behind'}"


class _TimesSeen(NamedTuple):
    """A condition's status and times as written, its times as they count, and when we received it."""

    status: str
    since: float
    seen: float
    counts_since: float
    counts_seen: float
    came: float


class _NodeSeen(NamedTuple):
    """`ahead` is how far its clock is by the last heartbeat that we saw come, `clock` the value reported: a single
    heartbeat that seems behind may only have arrived late. `booted` is when we saw it boot, -inf for before we looked.
    """

    uid: str
    looked: float
    boot: str
    booted: float
    conditions: Mapping[str, _TimesSeen]
    ahead: float
    clock: float


class ConditionsSeen:
    """The times of each node's conditions as we saw them last."""

    def __init__(self) -> None:
        self._nodes: Dict[str, _NodeSeen] = {}

    def forget(self, name: str) -> None:
        """A node is gone."""
        self._nodes.pop(name, None)

    def of(self, node: Mapping[str, Any], now: float) -> HeardNode:
        """What a node's object, as it was read now, says by our clock."""
        name, uid = str(node["metadata"].get("name", "")), str(node["metadata"].get("uid") or "")
        boot, known = boot_id(node), self._nodes.get(name)
        if known is not None and known.uid != uid:
            known = None  # another registration
        seen: Dict[str, _TimesSeen] = {}
        counts: Dict[str, Condition] = {}
        ahead, clock = (known.ahead, known.clock) if known is not None else (0.0, 0.0)
        for kind, condition in read_conditions(node).items():
            before = known.conditions.get(kind) if known is not None else None
            if before is not None and before[:3] == (condition.status, condition.since, condition.seen):
                seen[kind] = before
            else:
                by_agent = condition.renewed and kind not in NEVER_STALE
                apart = condition.seen - now
                if known is None:
                    if by_agent and apart > AHEAD:
                        ahead = clock = apart
                    since, at = min(condition.since, now), condition.seen
                else:
                    if by_agent and _is_word(condition, before):
                        wrong = apart if abs(apart) > AHEAD else 0.0
                        clock = wrong if wrong >= 0 or abs(wrong - ahead) <= AHEAD else clock
                        ahead = wrong
                    since, at = _as_it_came(condition, before, now, ahead)
                seen[kind] = _TimesSeen(sys.intern(condition.status), condition.since, condition.seen, since, at, now)
            counts[kind] = condition.at(seen[kind].counts_since, seen[kind].counts_seen)
        looked = now if known is None else known.looked
        booted = float("-inf") if known is None else known.booted if known.boot == boot else now
        self._nodes[name] = _NodeSeen(uid, looked, boot, booted, seen, ahead, clock)
        # A stamp of whole seconds may lie before the boot though it came after it.
        before_boot = frozenset(
            kind for kind, condition in counts.items() if max(condition.seen, seen[kind].came) <= booted
        )
        return HeardNode(counts, looked, clock, before_boot)


def _is_word(condition: Condition, before: Optional[_TimesSeen]) -> bool:
    """Whether its own writer changed a condition: a change to Unknown without a heartbeat is ours."""
    return before is None or before.seen != condition.seen or condition.status != UNKNOWN


def _as_it_came(condition: Condition, before: Optional[_TimesSeen], now: float, ahead: float) -> Tuple[float, float]:
    """Since when a condition has its status, and when it was said, by our clock, as we saw it change."""
    word = _is_word(condition, before)
    at = before.counts_seen if before is not None and not word else now if ahead else min(condition.seen, now)
    same = before is not None and (before.status, before.since) == (condition.status, condition.since)
    return before.counts_since if before is not None and same else min(condition.since - ahead, now), at
