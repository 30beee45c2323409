"""The collective of a gang of pods before they start: all of them at once, and pairs if that fails.

The server of a pod tells it what to run (`nhc.marks.ports.gangs`). Tests are judged and nodes are blamed as in a sweep,
with one difference: only its own limit ends a test here, so a pair that hangs or fails has failed, and was not cut
short. If nearly all fail, the command is at fault.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from nhc.core.model import Verdict, printable
from nhc.deep.group_output import FEW, AskedMeasurement, GroupOutput, MeasuredGroup, judged, read
from nhc.deep.group_test import Culprit, GroupOutcome, GroupResult, GroupTest, Layer, Rules, Topology
from nhc.deep.node_verdicts import judge_sweep
from nhc.deep.planner import next_round
from nhc.marks.ports.gangs import PAIR_ROUNDS, SLACK, TIMED_OUT, GangMember, GangRules

KEPT = 600.0
"""Seconds that the end of a gang is remembered, for a container that starts again."""
SHARE = 0.8
"""Share of the median of the pairs that a pair reaches, where there is no floor."""
A_SECOND = 50
"""Questions of a gang that are answered in a second: the more pods, the longer each waits."""
TORCHRUN = "PET_"
_PAIRS = Rules(across=False)


class _Run(NamedTuple):
    """A test that runs. `said` has what each of its pods said of it."""

    test: GroupTest
    port: int
    since: float
    said: Dict[str, GroupOutput]

    def over(self, now: float, rules: GangRules) -> bool:
        """Whether nothing more is to be expected."""
        return len(self.said) == len(self.test.nodes) or now > self.since + rules.limit + SLACK


class _End(NamedTuple):
    guilty: Mapping[str, str]
    others: Verdict
    message: str


class _Gang:
    """One gang, from its first pod to what came of it."""

    def __init__(self, first: GangMember, rules: GangRules, now: float) -> None:
        self.pods, self.rules, self.since = first.pods, rules, now
        self.members: Dict[str, GangMember] = {}
        self.names: Dict[str, str] = {}
        """The name of each pod, once all are there: its node, or the pod itself if a node has several."""
        self.silent: Set[str] = set()
        self.runs: List[_Run] = []
        self.results: List[GroupResult] = []
        self.why = ""
        """Why the collective of all was not good."""
        self.rounds = 0
        self.end: Optional[_End] = None

    # What pods say.

    def take(self, member: GangMember, said: Mapping[str, Any], now: float) -> None:
        """A pod is there, and may have something to say."""
        if self.end is not None:
            return
        if not self.names:
            self.members = {uid: one for uid, one in self.members.items() if one.name != member.name}  # made anew
            self.members[member.uid] = member
        if said.get("withdrawn"):
            self._close(Verdict.UNKNOWN, f"{member.name} does not take part: {printable(str(said['withdrawn']), 200)}")
            return
        name, status, output = self.names.get(member.uid, ""), said.get("status"), said.get("output")
        for run in self.runs:
            if said.get("test") == run.test.name and name in run.test.nodes and isinstance(status, int):
                run.said.setdefault(name, GroupOutput(status, output if isinstance(output, str) else ""))
        self.advance(now)

    def advance(self, now: float) -> None:
        """Go on as far as what is known allows."""
        if self.end is not None:
            return
        if not self.names:
            self._gather(now)
        elif all(run.over(now, self.rules) for run in self.runs):
            self._round(now)

    def _gather(self, now: float) -> None:
        if len(self.members) >= self.pods:
            nodes = {member.node for member in self.members.values()}
            alone = len(nodes) == len(self.members)
            self.names = {uid: member.node if alone else member.name for uid, member in self.members.items()}
            self._start([GroupTest(Layer.SCALE, tuple(sorted(self.names.values())))], now)
        elif now > self.since + self.rules.wait:
            came = f"{len(self.members)} of {self.pods} pods came within {self.rules.wait:g} s"
            self._close(Verdict.UNKNOWN, f"the gang is not whole: {came}")

    def _start(self, tests: Sequence[GroupTest], now: float) -> None:
        self.runs = [_Run(test, self.rules.port + self.rounds % 100, now, {}) for test in tests]

    # What tests say.

    def _round(self, now: float) -> None:
        """The round that has ended is judged, and the next begins."""
        measured = [(run, self._measured(run)) for run in self.runs]
        values = sorted(found.value for _run, found in measured if found.value is not None)
        results = [_result(run.test, found, values, self.rules.floor) for run, found in measured]
        if not self.rounds:
            (whole,) = results
            if whole.seen is GroupOutcome.GOOD:
                figure = f", {whole.value:g} GB/s" if whole.value else ""
                self._close(Verdict.OK, f"the collective of {len(self.members)} pods is good{figure}")
                return
            self.why = whole.why
        else:
            self.results += results
        names = [name for name in self.names.values() if name not in self.silent]
        step = next_round(names, Topology(), self.results, _PAIRS) if len(self.names) > 2 else None
        self.rounds += 1
        if step is None or self.rounds > PAIR_ROUNDS:
            self._judge(names)
        else:
            self._start(step.tests, now)

    def _measured(self, run: _Run) -> MeasuredGroup:
        test, said = run.test, run.said
        silent = tuple(name for name in test.nodes if name not in said)
        self.silent.update(silent)
        if silent:
            return MeasuredGroup(None, why=f"{', '.join(silent)} did not answer", missing=silent)
        if any(one.status == TIMED_OUT for one in said.values()):
            return MeasuredGroup(None, GroupOutcome.BAD, f"it did not end within {self.rules.limit:g} s")
        of_name = {name: self.members[uid] for uid, name in self.names.items()}
        asked = AskedMeasurement("all_reduce", self.rules.size, of_name[test.nodes[0]].tasks, self.rules.fabric)
        found = read(said[test.nodes[0]], [of_name[name].host for name in test.nodes], asked)
        if found.value is None and any(one.status for one in said.values()):
            return found._replace(seen=GroupOutcome.BAD)
        return found

    def _judge(self, names: Sequence[str]) -> None:
        judgement = judge_sweep(names, Topology(), self.results, _PAIRS)
        guilty = {
            name: printable(f"{blame.message}; the collective of the gang: {self.why}", 400)
            for blame in judgement.blames if blame.culprit is Culprit.NODE for name in blame.names
        }  # fmt: skip
        said = "; ".join(blame.message for blame in judgement.blames) if self.results else ""
        message = f"the collective of {len(self.names)} pods failed: {self.why}; {said or 'no node can be named'}"
        self._close(Verdict.OK if guilty else Verdict.UNKNOWN, message, guilty)

    def _close(self, others: Verdict, message: str, guilty: Optional[Mapping[str, str]] = None) -> None:
        self.end, self.runs = _End(guilty or {}, others, printable(message, 600)), []

    # What pods are told.

    def order(self, member: GangMember) -> Dict[str, Any]:
        """What a pod is to do now."""
        name = self.names.get(member.uid, "")
        if self.end is not None:
            found = self.end.guilty.get(name)
            verdict = self.end.others if found is None else Verdict.CRIT
            return {"do": "end", "verdict": verdict.name, "message": found or self.end.message}
        for run in self.runs:
            if name in run.test.nodes and name not in run.said:
                return {"do": "run", "test": run.test.name, "argv": list(self.rules.argv), "seconds": self.rules.limit,
                        "env": self._environment(run, name)}  # fmt: skip
        return {"do": "wait", "seconds": max(1.0, self.pods / A_SECOND)}

    def _environment(self, run: _Run, name: str) -> Dict[str, str]:
        """As a sweep's test has it in an indexed Job."""
        of_name = {called: self.members[uid] for uid, called in self.names.items()}
        first, nodes = of_name[run.test.nodes[0]], run.test.nodes
        plain = {
            "NODE_RANK": str(nodes.index(name)), "NNODES": str(len(nodes)), "NPROC_PER_NODE": str(first.tasks),
            "MASTER_ADDR": first.address, "MASTER_PORT": str(run.port),
        }  # fmt: skip
        torchrun = {f"{TORCHRUN}{key}": value for key, value in plain.items()}
        return {**plain, **torchrun, "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH"}


