"""Orders a job's nodes by how suspect they are, from its log and flight records: which to test first. Pure.

The order is no verdict: a log alone proves no fault. A line that names one rank while the others are sound weighs most.
What all ranks report (every loss is NaN) names no rank and is reported as a finding about the job.
"""

from __future__ import annotations

import statistics
from collections import defaultdict, deque
from typing import DefaultDict, Deque, Dict, List, Mapping, NamedTuple, Optional, Set, Tuple

from nhc.core.units import show_number
from nhc.jobs.flight_record import Lag
from nhc.jobs.log_catalogue import GPU, INITIATING, LIMITS, NETWORK, NODE, PROGRAM, SCHEDULER, STORAGE, TEARDOWN
from nhc.jobs.log_events import JobLogReader, LogEvent
from nhc.jobs.watch_log import JobLineKind, LogFact, named_host, root_cause

SPIKE_WINDOW = 50
"""Losses that a new one is compared with."""
SPIKE_LEAST = 10
SPIKE_DEVIATIONS = 8.0
"""Robust deviations (1.4826 times the median absolute deviation) above the median that are a spike."""
SLOW = 1.15
"""A step time above the median of all ranks by this factor is slow; jitter of synchronous training is some percent."""
SLOW_STEPS = 3
"""Steps on which a rank must be slow, and most of its own, before it is a straggler."""
_OWNERS = {PROGRAM: "the program ended it", SCHEDULER: "the scheduler or a person ended it",
           STORAGE: "storage ended it", **dict.fromkeys(LIMITS, "a limit ended it")}  # fmt: skip

WEIGHTS = {
    "device-error": 10, "behind": 9, "first-failure": 7, "no-timeout": 6, "nan": 5, "network-error": 4, "straggler": 3,
    "silent": 2,
}  # fmt: skip
"""How much one kind of evidence weighs; each counts once for a node."""


class Suspect(NamedTuple):
    """A node, or a rank whose node is not known; `score` orders them. `why` has one line for each kind of evidence."""

    node: str
    ranks: Tuple[int, ...]
    score: int
    why: Tuple[str, ...]


class JobFindings(NamedTuple):
    """What was found. `job` are things that name no rank; `steps` is the last step, -1 for none; `lines` were read.

    `understood` is how many facts those lines gave.
    """

    suspects: Tuple[Suspect, ...]
    job: Tuple[str, ...]
    steps: int
    lines: int
    understood: int


