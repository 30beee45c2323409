"""The next step of one node of a train. Pure: the loop's decisions (`nhc.remedy.steps`), and what maintenance decides
differently: when a node may begin, which work is next, and what happens to a node whose work cannot be done.
"""

from __future__ import annotations

from typing import Callable, Dict, NamedTuple, Optional, Sequence

from nhc.core.model import Verdict
from nhc.core.system.steady_time import SteadyTime
from nhc.core.units import show_number, show_seconds
from nhc.marks.policy import bounds
from nhc.marks.policy.bounds import Held
from nhc.marks.policy.door import NODE, MarkRequest, Ruling, rule
from nhc.marks.ports.adapter import Mark
from nhc.marks.ports.marks import machine_held
from nhc.remedy import after_repair, steps
from nhc.remedy.final_check import busy_again
from nhc.remedy.machine import EpisodeEvent, EpisodeState
from nhc.remedy.moves import fresh, go, held_for_all, outlasted, stay, still_not_now
from nhc.remedy.trains.machine import TrainState
from nhc.remedy.trains.settings import TrainPlan
from nhc.remedy.view import EpisodeView, Move, Scene
from nhc.store.attempts import AttemptStatus
from nhc.store.episodes import Episode

# The progress of a whole train: which wave is next, whether it must stop, whether it has ended. Pure.


class WaveTurn(NamedTuple):
    """The wave whose nodes may begin, 0 for none, and why none may begin."""

    wave: int
    why: str = ""


def turn(plan: TrainPlan, rows: Sequence[Episode], state: TrainState, time: SteadyTime) -> WaveTurn:
    """The first wave with a node that has not ended; after each wave the plan's pause applies."""
    if state is not TrainState.RUNNING:
        return WaveTurn(0, f"the train is {state.value}")
    open_ones = [row for row in rows if row.ended is None]
    if not open_ones:
        return WaveTurn(0, "every node is done with")
    wave = min(row.wave for row in open_ones)
    before = [row.ended or 0.0 for row in rows if row.wave < wave and row.ended is not None and _did(row)]
    left = plan.waves.pause - time.elapsed(max(before, default=0.0))
    begun = any(row.wave == wave and _did(row) for row in rows)
    if before and not begun and left > 0:
        return WaveTurn(0, f"wave {wave} begins in {left:.0f} s")
    return WaveTurn(wave, f"it is wave {wave}'s turn")


def _did(row: Episode) -> bool:
    """Whether a node took part: a wave whose nodes were all skipped needs no pause."""
    return bool(row.rung) or row.state not in (EpisodeState.PLANNED.value, EpisodeState.SKIPPED.value)


def must_stop(plan: TrainPlan, rows: Sequence[Episode], updated: float, time: SteadyTime) -> str:
    """Why no further node may begin, "" if it may. The train runs since `updated`: the person who let it run knew the
    failures until then, so only a newer failure stops it again. If the clock was set back since, all failures after
    that count as newer.
    """
    since = time.moment(updated) if updated > time.now else updated
    failed = [row for row in rows if row.state == EpisodeState.ESCALATED.value]
    failed.sort(key=lambda row: row.ended or 0.0)
    if not failed or (failed[-1].ended or 0.0) < since:
        return ""
    first = [row for row in failed if row.wave == 1]
    if plan.waves.first and first:
        return f"{first[0].node} of the first wave failed: {first[0].outcome}"
    limit = plan.failures.of(len(rows))
    if len(failed) > limit:
        return f"{len(failed)} of {len(rows)} nodes failed, more than {plan.failures.show()}: {failed[-1].outcome}"
    return ""


def ended(rows: Sequence[Episode], state: TrainState) -> Optional[TrainState]:
    """The end that a train has come to, None while a node is still open."""
    if any(row.ended is None for row in rows):
        return None
    return TrainState.ABORTED if state is TrainState.ABORTING else TrainState.DONE


ENABLED = 0.0
"""Since when marking counts as enabled: the first day's bound applies to the loop's own actions, not to a person's
train.
"""
UNBEGUN = frozenset({EpisodeState.MARKING, EpisodeState.MARKED, EpisodeState.DRAINING, EpisodeState.RECHECK})
"""States in which no work is under way, and the node is ours."""


class TrainScene(NamedTuple):
    """What all nodes of a train share in one pass."""

    plan: TrainPlan
    state: TrainState
    turn: WaveTurn


def step(view: EpisodeView, scene: Scene, train: TrainScene) -> Move:
    """What happens next to a node of a train."""
    if view.state is EpisodeState.PLANNED:
        return _planned(view, scene, train)
    move = _left(view) or steps.not_ours(view, scene)
    if move is None and train.state is TrainState.ABORTING and view.state in UNBEGUN:
        return _unbegun(view, scene, "the train was aborted")
    return held_for_all(view, scene, move or _STEPS[view.state](view, scene, train))


# What holds in several states.


