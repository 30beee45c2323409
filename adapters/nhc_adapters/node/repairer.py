"""Repairs by a program that runs on the node itself, which also reports the result of each.

    [repairers.node]
    reach = "ssh"                            # or "local": this machine alone
    user = "nhc"                             # sudo is used for every user but root
    services = "trainer.service"             # what restart-app starts again
    stoppable = "our-gpu-monitor.service"    # stopped while a device is repaired, beside those we know
    kubeconfig = "/etc/kubernetes/kubelet.conf"  # changes the node's labels of the GPU Operator; "" leaves them

The order's key names the repair on the node's disk. It is written there before anything is done: a second call with the
same key does nothing, and after a lost answer `show` reports its result.
"""

from __future__ import annotations

import base64
import json
import time
from typing import Iterator, Mapping, NamedTuple, Sequence, Tuple

from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.part_settings import Given, read
from nhc.marks.ports.repair import (
    Answer,
    EvidenceBudget,
    Exhibit,
    Machine,
    Order,
    Progress,
    Right,
    Rung,
    Sent,
    Sighting,
    Stage,
)
from nhc.marks.ports.runner import LATER, NodeRun, NotStarted, RunLimits
from nhc_adapters import repair
from nhc_adapters._command import Runner
from nhc_adapters.node.hand import evidence
from nhc_adapters.node.hand.plan import FABRIC_MANAGER, PERSISTENCED
from nhc_adapters.node.reach import LoginSettings, Reach, login_of, run_program
from nhc_adapters.node.runner import asked_run
from nhc_adapters.repair import EvidenceCollector, untouched


@declared.settings
class HeldSettings(NamedTuple):
    """What holds a node's GPUs, of each repairer that works on the node itself."""

    services: Tuple[str, ...] = declared.converted(
        "services", repair.services, (), "what restart-app restarts: NAME.service, with blanks between them",
        show=" ".join,
    )  # fmt: skip
    stoppable: Tuple[str, ...] = declared.converted(
        "stoppable", repair.services, (), "further services that may be stopped while a GPU is repaired",
        show=" ".join,
    )  # fmt: skip
    wait: float = declared.seconds("wait", 300.0, "how long what holds a GPU may take to end", least=1.0)


@declared.settings
class NodeSettings(NamedTuple):
    """The table of a repairer of this kind."""

    reach: str = declared.word("reach", ("ssh", "local"), "", "local: this very machine")
    login: LoginSettings = declared.part("", LoginSettings)
    python: str = declared.text("python", "python3", "the node's Python")
    held: HeldSettings = declared.part("", HeldSettings)
    kubeconfig: str = declared.text("kubeconfig", "", "the node's own: pods that hold a GPU are found by it")
    doctor: str = declared.text("doctor", "", "a node on which `nhc doctor remedy` tries the rights")
    root: str = declared.text("root", "", "another root of the node's files")
    path: str = declared.text("path", "", "where the node's programs are")


RUNGS = (Rung.RESTART_APP, Rung.RESET_DEVICE, Rung.RELOAD_DRIVER, Rung.REBOOT)

STOPPABLE = (
    PERSISTENCED, "nvidia-dcgm.service", "dcgm.service", "nvidia-dcgm-exporter.service", "dcgm-exporter.service",
    "nvidia-imex.service", FABRIC_MANAGER,
)  # fmt: skip
"""Services that hold GPUs and may be stopped while one is repaired."""

COMMAND_OUTPUT = 1 << 20
"""Bytes that are kept of the output of a command of the site's own."""
PIECE = 8 << 20
"""Bytes of one piece of evidence: what the program prints is kept up to 16 MiB, and base64 makes it a third longer."""


