"""A small world for the remedy loop: nodes that fall sick, a scheduler that marks them, a repairer that repairs them.

The fakes stand at the Protocol boundary (`Marker`, `Repairer` of nhc.marks.ports); the store is the real one. Time is
the world's own. Every call and every commit is a boundary at which the controller can be killed, and everything that
changes a machine is counted, so that a test can say what was done how often.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from nhc.core.model import Action, CheckResult, DeviceId, Outcome, Report, Scope, Verdict
from nhc.lab.testing.made_up import NEW_BOOT, MadeUpNode, MadeUpScheduler
from nhc.marks.ports.adapter import REMEDY_OWNER, AdapterError, Applied, DeviceState, Effect, Mark, NodeState, Silence
from nhc.marks.ports.repair import LADDER, Answer, Claim, Machine, Order, Progress, Right, Rung, Sent, Sighting, Stage
from nhc.remedy.actuators import Actuators
from nhc.remedy.episode_flow import EpisodeLoop, EpisodeRound
from nhc.remedy.remedy_file import parse
from nhc.remedy.repairers import RepairerEntry, Repairers
from nhc.remedy.repairs import repair_loop
from nhc.remedy.settings import RemedySettings, RepairerSettings
from nhc.store import nodes as store_nodes
from nhc.store import reports as store_reports
from nhc.store.intake import Incoming

EVERYTHING = """
[actions]
mark = "on"
restart-app = "on"
reset-device = "on"
reload-driver = "on"
reboot = "on"
power-cycle = "on"
replace = "on"
[sources]
settle = "0s"
max-age = "5m"
[limits]
first-run = "100%"
attempts = 20
[bounds.fleet]
out = "100%"
repairing = "100%"
[bounds.fleet.rate]
mark = "1000 per 1h"
repair = "1000 per 1h"
[bounds.rack]
out = "100%"
[breaker]
faults = "100%"
blind = "100%"
failures = 0
[approval]
replace = 0
[verify]
healthy-for = "2m"
grace = "0s"
[evidence]
directory = "/nonexistent"
"""
"""Everything enabled and nothing bounded but by what a test adds."""


class Killed(BaseException):
    """The controller's process is gone at this moment."""


class Sickness(NamedTuple):
    """A fault: what a report says of it, and the mildest rung that cures it (ESCALATE: none does).

    `outcome` is what a check has found, as it is reported, instead of the words here.
    """

    action: Action = Action.REBOOT
    cure: Rung = Rung.REBOOT
    reason: str = "GpuBroken"
    target: str = ""
    check: str = "check_gpu"
    outcome: Optional[Outcome] = None
    device: DeviceId = DeviceId()
    """The accelerator that it is of, where it is not the node's."""