def _result(test: GroupTest, found: MeasuredGroup, values: Sequence[float], floor: float) -> GroupResult:
    if found.value is None:
        return GroupResult(test, found.seen, 0.0, found.missing, found.why)
    pairs = test.layer is not Layer.SCALE
    if not floor and not (pairs and len(values) >= FEW):  # nothing to hold it to: that its values are right counts
        return GroupResult(test, GroupOutcome.GOOD, found.value)
    seen, why = judged(values, found.value, floor, SHARE)
    return GroupResult(test, seen, found.value, why=why)


class GangTests:
    """All gangs that are here now (`nhc.marks.ports.gangs.Gangs`)."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._gathering: Dict[str, _Gang] = {}
        self._of: Dict[str, Tuple[_Gang, float]] = {}
        """The gang of each pod that came, and when it is forgotten."""

    def step(self, member: GangMember, rules: GangRules, said: Mapping[str, Any]) -> Dict[str, Any]:
        """What a pod is to do, given what it says."""
        with self._lock:
            now = self._clock()
            self._forget(now)
            gang = self._of[member.uid][0] if member.uid in self._of else self._joined(member, rules, now)
            gang.take(member, said, now)
            return gang.order(member)

    def _joined(self, member: GangMember, rules: GangRules, now: float) -> _Gang:
        """The gang that waits for its pods, or a new one: pods that are created again are another gang of the same
        name.
        """
        gang = self._gathering.get(member.gang)
        if gang is not None:
            gang.advance(now)
        if gang is None or gang.end is not None or gang.names:
            gang = self._gathering[member.gang] = _Gang(member, rules, now)
        self._of[member.uid] = gang, now + rules.longest + KEPT
        return gang

    def _forget(self, now: float) -> None:
        for uid in [uid for uid, (_gang, until) in self._of.items() if until < now]:
            gang, _until = self._of.pop(uid)
            for name in [name for name, one in self._gathering.items() if one is gang]:
                del self._gathering[name]
