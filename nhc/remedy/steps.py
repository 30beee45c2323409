"""The next step of one episode. Pure: takes what was read (`EpisodeView`, `Scene`) and returns one `Move`.

The order in each state is the same: may the loop touch the node? is it still faulty? must the step wait? An episode
moves on only if all three allow it. `nhc.store.rounds.loop` stores a move before it is acted on.
"""

from __future__ import annotations

from typing import Callable, Dict, Optional

from nhc.core.limits import Mode
from nhc.core.model import DeviceId, Verdict
from nhc.core.units import show_number, show_seconds
from nhc.marks.policy import bounds
from nhc.marks.policy.bounds import MARK, Held
from nhc.marks.policy.door import NODE, MarkRequest, rule
from nhc.marks.ports.adapter import OWNER, REMEDY_OWNER, Effect, Mark
from nhc.marks.ports.marks import in_service_beside, machine_held, work_on_machine
from nhc.marks.ports.repair import Rung
from nhc.remedy import after_repair, reclaim
from nhc.remedy.final_check import REGISTERED_ANEW, busy_again, taken
from nhc.remedy.ladder import NO_REPAIR, REQUEST, UNREPORTED, NodeFault, first_rung, missing, named, next_rung
from nhc.remedy.machine import CANCELLABLE, MARKED_BY_US, EpisodeEvent, EpisodeState
from nhc.remedy.moves import FOR_ALL, WORK, fresh, go, held_for_all, not_now, stay, still_not_now, wait_for
from nhc.remedy.of_device import strangers
from nhc.remedy.silence import is_silence, powered_off
from nhc.remedy.view import NEW_BOOT, EpisodeView, Health, Move, Scene

TAKEN_BACK = "the person who asked for it has taken that back"


def step(view: EpisodeView, scene: Scene) -> Move:
    """What happens next to an episode; Move.event is None if it waits, and `detail.waiting` then says for what."""
    view = reclaim.noted(_registered(view))
    move = not_ours(view, scene) or _widened(view) or _recovered(view, scene) or reclaim.step(view, scene)
    move = move or reclaim.left_to_nobody(view, scene, _STEPS[view.state](view, scene))
    return held_for_all(view, scene, move)


def _registered(view: EpisodeView) -> EpisodeView:
    """The view with the registration of its node in its detail, if our mark was not set by this episode: a release by a
    person names none.
    """
    node = view.node
    if view.detail.uid or node is None or view.state not in MARKED_BY_US or taken(node):
        return view
    return view._replace(detail=view.detail._replace(uid=node.uid))


# What holds in several states.


def not_ours(view: EpisodeView, scene: Scene) -> Optional[Move]:
    """What follows if the node is missing or no longer ours; None if it is ours, or if that does not matter in this
    state.
    """
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
        why = "the cluster does not know the node any more"
        return go(view, EpisodeEvent.NODE_GONE, f"{reclaim.gone(view.detail)}{why}")
    if view.detail.marked_another(view.node.uid) and not replaced:
        return go(view, EpisodeEvent.NODE_GONE, f"{reclaim.gone(view.detail)}{REGISTERED_ANEW}")
    if view.state not in MARKED_BY_US & CANCELLABLE or after_repair.unmarked(view) or view.detail.successor:
        return None
    lost = taken(view.node, after_repair.begun(view))
    return go(view, EpisodeEvent.MARK_LOST, lost) if lost else None


def _widened(view: EpisodeView) -> Optional[Move]:
    """Whether more than its one device now fails or is out: the episode becomes the node's."""
    about = view.detail.about
    more = [fault.message for fault in strangers(view.detail.faults, about)] if about.known else []
    why = more[0] if more else view.node_out
    if not why:
        return None
    if view.state is EpisodeState.DETECTED:
        return Move(None, view.detail._replace(about=DeviceId()), f"the node's: {why}")
    if view.state not in MARKED_BY_US & CANCELLABLE:
        return None
    return widen(view, why)


def widen(view: EpisodeView, why: str) -> Move:
    """The node is marked next, and then the mark of the device is removed."""
    about = view.detail.about
    return go(view, EpisodeEvent.WIDENED, f"{about}: the node's fault: {why}", about=DeviceId(), widened=about,
              not_now=0.0, ask_after=0.0)  # fmt: skip


