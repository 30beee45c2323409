"""Spares as a flow of the loop: read, decide, and what is done in each state of a spare's row.

Each step is stored before it is done, and a request to a pool changes nothing if it took effect already: the next round
continues a step that was cut off.
"""

from __future__ import annotations

import hashlib
import time
from typing import Callable, Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Set, Tuple

from nhc.core.system.service_log import failure
from nhc.core.system.steady_time import SteadyTime
from nhc.marks import plugins
from nhc.marks.policy.bounds import Usage, protected
from nhc.marks.policy.breaker import NAME
from nhc.marks.policy.door import Bars
from nhc.marks.ports.adapter import Applied, Effect, Mark, NodeState
from nhc.marks.ports.spares import AddedNode, AddedPhase, AddFailed, CapacityPool, SparePool, SpareSource
from nhc.remedy import counting, health
from nhc.remedy import detail as details
from nhc.remedy.node_holds import StandingHolds
from nhc.remedy.remedy_site import RemedySite
from nhc.remedy.spares.settings import PoolSettings
from nhc.remedy.spares.swap_decision import SpareDecision, SpareStep, SpareView, SpareWait, added_name, decide
from nhc.store import episodes, holds, spares
from nhc.store.database import Fence
from nhc.store.episodes import Episode, OpeningEpisode
from nhc.store.errors import StoreError
from nhc.store.rounds.loop import FlowLoop, LoopRound, Waiting
from nhc.store.rounds.row_flow import RowFlow, RowMove, RowView, RowWritten
from nhc.store.rounds.service import one_item
from nhc.store.spares import (
    DELETED,
    ENTERING,
    IN_SERVICE,
    KEPT,
    KIND,
    LEAVING,
    LOST,
    REFUSED,
    WAITING,
    SpareInUse,
    detail_of,
    of_row,
    opening,
)

ACTOR = "nhc spares"
DAY = 86400.0
MARGIN = 3600.0
"""Seconds before a token's end in which it is no longer used: our clock and the provider's may differ."""
GIVEN_BACK = "is given back"
"""The reason of our mark on a node that is about to be deleted."""
CLOCKS = 300.0
"""Seconds that our clock may be ahead of the provider's when a node is searched by its launch time."""


class SpareOutcome(NamedTuple):
    """The result of a step, and the move of its row that follows."""

    applied: Applied
    move: RowMove = RowMove()


def token_of(row: SpareInUse) -> str:
    """The request's token: always the same for one row, and different for every other row of every store."""
    identity = "\0".join((row.node, row.pool, row.stands_for, str(row.episode), repr(row.since)))
    return "nhc-" + hashlib.sha256(identity.encode()).hexdigest()[:40]


def of_pool(source: SparePool, row: SpareInUse) -> SpareOutcome:
    """Let a spare that waits take work, or wait again."""
    applied = source.into_service(row.node) if row.state == ENTERING else source.back(row.node)
    if applied.effect not in (Effect.CHANGED, Effect.UNCHANGED):
        return SpareOutcome(applied)
    if row.state == ENTERING:
        return SpareOutcome(applied, RowMove(IN_SERVICE, row.why))
    return SpareOutcome(applied, RowMove(WAITING, row.why, ends=True))


