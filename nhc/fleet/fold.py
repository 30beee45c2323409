"""Equal results of many nodes in one line: `OK 127 nodes gpu[001-127]`, `CRIT 1 node gpu128: GpuXid79 ...`.

Only counts, numbers of nodes and messages of what is wrong are kept while a sweep runs, never reports: ten thousand
nodes take a few MB.
"""

from __future__ import annotations

import re
from array import array
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Sequence, Tuple

from nhc.core.matching.node_ranges import fold
from nhc.core.model import Verdict, printable
from nhc.core.render.text import paint
from nhc.core.units import show_number
from nhc.fleet.clean_report import Finding
from nhc.fleet.node_result import REACH

# Messages that differ in their figures are one cause; those that differ in their words are several.
#
# `/scratch has 3% free` on one node and `/scratch has 1% free` on another are shown as `/scratch has 1-3% free`.
# Numbers become ranges; addresses, dates and other figures that differ become `…`; a node's own name becomes `NODE`.
# Terminal, JSON and page all show what is made here.


MOST = 50
"""Causes kept of one problem. What comes after is one more: a program that says something else each time."""
OTHERS = "\0others"

# A number, or what is made of several: an address, a date, a version, a device's name.
_FIGURE = re.compile(r"\b(?:0x)?(?=[0-9a-fA-F:.\-]*\d)[0-9a-fA-F]+(?:[:.\-][0-9a-fA-F]+)*\b|\d+")
_NUMBER = re.compile(r"\d{1,18}(?:\.\d{1,9})?")


class Cause(NamedTuple):
    """One cause of a problem: its message, the nodes that have it, and what would mend it ("" for nothing)."""

    message: str
    nodes: List[str]
    action: str = ""


class Causes:
    """The causes of one problem, as nodes come with their messages."""

    def __init__(self) -> None:
        self._nodes_of: Dict[str, Tuple[array[int], List[str]]] = {}
        self._actions: Dict[str, str] = {}
        self._by_node: Dict[int, List[Tuple[str, str]]] = {}

    def add(self, index: int, name: str, message: str, action: str) -> str:
        """Note a node's message; the key of its cause."""
        self._by_node.clear()
        template = template_of(message, name)
        if template not in self._nodes_of:
            if len(self._nodes_of) >= MOST:
                template = OTHERS
            self._actions.setdefault(template, "" if action == "none" else action)
        indices, messages = self._nodes_of.setdefault(template, (array("I"), []))
        if not indices or indices[-1] != index:
            indices.append(index)
            if messages and messages[0] == message:
                message = messages[0]  # kept once
            messages.append(message)
        return template

    def of(self, names: Sequence[str], among: Iterable[int] = ()) -> List[Cause]:
        """The causes on these nodes (all, where none are named), the most frequent first."""
        return sorted(self.listed(names, among).values(), key=lambda cause: -len(cause.nodes))

    def listed(self, names: Sequence[str], among: Iterable[int] = ()) -> Dict[str, Cause]:
        """The same by their keys, in the order in which they came."""
        causes: Dict[str, Cause] = {}
        for template, pairs in self._pairs(sorted(set(among))):
            pairs.sort(key=lambda pair: pair[0])
            summary = common([message for _index, message in pairs], [names[index] for index, _message in pairs])
            if template == OTHERS and len(pairs) > 1:
                summary += " (one of several)"
            causes[template] = Cause(summary, [names[index] for index, _message in pairs], self._actions[template])
        return causes

    def _pairs(self, among: Sequence[int]) -> List[Tuple[str, List[Tuple[int, str]]]]:
        """Each cause's nodes with their messages, of these nodes or of all, in the order in which the causes came."""
        if not among:
            return [
                (template, list(zip(indices, messages))) for template, (indices, messages) in self._nodes_of.items()
            ]
        if not self._by_node:  # made once for all groups of nodes that are asked for: each then costs its own nodes
            for template, (indices, messages) in self._nodes_of.items():
                for index, message in zip(indices, messages):
                    self._by_node.setdefault(index, []).append((template, message))
        by_template: Dict[str, List[Tuple[int, str]]] = {}
        for index in among:
            for template, message in self._by_node.get(index, ()):
                by_template.setdefault(template, []).append((index, message))
        return [(template, by_template[template]) for template in sorted(by_template, key=list(self._nodes_of).index)]


