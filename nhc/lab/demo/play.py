"""The demonstration: a made-up fleet, the real store, the real remedy loop and the real console, in one process.

Everything lies in a temporary directory that goes at the end. Nothing of this machine is judged, marked or repaired.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import random
import secrets
import signal
import tempfile
import threading
import time
import zlib
from typing import Callable, Dict, List, NamedTuple

from nhc.console import settings as console_settings
from nhc.console.server import Server, serve
from nhc.console.sources import StoreSource
from nhc.core.data.reader import read
from nhc.core.model import Action, CheckResult, Metric, Outcome, Report, Verdict, ok
from nhc.lab.testing.made_up import MadeUpNode, MadeUpWorld, cured
from nhc.marks.ports.adapter import NodeState
from nhc.marks.ports.repair import Answer, Machine, Order, Rung, Sent
from nhc.remedy import remedy_file
from nhc.remedy.actuators import Actuators
from nhc.remedy.episode_flow import EpisodeLoop
from nhc.remedy.machine import ENDS
from nhc.remedy.repairers import RepairerEntry, Repairers
from nhc.remedy.repairs import repair_loop
from nhc.remedy.settings import RepairerSettings
from nhc.store import nodes, reports
from nhc.store.connect import open_store
from nhc.store.database import Store
from nhc.store.intake import Incoming
from nhc.store.retention import Pruned, RetentionPeriods, prune

# A made-up fleet: nodes in racks, faults that come and go, repairs that take effect after a while. From one seed.
#
# It stands where a scheduler and a cloud would: it is a Marker and a Repairer (nhc.marks.ports). What judges, decides,
# writes down and shows is the real thing.


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


STALE = 30.0
"""Seconds after which a report of the made-up fleet is not believed."""
TICK = 1.0
"""Seconds between two steps of the made-up fleet."""
HOUR = 3600.0
KEEP = RetentionPeriods(*[HOUR] * len(RetentionPeriods._fields))
"""What is over an hour old is deleted: a demonstration of days is as large as one of an hour, its repairs aside."""
FORGET = 600.0
"""Seconds between two times that the rest is deleted."""


class Demo(NamedTuple):
    """What runs. `token` logs the person `you` in on the page."""

    fleet: DemoFleet
    store: Store
    controller: EpisodeLoop
    actuators: Actuators
    server: Server
    token: str


def make(directory: str, count: int, seed: int, listen: str) -> Demo:
    """All parts over a new store in a directory. Raises StoreError, SettingsError."""
    fleet = DemoFleet(count, seed)
    store = open_store(f"sqlite:///{directory}/store.db")
    with store.write() as connection:
        nodes.describe(connection, [
            nodes.NodeDescription(name, kind="demo", groups=groups) for name, groups in fleet.groups().items()
        ])  # fmt: skip
    policy = remedy_file.parse(f'{read("demo.toml")}[evidence]\ndirectory = "{directory}/evidence"\n')
    actuators = Actuators(fleet, Repairers([RepairerEntry(RepairerSettings("demo", "demo"), fleet)]))
    token = secrets.token_urlsafe(12)
    settings = console_settings.parse(
        f'listen = "{listen}"\nrefresh = "1s"\nstale = "{STALE:g}s"\n[people.you]\nroles = ["operator", "admin"]\n'
        f'[[people.you.tokens]]\nsha256 = "{hashlib.sha256(token.encode()).hexdigest()}"\n'
    )
    server = Server(settings, StoreSource(store, settings.stale), store)
    return Demo(fleet, store, repair_loop(store, policy, actuators), actuators, server, token)


def step(demo: Demo, faults: float) -> int:
    """One step: time passes, nodes report, the loop goes round. The number of episodes that ended in it."""
    demo.fleet.pass_time(faults)
    now = time.time()
    with demo.store.write() as connection:
        reports.receive(connection, [Incoming(report, "demo", now) for report in demo.fleet.reports(now)])
    return sum(written.case.state in ENDS for written in demo.controller.round().moved)


def forget(demo: Demo, directory: str, now: float) -> Pruned:
    """Delete what is older than KEEP. Raises StoreError."""
    return prune(demo.store, KEEP, now, segments=f"{directory}/audit", by="nhc demo", with_evidence=False)


def play(count: int, seed: int, faults: float, listen: str, tell: Callable[[str], None], in_terminal: bool) -> None:
    """Until Ctrl-C, or until `nhc top` ends where it is shown in the terminal instead of a browser.

    `faults` come a minute. Raises OSError where it cannot listen, StoreError.
    """
    with tempfile.TemporaryDirectory(prefix="nhc-demo-") as directory:
        demo = make(directory, count, seed, listen)
        stop = threading.Event()
        trouble: List[BaseException] = []

        def live() -> None:
            try:
                step(demo, 12.0)  # a fleet that has been running for a while
                forgot = time.monotonic()
                while not stop.wait(TICK):
                    step(demo, faults * TICK / 60)
                    if time.monotonic() - forgot > FORGET:
                        forgot = time.monotonic()
                        forget(demo, directory, time.time())
            except Exception as error:  # shown by the main thread, which ends
                trouble.append(error)

        thread = threading.Thread(target=live, name="nhc-demo")
        thread.start()

        def ready(address: str) -> None:
            tell(f"{count} made-up nodes, the remedy loop and the console: http://{address}")
            tell(f"To agree to replacements, log in with the token {demo.token}")
            tell(f"In another terminal: nhc top --store sqlite:///{directory}/store.db --apply")
            tell("Ctrl-C ends it; nothing is left.")

        try:
            if in_terminal:
                _show_top(demo.store)
            else:
                asyncio.run(_serve(demo.server, ready, trouble))
        except KeyboardInterrupt:
            pass
        finally:
            stop.set()
            thread.join()
            demo.actuators.close()
            demo.store.close()
        if trouble:
            raise trouble[0]


def _show_top(store: Store) -> None:
    from nhc.console.top.app import TopApp, TopSettings

    TopApp(StoreSource(store, STALE), store, TopSettings(every=1.0, person="you")).run()


async def _serve(server: Server, ready: Callable[[str], None], trouble: List[BaseException]) -> None:
    task = asyncio.ensure_future(serve(server, ready))
    for number in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C: nothing is left
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    while not trouble and not task.done():
        await asyncio.wait([task], timeout=0.5)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