def _recovered(view: EpisodeView, scene: Scene) -> Optional[Move]:
    """Whether the fault has ended by itself before anything destructive was sent."""
    health = view.health
    if view.state not in (CANCELLABLE - {EpisodeState.VERIFYING, EpisodeState.MARKING}) | {EpisodeState.DETECTED}:
        return None
    if view.taken_back:
        return go(
            view,
            EpisodeEvent.FAULT_GONE if view.state is EpisodeState.DETECTED else EpisodeEvent.HEALTHY_AGAIN,
            TAKEN_BACK,
        )
    if any(fault.source == REQUEST for fault in view.detail.faults):
        return None  # a healthy node is repaired too, where a person asks for it
    if view.silent:
        return None  # whatever its reports say, its scheduler cannot use it
    if view.detail.faults and all(map(is_silence, view.detail.faults)):
        heard = "the scheduler hears the node again"
        if view.state is EpisodeState.DETECTED:
            return go(view, EpisodeEvent.FAULT_GONE, heard)
        return go(view, EpisodeEvent.HEALTHY_AGAIN, heard, healthy=0.0, heard=scene.now)
    if view.detail.disproved > (view.last.written if view.last is not None else 0.0):
        return None  # the deep suite has failed since the last repair: a healthy report does not outweigh it
    newest = max((fault.seen for fault in view.detail.faults), default=0.0)
    if health is None or not fresh(health, scene) or not health.healthy or health.at <= newest:
        return None
    why = f"a report of {health.source} says that the node is healthy"
    if view.state is EpisodeState.DETECTED:
        return go(view, EpisodeEvent.FAULT_GONE, why)
    floor = view.last.written if view.last is not None else 0.0
    if health.at <= floor:
        return None
    return go(view, EpisodeEvent.HEALTHY_AGAIN, why, healthy=health.at, proved_boot=health.boot)


# State by state.


def _detected(view: EpisodeView, scene: Scene) -> Move:
    settings = scene.settings
    if settings.mode(MARK) is not Mode.ON:
        return stay(view, scene, "dry-run", "would mark, which is not enabled")
    assert view.node is not None
    for_all = tuple(map(Held, FOR_ALL, (view.breaker, view.shared)))
    ask = MarkRequest(view.name, view.node, Mark(""), REMEDY_OWNER, for_all)
    ruling = rule(ask, settings.bounds, scene.usage, scene.now, scene.enabled_at)
    if ruling.bound == NODE:
        return wait_for(view, scene, Held(NODE, ruling.why))
    if ruling.effect is Effect.REFUSED and not ruling.bound:
        return go(view, EpisodeEvent.MARK_REFUSED, ruling.why)
    if view.node.out_by_us:
        hooks = view.node.mark is not None and view.node.mark.owner == OWNER
        if hooks and first_rung(view.detail.faults) is Rung.ESCALATE:  # a mark of the loop's would outlast the fault
            why = f"{NO_REPAIR}: the next healthy report puts it back"
            return go(view, EpisodeEvent.LADDER_ENDED, why, marked=scene.now, uid=view.node.uid)
        return go(view, EpisodeEvent.MARK_ALLOWED, "our mark stands already", uid=view.node.uid)
    if settings.evidence_first and not view.detail.evidence:  # where the mark itself costs the machine
        if not view.collected:
            return stay(view, scene, "evidence", "evidence is being collected before the mark")
        return Move(None, view.detail._replace(evidence=scene.now, waiting="", waiting_since=0.0), "evidence is kept")
    if ruling.bound in FOR_ALL:
        return stay(view, scene, ruling.bound, ruling.why)
    if ruling.held is not None:
        return wait_for(view, scene, ruling.held)
    return go(view, EpisodeEvent.MARK_ALLOWED, _why(view), uid=view.node.uid)


def _why(view: EpisodeView) -> str:
    first = view.detail.faults[0] if view.detail.faults else None
    return first.message if first is not None else ""


def marking(view: EpisodeView, scene: Scene) -> Move:
    """Wait until the mark is set; give up if that takes too long."""
    if scene.time.elapsed(view.detail.entered) > scene.settings.wait_limit:
        return go(view, EpisodeEvent.GIVEN_UP, f"the mark could not be set: {view.detail.waiting}")
    node, settings = view.node, scene.settings
    if node is not None and node.out_by_us:
        return Move(None, view.detail)  # it was set, and nobody wrote that down
    if settings.mode(MARK) is not Mode.ON:
        return stay(view, scene, "dry-run", "would mark, which is not enabled any more")
    if view.breaker:
        return wait_for(view, scene, Held("breaker", view.breaker))
    held = bounds.never_now(settings.bounds, MARK, view.name, scene.now)
    return wait_for(view, scene, held) if held else Move(None, view.detail)