def template_of(message: str, name: str) -> str:
    """The message without its figures and without the node's own name."""
    return _FIGURE.sub("#", _nameless(message, name))


def _nameless(message: str, name: str) -> str:
    if name and name in message:
        return re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", "NODE", message)
    return message


def common(messages: Sequence[str], names: Sequence[str]) -> str:
    """What messages that differ in their figures say together."""
    first = messages[0]
    if all(message == first for message in messages):
        return printable(first)
    bare = [_nameless(message, name) for message, name in zip(messages, names)]
    shape = _FIGURE.sub("#", bare[0])
    alike = [text for text in bare if _FIGURE.sub("#", text) == shape]
    columns = zip(*(_FIGURE.findall(text) for text in alike))
    pieces = _FIGURE.split(bare[0])
    combined = pieces[0]
    for values, rest in zip(columns, pieces[1:]):
        combined += _span(values) + rest
    return printable(combined)


def _span(values: Sequence[str]) -> str:
    """`3` for what is the same everywhere, `1-3` for numbers, `…` for other figures."""
    if len(set(values)) == 1:
        return values[0]
    if all(_NUMBER.fullmatch(value) for value in values):
        return f"{min(values, key=float)}-{max(values, key=float)}"
    return "…"


SHOWN = 5
"""Causes of one problem shown as text; JSON and the page have them all."""

Problem = Tuple[str, str, int, str]
"""Check, target, verdict, reason: what two nodes must have alike to share a line."""


class Fact(NamedTuple):
    """One line of a folded sweep: what these nodes have in common, and its causes, the most frequent first."""

    verdict: Verdict
    nodes: List[str]
    check: str = ""
    target: str = ""
    reason: str = ""
    causes: Tuple[Cause, ...] = ()

    @property
    def message(self) -> str:
        """What is said of it: of several causes, how many nodes have each."""
        if len(self.causes) < 2:
            return self.causes[0].message if self.causes else ""
        parts = [f"{len(cause.nodes)} x {cause.message}" for cause in self.causes[:SHOWN]]
        more = len(self.causes) - SHOWN
        return "; ".join([*parts, f"and {more} more causes"] if more > 0 else parts)

    @property
    def action(self) -> str:
        """What would mend it, "" where nothing is suggested or not the same for all."""
        actions = {cause.action for cause in self.causes}
        return actions.pop() if len(actions) == 1 else ""

    def to_json(self) -> Dict[str, Any]:
        return {
            "verdict": self.verdict.name, "nodes": fold(self.nodes), "count": len(self.nodes), "check": self.check,
            "target": self.target, "reason": self.reason, "message": self.message, "action": self.action,
            "causes": [{"nodes": fold(cause.nodes), "count": len(cause.nodes), "message": cause.message,
                        "action": cause.action} for cause in self.causes],
        }  # fmt: skip


class Folder:
    """Takes each node's findings as they come."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.counts: Dict[Verdict, int] = dict.fromkeys(sorted(Verdict, reverse=True), 0)
        self._by_problems: Dict[Tuple[int, Tuple[Problem, ...]], array[int]] = {}
        self._by_check: Dict[Problem, array[int]] = {}
        self.causes: Dict[Problem, Causes] = {}

    def add(self, index: int, verdict: int, findings: Iterable[Finding]) -> None:
        self.counts[Verdict(verdict)] += 1
        problems: Dict[Problem, None] = {}
        for check, target, level, reason, message, action in findings:
            problem = (check, target, level, reason)
            if level > Verdict.OK:
                problems[problem] = None
                self.causes.setdefault(problem, Causes()).add(index, self.names[index], message, action)
            nodes = self._by_check.setdefault(problem, array("I"))
            if not nodes or nodes[-1] != index:
                nodes.append(index)
        worst_first = tuple(sorted(problems, key=lambda problem: (-problem[2], problem)))
        self._by_problems.setdefault((verdict, worst_first), array("I")).append(index)

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
        groups: List[Tuple[int, List[Fact]]] = []
        for (verdict, problems), indices in self._by_problems.items():
            facts = [self._fact(problem, indices) for problem in problems]
            groups.append((verdict, facts or [Fact(Verdict(verdict), self._sorted(indices))]))
        # A node's verdict is that of its worst problem; SKIP alone is UNKNOWN.
        groups.sort(key=lambda group: (-group[0], -len(group[1][0].nodes), group[1][0].nodes[0]))
        return [group for _verdict, group in groups]

    def by_check(self) -> List[Fact]:
        """Each check's verdicts, the worst first, and the nodes that share each."""
        facts = [self._fact(problem, indices) for problem, indices in self._by_check.items()]
        return sorted(facts, key=lambda fact: (-fact.verdict, fact.check, fact.target, -len(fact.nodes)))

    def _fact(self, problem: Problem, indices: array[int]) -> Fact:
        check, target, level, reason = problem
        causes: List[Cause] = []
        if problem in self.causes:
            everyone = len(indices) == len(self._by_check[problem])
            causes = self.causes[problem].of(self.names, () if everyone else indices)
        return Fact(Verdict(level), self._sorted(indices), check, target, reason, tuple(causes))

    def _sorted(self, indices: Iterable[int]) -> List[str]:
        return [self.names[index] for index in sorted(indices)]


