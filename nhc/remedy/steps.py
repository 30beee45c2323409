"""The next step of one episode. Pure: takes what was seen (`EpisodeView`, `Scene`) and returns one `Move`.

The order in each state is the same: is the node ours to touch? is it still sick? has the step a reason to wait? Only
what passes all of it moves on. `nhc.remedy.controller` writes a move down before anything that follows from it is done.
"""

from __future__ import annotations

from typing import Callable, Dict, FrozenSet, Optional

from nhc.marks import clears_later, may_mark
from nhc.model import Verdict
from nhc.ports import Effect, Mark, NodeState
from nhc.remedy import bounds, verify
from nhc.remedy.bounds import MARK, Held
from nhc.remedy.detail import Detail
from nhc.remedy.ladder import REQUEST, Mode, Tried, next_rung
from nhc.remedy.machine import CANCELLABLE, MARKED_BY_US, AttemptStatus, EpisodeEvent, EpisodeState
from nhc.remedy.settings import RemedySettings
from nhc.remedy.view import EpisodeView, Health, Move, Scene
from nhc.repair import Rung, Stage
from nhc.units import show_number

NEW_BOOT = frozenset({Rung.REBOOT, Rung.POWER_CYCLE, Rung.REPLACE})
"""Rungs after which the machine has another boot id."""

RELAPSES = 6
"""How often a node may recover and fail again within one episode: one more than the ladder has repairs for a node."""

TAKEN_BACK = "the person who asked for it has taken that back"

FUTURE = 60.0
"""Seconds that a report may be ahead of our clock; one from further ahead proves nothing."""


def step(view: EpisodeView, scene: Scene) -> Move:
    """What happens next to an episode; Move.event is None where it waits, and `detail.waiting` then says for what."""
    found = _ours(view, scene) or _recovered(view, scene)
    return found if found is not None else _STEPS[view.state](view, scene)


def stay(view: EpisodeView, scene: Scene, bound: str, why: str) -> Move:
    """Wait, and say for what. `bound` is the stable name of the reason; figures in `why` may change without a write."""
    detail = view.detail
    text = f"{bound}: {why}"
    if detail.waiting.partition(":")[0] != bound:
        detail = detail._replace(waiting=text, waiting_since=detail.waiting_since or scene.now)
    return Move(None, detail, text, bound=bound)


def outlasted(view: EpisodeView, scene: Scene) -> bool:
    """Whether an episode has waited for longer than `limits.patience`, after which it is escalated to a person."""
    since = view.detail.waiting_since
    return bool(since) and scene.now - since > scene.settings.wait_limit


def fresh(health: Optional[Health], scene: Scene) -> bool:
    """Whether a report is young enough to be believed."""
    return health is not None and -FUTURE <= scene.now - health.at <= scene.settings.sources.max_age


def _go(view: EpisodeView, event: EpisodeEvent, because: str = "", **changes: object) -> Move:
    return Move(event, view.detail._replace(waiting="", waiting_since=0.0, alarmed=0.0, **changes), because)  # type: ignore[arg-type]


def _wait_for(view: EpisodeView, scene: Scene, held: Held) -> Move:
    """Wait for room; after `limits.patience` the episode is escalated to a person."""
    if outlasted(view, scene):
        return _go(view, EpisodeEvent.GIVEN_UP, f"waited {scene.settings.wait_limit / 3600:g} h: {held.why}")
    return stay(view, scene, held.bound, held.why)


# What holds in several states.


