"""One round over the pools: read, decide, store, act. The next round continues one that was cut off."""

from __future__ import annotations

import hashlib
from typing import Callable, Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Tuple

from nhc.core.system.service_log import failure
from nhc.marks import plugins
from nhc.marks.policy.bounds import protected
from nhc.marks.ports.adapter import Applied, Effect, Mark, NodeState
from nhc.marks.ports.spares import AddedNode, AddedPhase, AddFailed, CapacityPool, SpareSource
from nhc.remedy import counting, health
from nhc.remedy import detail as details
from nhc.remedy.node_holds import StandingHolds
from nhc.remedy.remedy_site import RemedySite
from nhc.remedy.spares.settings import PoolSettings
from nhc.remedy.spares.swap_decision import SpareDecision, SpareStep, SpareView, added_name, decide
from nhc.store import episodes, holds, spares
from nhc.store.database import Fence
from nhc.store.episodes import Episode
from nhc.store.errors import Conflict, StoreError
from nhc.store.rounds.service import one_item
from nhc.store.spares import ENTERING, IN_SERVICE, LEAVING, LOST, SpareInUse

# A node is added for one that is out, watched until it runs, and kept or deleted when that one is back.
#
# Each step is written down before it is done. The token of the request follows from the row, so a request whose answer
# was lost is the same request again: the provider answers it with the same node. A node is deleted only when it is out
# of service and idle.


MARGIN = 3600.0
"""Seconds before a token ends in which it is asked no more: our clock and the provider's may differ."""
CLOCKS = 300.0
"""Seconds that our clock may be ahead of the provider's where a node is looked for by its launch."""


def token_of(row: SpareInUse) -> str:
    """The request's token: the same for one row, another for every other row of every store."""
    identity = "\0".join((row.node, row.pool, row.stands_for, str(row.episode), repr(row.since)))
    return "nhc-" + hashlib.sha256(identity.encode()).hexdigest()[:40]


