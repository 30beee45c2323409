"""The faults of a drill on a real node: one that is only reported, or one put there for the node to find.

Each fault says which problems are its own, so that a real problem of the node is never taken for the drill's.
"""

from __future__ import annotations

import json
from typing import List, NamedTuple, Protocol, Tuple

from nhc.core.limits import Mode
from nhc.core.model import Action, CheckResult, Outcome, Report, Verdict
from nhc.lab.drills.world import CHECK
from nhc.marks.ports.repair import LADDER, RUNG_OF, Rung
from nhc.node.checks.kmsg import outcome
from nhc.node.kernlog.judge import take_in
from nhc.node.kernlog.state_types import LogState
from nhc.remedy.settings import RemedySettings
from nhc.store import problems, reports
from nhc.store.database import Store
from nhc.store.intake import Incoming
from nhc.store.problems import StoredProblem

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
