"""The made-up nodes of a drill: a scheduler, a repairer and reports, in a time of their own. Nothing real is asked."""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from nhc.core.model import Action, CheckResult, Outcome, Report, Verdict
from nhc.lab.testing.made_up import NEW_BOOT, MadeUpNode, MadeUpWorld, cured
from nhc.marks.ports.adapter import AdapterError, Mark, NodeState
from nhc.marks.ports.repair import Answer, Claim, Machine, Order, Progress, Rung, Sent, Sighting, Stage

CHECK = "check_drill"
RACK = 4


class Killed(BaseException):
    """The loop's process is gone at this moment, as by SIGKILL."""


class DrillFault(NamedTuple):
    """A fault of a made-up node, and the mildest rung that cures it (ESCALATE: none does)."""

    reason: str = "DrillFault"
    action: Action = Action.REBOOT
    cure: Rung = Rung.REBOOT


class DrillSent(NamedTuple):
    """One order that reached a made-up machine."""

    at: float
    node: str
    rung: Rung
    key: str
    because: str
    episode: str


class DrilledNode(MadeUpNode):
    """One machine."""

    def __init__(self, name: str, rack: str) -> None:
        super().__init__(name)
        self.rack = rack
        self.unknown = self.silent = False
        self.undone = ""
        """The part of our mark that an automaton has undone."""
        self.booted = 0.0
        self.faults: Dict[str, DrillFault] = {}

    def be_busy(self, busy: bool) -> None:
        """Whether work runs on it."""
        self.busy = busy

    def fall_silent(self) -> None:
        """Its agent dies."""
        self.silent = True

    def undo(self, part: str) -> None:
        """A part of our mark is undone, and the node takes work."""
        if self.mark is not None and self.mark.ours:
            self.available, self.undone = True, part

    def marked(self, mark: Optional[Mark], available: bool) -> None:
        super().marked(mark, available)
        self.undone = ""

    def pass_time(self, now: float) -> None:
        """Repairs take effect."""
        before = self.boot
        for rung in self.end_repairs(now):
            self.faults = cured(self.faults, rung)
        if self.boot != before:
            self.booted = now


