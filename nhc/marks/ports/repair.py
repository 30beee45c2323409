"""What the remedy loop asks of repairers: carry out one order, sent once, and show its effect.

A repairer (a cloud's API, a management controller, a scheduler's reboot, a program on the node) never decides and never
repeats: the loop in `nhc.remedy` does. Clients of clouds and of management controllers repeat a reset up to eleven
times by themselves when an answer is lost, so a repairer must switch that off and report an unknown result as
AMBIGUOUS; the loop then looks for the effect (boot id, instance id, start time) before anything is sent again.

Ours are listed in `nhc.marks.plugins.REPAIRERS`; those of other packages have the entry point group `nhc.repairers`.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Iterator, Mapping, NamedTuple, Optional, Protocol, Sequence, Tuple
from typing import runtime_checkable as port

from nhc.core.model import Action
from nhc.core.settings import declared
from nhc.marks.ports.adapter import AdapterError


class Rung(str, Enum):
    """The repairs, the mildest first. If a repair does not help, a later one follows, never an earlier one."""

    RESTART_APP = "restart-app"
    RESET_DEVICE = "reset-device"
    RELOAD_DRIVER = "reload-driver"
    REBOOT = "reboot"
    POWER_CYCLE = "power-cycle"
    REPLACE = "replace"
    ESCALATE = "escalate"


LADDER: Tuple[Rung, ...] = tuple(Rung)

RUNG_OF = {
    Action.RESTART_APP: Rung.RESTART_APP,
    Action.RESET_DEVICE: Rung.RESET_DEVICE,
    Action.RELOAD_DRIVER: Rung.RELOAD_DRIVER,
    Action.REBOOT: Rung.REBOOT,
    Action.REPLACE: Rung.REPLACE,
    Action.INSPECT: Rung.ESCALATE,
}
"""Where on the ladder a suggested action begins. An action of NONE asks for no repair."""


class Machine(NamedTuple):
    """Which machine has a node's name, according to its cluster and its last report. "" means not known.

    `provider_id` is Kubernetes' `spec.providerID` or Slurm's InstanceId; `address` is where SSH reaches a node whose
    name is no address; `shown_address` identifies it, as its report or Slurm's NodeAddr has it; `uuid` is DMI's
    product_uuid, in lower case; `boot_id` is the kernel's. `labels` are the cluster's labels on the node (for Slurm:
    its features and partitions). `settings` are what the site's settings say of this node for this repairer (`bmc`,
    `instance_group`, `cluster`…), text by name.
    """

    node: str
    provider_id: str = ""
    address: str = ""
    uuid: str = ""
    boot_id: str = ""
    labels: Mapping[str, str] = {}
    settings: Mapping[str, str] = {}
    shown_address: str = ""


class Sighting(NamedTuple):
    """What a repairer sees of a machine at one moment. "": this provider does not show it.

    `at` is Unix time. `instance` names the very machine (an instance id, a system's UUID); `boot` changes with each
    boot (a boot id, the provider's last start time); `power` is the provider's word (running, stopped, terminated…).
    `actor` and `doing` say who else acts on the machine now and how: the platform's own repair, a maintenance event.
    """

    at: float
    instance: str = ""
    boot: str = ""
    power: str = ""
    actor: str = ""
    doing: str = ""

    @property
    def kernel_boot(self) -> str:
        """`boot` if it is the kernel's boot id, which reports have as well; "" if it is the provider's own text: a
        start time differs from every boot id, so comparing the two proves nothing.
        """
        return self.boot if _BOOT_ID.fullmatch(self.boot) else ""


_BOOT_ID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
"""/proc/sys/kernel/random/boot_id."""


class Order(NamedTuple):
    """One destructive call, written down before it is sent.

    `key` is a UUID that never changes for one attempt: the provider's idempotency key if it accepts one. `device` names
    what a reset is for (`gpu3`), "" for the whole machine. `because` is one line for the provider's own records, the
    node's log and the audit.
    """

    key: str
    episode: str
    attempt: int
    machine: Machine
    rung: Rung
    because: str
    device: str = ""


class Answer(str, Enum):
    """The result of the call itself; its effect on the machine is a separate question.

    REFUSED is proof that nothing was begun (not allowed, throttled, wrong state, connection refused). AMBIGUOUS is
    every other answer that is not an acceptance: a time-out, a lost connection, an error after the request had left.
    """

    ACCEPTED = "accepted"
    REFUSED = "refused"
    AMBIGUOUS = "ambiguous"


class Sent(NamedTuple):
    """The answer to an order. `request_id` is the provider's name for the operation, to be watched.

    `retry_after` (seconds) is for a REFUSED that may be asked again later (throttled, in use), 0 if it may not: then
    this machine cannot have this repair. `by_machine`: the machine itself prevents the repair, by a process that holds
    the device or by an sshd that does not answer; only then does a harder repair follow after some such refusals.
    `right` is the missing permission, if that is why it was REFUSED: a person must grant it.
    """

    answer: Answer
    message: str
    request_id: str = ""
    retry_after: float = 0.0
    by_machine: bool = False
    right: str = ""


class AskLater(AdapterError):
    """Whether a repair is possible cannot be asked now: throttled, no answer, no credentials, a machine that is just
    being made. It says nothing about the machine. `retry_after` is in seconds.
    """

    def __init__(self, message: str, retry_after: float = 30.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RightMissing(AdapterError):
    """Whether a repair is possible cannot be asked, because the permission `right` is not granted to us."""

    def __init__(self, message: str, right: str) -> None:
        super().__init__(message)
        self.right = right


class Stage(str, Enum):
    """The progress of an order's effect.

    HALFWAY is for a repair of several calls (a start after a stop): the effect of one is proved, `Completes.complete`
    sends the next. A repairer that cannot see the effect also returns WORKING: the new boot id is then the proof.
    NOT_BEGUN is for an order whose answer is not known, once the other side proves that it never began it and will not:
    the same repair is then tried again. CANCELLED is for an order that was accepted and that a person then cancelled:
    the episode is left to that person, and the node stays out of service, even if the cancellation put it back.
    """

    NOT_BEGUN = "not-begun"
    WORKING = "working"
    HALFWAY = "halfway"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Progress(NamedTuple):
    """The effect of an order, as seen now. DONE needs positive proof: another boot, another instance, a finished job.

    `replacement` is the new node's or instance's name after a replacement, "" while it is not known.
    """

    stage: Stage
    message: str
    replacement: str = ""


class Right(NamedTuple):
    """One permission that a repairer needs. `granted` is None where it cannot be tried without doing it."""

    name: str
    granted: Optional[bool]
    message: str = ""


class Repairer(Protocol):
    """Something that can repair the machines of one provider. It may block, for at most its timeout a call."""

    def can(self, machine: Machine, rung: Rung, device: str = "") -> str:
        """Why this rung is not possible on this machine, "" if it is. Sends only requests that are cheap and change
        nothing.

        A reason is a fact about the machine: the next harder repair follows from it. If the fact cannot be read, it
        raises RightMissing, AskLater, or another AdapterError, which counts as AskLater.
        """

    def look(self, machine: Machine) -> Sighting:
        """What is seen of the machine now. Raises AdapterError if nothing can be seen."""

    def send(self, order: Order) -> Sent:
        """Send one call, once. The identity of the machine is compared first: a different machine is REFUSED.

        Never raises for what the other side does.
        """

    def progress(self, order: Order, sent: Sent, before: Sighting) -> Progress:
        """The progress of an order; `before` was seen before it was sent. It only reads and changes nothing.

        Raises AdapterError if nothing can be seen now: that is no failure of the repair.
        """

    def rights(self) -> Sequence[Right]:
        """The permissions it needs, each tried without effect if the provider allows that."""


@port
class Completes(Protocol):
    """A repairer some of whose repairs take more than one call: stop and start, power off and power on."""

    def complete(self, order: Order, sent: Sent) -> Sent:
        """Send the next call, after `progress` has said HALFWAY. What it sends brings the machine back.

        The loop writes it down first, as it does an order. If its answer is AMBIGUOUS or REFUSED, it is called again
        while `progress` says HALFWAY: the call changes nothing on a machine on which it already took effect. Never
        raises for what the other side does. The answer replaces `sent` in what follows.
        """


@port
class RunsCommands(Protocol):
    """A repairer that can run a program of the site's own on the node, as root, once: for maintenance."""

    def run_command(self, order: Order, argv: Sequence[str], seconds: float) -> Sent:
        """Start `argv` on the node, as `Repairer.send` sends an order; it may take `seconds`.

        The order's key names it, so that a second call with the same key starts nothing. `Repairer.progress` gives its
        result: DONE if it ended with 0. The order's rung is not carried out. Never raises for what the node does.
        """

    def can_run(self, machine: Machine) -> str:
        """Why no command can be run on this machine, "" if one can. Sends no request."""


class Claim(NamedTuple):
    """Somebody else's repair or hold on a node: who, what, and where it was read."""

    actor: str
    doing: str
    source: str


@port
class OtherActors(Protocol):
    """Something that knows who else repairs nodes in its system."""

    def claims(self, machine: Machine) -> Sequence[Claim]:
        """Everybody else who acts on, or has announced to act on, this machine. Raises AdapterError."""


class Request(NamedTuple):
    """A repair that a person asked for in a platform's own way: a label, a reason.

    `key` stays the same for one request: it is carried out once. `words` are as they were written. `device` is what a
    reset is asked for, "" for the machine.
    """

    rung: Rung
    key: str
    words: str
    device: str = ""


@port
class Requests(Protocol):
    """Something that reads from a node that a person asks for its repair."""

    def requested(self, machine: Machine) -> Optional[Request]:
        """What is asked for, None for nothing. Reads the machine's labels and settings; sends no request."""


@port
class NodeRequests(Protocol):
    """A cluster on whose nodes a person can ask for a repair, and that shows the answer."""

    def requests(self) -> Tuple[Mapping[str, Request], Sequence[str]]:
        """What is asked of the nodes that `nodes` has read last; and which requests there are invalid, one line each.
        Sends no request.
        """

    def answer(self, node: str, request: Request, text: str, returned: bool) -> str:
        """Remove a request from its node, with the answer; "" or why it could not. Does nothing if a new request is
        there by now.

        `returned` says whether the node is back in service.
        """


@port
class HasRights(Protocol):
    """An adapter that can say which permissions it needs."""

    def rights(self) -> Sequence[Right]:
        """Each permission, tried without effect. Raises AdapterError."""


@port
class KnowsMachines(Protocol):
    """A cluster that knows which machine has a node's name."""

    def machines(self) -> Mapping[str, Machine]:
        """The machines of the nodes that `nodes` has read last, by node. Sends no request."""


class Exhibit(NamedTuple):
    """One piece of evidence. `content` is already cut to the budget; `cut` says that there was more.

    `name` is a file name (`console.txt`, `nvidia-bug-report.log.gz`), `kind` a media type.
    """

    name: str
    kind: str
    content: bytes
    cut: bool = False


@declared.settings
class EvidenceBudget(NamedTuple):
    """The most bytes in all and the most seconds that a collection may take."""

    size: int = declared.size("size", 32 << 20, least=1)
    seconds: float = declared.seconds("time", 300.0, least=1.0)


@port
class EvidenceSource(Protocol):
    """Something that can show what a machine looked like before it was repaired."""

    def evidence(self, machine: Machine, budget: EvidenceBudget) -> Iterator[Exhibit]:
        """Pieces of evidence, the most useful first. Raises AdapterError if there are none."""


class MakeRepairer(Protocol):
    """How nhc constructs a repairer: it calls what is registered under its name. This sends no request yet."""

    def __call__(
        self,
        settings: Optional[Mapping[str, str]] = None,
        environ: Optional[Mapping[str, str]] = None,
        timeout: float = 30.0,
    ) -> Repairer:
        """`settings` are its table in the remedy settings (`[repairers.aws]`), `environ` replaces the environment.

        `timeout` is in seconds, for one call. Raises SettingError if one of the settings is invalid.
        """
