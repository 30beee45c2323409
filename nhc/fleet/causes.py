"""Messages that differ in their figures are one cause; those that differ in their words are several.

`/scratch has 3% free` on one node and `/scratch has 1% free` on another are shown as `/scratch has 1-3% free`. Numbers
become ranges; addresses, dates and other figures that differ become `…`; a node's own name becomes `NODE`. Terminal,
JSON and page all show what is made here.
"""

from __future__ import annotations

import re
from array import array
from typing import Dict, Iterable, List, NamedTuple, Sequence, Tuple

from nhc.core.model import printable

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