class NodeHand:
    """Sends the program and reads its answer."""

    SETTINGS = NodeSettings

    def __init__(
        self, settings: Given = None, environ: Given = None, timeout: float = 30.0, run: Runner = run_program
    ) -> None:
        own = read(NodeSettings, settings)
        self.local = own.reach == "local"
        self.services, self.stoppable = list(own.held.services), list(own.held.stoppable)
        self.kubeconfig, self.doctor = own.kubeconfig, own.doctor
        self.wait = own.held.wait
        places = (("--root", own.root), ("--path", own.path))
        arguments = [part for option, value in places if value for part in (option, value)]
        self.reach = Reach(login_of(own.login, environ), self.local, own.python, arguments, run)
        self.timeout = timeout

    def can(self, machine: Machine, rung: Rung, device: str = "") -> str:
        """Why this rung is not possible, "" if it is. Sends no request: the node itself decides in `send`."""
        if rung not in RUNGS:
            return f"the node itself has no {rung.value}"
        if not (machine.uuid or machine.boot_id):
            return f"neither the UUID nor the boot id of {machine.node} is known, so it cannot be compared"
        return unnamed(rung, device, self.services)

    def look(self, machine: Machine) -> Sighting:
        """The node's UUID and boot id. Raises AdapterError."""
        seen = self.reach.ask(machine, ["look"], self.timeout)
        busy = "another repair by nhc" if seen.values.get("busy") else ""
        return Sighting(time.time(), seen.text("uuid") or seen.text("boot"), seen.text("boot"), "running", "", busy)

    # Sending.

    def send(self, order: Order) -> Sent:
        """Start the repair on the node, once. Never raises."""
        why = self.can(order.machine, order.rung, order.device)
        if why:
            return Sent(Answer.REFUSED, f"not sent: {why}")
        try:
            seen = self.look(order.machine)
        except NotStarted as error:
            return error.sent("not sent: ")
        except AdapterError as error:
            return Sent(Answer.REFUSED, f"not sent: {error}", retry_after=LATER, by_machine=True)
        other = _another(order.machine, seen)
        if other:
            return Sent(Answer.REFUSED, f"not sent: {other}")
        return self._tell("start", order, self._asked(order))

    def complete(self, order: Order, sent: Sent) -> Sent:
        """Put back what a repair that was killed had stopped. Never raises."""
        return self._tell("restore", order, self._asked(order))

    def can_run(self, machine: Machine) -> str:
        """Why no command can be run on this machine, "" if one can."""
        if machine.uuid or machine.boot_id:
            return ""
        return f"neither the UUID nor the boot id of {machine.node} is known, so it cannot be compared"

    def run_command(self, order: Order, argv: Sequence[str], seconds: float) -> Sent:
        """Start a program on the node, once. Never raises."""
        why = self.can_run(order.machine)
        if not argv[0].startswith("/"):
            why = why or "no command is named by its whole path"
        if why:
            return Sent(Answer.REFUSED, f"not sent: {why}")
        machine, limits = order.machine, RunLimits(seconds, COMMAND_OUTPUT)
        run = NodeRun(order.key, (machine,), tuple(argv), limits, why=order.because)
        return self._tell("run", order, asked_run(run, alone=True))

    def _tell(self, command: str, order: Order, asked: Mapping[str, object]) -> Sent:
        try:
            answer = self.reach.ask(order.machine, [command, json.dumps(asked)], self.timeout + 2 * LATER)
        except NotStarted as error:
            return error.sent()
        except AdapterError as error:
            return Sent(Answer.AMBIGUOUS, str(error))
        message = answer.text("message")
        if answer.text("answer") == "refused":
            again = answer.number("retry_after")
            return Sent(Answer.REFUSED, message, retry_after=again, by_machine=again > 0)
        if answer.text("answer") != "accepted":
            return Sent(Answer.AMBIGUOUS, f"no answer that can be read: {message}")
        return Sent(Answer.ACCEPTED, message, order.key)

    def _asked(self, order: Order) -> Mapping[str, object]:
        return asked_of(order, self.services, self.stoppable, self.kubeconfig, self.wait)

    # Watching.

    def progress(self, order: Order, sent: Sent, before: Sighting) -> Progress:
        """What the node has written down of this order. Raises AdapterError."""
        seen = self.reach.ask(order.machine, ["show", order.key], self.timeout)
        message = seen.text("message")
        if seen.text("stage") == "unknown":
            return untouched(sent, before, message)
        stages = {"done": Stage.DONE, "failed": Stage.FAILED, "killed": Stage.HALFWAY}
        return Progress(stages.get(seen.text("stage"), Stage.WORKING), message)

    # Rights, evidence.

    def rights(self) -> Sequence[Right]:
        """Whether the program runs as root on the machine that `doctor` names. Raises AdapterError."""
        if not (self.doctor or self.local):
            return [Right("root on the node", None, "no node to try it on: set doctor to the name of one")]
        try:
            seen = self.look(Machine(self.doctor or "localhost"))
        except NotStarted as error:
            return [Right("root on the node", None if error.later else False, str(error))]
        return [Right("root on the node", True, f"boot {seen.boot}")]

    def evidence(self, machine: Machine, budget: EvidenceBudget) -> Iterator[Exhibit]:
        """The kernel's log and what the drivers say. Raises AdapterError where the node gave nothing."""
        pieces = EvidenceCollector(budget)
        until, size = time.monotonic() + budget.seconds, budget.size
        for name, kind in evidence.NAMES.items():
            left = until - time.monotonic()
            if pieces.spent() or left < 1:
                break
            seconds = left / 2
            try:
                arguments = ["evidence", name, str(min(size, PIECE)), f"{seconds:.1f}"]
                reply = self.reach.ask(machine, arguments, min(left, seconds + self.timeout))
                content = base64.b64decode(reply.text_of("content"))
            except NotStarted:
                raise
            except (AdapterError, ValueError) as error:
                pieces.missing(name, str(error))
                continue
            size -= len(content)
            for piece in pieces.take(name, kind, content):
                yield piece._replace(cut=piece.cut or reply.values.get("cut") is True)
        if not pieces.taken and pieces.complaint():
            raise AdapterError(printable(pieces.complaint(), 900))


def unnamed(rung: Rung, device: str, services: Sequence[str]) -> str:
    """What a repair by the program on the node lacks, "" for nothing."""
    if rung is Rung.RESET_DEVICE and not device:
        return "no device is named"
    if rung is Rung.RESTART_APP and not services:
        return "no services are set up to be started again (services)"
    return ""


def asked_of(
    order: Order, services: Sequence[str], stoppable: Sequence[str], kubeconfig: str, wait: float
) -> Mapping[str, object]:
    """An order as the program on the node reads it (`nhc_adapters.node.hand.values.AskedRepair`)."""
    machine = order.machine
    return {
        "key": order.key, "rung": order.rung.value, "device": order.device, "because": printable(order.because, 300),
        "uuid": machine.uuid, "boot": machine.boot_id, "node": machine.node, "services": list(services),
        "stoppable": [*STOPPABLE, *stoppable], "kubeconfig": kubeconfig, "wait": wait,
    }  # fmt: skip


def _another(machine: Machine, seen: Sighting) -> str:
    """Why the node is not the machine that was judged, "" if it is. The node itself compares again."""
    if machine.uuid:
        same = seen.instance == machine.uuid.lower()
        return "" if same else f"the node is {printable(seen.instance, 60)} now, not {printable(machine.uuid, 60)}"
    same = seen.boot == machine.boot_id
    return "" if same else f"the node has booted since it was judged: {seen.boot}, not {printable(machine.boot_id, 60)}"
