"""Made-up nodes and their scheduler: what drills, simulations, the demonstration and tests stand on."""

from __future__ import annotations

import contextlib
from typing import Callable, ContextManager, Generic, Iterable, Mapping, Optional, Protocol, Sequence, TypeVar

from nhc.marks.ports.adapter import REMEDY_OWNER, Applied, Effect, Mark, NodeState
from nhc.marks.ports.marks import may_clear, may_mark
from nhc.marks.ports.repair import LADDER, Answer, Machine, Order, Progress, Right, Rung, Sent, Sighting, Stage

NEW_BOOT = (Rung.REBOOT, Rung.POWER_CYCLE, Rung.REPLACE)
"""Rungs after which a machine has booted."""


class Curable(Protocol):
    """A fault with the mildest rung that cures it (ESCALATE: none does)."""

    @property
    def cure(self) -> Rung: ...


F = TypeVar("F", bound=Curable)


def cured(faults: Mapping[str, F], rung: Rung) -> dict[str, F]:
    """The faults that are left after a repair."""
    reached = LADDER.index(rung)
    return {
        name: fault
        for name, fault in faults.items()
        if fault.cure is Rung.ESCALATE or LADDER.index(fault.cure) > reached
    }


class MadeUpNode:
    """One machine, as its scheduler has it: in service or not, with which mark, and whether work runs.

    `repairs` are under way: when they end, and which.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.mark: Optional[Mark] = None
        self.available, self.busy = True, False
        self.boot = 1
        self.repairs: list[tuple[float, Rung]] = []

    def marked(self, mark: Optional[Mark], available: bool) -> None:
        """As the scheduler has it now."""
        self.mark, self.available = mark, available

    def begin(self, rung: Rung, until: float) -> None:
        """A repair is under way."""
        self.repairs.append((until, rung))

    def end_repairs(self, now: float) -> list[Rung]:
        """The repairs that have ended by now; the machine has booted where one of them boots it."""
        ended = [rung for until, rung in self.repairs if until <= now]
        self.repairs = [(until, rung) for until, rung in self.repairs if until > now]
        self.boot += sum(rung in NEW_BOOT for rung in ended)
        return ended


N = TypeVar("N", bound=MadeUpNode)


class MadeUpScheduler(Generic[N]):
    """A `nhc.marks.ports.adapter.Marker` that keeps to nhc's own rules of marking, for the loop and for trains."""

    fleet: Mapping[str, N]
    lock: ContextManager[object] = contextlib.nullcontext()
    """Held during a call, where threads share the nodes."""

    def state(self, node: N) -> NodeState:
        """The node as the scheduler shows it."""
        return NodeState(node.name, "idle" if node.available else "drained", node.available, node.busy, node.mark)

    def known(self, name: str) -> Optional[N]:
        """The node of that name, None where the scheduler has none."""
        return self.fleet.get(name)

    def moment(self, what: str) -> None:
        """A call begins or has ended: somebody else may come in between, and a fault of the scheduler is raised."""

    def noted(self, node: N, mark: Optional[Mark]) -> None:
        """A node is about to be taken out with this mark, or to be put back (None)."""

    def nodes(self, names: Optional[Sequence[str]] = None) -> list[NodeState]:
        """Raises AdapterError where `moment` does."""
        self.moment("nodes read")
        with self.lock:
            nodes = (self.known(name) for name in sorted(self.fleet if names is None else set(names)))
            return [self.state(node) for node in nodes if node is not None]

    def mark(self, marks: Mapping[str, Mark], seen: Optional[object] = None) -> list[Applied]:
        del seen
        self.moment("before marks are set")
        done = [self._changed(name, mark) for name, mark in marks.items()]
        self.moment("after marks are set")
        return done

    def clear(self, names: Sequence[str], seen: Optional[object] = None) -> list[Applied]:
        del seen
        self.moment("before marks are cleared")
        done = [self._changed(name, None) for name in names]
        self.moment("after marks are cleared")
        return done

    def _changed(self, name: str, mark: Optional[Mark]) -> Applied:
        with self.lock:
            node = self.known(name)
            state = self.state(node) if node is not None else None
            mark = mark._replace(owner=REMEDY_OWNER) if mark is not None else None
            effect, why = may_clear(state, REMEDY_OWNER) if mark is None else may_mark(state, mark)
            if effect is Effect.CHANGED and node is not None:
                self.noted(node, mark)
                node.marked(mark, mark is None)
            return Applied(name, effect, why)


class MadeUpWorld(MadeUpScheduler[N]):
    """The scheduler and a `nhc.marks.ports.repair.Repairer` in one. `now` is its time, `takes` how long a repair
    takes.
    """

    def __init__(self, nodes: Iterable[N], now: float, takes: Callable[[Rung], float]) -> None:
        self.fleet: dict[str, N] = {node.name: node for node in nodes}
        self.now, self.takes = now, takes

    def can(self, machine: Machine, rung: Rung, device: str = "") -> str:
        del machine, device
        return "" if rung is not Rung.ESCALATE else "no repair"

    def look(self, machine: Machine) -> Sighting:
        with self.lock:
            node = self.fleet[machine.node]
            return Sighting(self.now, f"i-{node.name}", f"boot{node.boot}", "running")

    def send(self, order: Order) -> Sent:
        with self.lock:
            self.fleet[order.machine.node].begin(order.rung, self.now + self.takes(order.rung))
        return Sent(Answer.ACCEPTED, f"{order.rung.value} begins", order.key)

    def progress(self, order: Order, sent: Sent, before: Sighting) -> Progress:
        del sent, before
        with self.lock:
            working = bool(self.fleet[order.machine.node].repairs)
        return Progress(Stage.WORKING, "under way") if working else Progress(Stage.DONE, "it is up again")

    def rights(self) -> Sequence[Right]:
        return [Right("everything", True, "the machines are made up")]
