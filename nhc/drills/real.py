"""A drill on a real node: a fault that is reported and not there, the loop watched, everything undone.

Nothing is done to the machine: the fault asks for an inspection, so that the loop marks the node, and gives it to a
person. What is reported is a failure of the check `check_drill`, by the source `drill`. A row of the store
(`nhc.store.drills`) stands from before the first of it until all is undone: whoever begins a drill undoes what another
has left.
"""

from __future__ import annotations

import contextlib
import time
from typing import Callable, List, NamedTuple, Optional, Tuple

from nhc.drills.play import Drilled, DrillTiming, Promise
from nhc.drills.world import CHECK
from nhc.model import Action, CheckResult, Outcome, Report, Verdict
from nhc.ports import AdapterError, Effect, NodeState
from nhc.remedy import persons
from nhc.remedy.bounds import MARK
from nhc.remedy.controller import RemedyController
from nhc.remedy.ladder import Mode
from nhc.remedy.machine import ENDS, EpisodeState
from nhc.remedy.site import RemedySite
from nhc.store import attempts, audit, drills, episodes, problems, reports
from nhc.store.database import Store
from nhc.store.drills import OpenDrill
from nhc.store.episodes import Episode
from nhc.store.intake import Incoming
from nhc.store.leader import Leader

SOURCE = "drill"
REASON = "Drill"
WHY = "a drill: nothing is wrong with this node"


class DrillRefused(Exception):
    """Why a drill on this node cannot begin: one line for a person."""


class Limits(NamedTuple):
    """How long (seconds) a drill may take, and the pause between two looks."""

    longest: float = 1800.0
    pause: float = 1.0


def report(node: str, verdict: Verdict, now: float) -> Report:
    """What a drill reports of a node."""
    bad = Outcome(verdict, REASON, WHY, action=Action.INSPECT) if verdict is Verdict.CRIT else Outcome(verdict)
    return Report(node, "", now, 0.0, (CheckResult(CHECK, bad),), version="drill")


def left_over(store: Store) -> List[str]:
    """The nodes on which a drill has not been undone. Raises StoreError."""
    with store.read() as connection:
        return [one.node for one in drills.open_drills(connection)]


def undo(site: RemedySite, node: str, *, by: str, now: float) -> List[str]:
    """Undo a drill on a node, whatever is left of it; what was done. Raises StoreError, AdapterError.

    The record goes last: a drill that is killed in the midst of this is undone by the next.
    """
    done: List[str] = []
    with site.store.write() as connection:
        was = [one for one in problems.list_problems(connection, nodes=[node]) if one.check == CHECK]
        if was:
            reports.receive(connection, [Incoming(report(node, Verdict.OK, now), SOURCE, now)])
            done.append("the fault was taken back")
    row = _episode(site.store, node)
    if row is not None and row.ended is None:
        with contextlib.suppress(persons.RequestRefused):  # it has ended meanwhile
            persons.abort(site.store, row.id, by=by, why="the drill is over", now=now)
            done.append(f"episode {row.id} was ended")
    states = {state.name: state for state in site.hands.states([node])}
    if node in states and _ours(states[node]):
        for applied in site.marker.clear([node]):
            if applied.effect is Effect.FAILED:
                raise AdapterError(f"the mark of the drill on {node} cannot be cleared: {applied.message}")
            done.append(f"the mark was cleared{f': {applied.message}' if applied.message else ''}")
    with site.store.write() as connection:
        drills.end(connection, node, by=by, now=now)
    return done


def _ours(state: NodeState) -> bool:
    """Whether a node carries the mark of a drill, and nothing else."""
    return state.mark is not None and state.mark.ours and WHY in state.mark.why


def _episode(store: Store, node: str) -> Optional[Episode]:
    with store.read() as connection:
        rows = [row for row in episodes.list_episodes(connection, node=node) if row.cause.startswith(f"{CHECK}|")]
    return rows[-1] if rows else None