def _marked(view: EpisodeView, scene: Scene) -> Move:
    detail = view.detail
    waits = still_not_now(view, scene)
    if waits is not None:
        return waits
    if detail.denied:
        return go(view, EpisodeEvent.LADDER_ENDED, missing(detail.denied, "the repair was refused"))
    tried = [attempt for attempt in view.tries if attempt.number not in detail.unsent]
    modes = scene.settings.rung_modes()
    if detail.about.known:
        modes[Rung.RESTART_APP] = Mode.OFF  # it would stop what serves the node's other devices
    choice = next_rung(detail.faults, tried, modes, lambda rung, device: scene.can(view.name, rung, device))
    skipped = tuple(dict.fromkeys((*detail.skipped, *choice.skipped)))
    if detail.about.known and choice.rung not in (Rung.RESET_DEVICE, Rung.ESCALATE):
        why = "; ".join(f"{named(skip.rung, skip.device)}: {skip.why}" for skip in choice.skipped)
        return widen(view, f"{choice.rung.value} is the next repair{f' ({why})' if why else ''}")
    if choice.rung is Rung.ESCALATE:
        return go(view, EpisodeEvent.LADDER_ENDED, choice.why, skipped=skipped)
    if choice.again > 0:
        return not_now(view._replace(rung=choice.rung), scene, choice.why, choice.again)
    spent = bounds.spent(scene.settings.bounds, scene.usage, view.name, scene.now)
    if spent:
        return go(view, EpisodeEvent.GIVEN_UP, spent, skipped=skipped)
    what = f"{named(choice.rung, choice.device)} by {choice.by}"
    recorded = {"skipped": [f"{named(skip.rung, skip.device)}: {skip.why}" for skip in choice.skipped]}
    return go(
        view, EpisodeEvent.REPAIR_PLANNED, what, device=choice.device, repairer=choice.by, skipped=skipped, healthy=0.0,
        forced=False, asked=0.0, not_now=0.0, ask_after=0.0,
    )._replace(rung=choice.rung, recorded=recorded if choice.skipped else {})  # fmt: skip


def draining(view: EpisodeView, scene: Scene) -> Move:
    """Wait until running work has ended, at most until the drain's deadline."""
    assert view.node is not None
    drain, work = scene.settings.drain, work_on_machine(view.node)
    if not work or view.rung not in drain.rungs:
        return go(view, EpisodeEvent.DRAINED, "needs no idle node" if work else "no work runs on it")
    if scene.time.elapsed(view.detail.entered) <= drain.deadline:
        if view.node.busy and view.detail.waiting.startswith(f"{WORK}: "):
            return Move(None, view.detail, view.detail.waiting, bound=WORK)  # its eviction has said more
        return stay(view, scene, WORK, work)
    not_drained = in_service_beside(view.node)
    late = f"{show_seconds(drain.deadline)} after the node was marked: {not_drained or work}"
    if drain.force and not not_drained:
        return go(view, EpisodeEvent.DRAINED, f"{late}; the policy forces the repair", forced=True)
    return go(view, EpisodeEvent.DRAIN_OVERDUE, late)


def _evidence(view: EpisodeView, scene: Scene) -> Move:
    if view.collected:
        return go(view, EpisodeEvent.COLLECTED, "the evidence is kept, or why there is none")
    return stay(view, scene, "evidence", "evidence is being collected")


def _recheck(view: EpisodeView, scene: Scene) -> Move:
    settings = scene.settings
    assert view.node is not None
    health = view.health
    if (
        health is not None
        and health.verdict is Verdict.UNKNOWN
        and not view.silent  # of which nobody can tell more than that
        and health.at > max((fault.seen for fault in view.detail.faults), default=0.0)
    ):
        return wait_for(view, scene, Held("verdict", "the newest report could not tell how the node is"))
    old = _too_old(health, scene)
    if old and not any(map(_unreported, view.detail.faults)):
        return wait_for(view, scene, Held("report", old))
    again = busy_again(view.node, view.rung in settings.drain.rungs, view.detail.forced)
    if again:
        return go(view, EpisodeEvent.BUSY_AGAIN, again)
    held = machine_held(view.node, scene.usage.under_repair)
    if held:
        return wait_for(view, scene, Held(NODE, held))
    impossible = cannot(view, scene)
    if impossible is not None:
        return impossible
    others = _others(view)
    if others is not None:
        return wait_for(view, scene, others)
    spent = bounds.spent(settings.bounds, scene.usage, view.name, scene.now)
    if spent:
        return go(view, EpisodeEvent.GIVEN_UP, spent)
    needed = settings.bounds.approvals.get(view.rung, 0)
    if len(view.consent.agreed) < needed:
        why = f"{show_number(needed, 'person')} must agree to {view.rung.value}"
        return go(view, EpisodeEvent.APPROVAL_NEEDED, why, asked=scene.now)
    if view.consent.refused:
        return go(view, EpisodeEvent.GIVEN_UP, f"{view.consent.refused} refused {view.rung.value}")
    no_room = bounds.may_repair(settings.bounds, scene.usage, view.name, view.rung, scene.now) or unseen(view)
    if no_room:
        return wait_for(view, scene, no_room)
    assert view.sighting is not None
    if view.silent and powered_off(view.sighting.power) and not settings.silence.power_on:
        why = f"the machine is {view.sighting.power}: somebody may have switched it off (silence.power-on = false)"
        return go(view, EpisodeEvent.GIVEN_UP, why)
    return confirmed(view, _why(view), view.boot)


