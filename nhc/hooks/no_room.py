"""A sick node for which the bound has no room gets a comment that says so: people see it there, and of several nodes
with the same fault only one logs it.
"""

from __future__ import annotations

import time

from nhc.core.light import TYPE_CHECKING
from nhc.core.model import printable
from nhc.core.state.store import State
from nhc.hooks import log
from nhc.hooks.marking import TICK
from nhc.marks.ports.adapter import AdapterError, Mark
from nhc.marks.ports.marks import TAG

if TYPE_CHECKING:
    from typing import Any, Set

MEMORY = "not-marked"
"""The nodes of this host on which this comment was left."""


def leave_comment(adapter: Any, node: str, mark: Mark, state: State) -> bool:
    """Leave the comment, and return whether this node logs its fault. The first by name of the nodes with the same
    comment does; a node that finds the comment on another does not. If the scheduler stores no comments, each does.
    """
    if not hasattr(adapter, "comments"):
        return True
    check, _, reason = mark.cause.partition("|")
    text = printable(f"{TAG} not marked, there is no room: {check}: {reason.partition('|')[0]}", 200)
    try:
        before = _carriers(adapter, text)
        if node not in before:
            if not adapter.comment(node, text):  # a foreign comment stays
                return True
            state.update(MEMORY, lambda memory: memory.update({node: True}))
            if before:
                return False
            time.sleep(TICK)  # nodes that failed in the same second leave theirs, too
        return min(_carriers(adapter, text) | {node}) == node
    except AdapterError as error:
        log.info(f"no comment could be left on {node}: {error}")
        return True


def _carriers(adapter: Any, text: str) -> Set[str]:
    return {name for name, comment in adapter.comments().items() if comment == text}


def remove_comment(adapter: Any, node: str, state: State) -> None:
    """Remove the comment from a node that is marked now, or healthy."""
    if not state.load(MEMORY).get(node):
        return
    try:
        adapter.comment(node, "")
        state.update(MEMORY, lambda memory: memory.pop(node, None))
    except AdapterError as error:
        log.info(f"the comment on {node} stays: {error}")