class Node(MadeUpNode):
    """One machine. `under_way` are repairs with when they end; reports stop until then.

    `rebooting_until`: so long the scheduler believes in a reboot, in the world's ticks.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.sick: Dict[str, Sickness] = {}
        self.unknown = False
        self.silent = False
        self.silence: Optional[Silence] = None
        """What the scheduler says of a node that it does not hear."""
        self.uid = ""
        self.uuid = ""
        """Which machine it says it is; "" says nothing."""
        self.gone = False
        self.rebooting_until = 0.0
        self.rebooting = False
        """Whether the scheduler has ordered its reboot, and waits for it to register."""
        self.booted, self.boot_id = 0.0, ""
        """The boot that the scheduler has seen register."""
        self.under_way: List[Tuple[float, Rung, str]] = []
        self.devices: Dict[str, DeviceState] = {}
        """The accelerators that can be marked alone, by address."""


class Sending(NamedTuple):
    """A destructive call that reached the machine."""

    at: float
    node: str
    rung: Rung
    device: str
    key: str


class World:
    """Nodes n0, n1… in racks of four, a marker, a repairer, a clock, and a real store."""

    def __init__(self, store: Any, count: int = 4, start: float = 1_700_000_000.0) -> None:
        self.plain = store
        self.now = self.ticks = start
        self.reboot_lingers = 0.0
        self.nodes = {f"n{number}": Node(f"n{number}") for number in range(count)}
        self.cancelled: List[str] = []
        """Nodes whose repair a person has cancelled."""
        self.sent: List[Sending] = []
        self.commands: List[Tuple[str, Tuple[str, ...], str]] = []
        """Programs that were started on nodes: the node, the words, the order's key."""
        self.fails: Dict[str, str] = {}
        """Nodes on which programs fail, and what they say."""
        self.device_marks: List[Tuple[str, str, bool]] = []
        """Devices that were taken out (True) and given back, in their order."""
        self.marked: List[str] = []
        self.cleared: List[str] = []
        self.took: Dict[str, float] = {}
        self.kill_at = -1
        self.boundaries = 0
        self.lose: List[str] = []
        """The repairer's next answers: lost (it took effect), dropped (it did not), refused, throttled, denied."""
        self.shows_orders = False
        """Whether the provider shows which orders have arrived, so that it can prove that one has not."""
        self.duration = 60.0
        self.can: Callable[[str, Rung, str], str] = lambda _node, _rung, _device: ""
        self.boot_shown: Callable[[Node], str] = lambda node: f"boot{node.boot}"
        """What the provider shows of a machine's boot: the kernel's id, or a start time."""
        self.claimed: Dict[str, str] = {}
        self.machine: Tuple[str, ...] = ()
        """Nodes that share one machine: it boots for all of them."""
        self.disturbed: List[str] = []
        """Repairs that began while another node of the machine was at work, in service, somebody's or under repair."""
        self.down = False
        self.at_boundary: Callable[[str], None] = lambda _what: None
        with store.write() as connection:
            store_nodes.describe(
                connection,
                [
                    store_nodes.NodeDescription(name, groups={"rack": f"r{number // 4}"})
                    for number, name in enumerate(self.nodes)
                ],
            )

    def mates(self, name: str) -> List[Node]:
        """The other nodes of its machine."""
        return [self.nodes[mate] for mate in self.machine if name in self.machine and mate != name]

    # The controller's edge.

    def boundary(self, what: str) -> None:
        """A moment at which the controller may be killed, or somebody else may come in between."""
        self.boundaries += 1
        self.at_boundary(what)
        if self.boundaries == self.kill_at:
            raise Killed(what)

    @property
    def engine(self) -> Any:
        return self.plain.engine

    def read(self) -> Any:
        return self.plain.read()

    @contextlib.contextmanager
    def write(self, fence: Any = None) -> Iterator[Any]:
        with self.plain.write(fence) as connection:
            yield connection
            self.boundary("before a commit")
        self.boundary("after a commit")

    def controller(self, settings: str = "", workers: int = 0, **more: Any) -> EpisodeLoop:
        """A controller that has just been started."""
        found: RemedySettings = settings_of(settings)
        entry = RepairerEntry(RepairerSettings("fake", "fake"), FakeRepairer(self))
        marks_devices = any(node.devices for node in self.nodes.values())
        marker = FakeCluster(self) if marks_devices else FakeMarker(self)
        actuators = Actuators(marker, Repairers([entry]), workers=workers)
        return repair_loop(
            self, found, actuators, clock=lambda: self.now, monotonic=lambda: self.ticks, **more  # type: ignore[arg-type]
        )  # fmt: skip

    # Time.

    def tick(self, seconds: float = 30.0) -> None:
        """Let time pass: repairs take effect, and every node that is up reports."""
        self.now += seconds
        self.ticks += seconds
        for node in self.nodes.values():
            for when, rung, device in list(node.under_way):
                if self.ticks >= when:
                    node.under_way.remove((when, rung, device))
                    for reached in [node, *(self.mates(node.name) if rung in NEW_BOOT else [])]:
                        self._effect(reached, rung, device)
        self.report()

    def _effect(self, node: Node, rung: Rung, device: str) -> None:
        if rung in NEW_BOOT:
            node.boot += 1
            node.rebooting_until = self.ticks + self.reboot_lingers
        for cause, one in list(node.sick.items()):
            alone = rung in (Rung.RESTART_APP, Rung.RESET_DEVICE)
            reached = not alone or not device or device in (one.target, str(one.device))
            if one.cure is not Rung.ESCALATE and LADDER.index(rung) >= LADDER.index(one.cure) and reached:
                del node.sick[cause]

    def report(self, only: Sequence[str] = ()) -> None:
        """Every node that is up reports to the store."""
        found = [
            Incoming(self.report_of(node), "agent", self.now)
            for node in self.nodes.values()
            if not node.under_way and not node.silent and not node.gone and (not only or node.name in only)
        ]
        with self.plain.write() as connection:
            store_reports.receive(connection, found)

    def report_on_the_way_down(self, name: str) -> None:
        """A report of a node that is about to boot: its agent still runs."""
        self.now, self.ticks = self.now + 1.0, self.ticks + 1.0
        with self.plain.write() as connection:
            store_reports.receive(connection, [Incoming(self.report_of(self.nodes[name]), "agent", self.now)])

    def report_of(self, node: Node, at: Optional[float] = None) -> Report:
        results = [
            CheckResult(one.check, one.outcome or Outcome(
                Verdict.CRIT, one.reason, f"{one.target or 'it'} is broken", one.target, action=one.action,
                device=one.device, scope=Scope.DEVICE if one.device.known else Scope.NODE))
            for one in node.sick.values()
        ]  # fmt: skip
        verdict = Verdict.UNKNOWN if node.unknown else Verdict.OK
        results.append(CheckResult("check_other", Outcome(verdict, "NoAnswer" if node.unknown else "")))
        checks = {one.check for one in results}
        results += [CheckResult("check_gpu", Outcome(Verdict.OK))] if "check_gpu" not in checks else []
        labels = {"machine/uuid": node.uuid} if node.uuid else {}
        begun = self.now if at is None else at
        return Report(node.name, f"boot{node.boot}", begun, 0.1, tuple(results), labels=labels)

    def run(self, controller: EpisodeLoop, rounds: int, seconds: float = 30.0) -> List[EpisodeRound]:
        """So many rounds, with time between them."""
        found = []
        for _ in range(rounds):
            found.append(controller.round())
            self.tick(seconds)
        return found

    # What others do.

    def die(self, name: str, since: Optional[float] = None, heard: bool = False) -> None:
        """A node reports no more, and its scheduler says so (`heard`: its daemon itself says that it is not ready)."""
        self.nodes[name].silent = not heard
        self.nodes[name].silence = Silence(self.now if since is None else since, "not responding", heard)

    def come_back(self, name: str) -> None:
        self.nodes[name].silent, self.nodes[name].silence = False, None

    def fall_sick(self, name: str, sickness: Sickness = Sickness()) -> None:  # noqa: B008
        self.nodes[name].sick[f"{sickness.reason}{sickness.target}"] = sickness
        self.report([name])

    def operator_puts_back(self, name: str) -> None:
        self.nodes[name].mark, self.nodes[name].available = None, True

    def operator_takes_out(self, name: str, why: str = "mine") -> None:
        self.nodes[name].mark, self.nodes[name].available = Mark(why, owner="bob", since=self.now), False

    def operator_cancels(self, name: str) -> None:
        """What is under way is taken back, and the mark goes with it, as by `scontrol cancel_reboot`."""
        self.nodes[name].under_way.clear()
        self.cancelled.append(name)
        self.operator_puts_back(name)

    def sendings(self, name: str) -> List[Rung]:
        """The destructive calls that reached a node, in their order."""
        return [one.rung for one in self.sent if one.node == name]