def _ours(view: EpisodeView, scene: Scene) -> Optional[Move]:
    """Whether the node is still there and still ours; None where it is, or where the state does not ask."""
    if view.state in (EpisodeState.ACTING, EpisodeState.WATCHING):
        return None  # what was sent is followed to its end, even if somebody has put a hold on the node since
    if view.held:
        return stay(view, scene, "hold", view.held)
    if not view.nodes_known:
        return stay(view, scene, "cluster", "the cluster cannot be asked about its nodes")
    replaced = view.rung is Rung.REPLACE and view.detail.repaired > 0
    if view.node is None:
        if replaced and view.state in (EpisodeState.VERIFYING, EpisodeState.RETURNING):
            return None
        return _go(view, EpisodeEvent.NODE_GONE, "the cluster does not know the node any more")
    if view.state not in MARKED_BY_US & CANCELLABLE or (replaced and view.state is EpisodeState.VERIFYING):
        return None
    lost = taken(view.node)
    return _go(view, EpisodeEvent.MARK_LOST, lost) if lost else None


def taken(node: NodeState) -> str:
    """Who has a node that carried our mark in hand by now, "" where it is still ours."""
    mark = node.mark
    if node.available:
        return "somebody put the node back into service"
    if mark is not None and mark.ours:
        return ""
    by = (mark.owner or "somebody else") if mark is not None else "somebody else, with no reason given"
    return f"the node is out by {by} now: {mark.why if mark is not None else node.shown}"


def unfit(detail: Detail, rung: Rung, node: Optional[NodeState], settings: RemedySettings) -> str:
    """Why a repair that is stored must not be sent, from the node's state at this moment; "" to send it."""
    if node is None:
        return "the cluster does not know the node any more"
    if node.busy and rung in settings.drain.rungs and not detail.forced:
        return "work runs on the node again"
    return taken(node) or (f"left alone: {node.hold}" if node.hold else "")


def _recovered(view: EpisodeView, scene: Scene) -> Optional[Move]:
    """Whether the fault has gone by itself before anything destructive was sent."""
    health = view.health
    if view.state not in (CANCELLABLE - {EpisodeState.VERIFYING, EpisodeState.MARKING}) | {EpisodeState.DETECTED}:
        return None
    if view.taken_back:
        return _go(
            view,
            EpisodeEvent.FAULT_GONE if view.state is EpisodeState.DETECTED else EpisodeEvent.HEALTHY_AGAIN,
            TAKEN_BACK,
        )
    if any(one.source == REQUEST for one in view.detail.faults):
        return None  # a healthy node is repaired too, where a person asks for it
    if view.detail.disproved > (view.last.written if view.last is not None else 0.0):
        return None  # the deep suite has failed since the last repair: a healthy report does not outweigh it
    newest = max((one.seen for one in view.detail.faults), default=0.0)
    if health is None or not fresh(health, scene) or not health.healthy or health.at <= newest:
        return None
    why = f"a report of {health.source} says that the node is healthy"
    if view.state is EpisodeState.DETECTED:
        return _go(view, EpisodeEvent.FAULT_GONE, why)
    floor = view.last.written if view.last is not None else 0.0
    return _go(view, EpisodeEvent.HEALTHY_AGAIN, why, healthy=health.at) if health.at > floor else None


# State by state.


def _detected(view: EpisodeView, scene: Scene) -> Move:
    settings = scene.settings
    if settings.mode(MARK) is not Mode.ON:
        return stay(view, scene, "dry-run", "would mark, which is not enabled")
    assert view.node is not None
    if view.node.hold:
        return _wait_for(view, scene, Held("node", f"left alone: {view.node.hold}"))
    effect, why = may_mark(view.node, Mark(""))
    if effect is Effect.REFUSED:
        return _go(view, EpisodeEvent.MARK_REFUSED, why)
    if view.node.mark is not None and view.node.mark.ours and not view.node.available:
        return _go(view, EpisodeEvent.MARK_ALLOWED, "our mark stands already")
    if view.breaker:
        return _wait_for(view, scene, Held("breaker", view.breaker))
    held = bounds.may_mark(settings.bounds, scene.usage, view.name, scene.now, scene.enabled_at)
    return _wait_for(view, scene, held) if held else _go(view, EpisodeEvent.MARK_ALLOWED, _why(view))


