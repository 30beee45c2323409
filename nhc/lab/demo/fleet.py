"""A made-up fleet: nodes in racks, faults that come and go, repairs that take effect after a while. From one seed.

It stands where a scheduler and a cloud would: it is a Marker and a Repairer (nhc.marks.ports). What judges, decides,
writes down and shows is the real thing.
"""

from __future__ import annotations

import math
import random
import threading
import time
import zlib
from typing import Callable, Dict, List, NamedTuple

from nhc.core.model import Action, CheckResult, Metric, Outcome, Report, Verdict, ok
from nhc.lab.testing.made_up import MadeUpNode, MadeUpWorld, cured
from nhc.marks.ports.adapter import NodeState
from nhc.marks.ports.repair import Answer, Machine, Order, Rung, Sent

RACK = 18
"""Nodes of a rack, as an NVL72 has."""
GPUS = 4
"""Accelerators of a node, as one of those has."""


class FaultKind(NamedTuple):
    """A kind of fault: what a report says, the mildest repair that mends it (ESCALATE: none), how frequent it is."""

    check: str
    reason: str
    message: str
    verdict: Verdict
    action: Action
    cure: Rung
    weight: int


CRIT, WARN = Verdict.CRIT, Verdict.WARN
KINDS = tuple(FaultKind(*row) for row in (
    ("check_gpu_xid", "Xid79", "gpu3: GPU has fallen off the bus (Xid 79)", CRIT, Action.REBOOT, Rung.REBOOT, 5),
    ("check_gpu_xid", "Xid95", "gpu5: uncontained memory error (Xid 95)", CRIT, Action.RESET_DEVICE,
     Rung.RESET_DEVICE, 5),
    ("check_gpu_lost", "GpuLost", "gpu1 is lost: it does not answer on the bus", CRIT, Action.REBOOT,
     Rung.POWER_CYCLE, 3),
    ("check_gpu_row_remap", "GpuRowRemapFailed", "gpu2: row remapping failed", CRIT, Action.REPLACE, Rung.REPLACE, 2),
    ("check_ib_state", "IbPortDown", "mlx5_2 port 1 is Down (Disabled)", CRIT, Action.INSPECT, Rung.ESCALATE, 2),
    ("check_fs_used", "FilesystemFull", "/local 6.5TB used (93%)", WARN, Action.NONE, Rung.RESTART_APP, 4),
    ("check_gpu_clock_throttling", "GpuSwThermalSlowdown", "gpu6: clocks are lowered for its temperature", WARN,
     Action.NONE, Rung.RESTART_APP, 4),
))  # fmt: skip
"""Checks and reasons are nhc's own, with the action that each suggests: `nhc explain` has a page for every one."""
SWITCH = FaultKind(
    "check_ib_errors", "IbErrors", "mlx5_0:1 link_downed grew by 14 in 1h (limit 10)", WARN, Action.INSPECT,
    Rung.RESTART_APP, 0,
)  # fmt: skip
"""What a leaf switch does to several of its ports at once."""

BY_PERSONS = (Rung.REPLACE, Rung.ESCALATE)
"""What mends the kinds of faults that wait for a person."""
WAITING = 0.01
"""The share of the nodes that a kind of fault which waits for a person has at most, two nodes at least. Without a bound
such nodes would fill what the loop lets be out of service, and after some minutes nobody would see a repair."""

LASTS = {Rung.RESTART_APP: 3.0, Rung.RESET_DEVICE: 4.0, Rung.RELOAD_DRIVER: 6.0, Rung.REBOOT: 10.0,
         Rung.POWER_CYCLE: 14.0, Rung.REPLACE: 20.0}  # fmt: skip
"""Seconds that a repair takes here; a real reboot takes minutes."""


