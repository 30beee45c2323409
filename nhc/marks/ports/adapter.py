"""What nhc asks of a scheduler, a cloud or a cluster: small Protocols, and the values they exchange.

An adapter implements the Protocols that its system can answer. It never decides: `nhc.marks.policy.mark_decision` does,
and `nhc.marks.ports.marks` says what an adapter must leave alone. `nhc.lab.testing.adapters` holds the contract as
tests.
"""

from __future__ import annotations

from enum import Enum
from typing import FrozenSet, Iterable, List, Mapping, NamedTuple, Optional, Protocol, Sequence, Tuple
from typing import runtime_checkable as port

from nhc.core.exit_status import EXIT_USAGE, ExpectedError
from nhc.core.model import Action, DeviceId, Report

OWNER = "nhc"
"""The owner of marks that a health check, a hook or a sync sets, and clears by the next healthy report."""

REMEDY_OWNER = "nhc-remedy"
"""The owner of marks that stay until a repair is proved or maintenance has ended: the remedy loop's and the trains'.

A healthy report clears none of them: the node is healthy a second after the boot, and not proved.
"""

OURS = frozenset({OWNER, REMEDY_OWNER})
"""Any other mark has the name of its setter, or "" if it is not known."""

OWNER_SETTING = "NHC_MARK_OWNER"
"""The setting that says for which of OURS an adapter acts; OWNER unless it is set."""


SCHEDULER = "scheduler"
"""The owner of a mark that a scheduler sets by itself on a node that does not respond. No one decided it."""

WORK_SETTING = "NHC_WORK"
"""`flags`: read from a node's state alone whether it is busy; this misses suspended jobs. For hooks: they do not need
the answer, and each would make the scheduler list all its jobs."""


class Mark(NamedTuple):
    """Why a node is, or should be, out of service.

    `why` is one line without tag and class. `since` is Unix time, None if it is not known. `action` is what would
    repair the node, `NONE` if nothing was recommended. `cause` is what the mark is about without its figures, as
    `cause_of` names it, "" for a mark that was read back: no scheduler stores it. `kind` is the class of a mark that
    was read back (`marks.NODE`, `marks.USER`), "" if its text has none; otherwise the cause gives it. Marks that say
    the same are equal.
    """

    why: str
    action: Action = Action.NONE
    since: Optional[float] = None
    owner: str = OWNER
    cause: str = ""
    kind: str = ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mark) and self[:4] == other[:4]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:4])

    @property
    def ours(self) -> bool:
        """Whether any part of nhc has set it. Which part may change it: `nhc.marks.ports.marks.may_change`."""
        return self.owner in OURS


class Silence(NamedTuple):
    """A scheduler or a cluster cannot use a node because the node's own daemon (slurmd, the kubelet) fails.

    `since` is Unix time, `why` one line in the other side's words. `heard`: the daemon still answers and reports by
    itself that the node is not ready; false: it does not answer.
    """

    since: float
    why: str
    heard: bool = False


class NodeState(NamedTuple):
    """What a scheduler says of one node.

    `shown` is its state in the scheduler's own words, `flags` the same as a set of upper-case words. `available` says
    that it takes new work, `busy` that work runs on it; if all nodes were asked for, an adapter may call every
    available node busy. `mark` is the reason set on it, by anyone. `hold` says why nhc must not change its state now
    (it reboots, it is powered down, it is reserved for maintenance), "" if it may. `groups` are the partitions, queues
    or pools it is in. `silence` says that the node or its daemon died; None if the node answers, or if its absence is
    intended (powered down, being rebooted). `uid` names this registration of the node: if a node was deleted, the next
    one that registers under its name has a different uid; "" if the other side has none. `placed` says where the node
    is, as far as the other side knows: the kind and the name of each blast radius (zone, pool, rack, leaf,
    nvlink_domain). `absent` says that there is no machine now (powered down, not part of the cluster yet): a share of
    the fleet is a share of the nodes that are there. `returns` says that the node is out only until it answers again,
    with or without a mark: its scheduler then puts it back by itself. `undone` names the one part of our mark that was
    removed (its cordon, its taint), which need not be a person's decision; "" if the mark is whole or no part is left.
    `rebooting` says that its scheduler has it rebooted, or powered up, and waits for it to register. `booted` is when
    the boot began that it has registered in (Unix time, right to a few seconds), 0.0 if that is not known, and
    `boot_id` the kernel's name of that boot, "" if the other side stores none. `machine` lists all nodes of a machine
    that it shares with others (several slurmd on one host), read with it, itself included; empty if it has its machine
    alone.
    """

    name: str
    shown: str
    available: bool
    busy: bool = False
    mark: Optional[Mark] = None
    hold: str = ""
    groups: Tuple[str, ...] = ()
    flags: FrozenSet[str] = frozenset()
    silence: Optional[Silence] = None
    uid: str = ""
    placed: Tuple[Tuple[str, str], ...] = ()
    absent: bool = False
    returns: bool = False
    undone: str = ""
    rebooting: bool = False
    booted: float = 0.0
    boot_id: str = ""
    machine: Tuple[NodeState, ...] = ()

    @property
    def out_by_us(self) -> bool:
        """Whether it is out of service and carries a mark of nhc's."""
        return not self.available and self.mark is not None and self.mark.ours

    @property
    def mates(self) -> Tuple[NodeState, ...]:
        """The other nodes of its machine that are there."""
        return tuple(state for state in self.machine if state.name != self.name and not state.absent)


