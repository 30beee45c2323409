"""A drill on a real node: a fault, the loop watched, everything undone.

The fault asks for an inspection, so that the loop marks the node, and gives it to a person. It is only reported, or it
is put on the node (`nhc.lab.drills.real`), where the node's own check finds it. A row of the store
(`nhc.store.drills`)
is written before the first step and deleted when all is undone. A drill begins by undoing what an earlier one left.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from typing import Callable, List, NamedTuple, Optional, Protocol, Sequence, Tuple

from nhc.core.limits import Mode
from nhc.core.model import Action, CheckResult, Outcome, Report, Verdict
from nhc.lab.drills.play import Drilled, DrillTiming, Promise
from nhc.lab.drills.world import CHECK
from nhc.marks.policy.bounds import MARK
from nhc.marks.ports.adapter import AdapterError, Effect, NodeState
from nhc.marks.ports.marks import cause_text
from nhc.marks.ports.repair import (
    LADDER,
    RUNG_OF,
    Answer,
    Machine,
    Order,
    Repairer,
    Rung,
    RunsCommands,
    Sent,
    Sighting,
    Stage,
)
from nhc.node.checks.kmsg import outcome
from nhc.node.kernlog.collect import take_in
from nhc.node.kernlog.state_types import LogState
from nhc.remedy import operators
from nhc.remedy.episode_flow import EpisodeLoop
from nhc.remedy.machine import ENDS, EpisodeState
from nhc.remedy.remedy_site import RemedySite
from nhc.remedy.settings import RemedySettings
from nhc.store import attempts, audit, drills, episodes, problems, reports
from nhc.store import nodes as store_nodes
from nhc.store.database import Store
from nhc.store.drills import OpenDrill
from nhc.store.episodes import Episode
from nhc.store.errors import RequestRefused
from nhc.store.intake import Incoming
from nhc.store.problems import StoredProblem
from nhc.store.rounds.leader import Leader

# The faults of a drill on a real node: one that is only reported, or one put there for the node to find.
#
# Each fault says which problems are its own, so that a real problem of the node is never taken for the drill's.


REPORTED, KERNEL_LINE, FULL_DISK = "fault", "kernel-line", "full-disk"
REAL = {
    REPORTED: "a fault is reported that is not there; nothing is done to the machine",
    KERNEL_LINE: "a marked line is written into the node's kernel log, and its own check finds it",
    FULL_DISK: "a file fills a small file system of the node, and its own check finds it",
}
"""The scenarios of a real node."""

SOURCE = "drill"
REASON = "Drill"
WHY = "a drill: nothing is wrong with this node"


class Injection(NamedTuple):
    """A fault for `nhc inject` on the node: its name there, the device or mount point, and how full (a share)."""

    scenario: str
    fault: str
    device: str = ""
    to: float = 0.0

    def begin(self, nhc: str) -> Tuple[str, ...]:
        """The command that puts it on the node."""
        device = ("--device", self.device) if self.device else ()
        to = ("--to", f"{self.to:.0%}") if self.to else ()
        return (nhc, "inject", self.fault, *device, *to, "--apply")

    @staticmethod
    def end(nhc: str) -> Tuple[str, ...]:
        """The command that takes every drill's fault off the node; it may be repeated."""
        return (nhc, "inject", "end")

    def caused(self, problem: StoredProblem) -> bool:
        """Whether a problem is what this has put there: the drill's mark in a kernel line, the file system's name."""
        if self.scenario == REPORTED:
            return problem.check == CHECK
        if self.scenario == KERNEL_LINE:
            return problem.message.startswith("drill: ")
        return problem.reason == "FilesystemFull" and problem.target == self.device

    def text(self) -> str:
        """For the store."""
        return json.dumps(self._asdict())


def read_injection(text: str) -> Injection:
    """What `Injection.text` wrote. Raises ValueError."""
    value = json.loads(text)
    if not isinstance(value, dict) or set(value) != set(Injection._fields):
        raise ValueError("not an injection")
    return Injection(str(value["scenario"]), str(value["fault"]), str(value["device"]), float(value["to"]))


def action_of(line: str) -> Action:
    """The repair that a kernel line asks for, NONE where it takes no node out."""
    state: LogState = {}
    take_in(state, [(line, 0.0)], 0.0)
    outcomes = [outcome(finding) for finding in state.get("findings", {}).values()]
    bad = [judged.action for judged in outcomes if judged.verdict is Verdict.CRIT]
    return max(bad, key=lambda action: LADDER.index(RUNG_OF.get(action, Rung.ESCALATE)), default=Action.NONE)


def would_send(settings: RemedySettings, action: Action) -> List[str]:
    """The repairs that the policy would begin for such a fault."""
    start = LADDER.index(RUNG_OF.get(action, Rung.ESCALATE))
    return [rung.value for rung in LADDER[start:] if settings.mode(rung.value) is Mode.ON]


def report(node: str, verdict: Verdict, now: float) -> Report:
    """What a drill reports of a node."""
    bad = Outcome(verdict, REASON, WHY, action=Action.INSPECT) if verdict is Verdict.CRIT else Outcome(verdict)
    return Report(node, "", now, 0.0, (CheckResult(CHECK, bad),), version="drill")


class RealFault(Protocol):
    """One fault of one drill."""

    @property
    def injection(self) -> Injection:
        """What is written down of it before it begins."""
        ...

    def may(self, node: str) -> None:
        """Raises DrillRefused where it cannot be put on this node, AdapterError, StoreError."""
        ...

    def begin(self, node: str, now: float) -> str:
        """Put it there; what was done. Raises DrillRefused where nothing was begun, AdapterError, StoreError."""
        ...

    def again(self, node: str, now: float) -> None:
        """Keep it standing: called in each round."""
        ...

    def take_back(self, node: str, now: float) -> List[str]:
        """Take it off; what was done. May be repeated. Raises AdapterError, StoreError."""
        ...


