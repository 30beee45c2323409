"""Slurm on HyperPod if nhc, not HyperPod's own agent, carries out the operators' requests in HyperPod's form.

    scontrol update node=n7 state=fail reason="Action:Reboot"       # or Action:Replace

This node counts as taken out by nhc and as requested. The text and time of its reason identify the request. Both are in
the text of our own mark, because that replaces the reason while the repair is under way.
"""

from __future__ import annotations

import re
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.model import Action
from nhc.core.timestamps import utc
from nhc.marks.ports.adapter import OWNER, AdapterError, Applied, Effect, Mark, NodeState
from nhc.marks.ports.marks import mark_text
from nhc.marks.ports.repair import RUNG_OF, Request
from nhc_adapters._command import plain
from nhc_adapters.slurm.adapter import Slurm
from nhc_adapters.slurm.states import HYPERPOD, HYPERPOD_OWNER

_WORDS = {action: f"Action:{action.value.capitalize()}" for action in HYPERPOD.values()}
_STANDING = re.compile(r"\((Action:(?:Reboot|Replace)), (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)\)")
"""A request in the text of our mark (`nhc.remedy.node_requests.fault_of`)."""


_WAITS = "asked for by a person"


class SlurmRequestRead(NamedTuple):
    """A node's state that contains a person's request, and the request."""

    state: NodeState
    request: Optional[Request]


def read(state: NodeState) -> SlurmRequestRead:
    """A node's state as Slurm has it: a request in HyperPod's words becomes a mark of ours without an action."""
    mark = state.mark
    if mark is None or state.available:
        return SlurmRequestRead(state, None)
    if mark.owner == HYPERPOD_OWNER:
        request = f"{_WORDS[mark.action]}, {utc(mark.since or 0.0)}"
        ours = Mark(f"{_WAITS} ({request})", Action.NONE, mark.since, OWNER)
        return SlurmRequestRead(state._replace(mark=ours), _request(_WORDS[mark.action], request))
    match = _STANDING.search(mark.why) if mark.ours else None
    return SlurmRequestRead(state, _request(match[1], f"{match[1]}, {match[2]}") if match else None)


def _request(recorded: str, text: str) -> Request:
    return Request(RUNG_OF[HYPERPOD[recorded.lower()]], text, text)


class SlurmHyperpod(Slurm):
    """The adapter `slurm-hyperpod`: as `slurm`, with operators' requests on nodes (`NodeRequests`).

    It has its own name because hooks do not need it: it is not in nhc.pyz.
    """

    def _prepare(self) -> None:
        super()._prepare()
        if self.command.setting("NHC_HYPERPOD"):
            raise AdapterError("slurm-hyperpod with NHC_HYPERPOD: our own orders would be read as requests")
        self._asked: Dict[str, Request] = {}

    def nodes(self, names: Optional[Sequence[str]] = None) -> List[NodeState]:
        """The states, with requests of persons distinguished from marks of others. Raises AdapterError."""
        entries = [read(state) for state in super().nodes(names)]
        gone = set(self._asked) if names is None else {entry.state.name for entry in entries}
        kept = {node: entry for node, entry in self._asked.items() if node not in gone}
        self._asked = {
            **kept,
            **{entry.state.name: entry.request for entry in entries if entry.request is not None},
        }
        return [entry.state for entry in entries]

    def clear(self, names: Sequence[str], seen: Optional[Iterable[NodeState]] = None) -> List[Applied]:
        """As `nhc.marks.ports.adapter`. A request that was not begun is not cleared."""
        states = self._states(names, seen)
        waits = {name for name, state in states.items() if state.mark is not None and state.mark.why.startswith(_WAITS)}
        done = super().clear([name for name in names if name not in waits], states.values())
        why = "left alone: a person has asked for a repair"
        return [*done, *(Applied(name, Effect.REFUSED, why) for name in sorted(waits))]

    def requests(self) -> Tuple[Mapping[str, Request], Sequence[str]]:
        """What persons ask for on the nodes that were read last; nothing in these words can be wrong."""
        return dict(self._asked), ()

    def answer(self, node: str, request: Request, text: str, returned: bool) -> str:
        """Remove a request from its node: the answer becomes the reason. Does nothing if another is there now."""
        try:
            self.nodes([plain(node)])
            if self._asked.get(node) != request:
                return ""
            reason = mark_text(Mark(f"answered: {text}", Action.INSPECT, owner=self.owner))
            self.command.ask("scontrol", "update", f"NodeName={node}", f"Reason={reason}")
        except AdapterError as error:
            return str(error)
        return ""
