"""The next step of one node of a train. Pure: what is seen in (`StopView`, `TrainScene`), one `StopMove` out."""

from __future__ import annotations

from typing import Callable, Dict, Optional

from nhc.model import Verdict
from nhc.ports.adapter import Effect, Mark
from nhc.ports.marks import clears_later, may_mark
from nhc.ports.repair import Stage
from nhc.remedy import bounds, verify
from nhc.remedy.after_repair import NEW_BOOT
from nhc.remedy.last_look import unfit
from nhc.remedy.machine import EpisodeEvent
from nhc.remedy.moves import FUTURE, fresh
from nhc.trains.machine import Stop, TrainState
from nhc.trains.settings import Work
from nhc.trains.view import StopMove, StopView, TrainScene
from nhc.units import show_number, show_seconds

ENABLED = 0.0
"""Since when marking counts as enabled: the first day's bound is for what the loop does by itself, not for a person's
train."""
TRIES = 20
"""How often work is asked for that is refused for now (throttled, not up yet)."""


def step(view: StopView, scene: TrainScene) -> StopMove:
    """What happens next to a node of a train."""
    return _STEPS[view.state](view, scene)


def wait(view: StopView, scene: TrainScene, bound: str, why: str) -> StopMove:
    """Wait, and say for what; figures in `why` may change without a write."""
    detail = view.detail
    if detail.waiting.partition(":")[0] != bound:
        detail = detail._replace(waiting=f"{bound}: {why}", waiting_since=detail.waiting_since or scene.now)
    return StopMove(None, detail, f"{bound}: {why}", bound)


def _go(view: StopView, to: Stop, because: str, **changes: object) -> StopMove:
    detail = view.detail._replace(waiting="", waiting_since=0.0, because=because, **changes)  # type: ignore[arg-type]
    return StopMove(to, detail, because)


def _work(view: StopView, scene: TrainScene) -> Work:
    return scene.plan.work[view.step]


def _overdue(view: StopView, scene: TrainScene) -> bool:
    since = view.detail.waiting_since or view.detail.entered
    return bool(since) and scene.time.elapsed(since) > scene.plan.wait_limit


def _aborting(scene: TrainScene) -> bool:
    return scene.train is TrainState.ABORTING


# State by state.


def _waiting(view: StopView, scene: TrainScene) -> StopMove:
    if _aborting(scene):
        return _go(view, Stop.SKIPPED, "the train was aborted before its turn")
    if not scene.going or view.wave != scene.turn:
        return StopMove(None, view.detail, scene.why, "turn")
    if not view.known:
        return wait(view, scene, "cluster", "the cluster cannot be asked about its nodes")
    no = _unfit(view, scene)
    if no:
        return _go(view, Stop.SKIPPED, no)
    ability = scene.can(view.node, _work(view, scene))
    if ability.again:
        return _later(view, scene, "not-now", ability.why)
    if ability.why:
        return _go(view, Stop.SKIPPED, ability.why)
    assert view.seen is not None
    if view.seen.hold:
        return _later(view, scene, "node", f"left alone: {view.seen.hold}")
    if view.held:
        return _later(view, scene, "hold", view.held)
    if scene.breaker:
        return _later(view, scene, "breaker", scene.breaker)
    held = bounds.may_mark(scene.settings.bounds, scene.usage, view.node, scene.now, ENABLED)
    if held is not None:
        return _later(view, scene, held.bound, held.why)
    # Where the work itself may not begin now, a node is not taken out to wait for it.
    held = bounds.may_repair(scene.settings.bounds, scene.usage, view.node, _work(view, scene).rung, scene.now)
    if held is not None:
        return _later(view, scene, held.bound, held.why)
    return _go(view, Stop.MARKING, scene.plan.why)


def _later(view: StopView, scene: TrainScene, bound: str, why: str) -> StopMove:
    """Wait for room; a node that had none within the plan's `wait_limit` is skipped."""
    if _overdue(view, scene):
        return _go(view, Stop.SKIPPED, f"waited {show_seconds(scene.plan.wait_limit)}: {why}")
    return wait(view, scene, bound, why)


def _unfit(view: StopView, scene: TrainScene) -> str:
    """Why a node is no matter for a train now, "" where it is."""
    if view.seen is None:
        return "the cluster does not know it any more"
    if view.episode:
        return f"episode {view.episode} repairs it"
    effect, why = may_mark(view.seen, Mark(""))
    if effect is not Effect.CHANGED or not view.seen.available:
        return f"it is out of service: {why or view.seen.shown}"
    if _faulty(view, scene):
        return "it is faulty: the remedy loop's, not a train's"
    if not fresh(view.health, scene):
        return "it has no fresh report, so nobody could tell how it is afterwards"
    return ""