class DrillWorld(MadeUpWorld[DrilledNode]):
    """Marker, repairer and clock in one. A repair takes `takes` seconds."""

    def __init__(self, names: Sequence[str], now: float, takes: float) -> None:
        super().__init__((DrilledNode(name, f"r{at // RACK}") for at, name in enumerate(names)), now, lambda _: takes)
        self.sent: List[DrillSent] = []
        self.marked: List[Tuple[float, str]] = []
        self.cleared: List[Tuple[float, str]] = []
        self.answers: List[str] = []
        """What the next orders are answered with: lost (it took effect), dropped (it did not), throttled."""
        self.claimed: Dict[str, str] = {}
        self.down = False
        self.deaf: Dict[str, bool] = {}
        """Machines on which no repair ever takes effect."""
        self.kill: Callable[[str], bool] = lambda _moment: False
        self.most_out = self.most_at_work = 0
        self.breaker_opens = False
        """Whether a person opens the breaker before the next round."""

    # Time.

    @property
    def working(self) -> bool:
        """Whether a repair is under way that will take effect."""
        return any(node.repairs and not self.deaf.get(node.name) for node in self.fleet.values())

    def pass_time(self, seconds: float) -> List[Report]:
        """Let time pass; what the nodes report now."""
        self.now += seconds
        for node in self.fleet.values():
            if not self.deaf.get(node.name):
                node.pass_time(self.now)
        return [self.report(node) for node in self.fleet.values() if not node.repairs and not node.silent]

    def report(self, node: DrilledNode) -> Report:
        """What nhc would say of a node."""
        results = [
            CheckResult(f"{CHECK}_{reason.lower()}", Outcome(Verdict.CRIT, reason, "a drill", action=fault.action))
            for reason, fault in node.faults.items()
        ]
        calm = Outcome(Verdict.UNKNOWN, "DrillUnknown", "could not tell") if node.unknown else Outcome(Verdict.OK)
        results.append(CheckResult(CHECK, calm))
        return Report(node.name, f"boot{node.boot}", self.now, 0.1, tuple(results), version="drill")

    # As a scheduler.

    def state(self, node: DrilledNode) -> NodeState:
        return super().state(node)._replace(groups=("drill",), undone=node.undone)

    def moment(self, what: str) -> None:
        """Raises AdapterError, Killed."""
        if what == "nodes read" and self.down:
            raise AdapterError("the drill's scheduler does not answer")
        self._count()
        if self.kill(what):
            raise Killed(what)

    def noted(self, node: DrilledNode, mark: Optional[Mark]) -> None:
        if mark is None:
            self.cleared.append((self.now, node.name))
        elif node.available:
            self.marked.append((self.now, node.name))

    # As a repairer.

    def claims(self, machine: Machine) -> Sequence[Claim]:
        doing = self.claimed.get(machine.node, "")
        return [Claim("the platform", doing, "the drill")] if doing else []

    def send(self, order: Order) -> Sent:
        self.moment("before an order")
        mood = self.answers.pop(0) if self.answers else ""
        if mood == "throttled":
            return Sent(Answer.REFUSED, "too many requests", retry_after=60.0)
        if mood == "dropped":
            return Sent(Answer.AMBIGUOUS, "no answer, and no effect")
        node = self.fleet[order.machine.node]
        self.sent.append(DrillSent(self.now, node.name, order.rung, order.key, order.because, order.episode))
        accepted = super().send(order)
        self.moment("after an order")
        return accepted._replace(answer=Answer.AMBIGUOUS) if mood == "lost" else accepted

    def progress(self, order: Order, sent: Sent, before: Sighting) -> Progress:
        node = self.fleet[order.machine.node]
        if node.repairs:
            return Progress(Stage.WORKING, "under way")
        there = any(earlier.key == order.key for earlier in self.sent)
        done = f"boot{node.boot}" != before.boot if order.rung in NEW_BOOT else there
        return Progress(Stage.DONE, f"boot{node.boot}") if done else Progress(Stage.WORKING, "nothing is seen yet")

    # What happens in a scenario.

    def fall_sick(self, name: str, *faults: DrillFault) -> None:
        """The node has these faults, in this order, and no others."""
        self.fleet[name].faults = {fault.reason: fault for fault in faults}

    def work_runs(self, name: str, busy: bool) -> None:
        """Work runs on the node, or runs no more."""
        self.fleet[name].be_busy(busy)

    def cannot_tell(self, name: str) -> None:
        """The node's check gives no verdict from now on."""
        self.fleet[name].unknown = True

    def fall_silent(self, name: str) -> None:
        """The node's agent dies: no report comes any more."""
        self.fleet[name].fall_silent()

    def answer(self, *moods: str) -> None:
        """What the next orders are answered with."""
        self.answers = list(moods)

    def scheduler_away(self, away: bool) -> None:
        """The scheduler does not answer, or does again."""
        self.down = away

    def kill_at(self, kill: Callable[[str], bool]) -> None:
        """Whether the loop's process is killed at a moment."""
        self.kill = kill

    def open_breaker(self) -> None:
        """A person opens the breaker."""
        self.breaker_opens = True

    def claim(self, name: str, doing: str) -> None:
        """Another actor works on the node, "" for no more."""
        self.claimed = {name: doing} if doing else {}

    def never_works(self, name: str) -> None:
        """No repair of the node ever takes effect."""
        self.deaf[name] = True

    # What others do.

    def operator_resumes(self, name: str) -> None:
        """A person puts the node back into service."""
        self.fleet[name].marked(None, True)

    def operator_drains(self, name: str) -> None:
        """A person takes the node out."""
        self.fleet[name].marked(Mark("mine", owner="ann", since=self.now), False)

    def automaton_uncordons(self, name: str) -> None:
        """A program that knows nothing of our mark lets work on the node, as a driver's installer does after a boot."""
        self.fleet[name].undo("its cordon")

    def _count(self) -> None:
        ours = [node for node in self.fleet.values() if node.mark is not None and node.mark.ours]
        self.most_out = max(self.most_out, len(ours))
        self.most_at_work = max(self.most_at_work, sum(bool(node.repairs) for node in self.fleet.values()))
