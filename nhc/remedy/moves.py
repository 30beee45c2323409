"""The forms of a decision about an episode: wait for a stated reason, leave the state by an event, or give up."""

from __future__ import annotations

import re
from typing import Optional

from nhc.core.units import show_seconds
from nhc.marks.policy.bounds import Held
from nhc.remedy.detail import Detail
from nhc.remedy.machine import EpisodeEvent, EpisodeState, after
from nhc.remedy.view import EpisodeView, Health, Move, Scene

LONGEST_PAUSE = 600.0
"""The longest pause in seconds between two requests, unless the other side asks for a longer one."""

WORK = "work"
"""The bound of an episode that waits until the work on its node has ended."""

_FIGURES = re.compile(r"\d+")


def stay(view: EpisodeView, scene: Scene, bound: str, why: str) -> Move:
    """Wait, and say for what. `bound` is the stable name of the reason; figures in `why` may change without a write."""
    detail = view.detail
    text = f"{bound}: {why}"
    if not same_wait(detail.waiting, text):
        detail = detail._replace(waiting=text, waiting_since=detail.waiting_since or scene.now)
    return Move(None, detail, text, bound=bound)


def same_wait(waiting: str, text: str) -> bool:
    """Whether an episode still waits for the same reason: a changed figure in it is not written."""
    return _FIGURES.sub("", waiting) == _FIGURES.sub("", text)


def outlasted(view: EpisodeView, scene: Scene) -> bool:
    """Whether an episode has waited for longer than `limits.patience`, after which it is escalated to a person."""
    since = view.detail.waiting_since
    return bool(since) and scene.time.elapsed(since) > scene.settings.wait_limit


def not_now(view: EpisodeView, scene: Scene, why: str, again: float) -> Move:
    """Ask again in `again` seconds, with longer pauses the longer it lasts; no harder repair follows from it."""
    detail = postponed(view.detail, scene.now, why, again)
    return _given_up(view, scene, why) or Move(None, detail, detail.waiting, bound="not-now")


def _given_up(view: EpisodeView, scene: Scene, why: str) -> Optional[Move]:
    limit, since = scene.settings.not_now, view.detail.not_now
    if not since or scene.time.elapsed(since) <= limit:
        return None
    return go(
        view, EpisodeEvent.GIVEN_UP, f"nobody could be asked for {view.rung.value} for {show_seconds(limit)}: {why}"
    )


def still_not_now(view: EpisodeView, scene: Scene) -> Optional[Move]:
    """The wait of `not_now` while it lasts, None if it is time to ask again."""
    detail = view.detail
    if scene.now >= scene.time.deadline(detail.ask_after):
        return None
    why = detail.waiting.partition(": ")[2] or "the last try was refused for now"
    return _given_up(view, scene, why) or stay(view, scene, "not-now", why)


def postponed(detail: Detail, now: float, why: str, again: float) -> Detail:
    """The detail of an episode that waits because no repairer can be asked for its repair now."""
    since = detail.not_now or now
    pause = max(again, min(LONGEST_PAUSE, max(0.0, now - since) / 2))
    return detail._replace(
        waiting=f"not-now: {why}", waiting_since=detail.waiting_since or since, not_now=since, ask_after=now + pause
    )


FOR_ALL = ("breaker", "silence")
"""The bounds that hold every node they apply to: the breaker, and a cause that nodes share."""
_HELD = (EpisodeState.MARKING, EpisodeState.ESCALATED)
_SENT = (EpisodeState.ACTING, EpisodeState.WATCHING)


def held_for_all(view: EpisodeView, scene: Scene, move: Move) -> Move:
    """The move; or a wait instead, if the move takes over a node or leaves it to a person while the breaker is open or
    the cause is shared: a fault that passes by itself must leave no healthy node out of service. Afterwards the time of
    the state begins again. Actions that were sent are followed to their end, and a person's decisions hold.
    """
    state = after(view.state, move.event) if move.event is not None else view.state
    if move.event is None or state not in _HELD or view.state in _SENT or view.consent.refused:
        return move
    for bound, why in zip(FOR_ALL, (view.breaker, view.shared)):
        if why:
            return stay(view, scene, bound, why)
    waited = view.detail.waiting.partition(":")[0] in FOR_ALL
    if waited and state is EpisodeState.ESCALATED:
        anew = view.detail._replace(entered=scene.now, waiting="", waiting_since=0.0)
        return Move(None, anew, "its time begins anew")
    return move


def fresh(health: Optional[Health], scene: Scene) -> bool:
    """Whether a report is young enough to be believed."""
    return health is not None and health.is_fresh(scene.now, scene.settings.sources.max_age)


def go(view: EpisodeView, event: EpisodeEvent, because: str = "", **changes: object) -> Move:
    """Leave the state by an event, with these changes of the detail; nothing is waited for any more."""
    return Move(event, view.detail._replace(waiting="", waiting_since=0.0, alarmed=0.0, **changes), because)  # type: ignore[arg-type]


def wait_for(view: EpisodeView, scene: Scene, held: Held) -> Move:
    """Wait for room; after `limits.patience` the episode is escalated to a person."""
    if outlasted(view, scene):
        return go(view, EpisodeEvent.GIVEN_UP, f"waited {show_seconds(scene.settings.wait_limit)}: {held.why}")
    return stay(view, scene, held.bound, held.why)