def _faulty(view: StopView, scene: TrainScene) -> bool:
    health = view.health
    return health is not None and fresh(health, scene) and health.verdict is Verdict.CRIT


def _marking(view: StopView, scene: TrainScene) -> StopMove:
    if not view.hold_stands:
        return _go(view, Stop.LEFT, "a person ended the train's hold on it")
    if _aborting(scene) or _overdue(view, scene):
        why = "the train was aborted" if _aborting(scene) else f"the mark could not be set: {view.detail.waiting}"
        return _go(view, Stop.RETURNING, why, ends=Stop.SKIPPED.value)
    node = view.seen
    if node is not None and node.mark is not None and node.mark.ours and not node.available:
        return StopMove(None, view.detail)  # it was set, and nobody wrote that down
    if not scene.going:
        return wait(view, scene, "train", f"the train is {scene.train.value}")
    if scene.breaker:
        return wait(view, scene, "breaker", scene.breaker)
    held = bounds.never_now(scene.settings.bounds, bounds.MARK, view.node, scene.now)
    return wait(view, scene, held.bound, held.why) if held is not None else StopMove(None, view.detail)


def _taken(view: StopView) -> str:
    """Who has the node now in place of us, "" for nobody."""
    if not view.hold_stands:
        return "a person ended the train's hold on it"
    return unfit(view.seen, needs_idle=False, held=False)


def _draining(view: StopView, scene: TrainScene) -> StopMove:
    if not view.known:
        return wait(view, scene, "cluster", "the cluster cannot be asked about its nodes")
    taken = _taken(view)
    if taken:
        return _go(view, Stop.LEFT, taken)
    assert view.seen is not None
    if view.episode and not view.step:  # later ones wait for the end of our hold
        return _go(view, Stop.LEFT, f"episode {view.episode} has the node")
    begun = view.step > 0
    if _aborting(scene):
        return _unbegun(view, scene, "the train was aborted", begun)
    if view.seen.busy and not view.detail.forced:
        late = scene.time.elapsed(view.detail.entered) > scene.plan.drain.deadline
        if not late:
            return wait(view, scene, "work", "work still runs on it")
        why = f"work still runs {show_seconds(scene.plan.drain.deadline)} after the node was marked"
        if not scene.plan.drain.force:
            return _unbegun(view, scene, why, begun)
        return StopMove(None, view.detail._replace(forced=True, waiting="", waiting_since=0.0), f"{why}; forced")
    return _before_work(view, scene, begun)


def _before_work(view: StopView, scene: TrainScene, begun: bool) -> StopMove:
    """Everything is read again right before work begins."""
    assert view.seen is not None
    work = _work(view, scene)
    if not scene.going:
        return wait(view, scene, "train", f"the train is {scene.train.value}")
    until = scene.time.deadline(view.detail.ask_after)
    if scene.now < until:
        return wait(view, scene, "refused-for-now", f"the last try was refused until {until:.0f}")
    if view.seen.hold:
        return wait(view, scene, "node", f"left alone: {view.seen.hold}")
    ability = scene.can(view.node, work)
    if ability.again and not _overdue(view, scene):
        return wait(view, scene, "not-now", ability.why)
    if ability.why:
        return _unbegun(view, scene, ability.why, begun)
    for bound, said in (("hold", view.held), ("other-actor", view.claims), ("breaker", scene.breaker)):
        if said:
            return wait(view, scene, bound, said)
    held = bounds.may_repair(scene.settings.bounds, scene.usage, view.node, work.rung, scene.now)
    if held is not None and not begun:  # a node that is half done is finished: it counts against the level already
        return wait(view, scene, held.bound, held.why)
    if view.sighting is None:
        return wait(view, scene, "unseen", view.unseen or "the machine was not looked at yet")
    if view.sighting.actor:
        return wait(view, scene, "other-actor", f"{view.sighting.actor}: {view.sighting.doing}")
    # A report from before the last step's end may be of the boot before it.
    reported_boot = view.health.boot if view.health is not None and view.health.at > view.detail.effect else ""
    boot = view.sighting.kernel_boot or reported_boot
    line = f"step {view.step + 1} of {len(scene.plan.work)}: {work.what}"
    return _go(view, Stop.ACTING, line, boot=boot, follow_id="", follow_message="")._replace(begins=True)


