"""Machines that the cloud takes away: a spot interruption, a preemption; and those that a person replaced. Pure.

Nothing is repaired on a machine that is about to go, and no person is called for it. The mark keeps new work off it.
Its episode waits until the cluster no longer has the node, or another machine reports under its name. That machine is
proved before the mark is cleared, and only its own faults count. EC2 gives two minutes, Google and Azure give thirty
seconds.
"""

from __future__ import annotations

from typing import Optional

from nhc.remedy.detail import Detail
from nhc.remedy.ladder import RECLAIM, NodeFault
from nhc.remedy.machine import CANCELLABLE, EpisodeEvent, EpisodeState
from nhc.remedy.moves import fresh, go, stay
from nhc.remedy.view import EpisodeView, Move, Scene

BOUND = "reclaimed"
BY_CLOUD = "reclaimed by the cloud"

_WAITS = CANCELLABLE - {EpisodeState.MARKING, EpisodeState.VERIFYING}
"""States from which a repair would begin."""
_NO_PERSON = frozenset({EpisodeState.DETECTED, EpisodeState.MARKING, EpisodeState.VERIFYING})
"""States in which a wait that is too long would call a person."""


def is_reclaim(fault: NodeFault) -> bool:
    """Whether the fault is that the cloud takes the machine away, and the settings ask for no other
    handling (`begin`).
    """
    return fault.reason == RECLAIM and not fault.begin


def of_cause(cause: str) -> bool:
    """Whether the cause of an episode is that the cloud takes the machine away."""
    return f"|{RECLAIM}|" in cause


def noted(view: EpisodeView) -> EpisodeView:
    """The view whose detail has the boot of the machine that is taken away, as long as no other machine
    has its name.
    """
    detail, health = view.detail, view.health
    announced = _announced(view)
    if announced is not None:
        detail = detail._replace(reclaimed=announced.boot or detail.reclaimed or "?")
    elif health is not None and health.boot and health.boot == detail.reclaimed:
        detail = detail._replace(reclaimed="")  # the cloud has taken its notice back
    elif _other_machine(view):
        detail = detail._replace(disproved=0.0)  # what its suite has shown was of the machine that is gone
    return view._replace(detail=detail)


def step(view: EpisodeView, scene: Scene) -> Optional[Move]:
    """The wait for a machine that is taken away, and the end of it; None if the ladder goes on."""
    if view.state not in _WAITS:
        return None
    announced = _announced(view)
    if announced is not None:
        return stay(view, scene, BOUND, f"{announced.message}: nothing is repaired")
    if _other_machine(view) and fresh(view.health, scene):
        return go(
            view, EpisodeEvent.NODE_GONE, f"{gone(view.detail)}another machine has its name, and faults of its own"
        )
    return None


def left_to_nobody(view: EpisodeView, scene: Scene, move: Move) -> Move:
    """The move; or a wait, if the move would call a person to a machine that is taken away."""
    announced = _announced(view)
    if announced is None or move.event is not EpisodeEvent.GIVEN_UP or view.state not in _NO_PERSON:
        return move
    return stay(view, scene, BOUND, announced.message)


def gone(detail: Detail) -> str:
    """The text before the reason of an end, if the cloud has taken the machine away."""
    return f"{BY_CLOUD}: " if detail.reclaimed else ""


def _announced(view: EpisodeView) -> Optional[NodeFault]:
    """The notice, while no later report says that the node is healthy."""
    health = view.health
    notice = next((fault for fault in view.detail.faults if is_reclaim(fault)), None)
    if notice is not None and health is not None and health.healthy and health.at > notice.seen:
        return None
    return notice


def _other_machine(view: EpisodeView) -> bool:
    health, before = view.health, view.detail.reclaimed
    return view.replaced or bool(before and health is not None and health.boot and health.boot != before)