class Capacity:
    """A node is added for one that is out, watched until it runs, and kept or deleted when that one is back.

    The token of the request follows from the row, so a request whose answer was lost is the same request again: the
    provider answers it with the same node. A node is deleted only when it is out of service and idle.
    """

    def __init__(self, site: RemedySite, keeper: CapacityPool, row: SpareInUse, now: float) -> None:
        self.site, self.keeper, self.row, self.now = site, keeper, row, now

    def _applied(self, effect: Effect, why: str) -> SpareOutcome:
        return SpareOutcome(Applied(self.row.node, effect, why))

    def _end(self, state: str, why: str, effect: Effect = Effect.CHANGED) -> SpareOutcome:
        return SpareOutcome(Applied(self.row.node, effect, why), RowMove(state, why, ends=True))

    # In.

    def enter(self, first: bool) -> SpareOutcome:
        """Request the node if its id is not known, and query how far it is. `first`: it cannot have been requested
        before.
        """
        noted = RowMove()
        token = self.row.token
        if not token:
            if self.now - self.row.since > self.keeper.token_valid - MARGIN:
                why = f"no answer came while the request's token was valid; {self._newer()}"
                return self._applied(Effect.FAILED, why)
            try:
                token = self.keeper.add(token_of(self.row))
            except AddFailed as error:
                if first and error.refused:  # with a lost answer before it, a refusal proves nothing
                    return self._end(REFUSED, f"nothing was added: {error}", Effect.FAILED)
                why = f"asked again in the next round, with the same token: {error}"
                return self._applied(Effect.FAILED, why)
            detail = detail_of(self.row.pool, self.row.episode, self.row.why, token)
            noted = RowMove(because=f"its id is {token}", detail=detail, noted="added")
        try:
            seen = self.keeper.find(token)
        except Exception as error:  # its id is known, and is kept
            return SpareOutcome(Applied(self.row.node, Effect.FAILED, failure(error)), noted)
        if seen.phase is AddedPhase.RUNNING:
            return SpareOutcome(Applied(self.row.node, Effect.CHANGED, seen.shown),
                           noted._replace(state=IN_SERVICE, because=self.row.why))  # fmt: skip
        if seen.phase is AddedPhase.COMING:
            effect = Effect.CHANGED if first else Effect.UNCHANGED
            return SpareOutcome(Applied(self.row.node, effect, f"added: {seen.shown}"), noted)
        return SpareOutcome(
            Applied(self.row.node, Effect.FAILED, f"it was added and does not run: {seen.shown}"), noted
        )

    def _newer(self) -> str:
        """What a person must check if it is not known whether a node was added."""
        launched = self.keeper.launched(self.row.since - CLOCKS)
        return f"launched since then: {', '.join(launched[:20])}" if launched else "no node was launched since then"

    # Out.

    def leave(self) -> SpareOutcome:
        """Keep the node, or delete it once it is idle."""
        why, token = self.row.why, self.row.token
        if not token:
            return self._end(LOST, f"it is not known whether a node was added, none is deleted; {self._newer()}")
        if not self.keeper.deletes:
            self._give_back(self.keeper.find(token))
            return self._end(KEPT, f"{token} is kept (after-repair is keep): {why}")
        seen = self.keeper.find(token)
        if seen.phase is AddedPhase.GONE:
            return self._end(DELETED, f"{token} has left: {why}")
        if seen.phase in (AddedPhase.LEAVING, AddedPhase.COMING):
            return self._applied(Effect.UNCHANGED, seen.shown)
        return self._delete(seen)

    def _give_back(self, seen: AddedNode) -> None:
        """If the node was to be deleted before, remove our own mark for that, and no other."""
        states = [state for state in self.site.actuators.states() if state.name in seen.names]
        ours = [state.name for state in states if state.mark is not None and GIVEN_BACK in state.mark.why]
        if ours:
            self.site.marker.clear(ours)

    def _delete(self, seen: AddedNode) -> SpareOutcome:
        """Take it out of service, check that it runs nothing, delete it. Until it is out of service, work may start."""
        state, doubt = self._idle(seen)
        if state is None:
            return self._applied(Effect.FAILED, doubt)
        marker = self.site.marker
        ours = Mark(f"spare of {self.row.stands_for} {GIVEN_BACK}", since=self.now)
        (marked,) = marker.mark({state.name: ours})
        if marked.effect not in (Effect.CHANGED, Effect.UNCHANGED):
            return self._applied(Effect.FAILED, f"{state.name} cannot be taken out of service: {marked.message}")
        again, doubt = self._idle(seen)
        if again is None or again.available:
            marker.clear([state.name])
            return self._applied(Effect.FAILED, doubt or f"{state.name} still takes work")
        done = self.keeper.delete(self.row.token)
        if done.effect is Effect.REFUSED:
            marker.clear([state.name])
            return self._applied(Effect.FAILED, done.message)
        return self._applied(done.effect, done.message)

    def _idle(self, seen: AddedNode) -> Tuple[Optional[NodeState], str]:
        """The scheduler's node if it certainly runs nothing and is not held; else None and why not."""
        states = self.site.actuators.states()
        named = [state for state in states if state.name in seen.names]
        if len(named) == 1:  # read by its name: so the work on it is known
            named = self.site.actuators.states([named[0].name])
        if len(named) != 1:
            return None, f"the scheduler knows {len(named)} nodes as {' or '.join(seen.names) or 'it'}: not deleted"
        (state,) = named
        with self.site.store.read() as connection:
            fleet = counting.fleet(connection, states)
            held = StandingHolds(holds.in_force(connection, self.now), fleet).why(state.name)
        if state.busy:
            return None, f"work still runs on {state.name}"
        if held or state.hold:
            return None, f"{state.name} is left alone: {held or state.hold}"
        return state, ""