def _why(view: EpisodeView) -> str:
    first = view.detail.faults[0] if view.detail.faults else None
    return first.message if first is not None else ""


def _marking(view: EpisodeView, scene: Scene) -> Move:
    if scene.now - view.detail.entered > scene.settings.wait_limit:
        return _go(view, EpisodeEvent.GIVEN_UP, f"the mark could not be set: {view.detail.waiting}")
    node, settings = view.node, scene.settings
    if node is not None and node.mark is not None and node.mark.ours and not node.available:
        return Move(None, view.detail)  # it was set, and nobody wrote that down
    if settings.mode(MARK) is not Mode.ON:
        return stay(view, scene, "dry-run", "would mark, which is not enabled any more")
    if view.breaker:
        return _wait_for(view, scene, Held("breaker", view.breaker))
    held = bounds.never_now(settings.bounds, MARK, view.name, scene.now)
    return _wait_for(view, scene, held) if held else Move(None, view.detail)


def _marked(view: EpisodeView, scene: Scene) -> Move:
    detail = view.detail
    if scene.now < detail.ask_after:
        return stay(view, scene, "refused-for-now", f"the last try was refused until {detail.ask_after:.0f}")
    sent = [one for one in view.tries if one.number not in detail.unsent]
    tried = [Tried(one.rung, one.device, one.state, one.number in detail.again) for one in sent]
    choice = next_rung(
        detail.faults, tried, scene.settings.rung_modes(), lambda rung, device: scene.can(view.name, rung, device)
    )
    skipped = tuple(dict.fromkeys((*detail.skipped, *choice.skipped)))
    if choice.rung is Rung.ESCALATE:
        return _go(view, EpisodeEvent.LADDER_ENDED, choice.why, skipped=skipped)
    spent = bounds.spent(scene.settings.bounds, scene.usage, view.name, scene.now)
    if spent:
        return _go(view, EpisodeEvent.GIVEN_UP, spent, skipped=skipped)
    repairer = scene.repairer(view.name, choice.rung, choice.device)
    what = f"{_named(choice.rung, choice.device)} by {repairer}"
    recorded = {"skipped": [f"{_named(one.rung, one.device)}: {one.why}" for one in choice.skipped]}
    return _go(
        view, EpisodeEvent.REPAIR_PLANNED, what, device=choice.device, repairer=repairer, skipped=skipped, healthy=0.0,
        forced=False, asked=0.0,
    )._replace(rung=choice.rung, recorded=recorded if choice.skipped else {})  # fmt: skip


def _named(rung: Rung, device: str) -> str:
    return f"{rung.value} of {device}" if device else rung.value


def _draining(view: EpisodeView, scene: Scene) -> Move:
    assert view.node is not None
    drain = scene.settings.drain
    if not view.node.busy or view.rung not in drain.rungs:
        return _go(view, EpisodeEvent.DRAINED, "no work runs on it" if not view.node.busy else "needs no idle node")
    if scene.now - view.detail.entered <= drain.deadline:
        return stay(view, scene, "work", "work still runs on it")
    late = f"work still runs {drain.deadline / 3600:g} h after the node was marked"
    if drain.force:
        return _go(view, EpisodeEvent.DRAINED, f"{late}; the policy forces the repair", forced=True)
    return _go(view, EpisodeEvent.DRAIN_OVERDUE, late)


def _evidence(view: EpisodeView, scene: Scene) -> Move:
    if view.collected:
        return _go(view, EpisodeEvent.COLLECTED, "the evidence is kept, or why there is none")
    return stay(view, scene, "evidence", "evidence is being collected")