class Operation(str, Enum):
    """What nhc can ask of a scheduler or a cluster for one node. A report's `Action` only recommends a repair."""

    MARK = "mark"
    CLEAR = "clear"
    REBOOT = "reboot"
    REPLACE = "replace"


class PlannedOperation(NamedTuple):
    """One operation on one node, not yet done. `mark` is the mark to set, for a MARK; `because` is for the audit."""

    node: str
    operation: Operation
    because: str
    mark: Optional[Mark] = None


class Effect(str, Enum):
    """The result of an operation on one node. FAILED may be tried again; REFUSED must not be forced."""

    CHANGED = "changed"
    UNCHANGED = "unchanged"
    REFUSED = "refused"
    FAILED = "failed"


class Applied(NamedTuple):
    """What an adapter did to one node; `message` is one line for a person."""

    node: str
    effect: Effect
    message: str = ""


class AdapterError(ExpectedError):
    """No request to the other side is possible: not installed, not reachable, not allowed. One line for a person."""


class SettingError(AdapterError):
    """One of an adapter's settings is invalid. `key` names it; the code that read it from a file adds the file and
    line.
    """

    status = EXIT_USAGE

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key, self.problem = key, problem


class NodeSource(Protocol):
    """Something that knows nodes."""

    def nodes(self, names: Optional[Sequence[str]] = None) -> List[NodeState]:
        """The state of these nodes (None: of all), sorted by name. Unknown names are left out.

        Raises AdapterError.
        """


class ConditionReport(NamedTuple):
    """The status that another program gives a node, as a report.

    The report's `started` is when the status was set, and its `boot_id` the boot in which it was set, "" if unknown: a
    status set before a reboot says nothing about the time after it. `since` is when each failure began (Unix time), by
    its cause (`marks.cause_of`). `standing` are the causes that count until they are cleared, however old they are.
    """

    report: Report
    since: Mapping[str, float] = {}
    standing: FrozenSet[str] = frozenset()


@port
class ConditionReports(Protocol):
    """Something that knows how its nodes are without a report of ours: a cluster's node conditions."""

    def condition_reports(self) -> List[ConditionReport]:
        """One a node that has such conditions, one result a condition. A condition that is Unknown is UNKNOWN.

        Raises AdapterError.
        """


@port
class Evicts(Protocol):
    """Something that can ask running work to leave a node, within what protects that work (disruption budgets)."""

    def evict(self, names: Sequence[str]) -> Mapping[str, str]:
        """Do one step for each node, which must be out of service. Returns what still runs there and why, "" for
        nothing more.

        It is called again until nothing runs. The text stays the same while nothing has changed: each new text is a row
        of the audit log. Raises AdapterError.
        """


class NodeStep(NamedTuple):
    """One step of a repair, for a person who looks at the node: the state of its episode and why, or what it waits for.

    `state` is the episode's (`nhc.remedy.machine.EpisodeState`), `ends` says that the episode ends with this step.
    `alarm`: a person must look. `at` is Unix time.
    """

    node: str
    episode: int
    state: str
    why: str
    at: float
    waits: bool = False
    ends: bool = False
    alarm: bool = False


@port
class ShowsSteps(Protocol):
    """A cluster in which operators look at a node itself to see the progress of its repair."""

    def show_steps(self, steps: Sequence[NodeStep]) -> List[str]:
        """Show these steps on their nodes, in their order; one line for each that could not be shown. Never raises."""


@port
class MovesWork(Protocol):
    """A cluster that keeps work bound to a silent node (volumes, a StatefulSet's pods) while that work may still
    run.
    """

    def move_work(self, names: Sequence[str]) -> List[Applied]:
        """Let the work of these silent nodes start elsewhere. Their machines are proved to be off or restarted: the
        work cannot run there any more. It is undone when the node answers again. Raises AdapterError.
        """


