"""Equal results of many nodes in one line: `gpu[001-127] OK`, `gpu128 CRIT GpuXid79 ...`.

Only counts and numbers of nodes are kept while a sweep runs, never reports: ten thousand nodes take a few MB.
"""

from __future__ import annotations

from array import array
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Sequence, Tuple

from nhc.fleet.result import REACH, Finding
from nhc.model import Verdict, printable
from nhc.nodeset import fold

COLOURS = {Verdict.SKIP: "2", Verdict.OK: "32", Verdict.WARN: "33", Verdict.UNKNOWN: "35", Verdict.CRIT: "31;1"}

Problem = Tuple[str, str, int, str]
"""Check, target, verdict, reason: what two nodes must have alike to share a line."""


class Fact(NamedTuple):
    """One line of a folded sweep: what these nodes have in common."""

    verdict: Verdict
    nodes: List[str]
    check: str = ""
    target: str = ""
    reason: str = ""
    message: str = ""
    alike: bool = True
    """Whether the message is everybody's, and not one of several that differ in their numbers."""

    def to_json(self) -> Dict[str, Any]:
        return {
            "verdict": self.verdict.name, "nodes": fold(self.nodes), "count": len(self.nodes), "check": self.check,
            "target": self.target, "reason": self.reason, "message": self.message,
        }  # fmt: skip


class Folder:
    """Takes each node's findings as they come."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.counts: Dict[Verdict, int] = dict.fromkeys(sorted(Verdict, reverse=True), 0)
        self._by_problems: Dict[Tuple[int, Tuple[Problem, ...]], array[int]] = {}
        self._by_check: Dict[Problem, array[int]] = {}
        self._messages: Dict[Problem, Tuple[str, bool]] = {}

    def add(self, index: int, verdict: int, findings: Iterable[Finding]) -> None:
        self.counts[Verdict(verdict)] += 1
        problems: List[Problem] = []
        for check, target, level, reason, message in findings:
            problem = (check, target, level, reason)
            if level > Verdict.OK:
                problems.append(problem)
                before = self._messages.get(problem)
                if before is None:
                    self._messages[problem] = (message, True)
                elif before[1] and before[0] != message:
                    self._messages[problem] = (before[0], False)
            nodes = self._by_check.setdefault(problem, array("I"))
            if not nodes or nodes[-1] != index:
                nodes.append(index)
        problems.sort(key=lambda problem: (-problem[2], problem))
        self._by_problems.setdefault((verdict, tuple(problems)), array("I")).append(index)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def unhealthy(self) -> int:
        """Nodes that are CRIT, or that nobody could judge."""
        return self.counts[Verdict.CRIT] + self.counts[Verdict.UNKNOWN]

    def worst(self) -> Verdict:
        return max((verdict for verdict, count in self.counts.items() if count), default=Verdict.UNKNOWN)

    def by_node(self) -> List[List[Fact]]:
        """Nodes with the same problems together, the worst first; every problem of such a group is a Fact."""
        groups: List[List[Fact]] = []
        for (verdict, problems), indices in self._by_problems.items():
            nodes = self._sorted(indices)
            found = [self._fact(problem, nodes) for problem in problems]
            groups.append(found or [Fact(Verdict(verdict), nodes)])
        # A node's verdict is that of its worst problem; SKIP alone is UNKNOWN.
        order = {id(group): key for group, key in zip(groups, self._by_problems)}
        groups.sort(key=lambda group: (-order[id(group)][0], -len(group[0].nodes), group[0].nodes[0]))
        return groups

    def by_check(self) -> List[Fact]:
        """Each check's verdicts, the worst first, and the nodes that share each."""
        found = [self._fact(problem, self._sorted(indices)) for problem, indices in self._by_check.items()]
        return sorted(found, key=lambda fact: (-fact.verdict, fact.check, fact.target, -len(fact.nodes)))

    def _fact(self, problem: Problem, nodes: List[str]) -> Fact:
        check, target, level, reason = problem
        message, alike = self._messages.get(problem, ("", True))
        return Fact(Verdict(level), nodes, check, target, reason, message, alike)

    def _sorted(self, indices: Iterable[int]) -> List[str]:
        return [self.names[index] for index in sorted(indices)]


# As text.


def show_by_node(groups: Sequence[Sequence[Fact]], colour: bool = False, quiet: bool = False) -> str:
    lines: List[str] = []
    for group in groups:
        verdict = max(fact.verdict for fact in group)
        if quiet and verdict <= Verdict.OK:
            continue
        nodes = fold(group[0].nodes)
        count = len(group[0].nodes)
        head = f"{nodes}{f' ({count})' if count > 1 else ''} {paint(verdict, colour)}"
        if len(group) == 1:
            lines.append(head + _said(group[0]))
        else:
            lines.append(head)
            lines += [f"    {paint(fact.verdict, colour)}{_said(fact)}" for fact in group]
    return "".join(f"{line}\n" for line in lines)


def show_by_check(facts: Sequence[Fact], colour: bool = False, quiet: bool = False) -> str:
    lines: List[str] = []
    for fact in facts:
        if quiet and fact.verdict <= Verdict.OK:
            continue
        target = f" {fact.target}" if fact.target else ""
        detail = " ".join(part for part in (fact.reason, _message(fact)) if part)
        lines.append(
            f"{paint(fact.verdict, colour)} {fact.check}{target}: {fold(fact.nodes)} ({len(fact.nodes)})"
            f"{f': {detail}' if detail else ''}"
        )
    return "".join(f"{line}\n" for line in lines)


def _said(fact: Fact) -> str:
    if not fact.check:
        return ""
    if fact.check == REACH:
        return f" {fact.reason}: {_message(fact)}"
    where = " ".join(part for part in (fact.check, fact.target) if part)
    said = f" {fact.reason} {where}" if fact.reason else f" {where}"
    return f"{said}: {_message(fact)}" if fact.message else said


def _message(fact: Fact) -> str:
    message = printable(fact.message)
    return message if fact.alike or not message else f"{message} (one of several)"


def paint(verdict: Verdict, colour: bool) -> str:
    return f"\033[{COLOURS[verdict]}m{verdict.name}\033[0m" if colour else verdict.name


def counted(counts: Mapping[Verdict, int], colour: bool = False) -> str:
    """`1 CRIT, 127 OK`."""
    found = [f"{count} {paint(verdict, colour)}" for verdict, count in counts.items() if count]
    return ", ".join(found) or "none"