def settings_of(more: str) -> RemedySettings:
    """EVERYTHING, with the tables of `more` in place of its own where they have the same name."""
    tables: Dict[str, str] = {}
    for text in (EVERYTHING, more):
        for part in ("\n" + text).split("\n[")[1:] if text else ():
            name, _, body = part.partition("]")
            tables[name] = body
    return parse("".join(f"[{name}]{body}\n" for name, body in tables.items()))


class FakeMarker(MadeUpScheduler[Node]):
    """A scheduler that obeys nhc's own rules of marking."""

    def __init__(self, world: World) -> None:
        self.world, self.fleet = world, world.nodes

    def moment(self, what: str) -> None:
        self.world.boundary(what)
        if what == "nodes read" and self.world.down:
            raise AdapterError("the controller does not answer")

    def known(self, name: str) -> Optional[Node]:
        node = self.world.nodes.get(name)
        return None if node is None or node.gone else node

    def state(self, node: Node) -> NodeState:
        state = self.alone(node)
        mates = [self.alone(mate) for mate in self.world.mates(node.name)]
        return state._replace(machine=(state, *mates)) if mates else state

    def alone(self, node: Node) -> NodeState:
        hold = "it is rebooting" if self.world.ticks < node.rebooting_until else ""
        state = super().state(node)
        return state._replace(
            hold=hold, groups=("work",), silence=node.silence, uid=node.uid, rebooting=node.rebooting,
            booted=node.booted, boot_id=node.boot_id,
        )  # fmt: skip

    def noted(self, node: Node, mark: Optional[Mark]) -> None:
        if mark is None:
            self.world.cleared.append(node.name)
        elif node.available:
            self.world.marked.append(node.name)
            self.world.took.setdefault(node.name, self.world.now)


class FakeCluster(FakeMarker):
    """One that marks devices, too."""

    def device_states(self, nodes: Optional[Sequence[str]] = None) -> List[DeviceState]:
        known = [one for one in self.world.nodes.values() if not one.gone and (nodes is None or one.name in nodes)]
        return [device for node in known for device in node.devices.values()]

    def mark_device(self, node: str, device: DeviceId, mark: Mark) -> Applied:
        self.world.boundary("before a device is marked")
        found = self._changed_device(node, device, mark._replace(owner=REMEDY_OWNER))
        self.world.boundary("after a device is marked")
        return found

    def clear_device(self, node: str, device: DeviceId) -> Applied:
        self.world.boundary("before a device is cleared")
        found = self._changed_device(node, device, None)
        self.world.boundary("after a device is cleared")
        return found

    def _changed_device(self, node: str, device: DeviceId, mark: Optional[Mark]) -> Applied:
        devices = self.world.nodes[node].devices
        before = devices.get(device.pci)
        if before is None:
            return Applied(node, Effect.REFUSED if mark else Effect.UNCHANGED, "no such device")
        if before.mark is not None and not before.mark.ours:
            return Applied(node, Effect.REFUSED, "somebody else's")
        if (before.mark is None) == (mark is None):
            return Applied(node, Effect.UNCHANGED)
        devices[device.pci] = before._replace(mark=mark)
        self.world.device_marks.append((node, device.pci, mark is not None))
        return Applied(node, Effect.CHANGED)


