"""A drill on a real node: a fault, the loop watched, everything undone.

The fault asks for an inspection, so that the loop marks the node, and gives it to a person. It is only reported, or it
is put on the node (`nhc.lab.drills.on_node`), where the node's own check finds it. A row of the store
(`nhc.store.drills`)
is written before the first step and deleted when all is undone. A drill begins by undoing what an earlier one left.
"""

from __future__ import annotations

import contextlib
import time
from typing import Callable, List, NamedTuple, Optional, Tuple

from nhc.core.limits import Mode
from nhc.core.model import Action
from nhc.lab.drills.faults import REPORTED, RealFault, ReportedFault, read_injection, would_send
from nhc.lab.drills.on_node import DrillRefused, InjectedFault
from nhc.lab.drills.play import Drilled, DrillTiming, Promise
from nhc.marks.policy.bounds import MARK
from nhc.marks.ports.adapter import AdapterError, Effect, NodeState
from nhc.marks.ports.marks import cause_text
from nhc.remedy import persons
from nhc.remedy.controller import RemedyController
from nhc.remedy.machine import ENDS, EpisodeState
from nhc.remedy.site import RemedySite
from nhc.store import attempts, audit, drills, episodes, problems
from nhc.store.database import Store
from nhc.store.drills import OpenDrill
from nhc.store.episodes import Episode
from nhc.store.errors import RequestRefused
from nhc.store.problems import StoredProblem
from nhc.store.rounds.leader import Leader

SLACK = 2.0
"""Seconds by which a scheduler's clock of marks may be behind: Slurm keeps whole ones."""


class Limits(NamedTuple):
    """How long (seconds) a drill may take, and the pause between two looks."""

    longest: float = 1800.0
    pause: float = 1.0


class DrillRounds:
    """The loop's rounds, made here where nobody else leads the store."""

    def __init__(self, site: RemedySite) -> None:
        self.site, self.leader = site, Leader(site.store)
        self.controller: Optional[RemedyController] = None

    def close(self) -> None:
        """Others may lead."""
        self.leader.release()

    def make(self) -> None:
        """One round, if it is ours to make."""
        if self.leader.attempt() and self.leader.fence is not None:
            if self.controller is None:
                self.controller = self.site.controller(self.leader.fence, lambda _step: None)
            self.controller.round()


def left_over(store: Store) -> List[OpenDrill]:
    """The drills that have not been undone. Raises StoreError."""
    with store.read() as connection:
        return drills.open_drills(connection)


def fault_of(site: RemedySite, drill: OpenDrill) -> RealFault:
    """The fault that a drill has begun. Raises AdapterError where its record cannot be read."""
    try:
        injection = read_injection(drill.injected)
    except ValueError as error:
        raise AdapterError(f"the record of the drill on {drill.node} cannot be read: {error}") from None
    return ReportedFault(site.store) if injection.scenario == REPORTED else InjectedFault(site, injection)