def _unbegun(view: StopView, scene: TrainScene, why: str, begun: bool) -> StopMove:
    """Put a node back on which nothing was done; one that is half done stays out, for a person.

    One that has a fault by now stays out, too: the mark may be the fault's, and its repair is not the train's.
    """
    if begun:
        return _go(view, Stop.FAILED, f"after {show_number(view.step, 'step')}: {why}")
    if _faulty(view, scene):
        return _go(view, Stop.LEFT, f"{why}; it is faulty by now, and stays out of service: the remedy loop's")
    return _go(view, Stop.RETURNING, why, ends=Stop.SKIPPED.value)


def _acting(view: StopView, scene: TrainScene) -> StopMove:
    """Reached by a process that did not write it down itself: whether work was begun nobody knows."""
    del scene
    why = "the process stopped before it knew the answer: the effect is looked for"
    return _go(view, Stop.WATCHING, why)._replace(act="ambiguous")


def _watching(view: StopView, scene: TrainScene) -> StopMove:
    act, seen, work, health = view.act, view.progress, _work(view, scene), view.health
    if act is None:
        return _go(view, Stop.FAILED, "nothing says what was begun")
    if seen is not None and seen.stage is Stage.DONE:
        return _effect(view, scene, seen.message)
    if seen is not None and seen.stage in (Stage.FAILED, Stage.NOT_BEGUN, Stage.CANCELLED):
        what = "the check after the work failed" if work.verifies else f"{work.what} failed"
        return _go(view, Stop.FAILED, f"{what}: {seen.message}")._replace(act="failed")
    if (
        not work.argv and work.rung in NEW_BOOT and health is not None and view.detail.boot and health.boot
        and health.boot != view.detail.boot and act.written < health.at <= scene.now + FUTURE
    ):  # fmt: skip
        return _effect(view, scene, f"the node reports another boot ({health.boot})")
    if scene.time.elapsed(view.detail.entered) > work.takes:
        why = f"no effect of {work.what} was seen within {work.takes:g} s"
        return _go(view, Stop.FAILED, why)._replace(act="failed")
    said = seen.message if seen is not None else view.unwatched or "its effect is looked for"
    return wait(view, scene, "effect", said)


def _effect(view: StopView, scene: TrainScene, why: str) -> StopMove:
    last = view.step + 1 >= len(scene.plan.work)
    move = _go(view, Stop.VERIFYING if last else Stop.DRAINING, why, effect=scene.now, healthy=0.0, ask_after=0.0)
    return move._replace(act="succeeded", step=None if last else view.step + 1)


def _verifying(view: StopView, scene: TrainScene) -> StopMove:
    if not view.known:
        return wait(view, scene, "cluster", "the cluster cannot be asked about its nodes")
    taken = _taken(view)
    if taken:
        return _go(view, Stop.LEFT, taken)
    proof, detail = scene.plan.proof, view.detail
    silence, proved = verify.silence_of(view.seen), _proved(view, scene)
    node = verify.RepairedNode(detail.effect, detail.entered, detail.healthy, 0.0, view.health, silence, proved)
    found = verify.judge(node, proof, scene.time, fresh(view.health, scene))
    kept = view._replace(detail=detail._replace(healthy=found.healthy))
    if found.event is None:
        return wait(kept, scene, found.bound, found.why)
    if found.event is EpisodeEvent.PROVED_HEALTHY:
        return _go(kept, Stop.RETURNING, found.why, ends=Stop.DONE.value)
    return _go(kept, Stop.FAILED, f"after the work: {found.why}")


def _proved(view: StopView, scene: TrainScene) -> Optional[bool]:
    """What the newest verdict of the deep suite says, None where it is older than the work, or could not tell."""
    verdict, at = view.suite or ("", 0.0)
    newer = at > scene.time.moment(view.detail.effect)
    return {"OK": True, "WARN": True, "CRIT": False}.get(verdict) if newer else None


def _returning(view: StopView, scene: TrainScene) -> StopMove:
    if scene.time.elapsed(view.detail.entered) > scene.plan.wait_limit:
        return _go(view, Stop.FAILED, f"the mark could not be cleared: {view.detail.waiting}")
    later = clears_later(view.seen)
    if later:
        return wait(view, scene, "node", f"left alone: {later}")
    return StopMove(None, view.detail)


_STEPS: Dict[Stop, Callable[[StopView, TrainScene], StopMove]] = {
    Stop.WAITING: _waiting, Stop.MARKING: _marking, Stop.DRAINING: _draining, Stop.ACTING: _acting,
    Stop.WATCHING: _watching, Stop.VERIFYING: _verifying, Stop.RETURNING: _returning,
}  # fmt: skip
