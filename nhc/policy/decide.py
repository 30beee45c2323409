"""Decide what to do to a fleet: reports and the nodes' states in, remedies out. Pure: it reads no clock and no file.

Every automatic action passes a ceiling (how many nodes may be out at once, overall and in each partition)
and a rate (how many deeds of a kind within a time), counted from what the scheduler says now and from the
history that the ledger kept. What does not pass is listed with the reason, never dropped.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.model import Action, Report, Verdict
from nhc.ports import Deed, Effect, Mark, NodeState, Remedy, healthy, mark_of, may_clear, may_mark

HOUR = 3600.0


class Ceiling(NamedTuple):
    """How many nodes may be out at once: a number, a share (0 to 1) of the group, or both (the lower counts)."""

    nodes: Optional[int] = None
    share: Optional[float] = None

    def limit(self, size: int) -> Optional[int]:
        """The number for a group of `size` nodes, None for no limit. A share above 0 always allows one node."""
        limits = [] if self.nodes is None else [self.nodes]
        if self.share is not None:
            # The tiny addition keeps 0.07 * 100 from being 7.000000000000001's neighbour below.
            limits.append(max(1, int(size * self.share + 1e-9)) if self.share > 0 else 0)
        return min(limits) if limits else None

    def show(self) -> str:
        parts = [] if self.nodes is None else [str(self.nodes)]
        if self.share is not None:
            parts.append(f"{self.share * 100:g}%")
        return " or ".join(parts) or "no limit"


def read_ceiling(text: str) -> Ceiling:
    """`20`, `10%`, `20 10%` for the lower of both, or `none`. Raises ValueError."""
    words = text.replace(",", " ").split()
    if words == ["none"]:
        return Ceiling()
    found = Ceiling()
    for word in words or [""]:
        match = re.fullmatch(r"(\d+)|(\d+(?:\.\d+)?)%", word)
        if match is None or (match[2] and float(match[2]) > 100):
            raise ValueError(f"{text!r} is not a number of nodes, a share such as 10%, both, or none")
        found = found._replace(nodes=int(word)) if match[1] else found._replace(share=float(match[2]) / 100)
    return found


class Rate(NamedTuple):
    """At most `deeds` of a kind within `seconds`."""

    deeds: int
    seconds: float


class Past(NamedTuple):
    """A deed of the history: what was begun on a node, and when (Unix time)."""

    when: float
    node: str
    deed: Deed


class Policy(NamedTuple):
    """What nhc may do by itself.

    `ceiling` bounds the nodes out at once in the whole fleet, `groups` in each partition (`*` is for those
    not named). Counted are the nodes that carry our mark; with `count_all` every node that takes no work.
    `rates` bounds deeds in time. `repairs` are the deeds beyond marking that are allowed at all, each on one
    node again only after `cooldown` seconds; after `attempts` reboots within `window` seconds that left the
    node unhealthy, a reboot becomes a replacement. `protected` are patterns of nodes never touched.
    `max_age` (seconds) is how old a report may be and still count; `healthy_for` how long a node must have
    been marked before it is put back.
    """

    ceiling: Ceiling = Ceiling(share=0.1)
    groups: Mapping[str, Ceiling] = {}
    count_all: bool = False
    rates: Mapping[Deed, Rate] = {}
    repairs: FrozenSet[Deed] = frozenset()
    cooldown: float = HOUR
    attempts: int = 3
    window: float = 24 * HOUR
    protected: Tuple[str, ...] = ()
    max_age: float = HOUR
    healthy_for: float = 0.0


class Withheld(NamedTuple):
    """Something that was called for and not ordered, and why."""

    node: str
    deed: Deed
    why: str


class Decision(NamedTuple):
    remedies: Tuple[Remedy, ...]
    withheld: Tuple[Withheld, ...]


def history_needed(policy: Policy) -> float:
    """How many seconds of history `decide` looks back on."""
    return max([policy.cooldown, policy.window, *(rate.seconds for rate in policy.rates.values())])


def decide(
    reports: Mapping[str, Report],
    states: Sequence[NodeState],
    policy: Policy,
    history: Iterable[Past] = (),
    now: float = 0.0,
) -> Decision:
    """The remedies that the reports call for and the policy allows, clearing first, then marking, then repairs.

    `states` are all nodes of the fleet, not only those with a report: shares are counted on them. A node
    whose report is UNKNOWN, or too old, is left as it is.
    """
    known = {state.name: state for state in states}
    run = _Run(policy, states, list(history), now)
    marks: Dict[str, Tuple[Mark, int]] = {}
    for node in sorted(reports):
        report, state = reports[node], known.get(node)
        if any(fnmatchcase(node, pattern) for pattern in policy.protected):
            run.withhold(node, Deed.MARK, "protected by the policy", report.verdict is Verdict.CRIT)
        elif not 0 <= now - report.started <= policy.max_age:
            run.withhold(node, Deed.MARK, _age(now - report.started, policy.max_age), True)
        elif healthy(report):
            run.consider_clear(node, state)
        else:
            mark = mark_of(report)
            if mark is not None:
                marks[node] = (mark, len(report.failures()))
    # The nodes with most failures go first, where there is not room for all.
    for node in sorted(marks, key=lambda name: (-marks[name][1], name)):
        run.consider_mark(node, known.get(node), marks[node][0])
    for node in sorted(marks):
        run.consider_repair(node, known.get(node), marks[node][0])
    return Decision(tuple(run.remedies), tuple(run.withheld))


def _age(age: float, limit: float) -> str:
    if age < 0:
        return f"its report is from {-age:.0f} s in the future: check the node's clock"
    return f"its report is {age:.0f} s old; at most {limit:.0f} s count"


class _Run:
    """What is out, and what was spent, while a decision is made."""

    def __init__(self, policy: Policy, states: Sequence[NodeState], history: List[Past], now: float) -> None:
        self.policy, self.history, self.now = policy, history, now
        self.remedies: List[Remedy] = []
        self.withheld: List[Withheld] = []
        self.size: Dict[str, int] = {"": len(states)}
        self.out: Dict[str, int] = {"": 0}
        self.spent: Dict[Deed, set[str]] = {
            deed: {past.node for past in history if past.deed is deed and now - past.when < rate.seconds}
            for deed, rate in policy.rates.items()
        }
        for state in states:
            counted = self.counted(state)
            for group in state.groups:
                self.size[group] = self.size.get(group, 0) + 1
                self.out[group] = self.out.get(group, 0) + counted
            self.out[""] += counted

    def counted(self, state: NodeState) -> bool:
        ours = state.mark is not None and state.mark.ours
        return not state.available and (ours or self.policy.count_all)

    def withhold(self, node: str, deed: Deed, why: str, called_for: bool = True) -> None:
        if called_for:
            self.withheld.append(Withheld(node, deed, why))

    def over_rate(self, node: str, deed: Deed) -> str:
        """Why the rate forbids a deed, "" where it does not. The same node does not count twice."""
        rate = self.policy.rates.get(deed)
        if rate is None or node in self.spent[deed] or len(self.spent[deed]) < rate.deeds:
            return ""
        return f"{len(self.spent[deed])} nodes within {rate.seconds:.0f} s already, at most {rate.deeds}"

    def spend(self, node: str, deed: Deed) -> None:
        if deed in self.spent:
            self.spent[deed].add(node)

    def consider_clear(self, node: str, state: Optional[NodeState]) -> None:
        effect, why = may_clear(state)
        if effect is not Effect.CHANGED or state is None or state.mark is None:
            self.withhold(node, Deed.CLEAR, why, effect is not Effect.UNCHANGED)
            return
        since = state.mark.since
        if since is not None and self.now - since < self.policy.healthy_for:
            self.withhold(
                node, Deed.CLEAR, f"marked {self.now - since:.0f} s ago, kept {self.policy.healthy_for:.0f} s"
            )
            return
        over = self.over_rate(node, Deed.CLEAR)
        if over:
            self.withhold(node, Deed.CLEAR, over)
            return
        self.spend(node, Deed.CLEAR)
        self.remedies.append(Remedy(node, Deed.CLEAR, f"healthy again; was: {state.mark.why}"))
        self.count(state, -1 if self.counted(state) else 0)

    def count(self, state: NodeState, change: int) -> None:
        for group in ("", *state.groups):
            self.out[group] += change

    def consider_mark(self, node: str, state: Optional[NodeState], mark: Mark) -> None:
        if state is not None and state.mark is not None and state.mark.ours and not state.available:
            mark = mark._replace(since=state.mark.since)  # out since then, whatever the newest reason is
        effect, why = may_mark(state, mark)
        if effect is not Effect.CHANGED or state is None:
            self.withhold(node, Deed.MARK, why, effect is not Effect.UNCHANGED)
            return
        if state.available:
            over = self.over_ceiling(state) or self.over_rate(node, Deed.MARK)
            if over:
                self.withhold(node, Deed.MARK, over)
                return
            self.spend(node, Deed.MARK)
            self.count(state, 1)
        self.remedies.append(Remedy(node, Deed.MARK, mark.why, mark))

    def over_ceiling(self, state: NodeState) -> str:
        """Why a ceiling forbids one more node out, "" where none does."""
        for group in ("", *state.groups):
            ceiling = self.policy.groups.get(group, self.policy.groups.get("*")) if group else self.policy.ceiling
            limit = None if ceiling is None else ceiling.limit(self.size[group])
            if ceiling is not None and limit is not None and self.out[group] >= limit:
                where = f"in {group}" if group else "in the fleet"
                total = self.size[group]
                return f"{self.out[group]} of {total} nodes {where} are out already, at most {ceiling.show()}"
        return ""

    def consider_repair(self, node: str, state: Optional[NodeState], mark: Mark) -> None:
        """Order a reboot or a replacement of a node that our mark took out and whose work has ended."""
        deed = {Action.REBOOT: Deed.REBOOT, Action.REPLACE: Deed.REPLACE}.get(mark.action)
        if deed is None or not self.policy.repairs or state is None or state.hold:
            return
        if state.available or state.mark is None or not state.mark.ours:
            return  # not out yet, or not by us: a later round, or nobody's business here
        reboots = [p for p in self.history if p.node == node and p.deed is Deed.REBOOT]
        tried = sum(1 for past in reboots if self.now - past.when < self.policy.window)
        if deed is Deed.REBOOT and tried >= self.policy.attempts:
            deed = Deed.REPLACE
        because = mark.why + (f" ({tried} reboots did not help)" if deed is Deed.REPLACE and tried else "")
        last = max(
            (p.when for p in self.history if p.node == node and p.deed in (Deed.REBOOT, Deed.REPLACE)), default=None
        )
        if deed not in self.policy.repairs:
            self.withhold(node, deed, f"the policy allows no {deed.value}")
        elif state.busy:
            self.withhold(node, deed, "work still runs on it")
        elif last is not None and self.now - last < self.policy.cooldown:
            self.withhold(
                node, deed, f"last repaired {self.now - last:.0f} s ago, at most every {self.policy.cooldown:.0f} s"
            )
        elif self.over_rate(node, deed):
            self.withhold(node, deed, self.over_rate(node, deed))
        else:
            self.spend(node, deed)
            self.remedies.append(Remedy(node, deed, because))
