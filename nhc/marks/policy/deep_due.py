"""Which nodes need a deep check before they join a large job. Pure.

Before a node joins a job of more than N nodes, a rule asks for a good verdict that is younger than a number of seconds.
A bad verdict of that time counts until the same suite has passed: another suite tests other things.
"""

from __future__ import annotations

from typing import List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Verdict
from nhc.core.units import show_seconds

if TYPE_CHECKING:
    from typing_extensions import TypeAlias

_CRIT = Verdict.CRIT.name
DAY = 86400.0
AHEAD = DAY
"""Seconds by which a node's clock may be ahead of ours (a clock in local time is hours off). A verdict with a later
date would count as young until then, even if the node has failed since."""


class LastVerdict(NamedTuple):
    """The worst verdict of a node's newest run of a suite, and when that was."""

    node: str
    suite: str
    verdict: str
    at: float

    def age(self, now: float) -> float:
        """Seconds since then."""
        return max(now - self.at, 0.0)


class DeepRule(NamedTuple):
    """`younger` in seconds; jobs of up to `nodes` nodes need no verdict; one of `suites` is enough, () is any."""

    younger: float = 7 * DAY
    nodes: int = 0
    suites: Tuple[str, ...] = ()

    def asks(self, nodes: Sequence[str]) -> bool:
        """Whether a job of these nodes is large enough for the rule."""
        return len(set(nodes)) > self.nodes


class Due(NamedTuple):
    """A node that is to be tested, and why; `age` of its newest verdict in seconds, None if it has none."""

    node: str
    why: str
    age: Optional[float] = None


LastVerdicts: TypeAlias = "Mapping[Tuple[str, str], LastVerdict]"
"""By node and suite, as `nhc.store.deep.last_conclusive` has it."""


def due(nodes: Sequence[str], last: LastVerdicts, rule: DeepRule, now: float) -> Tuple[Due, ...]:
    """The nodes of a job that the rule rejects, in the order of their names."""
    if not rule.asks(nodes):
        return ()
    by_node = _by_node(last, rule.suites)
    verdicts = (_of_node(name, by_node.get(name, []), rule, now) for name in sorted(set(nodes)))
    return tuple(entry for entry in verdicts if entry is not None)


def newest_of(last: LastVerdicts) -> Mapping[str, float]:
    """When each node's newest verdict was."""
    return {node: max(verdict.at for verdict in verdicts) for node, verdicts in _by_node(last, ()).items()}


def oldest_first(nodes: Sequence[str], last: LastVerdicts, tried: Mapping[str, float]) -> List[str]:
    """The nodes in the order in which they are to be tested: never tested, then the oldest verdict, by name.

    `tried` says when a test of a node was last tried, with or without a result: a node whose tests give no result must
    not block the others.
    """
    newest = newest_of(last)
    return sorted(set(nodes), key=lambda name: (max(newest.get(name, 0.0), tried.get(name, 0.0)), name))


def _by_node(last: LastVerdicts, suites: Sequence[str]) -> Mapping[str, List[LastVerdict]]:
    by_node: dict[str, List[LastVerdict]] = {}
    for (node, suite), verdict in last.items():
        if not suites or suite in suites:
            by_node.setdefault(node, []).append(verdict)
    return by_node


def _of_node(node: str, verdicts: Sequence[LastVerdict], rule: DeepRule, now: float) -> Optional[Due]:
    """Why a node is due, None if it is not. One pass: a console asks this of 100,000 nodes."""
    if not verdicts:
        return Due(node, "has no deep verdict")
    younger, believed = rule.younger, now + AHEAD
    newest: Optional[LastVerdict] = None
    best: Optional[LastVerdict] = None
    failed: Optional[LastVerdict] = None
    for verdict in verdicts:
        if verdict.verdict == _CRIT:
            if failed is None and verdict.age(now) < younger:
                failed = verdict
        elif verdict.at > believed:
            continue
        elif best is None or verdict.at > best.at:
            best = verdict
        if newest is None or verdict.at > newest.at:
            newest = verdict
    if newest is None:
        later = show_seconds(round(verdicts[0].at - now))
        return Due(node, f"has no deep verdict but one of {verdicts[0].suite} that is dated {later} from now")
    if failed is None and best is not None and best.age(now) < younger:
        return None
    age = newest.age(now)
    if failed is not None:
        ago = show_seconds(round(failed.age(now)))
        return Due(node, f"failed {failed.suite} {ago} ago and has not passed it since", age)
    if best is None:
        return Due(node, f"failed {newest.suite} when it was last tested, {show_seconds(round(age))} ago", age)
    return Due(node, f"passed {best.suite} {show_seconds(round(best.age(now)))} ago", age)
