"""A node is added for one that is out, watched until it runs, and kept or deleted when that one is back.

Each step is written down before it is done. The token of the request follows from the row, so a request whose answer
was lost is the same request again: the provider answers it with the same node. A node is deleted only when it is out of
service and idle.
"""

from __future__ import annotations

import hashlib
from typing import Optional, Tuple

from nhc.marks.ports.adapter import Applied, Effect, Mark, NodeState
from nhc.marks.ports.spares import AddedNode, AddedPhase, AddFailed, CapacityPool
from nhc.remedy import counting
from nhc.remedy.held import StandingHolds
from nhc.remedy.site import RemedySite
from nhc.remedy.spares.decide import SpareStep, added_name
from nhc.remedy.spares.settings import PoolSettings
from nhc.store import holds, spares
from nhc.store.database import Fence
from nhc.store.errors import Conflict, StoreError
from nhc.store.rounds.one_item import failure
from nhc.store.spares import ENTERING, IN_SERVICE, LEAVING, LOST, SpareInUse

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
