"""The steps of an episode once its repair was sent: see the effect, verify the node, return it to service. Pure.

A repaired node counts as healthy by its reports. A report counts only if its run began after the repair: after the
effect was seen, or in a later boot. UNKNOWN proves nothing either way: the loop waits, never repairs because of it, and
escalates at the deadline. Healthy for a time means healthy reports at its beginning and at its end, of one boot: a node
that sent one healthy report and then nothing may be dead.
"""

from __future__ import annotations

from typing import FrozenSet, NamedTuple, Optional, Sequence

from nhc.core.model import Verdict
from nhc.core.system.steady_time import SteadyTime
from nhc.core.timestamps import AHEAD, utc
from nhc.marks.policy.bounds import Held
from nhc.marks.policy.door import WAVERS, MarkRequest, Ruling, report_doubts, rule
from nhc.marks.ports.adapter import REMEDY_OWNER, Effect
from nhc.marks.ports.repair import Rung, Stage
from nhc.remedy.final_check import lent, taken
from nhc.remedy.machine import MARKED_BY_US, EpisodeEvent, EpisodeState
from nhc.remedy.moves import fresh, go, postponed, stay
from nhc.remedy.proving import PROOF
from nhc.remedy.settings import VerifySettings
from nhc.remedy.view import EpisodeView, Move, Scene
from nhc.store.attempts import AttemptStatus

SAME_MACHINE = frozenset({Rung.REBOOT, Rung.POWER_CYCLE})
"""Those of them that keep the same machine: while it shows its old boot, nothing has happened to it."""

RELAPSES = 6
"""How often a node may recover and fail again within one episode: one more than the ladder has repairs for a node."""
BOOTED = "it has booted since it said that it is healthy"


def acting(view: EpisodeView, scene: Scene) -> Move:
    """Reached only after a restart of the loop: the order was stored, and it is not known whether it was sent."""
    del scene
    why = "the controller stopped before it knew the answer: the effect is looked for"
    move = go(view, EpisodeEvent.SENT, why, stopped=True)
    return move._replace(ends=AttemptStatus.AMBIGUOUS)


def watching(view: EpisodeView, scene: Scene) -> Move:
    """Look for the effect of the repair, until its timeout."""
    last, seen, health = view.last, view.progress, view.health
    if last is None:
        return go(view, EpisodeEvent.NO_EFFECT, "there is no attempt to watch")
    if seen is not None and seen.stage is Stage.DONE:
        return _effect(view, scene, seen.message, seen.replacement)
    limit = view.work.takes if view.work is not None else scene.settings.effect.seconds[last.rung]
    failed = view.detail.failed or (seen.message if seen is not None and seen.stage is Stage.FAILED else "")
    if failed:
        return _failed(view, scene, failed, limit)
    if view.detail.cancelled or (seen is not None and seen.stage is Stage.CANCELLED):
        return _cancelled(view, scene)
    before = boots_before(view)
    if (
        view.new_boot and health is not None and before and health.boot and health.boot not in before
        and health.at > last.written and health.at <= scene.now + AHEAD
    ):  # fmt: skip
        return _effect(view, scene, f"the node reports another boot ({health.boot})", "")
    if seen is not None and seen.stage is Stage.NOT_BEGUN and last.state is AttemptStatus.AMBIGUOUS:
        return _not_begun(view, scene, seen.message)
    if scene.time.elapsed(view.detail.entered) > limit:
        if seen is not None and seen.stage is Stage.HALFWAY:
            return go(view, EpisodeEvent.GIVEN_UP, f"half done for {limit:g} s: {seen.message}")._replace(
                ends=AttemptStatus.FAILED
            )
        why = f"no effect was seen within {limit:g} s"
        if _never_arrived(view, scene, before, limit):
            return _not_begun(view, scene, f"{why}, and the node still runs in the boot of before")
        return go(view, EpisodeEvent.NO_EFFECT, why)._replace(ends=AttemptStatus.FAILED)
    return stay(view, scene, "effect", seen.message if seen is not None else view.unseen or "its effect is looked for")


