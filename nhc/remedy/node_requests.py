"""Requests that persons make on a node itself, handled as faults. Pure.

A request opens an episode once, within the same bounds as a fault. Only the requested repair is done: a healthy report
does not end the episode, and if the repair fails, no harder one follows.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.model import Action
from nhc.marks.ports.repair import RUNG_OF, Request, Rung
from nhc.remedy.ladder import REQUEST, NodeFault
from nhc.remedy.machine import ENDS, EpisodeState
from nhc.remedy.silence import is_silence
from nhc.store.episodes import Episode

ACTIONS: Mapping[Rung, Action] = {rung: action for action, rung in RUNG_OF.items()}


class Answered(NamedTuple):
    """A request that an episode has carried out, or has given up."""

    node: str
    request: Request
    text: str
    returned: bool


class RequestsSeen(NamedTuple):
    """The open requests by node; and those that an ended episode has answered."""

    standing: Mapping[str, Request] = {}
    answered: Sequence[Answered] = ()


def cause_of(request: Request) -> str:
    return f"request|{request.rung.value}|{request.key}"


def fault_of(node: str, request: Request, now: float) -> NodeFault:
    """A request as a fault that was seen now."""
    message = f"{request.rung.value} was asked for on the node ({request.words})"
    return NodeFault(
        node, cause_of(request), "RepairRequested", message, ACTIONS[request.rung], now, now, request.device, REQUEST
    )  # fmt: skip


def answers(
    asked: Mapping[str, Request], rows: Iterable[Episode], causes: Mapping[int, Sequence[str]]
) -> Tuple[Dict[str, Request], List[Answered]]:
    """The requests still to be carried out, and those that an ended episode has answered. `causes` are those of each
    episode.
    """
    left, answered = dict(asked), []
    for row in rows:
        request = asked.get(row.node)
        if request is None or row.ended is None or cause_of(request) not in (*causes.get(row.id, ()), row.cause):
            continue
        left.pop(row.node, None)
        text = f"{request.rung.value}: episode {row.id} {row.state}: {row.outcome}"
        answered.append(Answered(row.node, request, text, row.state == EpisodeState.RETURNED.value))
    return left, answered


def kept(faults: Sequence[NodeFault], newer: Sequence[NodeFault]) -> Tuple[NodeFault, ...]:
    """The faults of an episode after a newer report: the report's faults, persons' requests, and a silence that its own
    scheduler reports.
    """
    others = [fault for fault in faults if fault.source == REQUEST or is_silence(fault)]
    before = {fault.cause: fault for fault in faults}
    return (*(_in_its_boot(fault, before.get(fault.cause)) for fault in newer), *others)


def _in_its_boot(fault: NodeFault, before: Optional[NodeFault]) -> NodeFault:
    """A fault with the boot in which it was seen before, unless it was seen later in a known boot."""
    if before is None or not before.boot or (fault.boot and fault.seen > before.seen):
        return fault
    return fault._replace(boot=before.boot)


def taken_back(faults: Sequence[NodeFault], standing: Mapping[str, Request], state: EpisodeState) -> bool:
    """Whether an episode is only for requests, and none of them is open any more."""
    if not faults or state in ENDS or any(fault.source != REQUEST for fault in faults):
        return False
    return all(fault.node not in standing or cause_of(standing[fault.node]) != fault.cause for fault in faults)
