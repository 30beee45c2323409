"""Flux through `flux resource`. Standard library only.

A drained rank keeps a reason; an operator's is replaced only with --force, which is used here on our own marks
alone. The time is kept in the text, since its column's form differs between releases.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence

from nhc.marks.ports.adapter import AdapterError, NodeState
from nhc.marks.ports.marks import read_mark_text
from nhc_adapters._command import CommandMarker, Failures, complaint, understood

STATES = "avail,offline,exclude,draining,drained,allocated"
FORMAT = "{state}|{nodelist}|{reason}"
OUT = {"offline", "exclude", "draining", "drained", "drain"}


class Flux(CommandMarker):
    """Flux framework."""

    def _read(self, names: Optional[Sequence[str]]) -> List[NodeState]:
        done = self.command("flux", "resource", "status", "-n", "-s", STATES, "-o", FORMAT)
        if done.status:
            raise AdapterError(f"flux resource: {complaint(done)}")
        return understood("flux resource's", parse_status, done.stdout)

    def _take_out(self, states: Sequence[NodeState], text: str) -> Failures:
        force = [] if states[0].available else ["--force"]
        names = [state.name for state in states]
        return self.try_lists(names, lambda folded: ("flux", "resource", "drain", *force, folded, text))

    def _put_back(self, states: Sequence[NodeState]) -> Failures:
        names = [state.name for state in states]
        return self.try_lists(names, lambda folded: ("flux", "resource", "undrain", folded))


def parse_status(text: str) -> List[NodeState]:
    """`flux resource status` in our format: a node may be on several lines. Raises ValueError."""
    from nhc.core.matching.node_ranges import expand

    flags: Dict[str, List[str]] = {}
    reasons: Dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        fields = line.split("|", 2)
        if len(fields) < 3:
            raise ValueError(line)
        state, nodes, reason = (field.strip() for field in fields)
        for name in expand(nodes) if nodes else []:
            flags.setdefault(name, []).append(state.rstrip("*"))
            if reason not in ("", "-"):
                reasons[name] = reason
    return [_node(name, states, reasons.get(name, "")) for name, states in flags.items()]


def _node(name: str, states: List[str], reason: str) -> NodeState:
    return NodeState(
        name=name,
        shown="+".join(dict.fromkeys(states)),
        available=not set(states) & OUT,
        busy=bool(set(states) & {"allocated", "draining"}),
        mark=read_mark_text(reason),
        hold="it is excluded by configuration" if "exclude" in states else "",
        flags=frozenset(state.upper() for state in states),
    )
