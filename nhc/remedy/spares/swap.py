"""One round over the pools: read, decide, store, act. The next round continues one that was cut off."""

from __future__ import annotations

from typing import Callable, Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Tuple

from nhc.marks import plugins
from nhc.marks.ports.adapter import Applied, Effect
from nhc.marks.ports.spares import CapacityPool, SpareSource
from nhc.remedy import counting, health
from nhc.remedy import detail as details
from nhc.remedy.held import StandingHolds
from nhc.remedy.site import RemedySite
from nhc.remedy.spares import capacity
from nhc.remedy.spares.decide import SpareDecision, SpareStep, SpareView, decide
from nhc.remedy.spares.settings import PoolSettings
from nhc.store import episodes, holds, spares
from nhc.store.database import Fence
from nhc.store.episodes import Episode
from nhc.store.errors import Conflict
from nhc.store.rounds.one_item import one_item
from nhc.store.spares import ENTERING, IN_SERVICE, LEAVING

ACTOR = "nhc spares"
DAY = 86400.0


class SpareDone(NamedTuple):
    """A step, and what came of it."""

    step: SpareStep
    applied: Applied


class PoolRound(NamedTuple):
    """One pool: what was seen, decided and done. `problem` says what could not be read, "" for nothing."""

    pool: PoolSettings
    view: Optional[SpareView]
    decision: SpareDecision
    done: Tuple[SpareDone, ...]
    problem: str = ""


def open_pool(pool: PoolSettings) -> SpareSource:
    """What keeps a pool's nodes. Raises NoAdapter, AdapterError."""
    made: SpareSource = plugins.spare_pool(pool.type)(pool.settings, None, pool.timeout)
    return made


def look(site: RemedySite, pool: PoolSettings, source: SpareSource, now: float, apply: bool = False) -> SpareView:
    """All that bears on a pool. Reports in files are taken into the store where `apply` says that something is done.

    Raises AdapterError, StoreError.
    """
    adds, addable, waiting = "", 0, []
    if isinstance(source, CapacityPool):
        adds, addable = source.name(), source.room()
    else:
        waiting = source.waiting()
    states = site.actuators.states()
    own = list(site.reports(apply))
    with site.store.read() as connection:
        fleet = counting.fleet(connection, states)
        rows = [row for row in spares.in_use(connection) if row.pool == pool.name]
        used = {row.node for row in rows}  # one that comes back is kept from new work before it waits
        waiting = [node for node in waiting if node not in used]
        healths = health.together([
            health.stored(connection, fleet.names, list(waiting)), health.reported(own, fleet.names, "adapter"),
        ])  # fmt: skip
        newest: Dict[str, Episode] = {}
        ended = episodes.list_episodes(connection, is_open=False, ended_since=now - 30 * DAY)
        for row in (*ended, *episodes.list_episodes(connection, is_open=True)):
            newest[row.node] = row
        verdicts = health.by_suite(connection, fleet.names, pool.suite)
        held = StandingHolds(holds.in_force(connection, now), fleet)
        addable -= sum(row.state == ENTERING and not row.token for row in rows)  # asked for, and perhaps not shown yet
        had: FrozenSet[int] = frozenset()
        if adds:
            had = frozenset(row.id for row in newest.values() if spares.was_added(connection, row.id))
    return SpareView(
        pool, waiting, rows, {state.name: state for state in states}, healths, verdicts, newest,
        {node: details.read_or_empty(row.detail).marked for node, row in newest.items()},
        {node: held.why(node) for node in newest}, site.settings.sources.max_age, now,
        adds, addable, had, site.settings.verify.healthy_for,
    )  # fmt: skip


def round_of(
    site: RemedySite, pools: Sequence[Tuple[PoolSettings, SpareSource]], *, apply: bool, now: float,
    fence: Optional[Fence] = None, publish: Callable[[SpareDone], None] = lambda _done: None,
) -> List[PoolRound]:  # fmt: skip
    """Go over all pools once. Raises StoreError."""
    rounds = []
    for pool, source in pools:
        problems: List[str] = []
        with one_item(pool.name, problems):
            view = look(site, pool, source, now, apply)
            decision = decide(view)
        if problems:
            rounds.append(PoolRound(pool, None, SpareDecision((), ()), (), problems[0].partition(": ")[2]))
            continue
        done: List[SpareDone] = []
        for step in decision.steps if apply else ():
            with one_item(step.spare, problems):
                done.append(SpareDone(step, _carry_out(site, pool, source, step, now, fence)))
                publish(done[-1])
        rounds.append(PoolRound(pool, view, decision, tuple(done), "; ".join([*problems, *site.unread])))
    return rounds


def _carry_out(
    site: RemedySite, pool: PoolSettings, source: SpareSource, step: SpareStep, now: float, fence: Optional[Fence]
) -> Applied:
    """Written down, then done, then written down what came of it. Both calls change nothing where they took effect."""
    if isinstance(source, CapacityPool):
        return capacity.carry_out(site, pool, source, step, now, fence, ACTOR)
    entering = step.action == "swap-in"
    try:
        with site.store.write(fence) as connection:
            row = step.row
            if row is None:
                row = spares.begin(connection, step.spare, pool.name, step.stands_for, episode=step.episode, by=ACTOR,
                                   why=step.why, now=now)  # fmt: skip
            elif not entering and row.state != LEAVING:
                row = spares.save(connection, row, LEAVING, by=ACTOR, why=step.why, now=now)
        applied = source.into_service(step.spare) if entering else source.back(step.spare)
        if applied.effect not in (Effect.CHANGED, Effect.UNCHANGED):
            return applied
        with site.store.write(fence) as connection:
            if entering:
                spares.save(connection, row, IN_SERVICE, by=ACTOR, why=row.why, now=now)
            else:
                spares.end(connection, row, by=ACTOR, why=row.why, now=now)
    except Conflict as error:
        return Applied(step.spare, Effect.REFUSED, str(error))
    return applied