class RealDrill:
    """One drill on one node. `tell` hears of each state."""

    def __init__(
        self, site: RemedySite, node: str, by: str, *, limits: Limits = Limits(),  # noqa: B008 (a value)
        tell: Callable[[DrillTiming], None] = lambda _one: None, clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        self.site, self.node, self.by, self.limits = site, node, by, limits
        self.tell, self.clock, self.sleep = tell, clock, sleep
        self.began = 0.0

    def may(self) -> None:
        """Raises DrillRefused where the node is no matter for a drill, AdapterError, StoreError."""
        states = {state.name: state for state in self.site.hands.states([self.node])}
        if self.node not in states:
            raise DrillRefused(f"the cluster does not know {self.node}")
        state = states[self.node]
        if not state.available or state.hold or (state.mark is not None and state.mark.ours):
            raise DrillRefused(f"{self.node} is {state.shown}: a drill needs a node in service")
        with self.site.store.read() as connection:
            if episodes.list_episodes(connection, node=self.node, is_open=True):
                raise DrillRefused(f"{self.node} has an open episode")
            if problems.list_problems(connection, nodes=[self.node]):
                raise DrillRefused(f"{self.node} has a problem of its own")
        if self.site.settings.mode(MARK) is not Mode.ON:
            raise DrillRefused(f"{self.site.settings.path}: actions.mark is not on: the loop would do nothing")

    def run(self) -> Drilled:
        """Inject, watch to the end, undo whatever happens. Raises StoreError, AdapterError."""
        self.began = self.clock()
        row: Optional[Episode] = None
        undone: List[str] = []
        why = ""
        try:
            with self.site.store.write() as connection:
                drills.begin(connection, OpenDrill(self.node, "fault", "{}", self.by, self.began))
                found = Incoming(report(self.node, Verdict.CRIT, self.began), SOURCE, self.began)
                reports.receive(connection, [found])
            self._say("reported", "the fault is in the store")
            row = self._watch()
        finally:
            undone = undo(self.site, self.node, by=self.by, now=self.clock())
            self._say("undone", "; ".join(undone))
        back = {state.name: state for state in self.site.hands.states([self.node])}.get(self.node)
        if back is None or not back.available:
            why = f"the node is {back.shown if back is not None else 'gone'} after the drill"
        return Drilled(
            "fault", self._timings(row), self._promises(row, why), 0, self.clock() - self.began
        )  # fmt: skip

    def _watch(self) -> Optional[Episode]:
        """Until the episode has ended, or the time is up. Where nobody leads the store, the rounds are made here."""
        leader = Leader(self.site.store)
        controller: Optional[RemedyController] = None
        states: List[str] = []
        try:
            while self.clock() - self.began < self.limits.longest:
                if leader.attempt() and leader.fence is not None:
                    if controller is None:
                        controller = self.site.controller(leader.fence, lambda _one: None)
                    controller.round()
                row = _episode(self.site.store, self.node)
                if row is not None and row.opened >= self.began:
                    if row.state not in states:
                        states.append(row.state)
                        self._say(row.state, row.outcome)
                    if EpisodeState(row.state) in ENDS:
                        return row
                self._again()
                self.sleep(self.limits.pause)
        finally:
            leader.release()
        return _episode(self.site.store, self.node)

    def _again(self) -> None:
        """The fault is reported again, as an agent would: it has to stand for a time before the loop believes it."""
        now = self.clock()
        with self.site.store.write() as connection:
            reports.receive(connection, [Incoming(report(self.node, Verdict.CRIT, now), SOURCE, now)])

    def _say(self, state: str, why: str) -> None:
        self.tell(DrillTiming(self.clock() - self.began, state, why))

    def _timings(self, row: Optional[Episode]) -> Tuple[DrillTiming, ...]:
        if row is None:
            return ()
        with self.site.store.read() as connection:
            rows = audit.entries(connection, episode=row.id, limit=200)
        return tuple(
            DrillTiming(one.at - self.began, one.what.partition(".")[2], "") for one in rows
            if one.what.startswith("episode.") and one.what not in ("episode.waits", "episode.joined")
        )  # fmt: skip

    def _promises(self, row: Optional[Episode], back: str) -> Tuple[Promise, ...]:
        fresh = row is not None and row.opened >= self.began
        tried = 0
        if row is not None:
            with self.site.store.read() as connection:
                tried = len(attempts.attempts_of(connection, row.id))
        escalated = row is not None and row.state == EpisodeState.ESCALATED.value
        return (
            Promise("detected", "" if fresh else "no episode was opened: do the bounds allow it?"),
            Promise("given to a person", "" if escalated or not fresh else f"it is {row.state if row else 'nothing'}"),
            Promise("nothing sent", f"{tried} repairs were sent" if tried else ""),
            Promise("undone", back),
        )  # fmt: skip


__all__ = ["AdapterError", "DrillRefused", "Limits", "RealDrill", "left_over", "undo"]