def _failed(view: EpisodeView, scene: Scene, why: str, limit: float) -> Move:
    """The repair had no effect: the next one, or a person, once the node is out of service for certain.

    A scheduler that gives up a repair may remove its drain (Slurm: a reboot that timed out), and the node was read
    before the repair was queried. Setting our mark again hides the scheduler's message, so that message is stored.
    """
    view = view._replace(detail=view.detail._replace(failed=why))
    unsure = view.node is not None and (bool(view.node.hold) or borrowed(view))
    if unsure and scene.time.elapsed(view.detail.entered) <= limit:
        return stay(view, scene, "mark", f"{why}: the mark is set again")
    return go(view, EpisodeEvent.NO_EFFECT, why, failed="")._replace(ends=AttemptStatus.FAILED)


def _cancelled(view: EpisodeView, scene: Scene) -> Move:
    """A person has cancelled the order: the episode is left to them once the node is out of service for certain.

    The first time, the mark is set regardless of the node's state, because that was read before the order was queried.
    """
    why, since = f"a person has taken the {view.rung.value} back", view.detail.cancelled
    view = view._replace(detail=view.detail._replace(cancelled=since or scene.now))
    if not view.nodes_known:
        return stay(view, scene, "cluster", "the cluster cannot be asked about its nodes")
    overdue = scene.time.elapsed(view.detail.cancelled) > scene.settings.wait_limit
    theirs = view.node is not None and not view.node.available and bool(taken(view.node))
    if not since or (bare(view) and not theirs and not overdue):
        return stay(view, scene, "mark", f"{why}: the mark is set again")
    left = "it could not be kept out of service" if overdue else "the node stays out of service for a person"
    marked = 0.0 if overdue else view.detail.marked
    return go(view, EpisodeEvent.GIVEN_UP, f"{why}: {left}", marked=marked)._replace(ends=AttemptStatus.FAILED)


def _never_arrived(view: EpisodeView, scene: Scene, before: FrozenSet[str], limit: float) -> bool:
    """Whether an order at which the loop stopped has had no effect for so long that it cannot have been sent: a report
    from the second half of the time shows the old boot. This is assumed only once. A call that was sent and whose
    answer was lost counts as tried: to repeat it would have no effect either.
    """
    health, last = view.health, view.last
    return (
        last is not None and last.state is AttemptStatus.AMBIGUOUS and last.rung in SAME_MACHINE and view.new_boot
        and view.detail.stopped and not view.detail.not_now and fresh(health, scene) and health is not None
        and health.boot in before and health.at > view.detail.entered + limit / 2
    )  # fmt: skip


def _not_begun(view: EpisodeView, scene: Scene, why: str) -> Move:
    """The order never arrived: the same repair is judged again, from the recheck on."""
    assert view.last is not None
    detail = postponed(view.detail, scene.now, why, 0.0)._replace(unsent=(*view.detail.unsent, view.last.number))
    return Move(EpisodeEvent.NOT_BEGUN, detail, why, ends=AttemptStatus.REFUSED)


def _effect(view: EpisodeView, scene: Scene, why: str, replacement: str) -> Move:
    move = go(
        view, EpisodeEvent.EFFECT_SEEN, why, repaired=scene.now, healthy=0.0, successor="", replacement=replacement,
        failed="", cancelled=0.0,  # it came after all: that is not the next repair's end
    )  # fmt: skip
    return move._replace(ends=AttemptStatus.SUCCEEDED)