class JobWatch:
    """Takes lines and keeps what the judgement needs, whatever the log's length."""

    def __init__(self, nodes: Optional[Mapping[int, str]] = None) -> None:
        self._nodes: Dict[int, str] = dict(nodes or {})
        self._given = set(self._nodes)
        self._evidence: DefaultDict[Tuple[int, str], Dict[str, str]] = defaultdict(dict)
        self._losses: Deque[float] = deque(maxlen=SPIKE_WINDOW)
        self._job: Dict[str, str] = {}
        self._timeouts: Dict[int, str] = {}
        self._seen: Set[int] = set()
        self._times: DefaultDict[int, Deque[float]] = defaultdict(lambda: deque(maxlen=SPIKE_WINDOW))
        self._last_step: Dict[int, int] = {}
        self._nan_ranks: Set[int] = set()
        self._root = 0
        self._root_host = ""
        self._reader = JobLogReader()
        self._own: Set[int] = set()
        self.step, self.lines, self.understood = -1, 0, 0

    def line(self, line: str) -> List[str]:
        """Take a line; what is new for a person in it."""
        self.lines += 1
        if root_cause(line):
            self._root, self._root_host = 12, ""
        elif self._root:
            self._root -= 1
            self._root_host = named_host(line) or self._root_host
        new: List[str] = []
        event = self._reader.line(line)
        if event is not None and event.role != TEARDOWN:
            self.understood += 1
            new += self._event(event)
        for fact in self._reader.facts:
            self.understood += 1
            if fact.rank >= 0 and fact.kind is not JobLineKind.MAP:
                self._seen.add(fact.rank)
            news = self._take(fact)
            if news:
                new.append(news)
        return new

    def _event(self, event: LogEvent) -> List[str]:
        """What the catalogue says of a line: a node's error names its rank; what else ended the job names nobody."""
        if event.cause in (NODE, GPU):
            news = self._blame(LogFact(JobLineKind.FIRST, event.rank, event.node), "device-error", event.line)
            return [news] if news else []
        if event.role != INITIATING:
            return []
        if event.cause == NETWORK:
            news = self._blame(LogFact(JobLineKind.FIRST, event.rank, event.node), "network-error", event.line)
            return [news] if news else []
        rank = event.local if event.rank < 0 else event.rank
        if rank in self._own:
            return []
        self._own.add(rank)
        if "ended" in self._job:
            return []
        owner = _OWNERS.get(event.cause, "")
        self._job["ended"] = (
            f"{owner}, no node: {event.message}" if owner else f"who ended it is not known: {event.message}"
        )
        return [self._job["ended"]]

    def _not_its_node(self, rank: int) -> bool:
        """Whether a rank that failed first did so by itself, or only waited for others in vain."""
        return rank in self._own or -1 in self._own or rank in self._timeouts

    def _take(self, fact: LogFact) -> str:
        kind = fact.kind
        if kind is JobLineKind.MAP:
            if fact.rank not in self._given:
                self._nodes[fact.rank] = fact.node
            return ""
        if kind is JobLineKind.STEP:
            self.step = max(self.step, int(fact.value))
            if fact.rank >= 0:
                self._last_step[fact.rank] = int(fact.value)
            return ""
        if kind is JobLineKind.TIME:
            if fact.rank >= 0:
                self._times[fact.rank].append(fact.value)
            return ""
        if kind is JobLineKind.LOSS:
            return self._loss(fact.value)
        if kind is JobLineKind.WATCHDOG:
            first = not self._timeouts
            self._timeouts.setdefault(fact.rank, fact.text)
            return f"NCCL's watchdog: {fact.text} timed out" if first else ""
        if kind is JobLineKind.FIRST:
            if not self._root:
                return ""
            self._root = 0
            if self._not_its_node(fact.rank):
                return ""
            return self._blame(
                fact._replace(node=fact.node or self._root_host), "first-failure", "failed first (torchrun)"
            )
        if fact.rank >= 0:
            self._nan_ranks.add(fact.rank)
        new = "nan" not in self._job
        self._job.setdefault("nan", f"NaN at step {max(self.step, 0)}: {fact.text}")
        return self._job["nan"] if new else ""

    def _blame(self, fact: LogFact, kind: str, text: str) -> str:
        if fact.rank < 0 and not fact.node:
            new = kind not in self._job
            self._job.setdefault(kind, text)
            return text if new else ""
        kinds = self._evidence[fact.rank, fact.node]
        new = kind not in kinds
        kinds.setdefault(kind, text)
        return f"{self._name(fact.rank, fact.node)}: {text}" if new else ""

    def _loss(self, value: float) -> str:
        before = sorted(self._losses)
        self._losses.append(value)
        if len(before) < SPIKE_LEAST:
            return ""
        middle = statistics.median(before)
        spread = 1.4826 * statistics.median(abs(value - middle) for value in before)
        if value <= middle + SPIKE_DEVIATIONS * max(spread, 0.01 * abs(middle)):
            return ""
        self._losses.pop()  # a spike must not become what the next is compared with
        new = "spike" not in self._job
        text = f"the loss jumped to {value:g} at step {max(self.step, 0)}, from a median of {middle:g}"
        self._job.setdefault("spike", text)
        return text if new else ""

    def stalled(self, seconds: float) -> str:
        """Note that nothing has moved for so long; the line about it."""
        text = f"no progress for {seconds:.0f} s after step {self.step}" if self.step >= 0 else (
            f"no progress for {seconds:.0f} s, and no step was seen")  # fmt: skip
        self._job["hang"] = text
        return text

    def moves_again(self) -> None:
        """The job has made a step: it does not hang."""
        self._job.pop("hang", None)

    # The judgement.

    def findings(self, behind: tuple[Lag, ...] | list[Lag] = ()) -> JobFindings:
        """The order of suspects, with what flight records add."""
        evidence: DefaultDict[Tuple[int, str], Dict[str, str]] = defaultdict(dict)
        for key, kinds in self._evidence.items():
            evidence[key].update(kinds)
        ranks = self._seen | set(self._nodes) | {lag.rank for lag in behind}
        for lag in behind:
            evidence[lag.rank, ""].setdefault("behind", lag.why)
        self._timed_out(evidence, ranks)
        self._not_numbers(evidence, ranks)
        self._slow(evidence)
        self._silent(evidence)
        job = tuple(self._job.values())
        if self._timeouts:
            waited = show_number(len(self._timeouts), "rank")
            job += (f"{waited} waited for others in vain: {next(iter(self._timeouts.values()))}",)
        return JobFindings(self._ordered(evidence), job, self.step, self.lines, self.understood)

    def _timed_out(self, evidence: DefaultDict[Tuple[int, str], Dict[str, str]], ranks: Set[int]) -> None:
        """Where most ranks report a timeout, those that do not never came to the collective."""
        reported = {rank for rank in self._timeouts if rank >= 0}
        absent = ranks - reported
        if reported and absent and len(absent) * 2 < len(ranks):
            for rank in absent:
                what = f"reports no timeout, and {len(reported)} ranks waited in vain"
                evidence[rank, ""].setdefault("no-timeout", what)

    def _not_numbers(self, evidence: DefaultDict[Tuple[int, str], Dict[str, str]], ranks: Set[int]) -> None:
        """NaN that few ranks name is theirs; what all have came by a collective, or is the program's own."""
        if self._nan_ranks and len(self._nan_ranks) * 2 <= max(len(ranks), 2):
            for rank in self._nan_ranks:
                evidence[rank, ""].setdefault("nan", f"names NaN, {len(ranks) - len(self._nan_ranks)} others do not")

    def _slow(self, evidence: DefaultDict[Tuple[int, str], Dict[str, str]]) -> None:
        medians = {rank: statistics.median(times) for rank, times in self._times.items() if len(times) >= SLOW_STEPS}
        if len(medians) < 3:
            return
        middle = statistics.median(medians.values())
        for rank, value in medians.items():
            late = sum(seconds > SLOW * middle for seconds in self._times[rank])
            if value > SLOW * middle and late >= SLOW_STEPS:
                evidence[rank, ""].setdefault(
                    "straggler", f"takes {value:.3g} s for a step, the median is {middle:.3g} s"
                )

    def _silent(self, evidence: DefaultDict[Tuple[int, str], Dict[str, str]]) -> None:
        """Ranks whose own steps ended before those of most others."""
        if len(self._last_step) < 3:
            return
        usual = statistics.median(self._last_step.values())
        for rank, step in self._last_step.items():
            if step < usual:
                evidence[rank, ""].setdefault("silent", f"is last heard of at step {step}, others at {usual:.0f}")

    def _ordered(self, evidence: Mapping[Tuple[int, str], Mapping[str, str]]) -> Tuple[Suspect, ...]:
        kinds: DefaultDict[str, Dict[str, str]] = defaultdict(dict)
        ranks: DefaultDict[str, Set[int]] = defaultdict(set)
        for (rank, node), by_kind in evidence.items():
            name = self._name(rank, node)
            ranks[name].update({rank} - {-1})
            for kind, text in by_kind.items():
                who = f"rank {rank}: " if rank >= 0 and self._nodes.get(rank) else ""
                kinds[name].setdefault(kind, f"{who}{text}")
        suspects = [
            Suspect(name, tuple(sorted(ranks[name])), sum(WEIGHTS.get(kind, 1) for kind in by_kind),
                    tuple(by_kind[kind] for kind in sorted(by_kind, key=lambda kind: -WEIGHTS.get(kind, 1))))
            for name, by_kind in kinds.items() if by_kind
        ]  # fmt: skip
        return tuple(sorted(suspects, key=lambda suspect: (-suspect.score, suspect.node)))

    def _name(self, rank: int, node: str) -> str:
        return node or self._nodes.get(rank, f"rank {rank}")

    @property
    def nodes(self) -> List[str]:
        """The job's nodes, as far as they are known."""
        return sorted(set(self._nodes.values()))