class SpareDone(NamedTuple):
    """A step, and what came of it."""

    step: SpareStep
    applied: Applied


class PoolRound(NamedTuple):
    """One pool: what was read, decided and done. `problem` says what could not be read, "" for nothing."""

    pool: PoolSettings
    view: Optional[SpareView]
    decision: SpareDecision
    done: List[SpareDone]
    problem: str = ""


def open_pool(pool: PoolSettings) -> SpareSource:
    """What keeps a pool's nodes. Raises NoAdapter, AdapterError."""
    made: SpareSource = plugins.spare_pool(pool.type)(pool.settings, None, pool.timeout)
    return made


def look(site: RemedySite, pool: PoolSettings, source: SpareSource, now: float, apply: bool = False) -> SpareView:
    """All that bears on a pool. Reports in files are stored if `apply` says that something is done.

    Raises AdapterError, StoreError.
    """
    adds, addable, waiting = "", 0, []
    if isinstance(source, CapacityPool):
        adds, addable = source.name(), source.room()
    else:
        waiting = source.waiting()
    states = site.actuators.states()
    by_name = {state.name: state for state in states}
    # A list of all nodes may leave out their boot.
    by_name.update({state.name: state for state in (site.actuators.states(sorted(waiting)) if waiting else ())})
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
            had = frozenset(spares.had_one_added(connection))
    return SpareView(
        pool, waiting, rows, by_name, healths, verdicts, newest,
        {node: details.read_or_empty(row.detail).marked for node, row in newest.items()},
        {node: held.why(node) or _protected(site, node) for node in {*newest, *waiting}},
        site.settings.sources.max_age, now, adds, addable, had, site.settings.verify.healthy_for,
    )  # fmt: skip


def _protected(site: RemedySite, node: str) -> str:
    held = protected(site.settings.bounds, node)
    return held.why if held is not None else ""


Pools = Sequence[Tuple[PoolSettings, SpareSource]]


