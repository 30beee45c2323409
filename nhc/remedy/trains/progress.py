"""The progress of a whole train: which wave is next, whether it must stop, whether it has ended. Pure."""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence

from nhc.core.system.steady_time import SteadyTime
from nhc.remedy.machine import EpisodeState
from nhc.remedy.trains.machine import TrainState
from nhc.remedy.trains.settings import TrainPlan
from nhc.store.episodes import Episode


class WaveTurn(NamedTuple):
    """The wave whose nodes may begin, 0 for none, and why none may."""

    wave: int
    why: str = ""


def turn(plan: TrainPlan, rows: Sequence[Episode], state: TrainState, time: SteadyTime) -> WaveTurn:
    """The first wave that has a node which has not ended; after a wave the plan's pause is waited for."""
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
    """Whether a node took part: a wave of nodes that were all skipped asks for no pause."""
    return bool(row.rung) or row.state not in (EpisodeState.PLANNED.value, EpisodeState.SKIPPED.value)


def must_stop(plan: TrainPlan, rows: Sequence[Episode], updated: float, time: SteadyTime) -> str:
    """Why no further node may begin, "" where it may. The train runs since `updated`: whoever let it run knew of the
    failures until then, so one that is newer is needed to stop it again. Where the clock was set back since, all that
    failed after that is newer.
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