@port
class Tidies(Protocol):
    """A cluster on which a part of our mark stays if a person puts a node back by hand."""

    def tidy(self) -> List[Applied]:
        """Remove what is left of our marks on nodes that are back in service, among those that `nodes` has read last.

        A node without such a rest is not in the results. Raises AdapterError.
        """


class MakeAdapter(Protocol):
    """How nhc constructs an adapter: it calls what is registered under its name. This sends no request yet."""

    def __call__(
        self,
        settings: Optional[Mapping[str, str]] = None,
        environ: Optional[Mapping[str, str]] = None,
        timeout: float = 30.0,
    ) -> NodeSource:
        """`settings` are nhc's variables (NHC_*), `environ` replaces the process's own environment.

        `timeout` is in seconds, for one request or operation. Raises AdapterError if the settings are invalid.
        """


@port
class Marker(NodeSource, Protocol):
    """Something that can take nodes out of service and return them to it.

    Both operations read the nodes first unless `seen` holds states read a moment ago, obey `may_mark` and
    `may_clear`, and return one Applied for every name asked for. They raise AdapterError only when nothing
    was done.

    Its attribute `owner` is what OWNER_SETTING was when it was constructed: it marks and clears in that name. The
    remedy loop accepts no adapter without it: a healthy report would put back a node whose repair is not proved.
    """

    def mark(self, marks: Mapping[str, Mark], seen: Optional[Iterable[NodeState]] = None) -> List[Applied]:
        """Take nodes out of service. Marking again changes nothing, or only the reason if that is new."""

    def clear(self, names: Sequence[str], seen: Optional[Iterable[NodeState]] = None) -> List[Applied]:
        """Return nodes to service that carry our mark; every other node stays as it is."""


class DeviceState(NamedTuple):
    """What a cluster reports about one accelerator of a node. `busy`: work holds it. `mark` is what takes it out, set
    by anyone; None if it gets new work. `disputed`: reasons that are no fault of it according to its driver, each with
    the driver's message. A fault with these reasons alone is left to a person.
    """

    node: str
    device: DeviceId
    busy: bool = False
    mark: Optional[Mark] = None
    disputed: Tuple[Tuple[str, str], ...] = ()


@port
class MarksDevices(Protocol):
    """A marker that can take one accelerator out of service and leave the node's others at work.

    It marks as the same owner, and by the same rules, as it marks nodes.
    """

    def device_states(self, nodes: Optional[Sequence[str]] = None) -> Sequence[DeviceState]:
        """Each accelerator that can be marked, and each that carries a mark, of the nodes that `nodes` has read last.

        With `nodes`: only of these, and read again, because an action on them follows. Without: it may come from the
        cache of a watch. Raises AdapterError.
        """

    def mark_device(self, node: str, device: DeviceId, mark: Mark) -> Applied:
        """Take it out of service. Marking again changes nothing, or only the reason. REFUSED if someone else set the
        mark, or if this accelerator cannot be marked. Raises AdapterError.
        """

    def clear_device(self, node: str, device: DeviceId) -> Applied:
        """Remove our mark; UNCHANGED if there is none, REFUSED if someone else set it. Raises AdapterError."""


@port
class Power(Protocol):
    """Something that can repair whole nodes."""

    def repairs(self) -> FrozenSet[Operation]:
        """Which of REBOOT and REPLACE it can do."""

    def repair(self, operation: Operation, names: Sequence[str], because: str) -> List[Applied]:
        """Reboot or replace nodes, once the work on them has ended. Raises AdapterError."""


@port
class Comments(Protocol):
    """Something that keeps a remark on a node which changes nothing about its state."""

    def comment(self, name: str, text: str) -> bool:
        """Set the remark, "" to remove ours. False if someone else's remark is there and stays. Raises AdapterError."""

    def comments(self) -> Mapping[str, str]:
        """The remarks of all nodes that have one, set by anyone. Raises AdapterError."""


@port
class JobMessages(Protocol):
    """Something that can tell the owner of a job why it did not start."""

    def tell_job(self, job: str, text: str) -> None:
        """Raises AdapterError."""


@port
class OtherJobs(Protocol):
    """Something that knows which jobs run on a node."""

    def other_jobs(self, node: str, user: str, job: str) -> List[str]:
        """The user's jobs that are on the node's machine now, without `job`; all users' jobs if `user` is "".

        Nothing that belongs to them may be cleaned up or disturbed. Raises AdapterError.
        """


def read_mark(source: NodeSource, name: str) -> Optional[Mark]:
    """The mark on one node, None if it has none or is not known."""
    return next((state.mark for state in source.nodes([name]) if state.name == name), None)