# As text.


def show_by_node(groups: Sequence[Sequence[Fact]], colour: bool = False, quiet: bool = False) -> str:
    """Verdict and count first, then the nodes, then what is wrong with them and what would mend it."""
    lines: List[str] = []
    for group in groups:
        verdict = max(fact.verdict for fact in group)
        if quiet and verdict <= Verdict.OK:
            continue
        head = f"{paint(verdict.name, verdict, colour)} {_count_and_names(group[0].nodes)}"
        if not group[0].check:
            lines.append(head)
        elif len(group) == 1:
            lines += _problem_lines(f"{head}: ", group[0], "    ")
        else:
            lines.append(f"{head}:")
            for fact in group:
                lines += _problem_lines(f"    {paint(fact.verdict.name, fact.verdict, colour)} ", fact, "        ")
    return "".join(f"{line}\n" for line in lines)


def show_by_check(facts: Sequence[Fact], colour: bool = False, quiet: bool = False, skipped: bool = False) -> str:
    """Each check's verdicts; those that had nothing to judge only where `skipped` asks for them."""
    lines: List[str] = []
    for fact in facts:
        if (quiet and fact.verdict <= Verdict.OK) or (fact.verdict is Verdict.SKIP and not skipped):
            continue
        where = f"{fact.check} {fact.target}" if fact.target else fact.check
        head = f"{paint(fact.verdict.name, fact.verdict, colour)} {where}: {_count_and_names(fact.nodes)}"
        if fact.verdict <= Verdict.OK:
            lines.append(head)
        else:
            lines += _problem_lines(f"{head}: ", fact._replace(check="", target=""), "    ")
    return "".join(f"{line}\n" for line in lines)


def _problem_lines(head: str, fact: Fact, indent: str) -> List[str]:
    """A problem in one line, or one more for each of its causes."""
    where = "" if fact.check == REACH else " ".join(part for part in (fact.check, fact.target) if part)
    what = " ".join(part for part in (fact.reason, where) if part)
    if len(fact.causes) < 2:
        message = _cause_text(fact.causes[0]) if fact.causes else ""
        return [head + ": ".join(part for part in (what, message) if part)]
    lines = [f"{head}{what}"]
    lines += [f"{indent}{_count_and_names(cause.nodes)}: {_cause_text(cause)}" for cause in fact.causes[:SHOWN]]
    rest = [name for cause in fact.causes[SHOWN:] for name in cause.nodes]
    if rest:
        lines.append(f"{indent}{_count_and_names(rest)}: {show_number(len(fact.causes) - SHOWN, 'more cause')}")
    return lines


def _count_and_names(nodes: Sequence[str]) -> str:
    return f"{show_number(len(nodes), 'node')} {fold(nodes)}"


def _cause_text(cause: Cause) -> str:
    suggested = f"(suggested: {cause.action})" if cause.action not in ("", "inspect") else ""
    return " ".join(part for part in (printable(cause.message), suggested) if part)


def counted(counts: Mapping[Verdict, int], colour: bool = False) -> str:
    """`1 CRIT, 127 OK`."""
    parts = [f"{count} {paint(verdict.name, verdict, colour)}" for verdict, count in counts.items() if count]
    return ", ".join(parts) or "none"