class Swapping:
    """The trade of spares: those of all pools of a site. `rounds` are the pools as the last round read them."""

    kind, actor = KIND, ACTOR

    def __init__(self, site: RemedySite, pools: Pools, publish: Callable[[SpareDone], None]) -> None:
        self.site, self.pools, self.publish = site, pools, publish
        self.problems: List[str] = []
        self.rounds: List[PoolRound] = []
        self._now = 0.0
        self._steps: Dict[str, Tuple[PoolRound, SpareSource, SpareStep]] = {}
        self._served: Set[str] = set()

    def look(self, now: float, apply: bool, rows: Sequence[Episode]) -> Bars:
        """See Trade."""
        self._now, self.problems, self.rounds, self._steps = now, [], [], {}
        self._served = {row.cause for row in rows} | {row.node for row in rows}
        held: Dict[str, str] = {}
        for pool, source in self.pools:
            problems: List[str] = []
            with one_item(pool.name, problems):
                view = look(self.site, pool, source, now, apply)
                found = PoolRound(pool, view, decide(view), [], "; ".join(self.site.unread))
                held.update(view.held)
                self._steps.update({step.spare: (found, source, step) for step in found.decision.steps})
            if problems:
                found = PoolRound(pool, None, SpareDecision((), ()), [], problems[0].partition(": ")[2])
            self.rounds.append(found)
        with self.site.store.read() as connection:
            breaker = holds.breaker_of(connection, NAME)
        why = f"the breaker is open: {breaker.why}" if breaker.is_open else ""
        return Bars(self.site.settings.bounds, Usage({}, {}), why, lambda node: held.get(node, ""))

    def new(self, now: float) -> Tuple[List[OpeningEpisode], List[Waiting]]:
        """See Trade."""
        del now
        new: List[OpeningEpisode] = []
        for found, _source, step in self._steps.values():
            if step.row is None and self._served.isdisjoint((step.spare, step.stands_for)):
                self._served |= {step.spare, step.stands_for}  # another pool may serve the same node
                pool = found.pool.name
                new.append(opening(step.spare, pool, step.stands_for, episode=step.episode, why=step.why))
        waits = [Waiting(wait.node, 0, "", wait.why) for found in self.rounds for wait in found.decision.waits]
        return new, waits

    def seen(self, done: LoopRound[RowWritten]) -> List[PoolRound]:
        """The pools after a round: an item that the loop has held waits, and is not a step."""
        held = {wait.node: SpareWait(wait.node, wait.why) for wait in done.waiting if wait.node in self._steps}
        rounds = []
        for found in self.rounds:
            steps = tuple(step for step in found.decision.steps if step.row is not None or step.spare not in held)
            waits = [held[step.spare] for step in found.decision.steps if step not in steps]
            rounds.append(found._replace(decision=SpareDecision(steps, (*found.decision.waits, *waits))))
        return rounds

    def step(self, row: Episode, time: SteadyTime) -> RowMove:
        """See Trade."""
        del time
        _found, _source, step = self._steps.get(row.node, (None, None, None))
        if step is not None and step.action == "back" and row.state != LEAVING:
            spare = of_row(row)
            return RowMove(LEAVING, step.why, detail=detail_of(spare.pool, spare.episode, step.why, spare.token))
        return RowMove(because=of_row(row).why)

    def act(self, row: Episode) -> Optional[RowMove]:
        """See Trade."""
        if row.node not in self._steps or row.state == IN_SERVICE:
            return None
        found, source, step = self._steps[row.node]
        spare = of_row(row)
        try:
            applied, move = self._carry_out(found.pool, source, spare)
        except StoreError:
            raise
        except Exception as error:
            applied, move = Applied(spare.node, Effect.FAILED, failure(error)), RowMove()
        found.done.append(SpareDone(step, applied))
        self.publish(found.done[-1])
        return move

    def _carry_out(self, pool: PoolSettings, source: SpareSource, spare: SpareInUse) -> SpareOutcome:
        if not isinstance(source, CapacityPool):
            return of_pool(source, spare)
        if spare.node != added_name(source.name(), spare.stands_for):
            why = f"pool {pool.name} adds to {source.name()} now: not asked there"
            return SpareOutcome(Applied(spare.node, Effect.FAILED, why))
        under_way = Capacity(self.site, source, spare, self._now)
        return under_way.enter(spare.since == self._now) if spare.state == ENTERING else under_way.leave()


SpareLoop = FlowLoop[RowView, RowMove, RowWritten]


def spare_loop(
    trade: Swapping, fence: Optional[Fence] = None, *, clock: Callable[[], float] = time.time,
    monotonic: Callable[[], float] = time.monotonic,
) -> SpareLoop:  # fmt: skip
    """The loop over the spares of a site."""
    store = trade.site.store
    return FlowLoop(store, RowFlow(store, trade, fence), fence=fence, clock=clock, monotonic=monotonic)


def round_of(
    site: RemedySite, pools: Pools, *, apply: bool, now: float, fence: Optional[Fence] = None,
    publish: Callable[[SpareDone], None] = lambda _done: None, monotonic: Callable[[], float] = time.monotonic,
) -> List[PoolRound]:  # fmt: skip
    """Go over all pools once. Raises StoreError."""
    trade = Swapping(site, pools, publish)
    return trade.seen(spare_loop(trade, fence, clock=lambda: now, monotonic=monotonic).round(apply))