class Undoing:
    """What undoes a drill: the fault, then the episode, then the mark, and the record last, so that a kill in the midst
    of it is no harm.
    """

    def __init__(
        self, site: RemedySite, drill: OpenDrill, by: str, *, pause: float = 1.0,
        clock: Callable[[], float] = time.time, sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        self.site, self.drill, self.by, self.pause = site, drill, by, pause
        self.clock, self.sleep = clock, sleep
        self.fault = fault_of(site, drill)

    def undo(self) -> List[str]:
        """What was done. Raises StoreError, AdapterError; the record stands then."""
        node = self.drill.node
        done = self.fault.take_back(node, self.clock())
        true = self._true_problems()
        if true:
            done.append(f"it has a problem of its own now, and stays as it is: {true[0].message or true[0].reason}")
        else:
            done += [*self._end_episode(), *self._clear()]
        with self.site.store.write() as connection:
            drills.end(connection, node, by=self.by, now=self.clock())
        return done

    def _true_problems(self) -> List[StoredProblem]:
        """The problems of the node that are not the drill's, once it has reported that the drill's are over."""
        until = self.clock() + self.site.settings.drill.recover
        with contextlib.closing(DrillRounds(self.site)) as rounds:
            while True:
                standing = problems_of(self.site.store, self.drill.node)
                ours = [problem for problem in standing if self.fault.injection.caused(problem)]
                if not ours:
                    return standing
                if self.clock() > until:
                    raise AdapterError(
                        f"{self.drill.node} still reports {ours[0].reason}, although the fault was taken off"
                    )
                rounds.make()
                self.sleep(self.pause)

    def _end_episode(self) -> List[str]:
        row = episode_of(self.site.store, self.drill, self.fault)
        if row is not None and row.ended is None:
            with contextlib.suppress(RequestRefused):  # it has ended meanwhile
                persons.abort(self.site.store, row.id, by=self.by, why="the drill is over", now=self.clock())
                return [f"episode {row.id} was ended"]
        return []

    def _clear(self) -> List[str]:
        node = self.drill.node
        state = state_of(self.site, node)
        if state is None or not self._marked(state):
            return []
        done = []
        for applied in self.site.marker.clear([node]):
            if applied.effect is Effect.FAILED:
                raise AdapterError(f"the mark of the drill on {node} cannot be cleared: {applied.message}")
            done.append(f"the mark was cleared{f': {applied.message}' if applied.message else ''}")
        return done

    def _marked(self, state: NodeState) -> bool:
        """Whether it carries a mark of ours that was set in this drill: it had none when the drill began."""
        mark = state.mark
        return mark is not None and mark.ours and (not mark.since or mark.since >= self.drill.began - SLACK)


def state_of(site: RemedySite, node: str) -> Optional[NodeState]:
    """A node as the cluster has it, None where it does not know it. Raises AdapterError."""
    return next((state for state in site.actuators.states([node]) if state.name == node), None)


def problems_of(store: Store, node: str, since: Optional[float] = None) -> List[StoredProblem]:
    """The open problems of a node; those that have ended since, too."""
    with store.read() as connection:
        return problems.list_problems(connection, nodes=[node], is_open=True if since is None else None, since=since)


def episode_of(store: Store, drill: OpenDrill, fault: RealFault) -> Optional[Episode]:
    """The episode that a drill's fault has opened."""
    caused = [problem for problem in problems_of(store, drill.node, drill.began) if fault.injection.caused(problem)]
    causes = {cause_text(problem.check, problem.reason, problem.target) for problem in caused}
    with store.read() as connection:
        rows = episodes.list_episodes(connection, node=drill.node)
    ours = [row for row in rows if row.opened >= drill.began and row.cause in causes]
    return ours[-1] if ours else None


class RealDrill:
    """One drill on one node. `publish` gets each state."""

    def __init__(
        self, site: RemedySite, node: str, by: str, *, fault: Optional[RealFault] = None,
        limits: Limits = Limits(),  # noqa: B008 (a value)
        publish: Callable[[DrillTiming], None] = lambda _timing: None, clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        self.site, self.node, self.by, self.limits = site, node, by, limits
        self.fault = fault if fault is not None else ReportedFault(site.store)
        self.publish, self.clock, self.sleep = publish, clock, sleep
        self.drill = OpenDrill(node, self.fault.injection.scenario, self.fault.injection.text(), by, 0.0)

    def may(self) -> None:
        """Raises DrillRefused where the node is no matter for a drill, AdapterError, StoreError."""
        state = state_of(self.site, self.node)
        if state is None:
            raise DrillRefused(f"the cluster does not know {self.node}")
        if not state.available or state.hold or (state.mark is not None and state.mark.ours):
            raise DrillRefused(f"{self.node} is {state.shown}: a drill needs a node in service")
        with self.site.store.read() as connection:
            if episodes.list_episodes(connection, node=self.node, is_open=True):
                raise DrillRefused(f"{self.node} has an open episode")
            if problems.list_problems(connection, nodes=[self.node]):
                raise DrillRefused(f"{self.node} has a problem of its own")
        if self.site.settings.mode(MARK) is not Mode.ON:
            raise DrillRefused(f"{self.site.settings.path}: actions.mark is not on: the loop would do nothing")
        self.fault.may(self.node)

    def run(self) -> Drilled:
        """Inject, watch to the end, undo whatever happens. Raises DrillRefused, StoreError, AdapterError."""
        began = self.clock()
        self.drill = self.drill._replace(began=began)
        row: Optional[Episode] = None
        why = ""
        try:
            with self.site.store.write() as connection:
                drills.begin(connection, self.drill)
            self._say("injected", self.fault.begin(self.node, began))
            row = self._watch()
        except DrillRefused:  # nothing was begun
            with self.site.store.write() as connection:
                drills.end(connection, self.node, by=self.by, now=self.clock())
            raise
        except BaseException:
            if self.drill in left_over(self.site.store):
                self._undo()
            raise
        self._undo()
        back = state_of(self.site, self.node)
        if back is None or not back.available:
            why = f"the node is {back.shown if back is not None else 'gone'} after the drill"
        return Drilled(self.drill.scenario, self._timings(row), self._promises(row, why), 0, self.clock() - began)

    def _undo(self) -> None:
        undoing = Undoing(self.site, self.drill, self.by, pause=self.limits.pause, clock=self.clock, sleep=self.sleep)
        self._say("undone", "; ".join(undoing.undo()))

    def _watch(self) -> Optional[Episode]:
        """Until the episode has ended, or the time is up."""
        states: List[str] = []
        row: Optional[Episode] = None
        with contextlib.closing(DrillRounds(self.site)) as rounds:
            while self.clock() - self.drill.began < self.limits.longest:
                rounds.make()
                row = episode_of(self.site.store, self.drill, self.fault)
                self._no_repair()
                if row is not None:
                    if row.state not in states:
                        states.append(row.state)
                        self._say(row.state, row.outcome)
                    if EpisodeState(row.state) in ENDS:
                        return row
                self.fault.again(self.node, self.clock())
                self.sleep(self.limits.pause)
        return row

    def _no_repair(self) -> None:
        """A site's own line may ask for a repair: the drill ends before the loop gets there."""
        for problem in problems_of(self.site.store, self.node):
            sent = would_send(self.site.settings, Action(problem.action)) if problem.action != Action.NONE.value else []
            if sent and self.fault.injection.caused(problem):
                asks = f"{problem.reason} of {self.node} asks for {problem.action}"
                raise AdapterError(f"{asks}, and the loop would begin it")

    def _say(self, state: str, why: str) -> None:
        self.publish(DrillTiming(self.clock() - self.drill.began, state, why))

    def _timings(self, row: Optional[Episode]) -> Tuple[DrillTiming, ...]:
        if row is None:
            return ()
        with self.site.store.read() as connection:
            rows = audit.entries(connection, episode=row.id, limit=200)
        return tuple(
            DrillTiming(row.at - self.drill.began, row.what.partition(".")[2], "") for row in rows
            if row.what.startswith("episode.") and row.what not in ("episode.waits", "episode.joined")
        )  # fmt: skip

    def _promises(self, row: Optional[Episode], back: str) -> Tuple[Promise, ...]:
        tried, seen = 0, row is not None
        if row is not None:
            with self.site.store.read() as connection:
                tried = len(attempts.attempts_of(connection, row.id))
        ours = [
            problem for problem in problems_of(self.site.store, self.node, self.drill.began)
            if self.fault.injection.caused(problem)
        ]  # fmt: skip
        unseen = "no episode was opened: do the bounds allow it?" if ours else "no report of the node names the fault"
        escalated = row is not None and row.state == EpisodeState.ESCALATED.value
        return (
            Promise("detected", "" if seen else unseen),
            Promise("given to a person", "" if escalated or not seen else f"it is {row.state if row else 'nothing'}"),
            Promise("nothing sent", f"{tried} repairs were sent" if tried else ""),
            Promise("undone", back),
        )  # fmt: skip
