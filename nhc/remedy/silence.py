"""Nodes that their scheduler or cluster cannot use because the node's daemon fails, as faults of their own. Pure.

A dead node reports nothing, so its silence is the fault. The scheduler or cluster is the first witness
(`NodeState.silence`): a missing report alone is a problem of the agent, while the scheduler still hears from the node.
Nodes that fall silent together share a cause (a switch, a power feed, the scheduler's own network), and none of them is
repaired for it. The repairer's view of the machine's power is asked right before the repair.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.limits import Limit, read_limit
from nhc.core.model import Action
from nhc.core.settings import declared
from nhc.core.timestamps import is_recent
from nhc.marks.policy.bounds import FLEET, Radius
from nhc.marks.ports.adapter import NodeState
from nhc.marks.ports.marks import cause_text, unheard
from nhc.remedy.ladder import NodeFault

SOURCE = "cluster"
"""The `source` of a silence among faults."""

SILENT = "NodeSilent"
"""Neither the scheduler nor the store receives anything from the node."""

NOT_READY = "NodeNotReady"
"""The scheduler cannot use the node, but something on it still answers: its daemon, or its agent by reports."""

OFF = frozenset({"off", "poweroff", "powered off", "poweredoff", "stopped", "deallocated", "terminated"})
"""Providers' words for a machine without power, in lower case."""


@declared.settings
class SilenceSettings(NamedTuple):
    """When a silence is not a fault of the node itself.

    Nodes whose silences began within `within` seconds of each other fell silent together. More than `limit` of the
    fleet, or `share` of a group (a rack, a leaf switch, a zone) and at least two nodes of it, have a common cause.
    `power_on`: a machine that is powered off is repaired too; else it is left to a person, who may have switched it
    off. `move_work`: if the cluster can, work that is bound to a dead node may start elsewhere once its machine is
    proved to be off or to have restarted. `port` is the port on which the neighbours of a silent node are tried
    (`nhc.remedy.neighbours`), 0 for none.
    """

    limit: Limit = declared.converted("together", read_limit, Limit(share=0.10, least=3), show=Limit.written)
    share: float = declared.share("share", 0.5)
    within: float = declared.seconds("within", 600.0, least=1.0)
    power_on: bool = declared.flag(
        "power-on", False,
        "A machine that is powered off is for a person, who may have switched it off; true switches it on.",
    )  # fmt: skip
    move_work: bool = declared.flag(
        "move-work", True,
        "Kubernetes: once the machine of a silent node is proved to be off or to have restarted, its volumes and a "
        "StatefulSet's pods may move to another node (the taint node.kubernetes.io/out-of-service), until the node is "
        "heard again.",
    )  # fmt: skip
    port: int = declared.count(
        "port", 22,
        "Where the machines beside a silent node (same leaf, block, rack, nvlink_domain) are asked whether they answer "
        "on the network, by a TCP connection; an open and a refused one both count. 0: they are not asked.", most=65535,
    )  # fmt: skip


def is_silence(fault: NodeFault) -> bool:
    """Whether a fault is a silence."""
    return fault.source == SOURCE


def faults(states: Iterable[NodeState], reported: Mapping[str, float], now: float, max_age: float) -> List[NodeFault]:
    """The silence of each node that nobody else has taken out. `reported` is when each node's newest report was made.

    A node that somebody else took out, or that the scheduler says to leave alone, may be silent on purpose.
    """
    silences = []
    for state in states:
        silence, mark = state.silence, state.mark
        free = state.available or unheard(state) or (mark is not None and mark.ours)
        if silence is None or state.hold or not free:
            continue
        at = reported.get(state.name, 0.0)
        speaks = at > silence.since and is_recent(at, now, max_age)
        reason = NOT_READY if silence.heard or speaks else SILENT
        message = f"{silence.why}; its agent still reports" if speaks and not silence.heard else silence.why
        silences.append(
            NodeFault(state.name, cause_text(SOURCE, reason, ""), reason, message, Action.REBOOT, now, silence.since,
                      source=SOURCE)
        )  # fmt: skip
    return silences


def shared(
    states: Iterable[NodeState], groups: Mapping[str, Sequence[Radius]], sizes: Mapping[Radius, int],
    settings: SilenceSettings,
) -> Dict[str, str]:  # fmt: skip
    """The silent nodes whose silence has a cause that they share with others, and which."""
    silent = {state.name: state.silence.since for state in states if state.silence is not None}
    times: Dict[Radius, List[float]] = {}
    for name, since in silent.items():
        for radius in ((FLEET, ""), *groups.get(name, ())):
            times.setdefault(radius, []).append(since)
    for moments in times.values():
        moments.sort()
    whys: Dict[str, str] = {}
    for name, since in silent.items():
        why = next(filter(None, (
            _together(radius, times[radius], since, sizes.get(radius, 0), settings)
            for radius in (*groups.get(name, ()), (FLEET, ""))
        )), "")  # fmt: skip
        if why:
            whys[name] = why
    return whys


def _together(
    radius: Radius, times: Sequence[float], since: float, size: int, settings: SilenceSettings
) -> str:  # fmt: skip
    """Why a silence that began at `since` is one of the whole radius, "" if it is not."""
    count = bisect_right(times, since + settings.within) - bisect_left(times, since - settings.within)
    where = "in the fleet" if radius[0] == FLEET else f"in {radius[0]} {radius[1]}"
    text = f"{count} of {size} nodes {where} fell silent together"
    if count >= 2 and count >= settings.share * size:
        return f"{text}: look for a common cause (a switch, power)"
    if radius[0] == FLEET and count > settings.limit.of(size):
        return f"{text}, more than {settings.limit.show()}: look for a common cause (the network, the scheduler)"
    return ""


def current(faults: Tuple[NodeFault, ...], state: Optional[NodeState]) -> Tuple[NodeFault, ...]:
    """The faults of an episode without a silence that has ended, unless the episode has no other fault."""
    if state is None or state.silence is not None:
        return faults
    return tuple(fault for fault in faults if not is_silence(fault)) or faults


def powered_off(power: str) -> bool:
    """Whether a provider's word for a machine's power says that it has none."""
    return power.strip().lower() in OFF