def verifying(view: EpisodeView, scene: Scene) -> Move:
    """Prove that the repaired node is healthy."""
    if view.detail.replacement:
        return _joining(view, scene)
    if unmarked(view) and view.node is not None:
        why = "the mark is set again, as the repair may have taken it away"
        if scene.time.elapsed(view.detail.repaired) > scene.settings.verify.deadline:
            return go(view, EpisodeEvent.GIVEN_UP, f"it could not be kept out of service: {view.detail.waiting or why}")
        return stay(view, scene, "mark", why) if not view.detail.waiting else Move(None, view.detail)
    if another_boot(view, boots_before(view)):
        return _booted_again(view, scene, BOOTED)
    judgement = judge(view, scene, old_boots(view))
    if judgement.event is None:
        detail = view.detail._replace(healthy=judgement.healthy, proved_boot=judgement.boot)
        return stay(view._replace(detail=detail), scene, judgement.bound, judgement.why)
    if judgement.event is not EpisodeEvent.STILL_FAULTY:
        return go(view, judgement.event, judgement.why, healthy=judgement.healthy, proved_boot=judgement.boot)
    relapses = view.detail.relapses + 1
    event = EpisodeEvent.STILL_FAULTY if relapses < RELAPSES else EpisodeEvent.GIVEN_UP
    why = judgement.why if relapses < RELAPSES else f"it came and went {relapses} times: {judgement.why}"
    disproved = scene.now if view.proved is False else view.detail.disproved
    return go(view, event, why, healthy=0.0, relapses=relapses, disproved=disproved)


def _booted_again(view: EpisodeView, scene: Scene, why: str) -> Move:
    """The proof, finished or not, is of a boot that has ended: the next boot is proved from its beginning, the deep
    suite too. A machine that boots again and again is left to a person.
    """
    detail = view.detail
    relapses = detail.relapses + 1
    if relapses >= RELAPSES:
        return go(view, EpisodeEvent.GIVEN_UP, f"it came and went {relapses} times: {why}")
    return go(
        view, EpisodeEvent.BOOTED_AGAIN, why, healthy=0.0, proved_boot="", boot=detail.proved_boot or detail.boot,
        repaired=scene.now if detail.repaired else 0.0, heard=scene.now, relapses=relapses,
    )  # fmt: skip


def unmarked(view: EpisodeView) -> bool:
    """Whether to set our mark again on a node that came back under its name as another machine.

    Slurm removes a drain when it powers a node down, a cluster when a machine registers again. The mark is set again
    once, so that the node stays out until it is proved; if it is gone after that, somebody has decided so.
    """
    return (
        view.state is EpisodeState.VERIFYING and view.rung is Rung.REPLACE and not view.detail.successor
        and view.detail.kept_out < view.detail.repaired
    )  # fmt: skip


def bare(view: EpisodeView) -> bool:
    """Whether a node may be in service because its repair was cancelled: Slurm removes the drain with the reboot
    (`scontrol cancel_reboot`). The mark is set again once: a person who removes it then has decided about the node.
    """
    return view.state is EpisodeState.WATCHING and view.detail.kept_out < view.detail.cancelled


def begun(view: EpisodeView) -> bool:
    """Whether a repair was begun whose node is not proved yet."""
    return view.last is not None and view.state in MARKED_BY_US


def weakened(view: EpisodeView) -> bool:
    """Whether a part of our mark was undone between the repair and its proof without anybody's decision: it is set
    again.
    """
    return begun(view) and view.node is not None and bool(view.node.undone)


def borrowed(view: EpisodeView) -> bool:
    """Whether the mark may fail to keep the node of this episode out (`lent`). It is set again, once in each state,
    because an adapter may store no owner with its marks.
    """
    return view.state in MARKED_BY_US and lent(view.node) and view.detail.kept_out < view.detail.entered


def _joining(view: EpisodeView, scene: Scene) -> Move:
    """Find out which node is the new machine's: providers name machines, and the loop judges nodes."""
    detail, health = view.detail, view.health
    reports = (
        health is not None and health.boot and health.at > detail.repaired and health.boot not in boots_before(view)
    )  # fmt: skip
    joined = view.joined or (view.name if reports else "")  # its name may have gone to the new machine
    if joined:
        return Move(None, detail._replace(successor="" if joined == view.name else joined, replacement=""))
    why = f"no node has joined whose machine is {detail.replacement}"
    if scene.time.elapsed(detail.repaired) > scene.settings.verify.deadline:
        return go(view, EpisodeEvent.GIVEN_UP, f"{why} within {scene.settings.verify.deadline:g} s")
    return stay(view, scene, "joining", why)