class _Step:
    """One step of one row, and where it is written down."""

    def __init__(
        self, site: RemedySite, keeper: CapacityPool, row: SpareInUse, now: float, fence: Optional[Fence], by: str
    ) -> None:
        self.site, self.keeper, self.row, self.now, self.fence, self.by = site, keeper, row, now, fence, by

    def save(self, state: str, why: str) -> None:
        """Raises Conflict, StoreError; also where the lead is lost."""
        with self.site.store.write(self.fence) as connection:
            self.row = spares.save(connection, self.row, state, by=self.by, why=why, now=self.now)

    def end(self, what: str, why: str, effect: Effect = Effect.CHANGED) -> Applied:
        with self.site.store.write(self.fence) as connection:
            spares.end(connection, self.row, by=self.by, why=why, now=self.now, what=what)
        return Applied(self.row.node, effect, why)

    def applied(self, effect: Effect, why: str) -> Applied:
        return Applied(self.row.node, effect, why)

    # In.

    def enter(self, first: bool) -> Applied:
        if not self.row.token:
            refused = self._add(first)
            if refused is not None:
                return refused
        seen = self.keeper.find(self.row.token)
        if seen.phase is AddedPhase.RUNNING:
            self.save(IN_SERVICE, self.row.why)
            return self.applied(Effect.CHANGED, seen.shown)
        if seen.phase is AddedPhase.COMING:
            return self.applied(Effect.CHANGED if first else Effect.UNCHANGED, f"added: {seen.shown}")
        return self.applied(Effect.FAILED, f"it was added and does not run: {seen.shown}")

    def _add(self, first: bool) -> Optional[Applied]:
        """Ask for the node and write its id down. None where that is done."""
        if self.now - self.row.since > self.keeper.token_valid - MARGIN:
            return self.applied(Effect.FAILED, f"no answer came while the request's token was valid; {self._newer()}")
        if not first:
            self.save(ENTERING, self.row.why)  # proves the lead again, right before the request
        try:
            added = self.keeper.add(token_of(self.row))
        except AddFailed as error:
            if first and error.refused:  # with a lost answer before it, a refusal proves nothing
                return self.end("spare.refused", f"nothing was added: {error}", Effect.FAILED)
            return self.applied(Effect.FAILED, f"asked again in the next round, with the same token: {error}")
        with self.site.store.write(self.fence) as connection:
            self.row = spares.added(connection, self.row, added, by=self.by, now=self.now)
        return None

    def _newer(self) -> str:
        """What a person is to look at where nobody knows whether a node was added."""
        launched = self.keeper.launched(self.row.since - CLOCKS)
        return f"launched since then: {', '.join(launched[:20])}" if launched else "no node was launched since then"

    # Out.

    def leave(self, why: str) -> Applied:
        if not self.row.token:
            return self.end(LOST, f"it is not known whether a node was added, none is deleted; {self._newer()}")
        if not self.keeper.deletes:
            if self.row.state == LEAVING:  # it was to be deleted, and the policy is another now
                self.site.marker.clear(list(self.keeper.find(self.row.token).names))
            return self.end("spare.kept", f"{self.row.token} is kept (after-repair is keep): {why}")
        seen = self.keeper.find(self.row.token)
        if seen.phase is AddedPhase.GONE:
            return self.end("spare.deleted", f"{self.row.token} has left: {why}")
        self.save(LEAVING, why)
        if seen.phase in (AddedPhase.LEAVING, AddedPhase.COMING):
            return self.applied(Effect.UNCHANGED, seen.shown)
        return self._delete(seen)

    def _delete(self, seen: AddedNode) -> Applied:
        """Take it out of service, see that it runs nothing, delete it. Work may start until it is out of service."""
        state, doubt = self._idle(seen)
        if state is None:
            return self.applied(Effect.FAILED, doubt)
        marker = self.site.marker
        ours = Mark(f"spare of {self.row.stands_for} is given back", since=self.now)
        (marked,) = marker.mark({state.name: ours})
        if marked.effect not in (Effect.CHANGED, Effect.UNCHANGED):
            return self.applied(Effect.FAILED, f"{state.name} cannot be taken out of service: {marked.message}")
        again, doubt = self._idle(seen)
        if again is None or again.available:
            marker.clear([state.name])
            return self.applied(Effect.FAILED, doubt or f"{state.name} still takes work")
        done = self.keeper.delete(self.row.token)
        if done.effect is Effect.REFUSED:
            marker.clear([state.name])
            return self.applied(Effect.FAILED, done.message)
        return self.applied(done.effect, done.message)

    def _idle(self, seen: AddedNode) -> Tuple[Optional[NodeState], str]:
        """The scheduler's node where it surely runs nothing and nobody holds it; else None and why not."""
        states = self.site.actuators.states()
        named = [state for state in states if state.name in seen.names]
        if len(named) == 1:  # asked for by its name: what runs on it is seen
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


def carry_out(
    site: RemedySite, pool: PoolSettings, keeper: CapacityPool, step: SpareStep, now: float, fence: Optional[Fence],
    by: str,
) -> Applied:  # fmt: skip
    """Do one step of a pool that adds nodes; a row that is under way is continued. Raises StoreError."""
    if step.spare != added_name(keeper.name(), step.stands_for):
        return Applied(step.spare, Effect.FAILED, f"pool {pool.name} adds to {keeper.name()} now: not asked there")
    try:
        row, first = step.row, step.row is None
        if row is None:
            with site.store.write(fence) as connection:
                row = spares.begin(connection, step.spare, pool.name, step.stands_for, episode=step.episode, by=by,
                                   why=step.why, now=now)  # fmt: skip
        under_way = _Step(site, keeper, row, now, fence, by)
        return under_way.enter(first) if step.action == "swap-in" else under_way.leave(step.why)
    except Conflict as error:
        return Applied(step.spare, Effect.REFUSED, str(error))
    except StoreError:
        raise
    except Exception as error:
        return Applied(step.spare, Effect.FAILED, failure(error))


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
    by_name = {state.name: state for state in states}
    # A list of all nodes may leave out in which boot they are.
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
            had = frozenset(row.id for row in newest.values() if spares.was_added(connection, row.id))
    return SpareView(
        pool, waiting, rows, by_name, healths, verdicts, newest,
        {node: details.read_or_empty(row.detail).marked for node, row in newest.items()},
        {node: held.why(node) or _protected(site, node) for node in {*newest, *waiting}},
        site.settings.sources.max_age, now, adds, addable, had, site.settings.verify.healthy_for,
    )  # fmt: skip


def _protected(site: RemedySite, node: str) -> str:
    held = protected(site.settings.bounds, node)
    return held.why if held is not None else ""


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
        return carry_out(site, pool, source, step, now, fence, ACTOR)
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