def _recheck(view: EpisodeView, scene: Scene) -> Move:
    settings = scene.settings
    assert view.node is not None
    health = view.health
    if (
        health is not None
        and health.verdict is Verdict.UNKNOWN
        and health.at > max((one.seen for one in view.detail.faults), default=0.0)
    ):
        return _wait_for(view, scene, Held("verdict", "the newest report could not tell how the node is"))
    if view.node.busy and view.rung in settings.drain.rungs and not view.detail.forced:
        return _go(view, EpisodeEvent.BUSY_AGAIN, "work runs on the node again")
    if view.node.hold:
        return _wait_for(view, scene, Held("node", f"left alone: {view.node.hold}"))
    why = scene.can(view.name, view.rung, view.detail.device)
    if why or settings.mode(view.rung.value) is not Mode.ON:
        return _go(view, EpisodeEvent.LADDER_ENDED, why or f"{view.rung.value} is not enabled any more")
    if view.claims:
        return _wait_for(view, scene, Held("other-actor", view.claims))
    if view.breaker:
        return _wait_for(view, scene, Held("breaker", view.breaker))
    spent = bounds.spent(settings.bounds, scene.usage, view.name, scene.now)
    if spent:
        return _go(view, EpisodeEvent.GIVEN_UP, spent)
    needed = settings.bounds.approvals.get(view.rung, 0)
    if len(view.consent.agreed) < needed:
        why = f"{show_number(needed, 'person')} must agree to {view.rung.value}"
        return _go(view, EpisodeEvent.APPROVAL_NEEDED, why, asked=scene.now)
    if view.consent.refused:
        return _go(view, EpisodeEvent.GIVEN_UP, f"{view.consent.refused} refused {view.rung.value}")
    held = bounds.may_repair(settings.bounds, scene.usage, view.name, view.rung, scene.now)
    if held:
        return _wait_for(view, scene, held)
    if view.sighting is None:
        return _wait_for(view, scene, Held("unseen", view.unseen or "the machine was not looked at yet"))
    if view.sighting.actor:
        return _wait_for(view, scene, Held("other-actor", f"{view.sighting.actor}: {view.sighting.doing}"))
    move = _go(
        view, EpisodeEvent.CONFIRMED, _why(view), boot=view.health.boot if view.health is not None else "", followed=0
    )
    return move._replace(begins=True)


def _awaiting(view: EpisodeView, scene: Scene) -> Move:
    if view.consent.refused:
        return _go(view, EpisodeEvent.DENIED, f"{view.consent.refused} refused {view.rung.value}")
    needed = scene.settings.bounds.approvals.get(view.rung, 0)
    if len(view.consent.agreed) >= needed:
        return _go(view, EpisodeEvent.APPROVED, f"agreed: {', '.join(view.consent.agreed)}")
    if scene.now - view.detail.asked > scene.settings.approval_expires:
        return _go(view, EpisodeEvent.GIVEN_UP, f"nobody decided within {scene.settings.approval_expires / 3600:g} h")
    missing = needed - len(view.consent.agreed)
    return stay(view, scene, "approval", f"{show_number(missing, 'more person')} must agree to {view.rung.value}")


def _acting(view: EpisodeView, scene: Scene) -> Move:
    """Reached after a restart only: the order was written down, and whether it was sent nobody knows."""
    del scene
    move = _go(view, EpisodeEvent.SENT, "the controller stopped before it knew the answer: the effect is looked for")
    return move._replace(ends=AttemptStatus.AMBIGUOUS)