def _left(view: EpisodeView) -> Optional[Move]:
    """Whether a person has ended our hold, or a repair has begun, before any work; None if not."""
    if not view.hold_stands and view.state in UNBEGUN | {EpisodeState.VERIFYING}:
        lost = EpisodeEvent.MARK_REFUSED if view.state is EpisodeState.MARKING else EpisodeEvent.MARK_LOST
        return go(view, lost, "a person ended the train's hold on it")
    if view.repairing and not view.done and view.state in UNBEGUN - {EpisodeState.MARKING}:
        return go(view, EpisodeEvent.MARK_LOST, f"episode {view.repairing} has the node")
    return None


def _faulty(view: EpisodeView, scene: Scene) -> bool:
    return view.health is not None and fresh(view.health, scene) and view.health.verdict is Verdict.CRIT


def _unbegun(view: EpisodeView, scene: Scene, why: str) -> Move:
    """Put back a node on which nothing was done; a node that is half done stays out and is left to a person.

    A node that has a fault now stays out too: the mark may be for the fault, and its repair is not the train's.
    """
    if view.done:
        return go(view, EpisodeEvent.GIVEN_UP, f"after {show_number(view.done, 'step')}: {why}")
    if _faulty(view, scene) and view.state is not EpisodeState.MARKING:
        faulty = "it is faulty by now, and stays out of service: the remedy loop's"
        return go(view, EpisodeEvent.MARK_LOST, f"{why}; {faulty}")
    return go(view, EpisodeEvent.PUT_BACK, why, put_back=why)


# State by state.


def _planned(view: EpisodeView, scene: Scene, train: TrainScene) -> Move:
    if train.state is TrainState.ABORTING:
        return go(view, EpisodeEvent.SKIP, "the train was aborted before its turn")
    if train.state is not TrainState.RUNNING or view.wave != train.turn.wave:
        return Move(None, view.detail, train.turn.why, bound="turn")
    if not view.nodes_known:
        return stay(view, scene, "cluster", "the cluster cannot be asked about its nodes")
    for_all = (Held("hold", view.held), Held("breaker", view.breaker))
    ask = MarkRequest(view.name, view.node, Mark(""), held=for_all)
    ruling = rule(ask, scene.settings.bounds, scene.usage, scene.now, ENABLED)
    unfit = _unfit(view, scene, ruling)
    if unfit:
        return go(view, EpisodeEvent.SKIP, unfit)
    assert view.node is not None
    assert view.work is not None
    ability = scene.can(view.name, view.work.rung, "", view.work.argv)
    if ability.again:
        return _later(view, scene, "not-now", ability.why)
    if ability.why:
        return go(view, EpisodeEvent.SKIP, ability.why)
    # If the work itself may not begin now, a node is not taken out to wait for it.
    held = ruling.held or bounds.may_repair(scene.settings.bounds, scene.usage, view.name, view.work.rung, scene.now)
    if held is not None:
        return _later(view, scene, held.bound, held.why)
    why = f"train {train.plan.name}: {train.plan.why}"
    return go(view, EpisodeEvent.MARK_ALLOWED, train.plan.why, why=why, uid=view.node.uid)


def _later(view: EpisodeView, scene: Scene, bound: str, why: str) -> Move:
    """Wait for room; a node that gets none within the plan's `patience` is skipped."""
    if outlasted(view, scene):
        return go(view, EpisodeEvent.SKIP, f"waited {show_seconds(scene.settings.wait_limit)}: {why}")
    return stay(view, scene, bound, why)


def _unfit(view: EpisodeView, scene: Scene, ruling: Ruling) -> str:
    """Why a train cannot take a node now, "" if it can, or may later."""
    if view.node is None:
        return "the cluster does not know it any more"
    if view.repairing:
        return f"episode {view.repairing} repairs it"
    if not view.node.available or (not ruling.may and ruling.bound in ("", NODE)):
        return f"it is out of service: {ruling.why or view.node.shown}"
    if _faulty(view, scene):
        return "it is faulty: the remedy loop's, not a train's"
    if view.health is None or not fresh(view.health, scene) or view.health.verdict is Verdict.UNKNOWN:
        none = "it has no fresh report" if not fresh(view.health, scene) else "its newest report could not tell"
        return f"{none}, so nobody could tell how it is afterwards"
    return ""


def _marking(view: EpisodeView, scene: Scene, train: TrainScene) -> Move:
    move = steps.marking(view, scene)
    if move.event is EpisodeEvent.GIVEN_UP:
        return _unbegun(view, scene, move.because)
    stands = view.node is not None and view.node.out_by_us
    if train.state is not TrainState.RUNNING and not stands:
        return stay(view, scene, "train", f"the train is {train.state.value}")
    return move