def unseen(view: EpisodeView) -> Optional[Held]:
    """Why the repair may not begin, by the observation of the machine right before it; None if it may."""
    if view.sighting is None:
        return Held("unseen", view.unseen or "the machine was not looked at yet")
    actor = view.sighting.actor
    return Held("other-actor", f"{actor}: {view.sighting.doing}") if actor else None


def confirmed(view: EpisodeView, because: str, boot: str) -> Move:
    """Begin the attempt: it is stored with this move, and then sent. `boot` is the boot id before it."""
    move = go(
        view, EpisodeEvent.CONFIRMED, because, boot=boot, followed=0, follow_id="", follow_message="", stopped=False
    )
    return move._replace(begins=True)


def _others(view: EpisodeView) -> Optional[Held]:
    """What else prevents a repair from beginning: a boot that was not ours, another actor, a cause that nodes share,
    the breaker.
    """
    newest = max((fault.seen for fault in view.detail.faults), default=0.0)
    judged = {fault.boot for fault in view.detail.faults if fault.boot}
    # Until our repair took effect, the node may have continued to report the fault.
    by_us = (
        view.last is not None and view.last.rung in NEW_BOOT and max(view.last.written, view.detail.repaired) >= newest
    )
    if judged and view.boot and view.boot not in judged and not by_us:
        return Held("boot", "the machine has booted since its fault was seen: a report of this boot must show it")
    if view.claims:
        return Held("other-actor", view.claims)
    if view.shared:
        return Held("silence", view.shared)
    return Held("breaker", view.breaker) if view.breaker else None


def cannot(view: EpisodeView, scene: Scene) -> Optional[Move]:
    """What follows if the planned repair is not possible after all, or cannot be requested now; None if it is."""
    waits = still_not_now(view, scene)
    if waits is not None:
        return waits
    if scene.settings.mode(view.rung.value) is not Mode.ON:
        return go(view, EpisodeEvent.LADDER_ENDED, f"{view.rung.value} is not enabled any more")
    ability = scene.can(view.name, view.rung, view.detail.device, view.work.argv if view.work is not None else ())
    if ability.again > 0:
        return not_now(view, scene, ability.why, ability.again)
    if ability.right:
        return go(view, EpisodeEvent.LADDER_ENDED, missing(ability.right, ability.why))
    return go(view, EpisodeEvent.LADDER_ENDED, ability.why) if ability.why else None


def _unreported(fault: NodeFault) -> bool:
    """Whether no report shows this fault, so that its repair does not wait for one."""
    return fault.source in UNREPORTED or is_silence(fault)


def _too_old(health: Optional[Health], scene: Scene) -> str:
    """Why the newest report no longer justifies a repair, "" if it does."""
    limit = scene.settings.sources.max_age
    if health is not None and health.is_fresh(scene.now, limit):
        return ""
    what = "there is no report of the node" if health is None else "its newest report is too old"
    return f"{what} (sources.max-age is {limit:g} s)"


def _awaiting(view: EpisodeView, scene: Scene) -> Move:
    if view.consent.refused:
        return go(view, EpisodeEvent.DENIED, f"{view.consent.refused} refused {view.rung.value}")
    needed = scene.settings.bounds.approvals.get(view.rung, 0)
    if len(view.consent.agreed) >= needed:
        return go(view, EpisodeEvent.APPROVED, f"agreed: {', '.join(view.consent.agreed)}")
    if scene.time.elapsed(view.detail.asked) > scene.settings.approval_expires:
        return go(view, EpisodeEvent.GIVEN_UP, f"nobody decided within {show_seconds(scene.settings.approval_expires)}")
    missing = needed - len(view.consent.agreed)
    return stay(view, scene, "approval", f"{show_number(missing, 'more person')} must agree to {view.rung.value}")


_STEPS: Dict[EpisodeState, Callable[[EpisodeView, Scene], Move]] = {
    EpisodeState.DETECTED: _detected,
    EpisodeState.MARKING: marking,
    EpisodeState.MARKED: _marked,
    EpisodeState.DRAINING: draining,
    EpisodeState.EVIDENCE: _evidence,
    EpisodeState.RECHECK: _recheck,
    EpisodeState.AWAITING_APPROVAL: _awaiting,
    EpisodeState.ACTING: after_repair.acting,
    EpisodeState.WATCHING: after_repair.watching,
    EpisodeState.VERIFYING: after_repair.verifying,
    EpisodeState.RETURNING: after_repair.returning,
}
