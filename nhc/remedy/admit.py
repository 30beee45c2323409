"""Which faults open an episode. Pure.

Faults are reported twice, late, or after the node was already repaired; none of these may begin a repair. A fault that
a person works on is left to that person. A node has only one open episode, which further faults join: two episodes
could act on one node at the same time, and one repair of the machine covers all its faults.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.model import DeviceId
from nhc.core.timestamps import AHEAD
from nhc.marks.policy.bounds import protected
from nhc.marks.ports.adapter import DeviceState
from nhc.remedy import of_device
from nhc.remedy.ladder import REQUEST, NodeFault
from nhc.remedy.machine import EpisodeState
from nhc.remedy.settings import RemedySettings


class NodeEpisode(NamedTuple):
    """The episode of a node that is open, or the one that ended last. `ended` is None while it is open.

    `gone`: it ended because the node was deleted; that decides nothing about the node that has its name now. `about` is
    the accelerator that it is about, if it is not about the whole node. `earlier` are those that ended before and still
    count (`nhc.remedy.cases.latest`).
    """

    number: int
    state: EpisodeState
    ended: Optional[float]
    causes: Tuple[str, ...]
    gone: bool = False
    about: DeviceId = DeviceId()
    earlier: Tuple[NodeEpisode, ...] = ()

    def of(self, device: DeviceId) -> Optional[NodeEpisode]:
        """The last episode about this device or its node, None if there is none. If no device is known,
        the very last.
        """
        for episode in (self, *self.earlier):
            if not device.known or not episode.about.known or episode.about.same(device):
                return episode
        return None


class Admission(NamedTuple):
    """What becomes of a node's faults: an episode to open, faults that join an open one, or the reason for neither.

    `about` names the one accelerator that the episode is to be about.
    """

    node: str
    faults: Tuple[NodeFault, ...]
    joins: Optional[int] = None
    refused: str = ""
    about: DeviceId = DeviceId()


def admit(
    faults: Iterable[NodeFault], standing: Mapping[str, NodeEpisode], settings: RemedySettings, now: float,
    devices: Optional[Sequence[DeviceState]] = (),
) -> List[Admission]:  # fmt: skip
    """What becomes of each node's faults, sorted by node. `devices` are those that can be marked alone, None if that
    cannot be read: then no node is marked for a fault that may be of one device only.
    """
    by_node: Dict[str, List[NodeFault]] = {}
    for fault in faults:
        by_node.setdefault(fault.node, []).append(fault)
    beside = None if devices is None else of_device.by_node(devices)
    return [_admit(node, by_node[node], standing.get(node), settings, now, beside) for node in sorted(by_node)]


def _admit(
    node: str, faults: Sequence[NodeFault], standing: Optional[NodeEpisode], settings: RemedySettings, now: float,
    devices: Optional[Mapping[str, Sequence[DeviceState]]],
) -> Admission:  # fmt: skip
    everything = tuple(faults)
    held = protected(settings.bounds, node)
    if held:
        return Admission(node, everything, refused=held.why)
    admitted: List[NodeFault] = []
    why = ""
    for fault in faults:
        refusal = _refusal(fault, standing, settings, now)
        if refusal:
            why = why or refusal
        else:
            admitted.append(fault)
    if not admitted:
        return Admission(node, everything, refused=why)
    alone = of_device.of_one(everything, admitted, settings.devices)
    if standing is not None and standing.ended is None:
        new = tuple(fault for fault in admitted if fault.cause not in standing.causes)
        if standing.about.known and alone.known:
            own = tuple(fault for fault in new if fault.device.same(standing.about))
            waits = f"episode {standing.number} is about another device of the node" if new and not own else ""
            return Admission(node, new if waits else own, standing.number, waits)
        return Admission(node, new, joins=standing.number)
    if alone.known and devices is None:
        return Admission(node, everything, refused="the cluster cannot be asked about its devices")
    first = tuple(sorted(admitted, key=lambda fault: (fault.began, fault.cause)))
    own = tuple(fault for fault in first if fault.device.same(alone))
    beside = (devices or {}).get(node, ())
    if own and of_device.can_be_marked(alone, beside):
        return Admission(node, own, refused=of_device.disputed(everything, alone, beside), about=alone)
    return Admission(node, first)


def _refusal(fault: NodeFault, standing: Optional[NodeEpisode], settings: RemedySettings, now: float) -> str:
    """Why one fault opens no episode, "" if it may."""
    if fault.source == REQUEST:
        return ""  # never too old: a request that an episode has answered is not among the faults any more
    if fault.seen - now > AHEAD:
        return f"its report is from {fault.seen - now:.0f} s in the future: check the node's clock"
    if fault.source != "mark" and now - fault.seen > settings.sources.max_age:
        return f"its report is {now - fault.seen:.0f} s old, more than {settings.sources.max_age:g} s"
    if fault.source != "mark" and now - (fault.began or fault.seen) < settings.settle(fault.reason):
        return f"{fault.reason} began {now - fault.began:.0f} s ago: not yet settled"
    if standing is None or standing.ended is None:
        return ""
    if standing.gone:
        return "" if fault.seen > standing.ended else f"it was seen before episode {standing.number} ended"
    if fault.seen <= standing.ended:
        return f"it was seen before episode {standing.number} ended: an old event repairs nothing"
    own = standing.of(fault.device)  # another device's says nothing about this one
    if own is None or own.ended is None or fault.began > own.ended:
        return ""  # a new fault, or one that ended once since then
    if own.state is EpisodeState.ESCALATED:
        return f"episode {own.number} gave it to a person: nhc release remedy {fault.node}"
    if own.state in (EpisodeState.WITHDRAWN, EpisodeState.ABORTED) and now - own.ended < settings.leave_alone:
        return f"episode {own.number} left it to a person ({own.state.value}): nhc release remedy {fault.node}"
    return ""