def _watching(view: EpisodeView, scene: Scene) -> Move:
    last, seen, health = view.last, view.progress, view.health
    if last is None:
        return _go(view, EpisodeEvent.NO_EFFECT, "there is no attempt to watch")
    if seen is not None and seen.stage is Stage.DONE:
        return _effect(view, scene, seen.message, seen.replacement)
    if seen is not None and seen.stage is Stage.FAILED:
        return _go(view, EpisodeEvent.NO_EFFECT, seen.message)._replace(ends=AttemptStatus.FAILED)
    before = boots_before(view)
    if (
        last.rung in NEW_BOOT and health is not None and before and health.boot and health.boot not in before
        and health.at > last.written and health.at <= scene.now + FUTURE
    ):  # fmt: skip
        return _effect(view, scene, f"the node reports another boot ({health.boot})", "")
    limit = scene.settings.effect.seconds[last.rung]
    if scene.now - view.detail.entered > limit:
        if seen is not None and seen.stage is Stage.HALFWAY:
            return _go(view, EpisodeEvent.GIVEN_UP, f"half done for {limit:g} s: {seen.message}")._replace(
                ends=AttemptStatus.FAILED
            )
        why = f"no effect was seen within {limit:g} s"
        return _go(view, EpisodeEvent.NO_EFFECT, why)._replace(ends=AttemptStatus.FAILED)
    return stay(view, scene, "effect", seen.message if seen is not None else view.unseen or "its effect is looked for")


def _effect(view: EpisodeView, scene: Scene, why: str, successor: str) -> Move:
    move = _go(view, EpisodeEvent.EFFECT_SEEN, why, repaired=scene.now, healthy=0.0, successor=successor)
    return move._replace(ends=AttemptStatus.SUCCEEDED)


def _verifying(view: EpisodeView, scene: Scene) -> Move:
    found = verify.judge(view, scene.settings.verify, scene.now, fresh(view.health, scene), old_boots(view))
    if found.event is None:
        detail = view.detail._replace(healthy=found.healthy)
        return stay(view._replace(detail=detail), scene, found.bound, found.why)
    if found.event is not EpisodeEvent.STILL_FAULTY:
        return _go(view, found.event, found.why, healthy=found.healthy)
    relapses = view.detail.relapses + 1
    event = EpisodeEvent.STILL_FAULTY if relapses < RELAPSES else EpisodeEvent.GIVEN_UP
    why = found.why if relapses < RELAPSES else f"it came and went {relapses} times: {found.why}"
    disproved = scene.now if view.proved is False else view.detail.disproved
    return _go(view, event, why, healthy=0.0, relapses=relapses, disproved=disproved)


def boots_before(view: EpisodeView) -> FrozenSet[str]:
    """The boot ids that are known from before the last repair: of the last report, and of the look right before it."""
    found = (view.detail.boot, view.last.before_boot if view.last is not None else "")
    return frozenset(one for one in found if one)


def old_boots(view: EpisodeView) -> FrozenSet[str]:
    """The boots before the last repair, where that brings another one; none where it does not, or nobody knows."""
    last = view.last
    if last is None or last.rung not in NEW_BOOT or last.state is not AttemptStatus.SUCCEEDED:
        return frozenset()
    return boots_before(view)


def _returning(view: EpisodeView, scene: Scene) -> Move:
    health = view.health
    if health is not None and health.verdict is Verdict.CRIT and health.at > view.detail.healthy:
        return _go(view, EpisodeEvent.STILL_FAULTY, "it failed again before the mark was cleared")
    if scene.now - view.detail.entered > scene.settings.wait_limit:
        return _go(view, EpisodeEvent.GIVEN_UP, f"the mark could not be cleared: {view.detail.waiting}")
    later = clears_later(view.node)
    if later and not view.detail.successor:
        return stay(view, scene, "node", f"left alone: {later}")
    return Move(None, view.detail)


_STEPS: Dict[EpisodeState, Callable[[EpisodeView, Scene], Move]] = {
    EpisodeState.DETECTED: _detected,
    EpisodeState.MARKING: _marking,
    EpisodeState.MARKED: _marked,
    EpisodeState.DRAINING: _draining,
    EpisodeState.EVIDENCE: _evidence,
    EpisodeState.RECHECK: _recheck,
    EpisodeState.AWAITING_APPROVAL: _awaiting,
    EpisodeState.ACTING: _acting,
    EpisodeState.WATCHING: _watching,
    EpisodeState.VERIFYING: _verifying,
    EpisodeState.RETURNING: _returning,
}