def _marked(view: EpisodeView, scene: Scene, train: TrainScene) -> Move:
    """The next work: the planned one, unless it has failed or was refused for good."""
    work, last, detail = view.work, view.last, view.detail
    assert work is not None
    if last is not None and last.state is AttemptStatus.FAILED:
        what = "the check after the work failed" if work.verifies else f"{work.what} failed"
        return go(view, EpisodeEvent.GIVEN_UP, f"{what}: {last.message}")
    if last is not None and last.state is AttemptStatus.REFUSED and last.number not in (*detail.unsent, *detail.again):
        return _unbegun(view, scene, last.message)
    waits = still_not_now(view, scene)
    if waits is not None:
        return waits if waits.event is None else _unbegun(view, scene, waits.because)
    line = f"step {view.done + 1} of {len(train.plan.work)}: {work.what}"
    return go(
        view, EpisodeEvent.REPAIR_PLANNED, line, device=work.what if work.argv else "", healthy=0.0,
        repairer=scene.can(view.name, work.rung, "", work.argv).by, not_now=0.0, ask_after=0.0,
    )._replace(rung=work.rung)  # fmt: skip


def _draining(view: EpisodeView, scene: Scene, _train: TrainScene) -> Move:
    move = steps.draining(view, scene)
    if move.event is EpisodeEvent.DRAINED or view.detail.forced:
        return move._replace(event=EpisodeEvent.NOTHING_TO_COLLECT)
    return _unbegun(view, scene, move.because) if move.event is not None else move


def _recheck(view: EpisodeView, scene: Scene, train: TrainScene) -> Move:
    """Read everything again right before work begins."""
    node, work = view.node, view.work
    assert node is not None
    assert work is not None
    again = busy_again(node, view.rung in scene.settings.drain.rungs, view.detail.forced)
    if again:
        return go(view, EpisodeEvent.BUSY_AGAIN, again)
    if train.state is not TrainState.RUNNING:
        return stay(view, scene, "train", f"the train is {train.state.value}")
    impossible = steps.cannot(view, scene)
    if impossible is not None:
        return impossible if impossible.event is None else _unbegun(view, scene, impossible.because)
    for bound, why in (
        (NODE, machine_held(node, scene.usage.under_repair)),
        ("other-actor", view.claims),
        ("breaker", view.breaker),
    ):
        if why:
            return stay(view, scene, bound, why)
    held = bounds.may_repair(scene.settings.bounds, scene.usage, view.name, work.rung, scene.now)
    if held is not None and not view.done:  # a node that is half done is finished: it counts against the level already
        return stay(view, scene, held.bound, held.why)
    unseen = steps.unseen(view)
    if unseen is not None:
        return stay(view, scene, unseen.bound, unseen.why)
    assert view.sighting is not None
    # A report from before the last step's end may be of the boot before it.
    reported_boot = view.health.boot if view.health is not None and view.health.at > view.detail.repaired else ""
    line = f"step {view.done + 1} of {len(train.plan.work)}: {work.what}"
    return steps.confirmed(view, line, view.sighting.kernel_boot or reported_boot)


def _acting(view: EpisodeView, scene: Scene, _train: TrainScene) -> Move:
    return after_repair.acting(view, scene)


def _watching(view: EpisodeView, scene: Scene, train: TrainScene) -> Move:
    move = after_repair.watching(view, scene)
    if move.event is EpisodeEvent.NOT_BEGUN and view.work is not None and view.work.argv:
        # A command that arrives late would run twice.
        return go(view, EpisodeEvent.GIVEN_UP, move.because)._replace(ends=AttemptStatus.FAILED)
    more = move.event is EpisodeEvent.EFFECT_SEEN and view.done + 1 < len(train.plan.work)
    return move._replace(event=EpisodeEvent.STEP_DONE) if more else move


def _verifying(view: EpisodeView, scene: Scene, _train: TrainScene) -> Move:
    move = after_repair.verifying(view, scene)
    if move.event in (EpisodeEvent.STILL_FAULTY, EpisodeEvent.GIVEN_UP):
        return move._replace(event=EpisodeEvent.GIVEN_UP, because=f"after the work: {move.because}")
    return move


def _returning(view: EpisodeView, scene: Scene, _train: TrainScene) -> Move:
    move = after_repair.returning(view, scene)
    if move.event is not EpisodeEvent.STILL_FAULTY:
        return move
    untouched = bool(view.detail.put_back)  # its fault is not the work's
    return move._replace(event=EpisodeEvent.MARK_LOST if untouched else EpisodeEvent.GIVEN_UP)


_STEPS: Dict[EpisodeState, Callable[[EpisodeView, Scene, TrainScene], Move]] = {
    EpisodeState.MARKING: _marking, EpisodeState.MARKED: _marked, EpisodeState.DRAINING: _draining,
    EpisodeState.RECHECK: _recheck, EpisodeState.ACTING: _acting, EpisodeState.WATCHING: _watching,
    EpisodeState.VERIFYING: _verifying, EpisodeState.RETURNING: _returning,
}  # fmt: skip