class ReportedFault:
    """Reported to the store, and nothing else."""

    injection = Injection(REPORTED, "")

    def __init__(self, store: Store) -> None:
        self.store = store

    def may(self, node: str) -> None:
        """Always."""

    def begin(self, node: str, now: float) -> str:
        """Report it."""
        self._report(node, Verdict.CRIT, now)
        return "the fault is in the store"

    def again(self, node: str, now: float) -> None:
        """Report it again, as an agent would: it has to stand for a time before the loop believes it."""
        self._report(node, Verdict.CRIT, now)

    def take_back(self, node: str, now: float) -> List[str]:
        """Report that it is over, where it stands."""
        with self.store.read() as connection:
            stands = [problem for problem in problems.list_problems(connection, nodes=[node]) if problem.check == CHECK]
        if not stands:
            return []
        self._report(node, Verdict.OK, now)
        return ["the fault was taken back"]

    def _report(self, node: str, verdict: Verdict, now: float) -> None:
        with self.store.write() as connection:
            reports.receive(connection, [Incoming(report(node, verdict, now), SOURCE, now)])


# Faults that are put on the node itself, by `nhc inject` there: through the repairer that runs commands (SSH).
#
# A command is sent once under its key; the node is asked for its result. A lost answer proves nothing, so the fault
# counts as begun. Removing it may be repeated.


LONGEST = 60.0
"""Seconds that a command may take on the node, and that it is asked after for."""
PAUSE = 0.5
TRIES = 300.0
"""Seconds that a node which is busy, or away, is asked again to take the fault off."""
LATER = 10.0


class DrillRefused(RequestRefused):
    """Why a drill on this node cannot begin: one line for a person."""


class InjectedFault:
    """One injection, and how it gets to a node."""

    def __init__(
        self, site: RemedySite, injection: Injection, *, monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        self.site, self.injection, self.nhc = site, injection, site.settings.drill.nhc
        self.monotonic, self.sleep = monotonic, sleep

    def may(self, node: str) -> None:
        """Raises DrillRefused where no repairer runs commands on the node, StoreError."""
        self._runner(node)

    def begin(self, node: str, now: float) -> str:
        """Put it there, once. Raises DrillRefused where it was not begun, AdapterError where it failed there."""
        sent = self._send(node, self.injection.begin(self.nhc))
        if sent.answer is Answer.REFUSED:
            raise DrillRefused(f"{node}: {sent.message}")
        return sent.message

    def again(self, node: str, now: float) -> None:
        """It stands by itself."""

    def take_back(self, node: str, now: float) -> List[str]:
        """Take it off, and try again for a time. Raises AdapterError, StoreError."""
        until = self.monotonic() + TRIES
        while True:
            try:
                sent = self._send(node, self.injection.end(self.nhc))
            except (AdapterError, DrillRefused) as error:
                raise AdapterError(f"the fault of the drill cannot be taken off {node}: {error}") from None
            if sent.answer is Answer.ACCEPTED:
                return ["the fault was taken off the node"]
            for_good = sent.answer is Answer.REFUSED and not sent.retry_after
            if for_good or self.monotonic() + LATER > until:
                raise AdapterError(f"the fault of the drill cannot be taken off {node}: {sent.message}")
            self.sleep(LATER)

    def _runner(self, node: str) -> Tuple[Repairer, RunsCommands, Machine]:
        repairers = self.site.actuators.repairers
        with self.site.store.read() as connection:
            row = store_nodes.get(connection, node)
        repairers.learn({node: row} if row is not None else {})
        machine, refusals = repairers.machine(node), []
        for entry in repairers.entries:
            runner: object = entry.repairer
            if isinstance(runner, RunsCommands) and entry.serves(node):
                why = runner.can_run(machine)
                if not why:
                    return entry.repairer, runner, machine
                refusals.append(f"{entry.name}: {why}")
        raise DrillRefused("; ".join(refusals) or f"no repairer runs commands on {node}: set up [repairers.node]")

    def _send(self, node: str, argv: Sequence[str]) -> Sent:
        """ACCEPTED: it ended with 0; REFUSED: it was not begun; AMBIGUOUS: nobody knows yet.

        Raises AdapterError where it failed on the node, DrillRefused, StoreError.
        """
        repairer, runner, machine = self._runner(node)
        order = Order(str(uuid.uuid4()), "drill", 1, machine, Rung.ESCALATE, f"a drill: {' '.join(argv[1:3])}")
        sent = runner.run_command(order, argv, LONGEST)
        if sent.answer is Answer.REFUSED:
            return sent
        before = Sighting(0.0, machine.uuid, machine.boot_id)
        until = self.monotonic() + LONGEST
        while True:
            try:
                stage, message = repairer.progress(order, sent, before)[:2]
            except AdapterError as error:
                stage, message = Stage.WORKING, str(error)
            if stage is Stage.DONE:
                return Sent(Answer.ACCEPTED, message)
            if stage in (Stage.FAILED, Stage.HALFWAY):
                raise AdapterError(f"{node}: {message}")
            if self.monotonic() > until:
                return Sent(Answer.AMBIGUOUS, message)
            self.sleep(PAUSE)


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
        self.controller: Optional[EpisodeLoop] = None

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
                operators.abort(self.site.store, row.id, by=self.by, why="the drill is over", now=self.clock())
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