def boots_before(view: EpisodeView) -> FrozenSet[str]:
    """The known boot ids from before the last repair: from the last report, and from the observation right before the
    repair.
    """
    boots = (view.detail.boot, view.last.before_boot if view.last is not None else "")
    return frozenset(boot for boot in boots if boot)


def old_boots(view: EpisodeView) -> FrozenSet[str]:
    """The boots before the last repair, if that repair causes a new boot; none if it does not, or if unknown."""
    last = view.last
    if last is None or not view.new_boot or last.state is not AttemptStatus.SUCCEEDED:
        return frozenset()
    return boots_before(view)


def returning(view: EpisodeView, scene: Scene) -> Move:
    """Wait until the mark is cleared; a new failure stops that."""
    health = view.health
    if health is not None and health.verdict is Verdict.CRIT and health.at > view.detail.healthy:
        return go(view, EpisodeEvent.STILL_FAULTY, "it failed again before the mark was cleared")
    if view.silent and not view.detail.successor:
        return go(view, EpisodeEvent.STILL_FAULTY, "it fell silent before the mark was cleared")
    rebooting = view.node is not None and view.node.rebooting and not view.detail.successor
    if not view.detail.put_back and (rebooting or another_boot(view, boots_before(view))):
        return _booted_again(view, scene, "its scheduler reboots it" if rebooting else BOOTED)
    if scene.time.elapsed(view.detail.entered) > scene.settings.wait_limit:
        return go(view, EpisodeEvent.GIVEN_UP, f"the mark could not be cleared: {view.detail.waiting}")
    ruling = may_return(view, scene)
    if ruling.effect is Effect.REFUSED and not ruling.bound:
        return go(view, EpisodeEvent.MARK_LOST, ruling.why)
    return stay(view, scene, ruling.bound, ruling.why) if ruling.held is not None else Move(None, view.detail)


def may_return(view: EpisodeView, scene: Scene) -> Ruling:
    """The door's answer about putting back the node, or the one that replaced it: its proof may be too old by now. A
    node that a train did not change needs no proof.
    """
    node = view.successor if view.detail.successor else view.node
    doubts: Sequence[Held] = ()
    if not view.detail.put_back and not view.taken_back:
        at = view.health.at if view.health is not None else 0.0
        doubts = report_doubts(at, "", None, scene.now, scene.settings.sources.max_age)  # its boot was asked already
    ask = MarkRequest(view.detail.successor or view.name, node, None, REMEDY_OWNER, doubts=doubts)
    return rule(ask, scene.settings.bounds, scene.usage, scene.now)


class Verification(NamedTuple):
    """An event, or None to wait for what `why` says. `healthy` is since when reports of the boot `boot` say healthy,
    0.0 if they do not.
    """

    event: Optional[EpisodeEvent]
    why: str
    healthy: float
    bound: str = "verify"
    boot: str = ""


