"""A sweep over many nodes: plan a round, launch its tests, keep each result, judge, and plan again.

Everything is in the store before and after each step, so that a killed sweep can continue. A begun round is finished
before the next is planned: the planner plans a whole round and would order tests twice. Tests run only on idle nodes,
and on a bounded share of them. A test that was preempted proves nothing about its nodes.
"""

from __future__ import annotations

import json
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from nhc.core.model import Report, Verdict, describe, printable
from nhc.core.render.json import parse
from nhc.core.state.reports import suite_name
from nhc.deep.group_output import KILLED, GroupOutput, MeasuredGroup, held, judged
from nhc.deep.group_output import read as read_output
from nhc.deep.group_test import (
    Blame,
    Culprit,
    GroupOutcome,
    GroupResult,
    GroupTest,
    Layer,
    NodeStanding,
    SweepJudgement,
)
from nhc.deep.node_verdicts import judge_sweep
from nhc.deep.planner import Round, next_round
from nhc.deep.sweep_plan import SweepPlan, floor_of, key, limit_broken, planned_test, results, row_of
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import Machine
from nhc.marks.ports.runner import Launcher, NodeRun, RunLimits, RunPhase, RunState, SaysWhyBusy
from nhc.store import deep
from nhc.store.database import Store
from nhc.store.deep import DONE, MEASURED, PLANNED, RUNNING, STOPPED, STOPPING, DeepResult, SweepTest
from nhc.store.errors import LeadershipLost
from nhc.store.rounds.leader import Leader

LAUNCHES = 3
"""Failed launches of a test after which it is UNKNOWN."""
ENDINGS = 5
"""Times that a launcher that does not answer is asked to end what runs."""
THE_NODE = "{node}"
"""The placeholder of the node's name in the command that runs a suite."""
AT_WORK = (RunPhase.WAITING, RunPhase.RUNNING)
"""The states of a test that its launcher has and that has not ended."""
SUITE = "sweep"
"""What verdicts of sweeps are filed under."""
SLACK = 60.0
"""Seconds over its own limit that a test may run before it is ended from here."""


class Surroundings(NamedTuple):
    """`every` seconds it looks at its tests; `say` gets the progress; tests may run `until` (Unix time).

    Waits are counted by `monotonic`, a clock that nobody sets.
    """

    every: float = 2.0
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    say: Callable[[str], None] = lambda line: None
    until: float = float("inf")
    monotonic: Callable[[], float] = time.monotonic


class SweepStopped(Exception):
    """The sweep was stopped before its end, by a person or because its window has closed. Holds what is certain by
    then.
    """

    def __init__(self, why: str, judgement: SweepJudgement, by_window: bool) -> None:
        super().__init__(why)
        self.judgement, self.by_window = judgement, by_window


class _ToStop(Exception):
    """Why the sweep is to be stopped now."""


def next_step(plan: SweepPlan, seen: Sequence[GroupResult]) -> Optional[Round]:
    """The next round of a sweep, None at its end. Of a suite there is one: who could not be tested is due again."""
    if not plan.suite:
        return next_round(plan.nodes, plan.topology, seen, plan.rules, plan.suspects)
    if seen:
        return None
    return Round(tuple(GroupTest(Layer.NODE, (node,)) for node in plan.nodes), f"{plan.suite}, each node alone")


def judged_sweep(plan: SweepPlan, seen: Sequence[GroupResult]) -> SweepJudgement:
    """What a sweep's results come to: of a suite each is of its own node."""
    if not plan.suite:
        return judge_sweep(plan.nodes, plan.topology, seen, plan.rules)
    standing = {GroupOutcome.GOOD: NodeStanding.PASSED, GroupOutcome.BAD: NodeStanding.FAILED}
    nodes = dict.fromkeys(plan.nodes, NodeStanding.NOT_TESTED)
    nodes.update({result.test.nodes[0]: standing.get(result.seen, NodeStanding.NOT_TESTED) for result in seen})
    bad = [result for result in seen if result.seen is GroupOutcome.BAD]
    blames = (Blame(Culprit.NODE, result.test.nodes, f"{result.test.nodes[0]}: {result.why}", (result.test.name,))
              for result in bad)  # fmt: skip
    return SweepJudgement(tuple(blames), nodes)