class DemoNode(MadeUpNode):
    """One machine. `silent_until`: it does not report before that time."""

    def __init__(self, name: str, rack: str, leaf: str) -> None:
        super().__init__(name)
        self.rack, self.leaf = rack, leaf
        self.faults: Dict[str, FaultKind] = {}
        self.silent_until = 0.0

    def fall_silent(self, until: float) -> None:
        """No report for a while."""
        self.silent_until = until

    def pass_time(self, now: float) -> None:
        """Let a repair that has lasted long enough take effect."""
        for rung in self.end_repairs(now):
            self.faults = cured(self.faults, rung)

    def _temperature(self, gpu: int, now: float) -> Outcome:
        """Between idle and full load and back within some minutes, each GPU in its own time."""
        degrees = round(55 + 20 * math.sin(now / 200 + gpu + zlib.crc32(self.name.encode())), 1)
        metrics = (Metric("gpu_temperature", degrees, "Cel"),)
        return ok(f"gpu{gpu}: {degrees} degrees", target=f"gpu{gpu}", metrics=metrics)

    def report(self, now: float) -> Report:
        """What nhc would say of it."""
        results = [
            CheckResult(kind.check, Outcome(kind.verdict, kind.reason, kind.message, action=kind.action))
            for kind in self.faults.values()
        ]
        failing = {result.check for result in results}
        results += [
            CheckResult(check, Outcome(Verdict.OK))
            for check in dict.fromkeys(kind.check for kind in (*KINDS, SWITCH))
            if check not in failing
        ]
        results += [
            CheckResult("check_gpu_count", ok(f"{GPUS} accelerators", metrics=(Metric("gpu_expected", GPUS),))),
            *(CheckResult("check_gpu_temp", self._temperature(gpu, now)) for gpu in range(GPUS)),
        ]
        return Report(self.name, f"boot-{self.name}-{self.boot}", now, 0.05, tuple(results), version="demo")


class DemoFleet(MadeUpWorld[DemoNode]):
    """All nodes, their scheduler and their repairer. Threads may share it."""

    def __init__(self, count: int, seed: int, clock: Callable[[], float] = time.time) -> None:
        width = len(str(count))
        super().__init__((
            DemoNode(f"gpu{number + 1:0{width}}", f"r{number // RACK + 1:02}", f"leaf{number // (2 * RACK) + 1}")
            for number in range(count)
        ), clock(), LASTS.__getitem__)  # fmt: skip
        self.chance = random.Random(seed)  # noqa: S311 (a simulation)
        self.clock = clock
        self.lock = threading.RLock()

    def groups(self) -> Dict[str, Dict[str, str]]:
        """Where each node is."""
        return {node.name: {"rack": node.rack, "leaf": node.leaf} for node in self.fleet.values()}

    def pass_time(self, faults: float) -> None:
        """Let repairs take effect, and let faults come: `faults` on the average."""
        with self.lock:
            now = self.now = self.clock()
            for node in self.fleet.values():
                node.pass_time(now)
            for _ in range(int(faults) + (self.chance.random() < faults % 1)):
                self._break_one(now)
            self._end_warnings()

    def _break_one(self, now: float) -> None:
        kinds = [kind for kind in KINDS if kind.cure not in BY_PERSONS or self._has_room(kind)]
        kind = self.chance.choices(kinds, [kind.weight for kind in kinds])[0]
        node = self.chance.choice(list(self.fleet.values()))
        node.faults[kind.reason] = kind
        if self.chance.random() < 0.05:  # a leaf switch: several ports of one leaf at once
            for other in self.fleet.values():
                if other.leaf == node.leaf and self.chance.random() < 0.3:
                    other.faults[SWITCH.reason] = SWITCH
        if self.chance.random() < 0.05:
            node.fall_silent(now + 60)

    def _has_room(self, kind: FaultKind) -> bool:
        return sum(kind.reason in node.faults for node in self.fleet.values()) < max(2, int(WAITING * len(self.fleet)))

    def _end_warnings(self) -> None:
        """Warnings end by themselves after a while."""
        for node in self.fleet.values():
            for reason, kind in list(node.faults.items()):
                if kind.verdict is Verdict.WARN and self.chance.random() < 0.02:
                    del node.faults[reason]

    def reports(self, now: float) -> List[Report]:
        """The reports of all nodes that are up and have something to say."""
        with self.lock:
            return [
                node.report(now) for node in self.fleet.values()
                if not node.repairs and node.silent_until <= self.now
            ]  # fmt: skip

    def state(self, node: DemoNode) -> NodeState:
        power = "down" if node.repairs else "idle" if node.available else "drained"
        return super().state(node)._replace(shown=power, groups=(node.rack,))

    def can(self, machine: Machine, rung: Rung, device: str = "") -> str:
        return "" if rung in LASTS else f"the made-up machines have no {rung.value}"

    def send(self, order: Order) -> Sent:
        with self.lock:
            for _until, rung in self.fleet[order.machine.node].repairs:
                return Sent(Answer.REFUSED, f"{rung.value} is under way", retry_after=5.0)
            return super().send(order)
