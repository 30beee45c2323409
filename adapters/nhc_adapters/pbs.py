"""PBS Pro, OpenPBS and Torque through `pbsnodes`. Standard library only: their hooks run this.

The two families share little but a command's name: PBS Pro reads as JSON, keeps a `comment` (-C) and clears OFFLINE
with -r; Torque reads as XML, keeps a `note` (-N) and clears OFFLINE with -c. Neither stores the time, so the time is in
the text.
"""

from __future__ import annotations

from typing import List, Optional, Sequence

from nhc.core.json_values import object_in, object_of, parse_object, text_of
from nhc.core.system import bounded_read
from nhc.marks.ports.adapter import AdapterError, NodeState
from nhc.marks.ports.marks import read_mark_text
from nhc_adapters._command import CommandMarker, Failures, Hosts, complaint, understood

HELD = {
    "provisioning": "it is being provisioned",
    "wait-provisioning": "it waits for provisioning",
    "maintenance": "it is under maintenance",
    "sleep": "it is powered down",
    "initializing": "it is starting",
    "stale": "it has left the configuration",
}
OUT = {"offline", "down", "unknown", "state-unknown", "stale", "unresolvable", "maintenance", "sleep"}
BUSY = {"job-busy", "job-exclusive", "resv-exclusive", "busy"}


def pbs_state(name: str, state: str, note: str, queue: str = "", jobs: object = None) -> NodeState:
    """A node as both families describe it: states joined by commas, a note or comment, perhaps a queue."""
    states = [state_name.strip().lower() for state_name in state.split(",") if state_name.strip()]
    return NodeState(
        name=name,
        shown=",".join(states) or "unknown",
        available=not set(states) & OUT,
        busy=bool(jobs) or bool(set(states) & BUSY),
        mark=read_mark_text(note),
        hold=next((HELD[state_name] for state_name in states if state_name in HELD), ""),
        groups=(queue,) if queue else (),
        flags=frozenset(state_name.upper() for state_name in states),
    )


class Pbs(CommandMarker):
    """PBS Pro and OpenPBS."""

    def _read(self, names: Optional[Sequence[str]]) -> List[NodeState]:
        done = self.command("pbsnodes", "-F", "json", *(["-av"] if names is None else ["-v", *names]))
        try:
            return parse_json(done.stdout)
        except ValueError as error:
            if done.status:  # it says nothing but "Unknown node", for each name
                if names is not None and "unknown node" in complaint(done).lower():
                    return []
                raise AdapterError(f"pbsnodes: {complaint(done)}") from None
            raise AdapterError(f"pbsnodes' answer cannot be understood: {error}") from None

    def _read_hosts(self) -> Hosts:
        """The hosts of vnodes: one machine may have several (a NUMA node each)."""
        return understood("pbsnodes'", json_hosts, self.command.ask("pbsnodes", "-F", "json", "-av"))

    def _take_out(self, states: Sequence[NodeState], text: str) -> Failures:
        return self.each(states, "pbsnodes", "-C", text, "-o")

    def _put_back(self, states: Sequence[NodeState]) -> Failures:
        return self.each(states, "pbsnodes", "-C", "", "-r")


def parse_json(text: str) -> List[NodeState]:
    """`pbsnodes -F json`. Raises ValueError."""
    nodes = object_in(parse_object(text), "nodes")
    states = []
    for name, node in nodes.items():
        if not isinstance(node, dict) or "state" not in node:
            continue  # {"Error": "Unknown node"} is here for a name that PBS does not have
        queue, comment = str(node.get("queue") or ""), str(node.get("comment") or "")
        states.append(pbs_state(name, str(node["state"]), comment, queue, node.get("jobs")))
    return states


def json_hosts(text: str) -> Hosts:
    """The host of each vnode, by the same. Raises ValueError."""
    nodes = object_in(parse_object(text), "nodes")
    return {name: (text_of(object_of(object_of(node).get("resources_available")).get("host")), "")
            for name, node in nodes.items()}  # fmt: skip


class Torque(CommandMarker):
    """Torque."""

    def _read(self, names: Optional[Sequence[str]]) -> List[NodeState]:
        done = self.command("pbsnodes", "-x", *(names or ()))
        if done.status and not done.stdout.strip():
            if names is not None and "unknown node" in complaint(done).lower():
                return []
            raise AdapterError(f"pbsnodes: {complaint(done)}")
        return understood("pbsnodes'", parse_xml, done.stdout)

    def _take_out(self, states: Sequence[NodeState], text: str) -> Failures:
        return self.each(states, "pbsnodes", "-o", "-N", text)

    def _put_back(self, states: Sequence[NodeState]) -> Failures:
        return self.each(states, "pbsnodes", "-c", "-N", "")


def parse_xml(text: str) -> List[NodeState]:
    """`pbsnodes -x`. Raises ValueError."""
    if not text.strip():
        return []  # a cluster without nodes
    root = bounded_read.parse_xml(text)
    states = []
    for node in root.iter("Node"):
        name, state = node.findtext("name", ""), node.findtext("state", "")
        if name:
            states.append(pbs_state(name, state, node.findtext("note", ""), "", node.findtext("jobs", "").strip()))
    return states