def report_of(done: GroupOutput, node: str, suite: str) -> Tuple[Optional[Report], str]:
    """The report that a suite's run printed, the last line that is one; else None and why there is none."""
    if done.status >= KILLED:
        return None, f"the suite was ended (status {done.status})"
    for line in reversed(done.output.splitlines()):
        if line.startswith("{"):
            try:
                report = parse(line)
            except ValueError:
                continue
            about = report.labels.get("suite", "no suite")
            if report.host != node or about != suite:
                return None, printable(f"a report of {about} of {report.host}, not of {suite} of {node}", 400)
            return report, ""
    last = done.output.strip().rpartition("\n")[2]
    return None, printable(f"it printed no report (status {done.status}): {last}", 400)


class Sweeper:
    """One sweep, from where the store has it to its end."""

    def __init__(
        self, store: Store, number: int, plan: SweepPlan, launcher: Launcher, leader: Leader, around: Surroundings
    ) -> None:
        self._store, self._number, self._plan = store, number, plan
        self._launcher, self._leader, self._around = launcher, leader, around
        self._since: Dict[str, float] = {}
        """Since when a test has waited for its nodes, or a launched one is gone without a marker."""
        self._failed: Dict[str, Tuple[str, ...]] = {}
        self._busy: Dict[str, str] = {}
        """Why nodes are waited for, as far as that was said."""
        self._places = {node: at for at, node in enumerate(plan.suspects)}

    def run(self) -> SweepJudgement:
        """Carry the sweep to its end. Raises StoreError, LeadershipLost, BadPlan, SweepStopped."""
        try:
            return self._run()
        except _ToStop as why:
            by_window = self._around.clock() >= self._around.until
            raise SweepStopped(str(why), self.stop(str(why)), by_window) from None

    def _run(self) -> SweepJudgement:
        while True:
            self._lead()
            rows = self._rows()
            if any(row.state in (PLANNED, RUNNING, MEASURED) for row in rows):
                self._round(rows)
                continue
            step = next_step(self._plan, results(rows))
            if step is None:
                return self._close(DONE, rows, "")
            turn = max((row.turn for row in rows), default=0) + 1
            with self._store.write(self._leader.sure()) as connection:
                deep.plan_tests(connection, [row_of(self._number, turn, test) for test in step.tests])
            self._around.say(f"round {turn}: {step.why}")

    def stop(self, why: str) -> SweepJudgement:
        """End what runs, and close the sweep as stopped; what is certain by then. Raises StoreError, AdapterError."""
        for left in range(ENDINGS - 1, -1, -1):
            try:
                runs = [self._run_of(row) for row in self._rows() if row.state in (PLANNED, RUNNING)]
                states = self._launcher.poll(runs) if runs else {}
                for run in runs:
                    if states[run.key].phase in (*AT_WORK, RunPhase.UNKNOWN):
                        self._launcher.stop(run)
                break
            except AdapterError as error:
                if not left:
                    raise
                self._around.say(f"the launcher does not answer: {error}")
                self._around.sleep(self._around.every)
        return self._close(STOPPED, self._rows(), why)

    # One round.

    def _round(self, rows: List[SweepTest]) -> None:
        """Look after the open tests until each has a result."""
        while True:
            self._lead()
            open_ones = [row for row in rows if row.state in (PLANNED, RUNNING)]
            if not open_ones:
                break
            try:
                self._look(open_ones)
            except AdapterError as error:
                self._around.say(f"the launcher does not answer: {error}")
            rows = self._rows()
            if any(row.state in (PLANNED, RUNNING) for row in rows):
                self._around.sleep(self._around.every)
        layers: Dict[str, List[float]] = {}
        for row in rows:
            if row.value is not None:
                layers.setdefault(row.layer, []).append(row.value)
        for values in layers.values():
            values.sort()  # each figure is held to their median: what is sorted is sorted again in no time
        for row in rows:
            if row.state == MEASURED and row.value is not None:
                seen, why = judged(
                    layers[row.layer], row.value, floor_of(self._plan, row.layer, layers), self._plan.share
                )
                self._save(row._replace(state=seen.value, why=why))

    def _look(self, open_ones: List[SweepTest]) -> None:
        """One look at all open tests; launch what may be launched. Raises AdapterError."""
        states = self._launcher.poll([self._run_of(row) for row in open_ones])
        waiting: List[SweepTest] = []
        busy: Set[str] = set()
        for row in open_ones:
            state = states[key(planned_test(row))]
            if not self._ended_or_unread(row, state):
                if row.state == PLANNED and state.phase is RunPhase.ABSENT:
                    waiting.append(row)
                else:
                    busy.update(row.nodes.split())
        self._launch(waiting, busy)

    def _run_of(self, row: SweepTest) -> NodeRun:
        """A test as its launcher knows it."""
        test, plan = planned_test(row), self._plan
        argv = held(plan.argv, test.rail, plan.rail_by)
        if plan.suite:
            argv = tuple(argument.replace(THE_NODE, test.nodes[0]) for argument in argv)
        machines = tuple(Machine(node) for node in test.nodes)
        return NodeRun(key(test), machines, argv, RunLimits(plan.seconds), plan.token, plan.asked.tasks, row.name)

    def _ended_or_unread(self, row: SweepTest, state: RunState) -> bool:
        """As `_ended`; a test whose state cannot be told keeps no other waiting, and is given up after `patience`."""
        if state.phase is RunPhase.UNKNOWN:
            self._around.say(f"{row.name}: {state.why}")
            if self._waited(f"{row.name} unread") < self._plan.patience:
                return False
            return self._unknown(row, f"what became of it cannot be read: {state.why}")
        self._since.pop(f"{row.name} unread", None)
        return self._ended(row, state)

    def _ended(self, row: SweepTest, state: RunState) -> bool:
        """Whether a test has its result now. Its end decides; then how long it waits, runs, or is gone."""
        now, test = self._around.clock(), planned_test(row)
        if state.phase is RunPhase.ENDED and state.status is not None:
            done = GroupOutput(state.status, state.output)
            measured = self._of_suite(done, row) if self._plan.suite else (
                read_output(done, test.nodes, self._plan.asked, test.rail)
            )  # fmt: skip
            self._save(row._replace(
                state=MEASURED if measured.value is not None else measured.seen.value, value=measured.value,
                why=measured.why, missing=" ".join(measured.missing), ended=now,
            ))  # fmt: skip
            return True
        if state.phase in AT_WORK:
            if row.state == PLANNED or row.handle != state.name:
                self._save(row._replace(state=RUNNING, handle=state.name, began=row.began or now))
            running = state.phase is RunPhase.RUNNING
            limit = self._plan.seconds + SLACK if running else self._plan.patience
            if self._waited(f"{row.name} {running}") < limit:
                return False
            self._launcher.stop(self._run_of(row))
            what = "did not end in time" if running else "its nodes were taken by other work"
            return self._unknown(row, f"{what} ({limit:.0f} s)")
        if row.state == RUNNING or state.phase is not RunPhase.ABSENT:
            # The marker may come a moment after the job has gone: shared file systems keep what they know for a while.
            if self._waited(f"{row.name} gone") < 2 * self._around.every:
                return False
            return self._unknown(row, f"{state.why or 'preempted or cancelled'}: it left no completion marker")
        return False

    def _of_suite(self, done: GroupOutput, row: SweepTest) -> MeasuredGroup:
        """What a suite says of its node; its results are kept as those of every run of it."""
        report, why = report_of(done, row.nodes, self._plan.suite)
        if report is None:
            return MeasuredGroup(None, why=why)
        with self._store.write(self._leader.sure()) as connection:
            deep.add_report(connection, report, suite_name(self._plan.suite))
        if report.verdict is Verdict.CRIT:
            return MeasuredGroup(None, GroupOutcome.BAD, describe(report.failures()[0]))
        told = report.verdict in (Verdict.OK, Verdict.WARN)
        unsure = [describe(result) for result in report.results if result.verdict is Verdict.UNKNOWN]
        return MeasuredGroup(None, GroupOutcome.GOOD if told else GroupOutcome.UNKNOWN, "; ".join(unsure[:1]))

    def _waited(self, what: str) -> float:
        """Seconds since this was asked first."""
        now = self._around.monotonic()
        return now - self._since.setdefault(what, now)

    def _unknown(self, row: SweepTest, why: str) -> bool:
        self._save(row._replace(state=GroupOutcome.UNKNOWN.value, why=why, ended=self._around.clock()))
        return True

    def _launch(self, waiting: List[SweepTest], busy: Set[str]) -> None:
        """Launch tests whose nodes are idle, as many as may be under test at once. Raises AdapterError."""
        if not waiting:
            return
        idle = self._launcher.idle(sorted({node for row in waiting for node in row.nodes.split()}))
        for row in sorted(waiting, key=self._place):
            test = planned_test(row)
            taken = [node for node in test.nodes if node not in idle]
            self._say_busy(taken)
            if taken or not busy.isdisjoint(test.nodes):
                if self._waited(f"{row.name} idle") >= self._plan.patience:
                    who = "; ".join(": ".join(filter(None, (node, self._why_busy(node)))) for node in taken[:3])
                    self._unknown(row, f"not idle within {self._plan.patience:.0f} s: {who}")
                continue
            self._since.pop(f"{row.name} idle", None)
            if limit_broken(self._plan, busy, test.nodes):
                continue
            failed = self._failed.get(row.name, ())
            if len(failed) >= LAUNCHES:  # and this look shows that none of those launches has come to be
                self._unknown(row, f"it cannot be launched: {failed[-1]}")
                continue
            busy.update(test.nodes)
            self._launch_test(row)

    def _say_busy(self, nodes: List[str]) -> None:
        """Say why a node is waited for, once for each reason: a host key that differs is seen at once."""
        for node in nodes:
            why = self._why_busy(node)
            if why and self._busy.get(node) != why:
                self._busy[node] = why
                self._around.say(f"{node} is waited for: {why}")

    def _why_busy(self, node: str) -> str:
        return self._launcher.why_busy(node) if isinstance(self._launcher, SaysWhyBusy) else ""

    def _place(self, row: SweepTest) -> int:
        """Where not all tests may run at once, those of the first suspects go first; else they go by name."""
        return min(self._places.get(node, len(self._places)) for node in row.nodes.split())

    def _launch_test(self, row: SweepTest) -> None:
        try:
            handle = self._launcher.start(self._run_of(row))
        except AdapterError as error:
            self._failed[row.name] = (*self._failed.get(row.name, ()), str(error))
            self._around.say(f"{row.name}: {error}")
            return
        self._save(row._replace(state=RUNNING, handle=handle, began=self._around.clock()))

    # The store.

    def _lead(self) -> None:
        if not self._leader.attempt():
            raise LeadershipLost(f"another runs a sweep on {self._store.name}")
        if self._around.clock() >= self._around.until:
            raise _ToStop("its window has closed")
        with self._store.read() as connection:
            row = deep.sweep(connection, self._number)
        if row is not None and row.state == STOPPING:
            raise _ToStop(row.message)

    def _rows(self) -> List[SweepTest]:
        with self._store.read() as connection:
            return deep.tests_of(connection, self._number)

    def _save(self, row: SweepTest) -> None:
        with self._store.write(self._leader.sure()) as connection:
            deep.save_test(connection, row, self._around.clock())
        if row.state in (MEASURED, *(seen.value for seen in GroupOutcome)):
            value = f" {row.value:g} GB/s" if row.value is not None else ""
            self._around.say(f"{row.name}: {row.state}{value}{f': {row.why}' if row.why else ''}")

    def _close(self, state: str, rows: List[SweepTest], why: str) -> SweepJudgement:
        """Judge, and keep the findings and each tested node's verdict."""
        judgement = judged_sweep(self._plan, results(rows))
        now = self._around.clock()
        with self._store.write(self._leader.sure()) as connection:
            deep.end_sweep(connection, self._number, state, findings(judgement), why, now)
            if not self._plan.suite:  # whose reports are kept as they came
                deep.add(connection, _verdicts(self._number, judgement, now, whole=state == DONE))
        try:
            self._launcher.finish(self._plan.token)
        except AdapterError as error:
            self._around.say(f"not all that the sweep left could be taken away: {error}")
        return judgement


def findings(judgement: SweepJudgement) -> str:
    """A judgement as the store has it."""
    blames = [{**blame._asdict(), "culprit": blame.culprit.value} for blame in judgement.blames]
    return json.dumps({"blames": blames, "nodes": {node: standing.value for node, standing in judgement.nodes.items()}})


_WORDS = {NodeStanding.PASSED: "OK", NodeStanding.FAILED: "CRIT", NodeStanding.SUSPECT: "UNKNOWN"}


def _verdicts(number: int, judgement: SweepJudgement, now: float, whole: bool) -> List[DeepResult]:
    """A row for each node that was tested. One that was not keeps its last verdict, and that verdict's age.

    Of a sweep that was stopped midway, only what is certain: a suspect might have been cleared by the next test.
    """
    why = {blame.names[0]: blame.message for blame in reversed(judgement.blames) if len(blame.names) == 1}
    return [
        DeepResult(node, SUITE, "group", "", None, "", _WORDS[standing], why.get(node, ""), now, sweep=number)
        for node, standing in judgement.nodes.items()
        if standing in _WORDS and (whole or standing is not NodeStanding.SUSPECT)
    ]