class FakeRepairer:
    """Repairs that take effect after `world.duration`, and whose answers can be lost."""

    def __init__(self, world: World) -> None:
        self.world = world

    def can(self, machine: Machine, rung: Rung, device: str = "") -> str:
        return self.world.can(machine.node, rung, device)

    def look(self, machine: Machine) -> Sighting:
        self.world.boundary("machine looked at")
        if self.world.down:
            raise AdapterError("the provider does not answer")
        node = self.world.nodes[machine.node]
        return Sighting(self.world.now, f"i-{node.name}", self.world.boot_shown(node), "running")

    def claims(self, machine: Machine) -> Sequence[Claim]:
        doing = self.world.claimed.get(machine.node, "")
        return [Claim("platform", doing, "its API")] if doing else []

    def send(self, order: Order) -> Sent:
        self.world.boundary("before a repair is sent")
        mood = self.world.lose.pop(0) if self.world.lose else ""
        if mood == "refused":
            return Sent(Answer.REFUSED, "not allowed")
        if mood == "throttled":
            return Sent(Answer.REFUSED, "too many requests", retry_after=60.0)
        if mood == "denied":
            return Sent(Answer.REFUSED, "you may not", right="ec2:RebootInstances")
        if mood == "dropped":
            return Sent(Answer.AMBIGUOUS, "no answer within 30 s")
        node = self.world.nodes[order.machine.node]
        self.world.sent.append(Sending(self.world.now, node.name, order.rung, order.device, order.key))
        for mate in self.world.mates(node.name):
            if mate.available or mate.busy or mate.under_way or mate.mark is None or not mate.mark.ours:
                self.world.disturbed.append(f"{order.rung.value} of {node.name} under {mate.name}")
        node.under_way.append((self.world.ticks + self.world.duration, order.rung, order.device))
        self.world.boundary("after a repair is sent")
        if mood == "lost":
            return Sent(Answer.AMBIGUOUS, "the connection broke")
        return Sent(Answer.ACCEPTED, "accepted", f"op-{len(self.world.sent)}")

    def progress(self, order: Order, sent: Sent, before: Sighting) -> Progress:
        self.world.boundary("a repair watched")
        if self.world.down:
            raise AdapterError("the provider does not answer")
        node = self.world.nodes[order.machine.node]
        if node.name in self.world.cancelled:
            return Progress(Stage.CANCELLED, "it was taken back")
        if node.under_way:
            return Progress(Stage.WORKING, "under way")
        if self.world.shows_orders and order.key not in [one.key for one in self.world.sent]:
            return Progress(Stage.NOT_BEGUN, "no such order has arrived")
        if order.key in [key for _, _, key in self.world.commands]:
            why = self.world.fails.get(node.name, "")
            return Progress(Stage.FAILED if why else Stage.DONE, why or "ended with 0")
        done = self.world.boot_shown(node) != before.boot
        if order.rung in (Rung.RESTART_APP, Rung.RESET_DEVICE, Rung.RELOAD_DRIVER):
            done = any(one.key == order.key for one in self.world.sent)
        return Progress(Stage.DONE, f"boot{node.boot}") if done else Progress(Stage.WORKING, "nothing is seen yet")

    def can_run(self, machine: Machine) -> str:
        return ""

    def run_command(self, order: Order, argv: Sequence[str], seconds: float) -> Sent:
        self.world.boundary("before a command is sent")
        mood = self.world.lose.pop(0) if self.world.lose else ""
        if mood == "refused":
            return Sent(Answer.REFUSED, "not allowed")
        if mood == "throttled":
            return Sent(Answer.REFUSED, "no login", retry_after=30.0)
        if mood == "dropped":
            return Sent(Answer.AMBIGUOUS, "no answer within 30 s")
        self.world.commands.append((order.machine.node, tuple(argv), order.key))
        self.world.boundary("after a command is sent")
        if mood == "lost":
            return Sent(Answer.AMBIGUOUS, "the connection broke")
        return Sent(Answer.ACCEPTED, "taken", order.key)

    def rights(self) -> Sequence[Right]:
        return [Right("everything", True)]