def judge(view: EpisodeView, scene: Scene, old_boots: FrozenSet[str]) -> Verification:
    """Whether the node of an episode is proved healthy. `old_boots` are those before a repair that makes a new one."""
    detail, health, time, settings = view.detail, view.health, scene.time, scene.settings.verify
    if detail.about.known:
        settings = settings._replace(suite=PROOF)
    if view.silent and not detail.successor:
        return _silent(view, settings, time)
    if view.node is not None and view.node.rebooting and not detail.successor:
        return _rebooting(view, settings, time)
    since = time.moment(detail.repaired or detail.entered)
    believed = fresh(health, scene)
    newer = health is not None and (
        health.at > time.moment(max(detail.repaired, detail.heard))
        or bool(old_boots and health.boot and health.boot not in old_boots)
    )
    if health is not None and believed and newer and health.healthy:
        # Where this report is the first that says healthy, the boot that was proved before is of an earlier repair.
        healthy, boot = detail.healthy or health.at, health.boot or (detail.proved_boot if detail.healthy else "")
        # To the newest report, not to now; and no longer than has passed for certain, where a clock was set.
        whole = max(0.0, min(health.at, time.now) - time.moment(healthy))
        if whole < settings.healthy_for:
            since_when = f"healthy since {utc(healthy)}, which reports must say for {settings.healthy_for:g} s"
            return Verification(None, since_when, healthy, "proof", boot)
        if settings.suite and view.proved is None:
            if time.elapsed(since) > settings.deadline + settings.healthy_for:
                why = f"the deep suite {settings.suite} gave no result"
                return Verification(EpisodeEvent.GIVEN_UP, why, healthy, boot=boot)
            return Verification(None, f"the deep suite {settings.suite} has not ended", healthy, "suite", boot)
        if settings.suite and not view.proved:
            return Verification(EpisodeEvent.STILL_FAULTY, f"the deep suite {settings.suite} failed", 0.0)
        return Verification(EpisodeEvent.PROVED_HEALTHY, f"healthy for {whole:.0f} s", healthy, boot=boot)
    if health is not None and believed and newer and health.verdict is Verdict.CRIT:
        if health.at > since + settings.grace:
            fault_text = health.faults[0].message if health.faults else "it still fails"
            return Verification(EpisodeEvent.STILL_FAULTY, fault_text, 0.0)
        return Verification(
            None,
            f"it still fails; that counts from {settings.grace:g} s (verify.grace) on: services may still start",
            0.0,
        )
    waited = min(time.elapsed(begun) for begun in (since, detail.healthy, detail.entered))
    if waited > settings.deadline:
        what = "could not tell how the node is" if newer and believed else "none came"
        return Verification(EpisodeEvent.GIVEN_UP, f"no healthy report within {settings.deadline:g} s: {what}", 0.0)
    if newer and believed:
        return Verification(None, "the newest report could not tell how the node is", 0.0)
    kept = detail.healthy if newer else 0.0
    return Verification(None, "waiting for a report newer than the work on it", kept, boot=detail.proved_boot)


def another_boot(view: EpisodeView, before: FrozenSet[str] = frozenset()) -> bool:
    """Whether the node is in another boot than the reports by which it is, or is being, proved healthy: its newest
    report is of another boot, or its scheduler saw a boot begin after that report. A node can boot while no loop runs,
    and the earlier report is still young.

    `before` are the boots before the repair: a cluster may show one of them until it hears from the node again.
    """
    detail, health, node = view.detail, view.health, view.node
    if not detail.healthy or health is None:
        return False
    proved = detail.proved_boot
    if proved and health.boot and health.boot != proved:
        return True
    if node is None or detail.successor:
        return False
    shown = bool(proved and node.boot_id) and node.boot_id not in {proved, *before}
    return shown or node.booted > health.at + WAVERS


def _rebooting(view: EpisodeView, settings: VerifySettings, time: SteadyTime) -> Verification:
    """Its scheduler reboots it: reports that come now are of a boot that is ending."""
    why = "its scheduler reboots it: reports of the next boot must prove it"
    if time.elapsed(view.detail.entered) > settings.deadline:
        return Verification(EpisodeEvent.GIVEN_UP, f"{why}, and none came within {settings.deadline:g} s", 0.0)
    return Verification(None, why, 0.0)


def _silent(view: EpisodeView, settings: VerifySettings, time: SteadyTime) -> Verification:
    """A node from which its scheduler receives nothing is not healthy, even if reports say so: it is booting, or never
    comes back.
    """
    assert view.node is not None
    assert view.node.silence is not None
    repaired, entered, why = view.detail.repaired, view.detail.entered, view.node.silence.why
    waited = min(time.elapsed(repaired or entered), time.elapsed(entered))
    if waited <= settings.deadline:
        return Verification(None, f"waiting for the node to be heard again: {why}", 0.0)
    return Verification(EpisodeEvent.STILL_FAULTY, f"not heard within {settings.deadline:g} s: {why}", 0.0)
