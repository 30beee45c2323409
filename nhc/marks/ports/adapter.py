"""What nhc asks of a scheduler, a cloud or a cluster: small Protocols, and the values they exchange.

An adapter implements the Protocols that its world has an answer to. It never decides: `nhc.marks.policy.mark_decision`
does, and `nhc.marks.ports.marks` says what an adapter must leave alone. `nhc.lab.testing.adapters` holds the contract
as tests.
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
"""The owner of marks that stand until a repair is proved or maintenance is over: the remedy loop's and the trains'.

A healthy report clears none of them: the node is healthy a second after the boot, and not proved.
"""

OURS = frozenset({OWNER, REMEDY_OWNER})
"""Anybody else's mark has the name of its setter, or "" where it is not known."""

OWNER_SETTING = "NHC_MARK_OWNER"
"""The setting that says for which of OURS an adapter acts; OWNER unless it is set."""


SCHEDULER = "scheduler"
"""The owner of a mark that a scheduler sets by itself on a node that it does not hear. Nobody has decided anything."""

WORK_SETTING = "NHC_WORK"
"""`flags`: whether a node is busy may be read off its state alone, which misses suspended jobs. For hooks, which do not
ask, and each of which would have the scheduler list all its jobs."""


class Mark(NamedTuple):
    """Why a node is, or should be, out of service.

    `why` is one line without tag and class. `since` is Unix time, None where nobody knows. `action` is what would
    repair the node, `NONE` where nothing was recommended. `cause` is what the mark is about without its figures, as
    `cause_of` names it, "" for one that was read back: no scheduler keeps it. `kind` is the class of one that was read
    back (`marks.NODE`, `marks.USER`), "" where its text has none; else the cause says it. Marks that say the same are
    equal.
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
        """Whether nhc has set it, whichever part. Which part may change it: `nhc.marks.ports.marks.may_change`."""
        return self.owner in OURS


class Silence(NamedTuple):
    """That a scheduler or a cluster cannot use a node because the node's own daemon (slurmd, the kubelet) fails it.

    `since` is Unix time, `why` one line in the other side's words. `heard` says that the daemon still speaks and
    calls the node not ready by itself; false: nothing is heard of it.
    """

    since: float
    why: str
    heard: bool = False


class NodeState(NamedTuple):
    """What a scheduler says of one node.

    `shown` is its state in the scheduler's own words, `flags` the same as a set of upper-case words.
    `available` says that it takes new work, `busy` that work runs on it; where all nodes were asked for, an adapter
    may call each node busy that is available. `mark` is the reason set on it, by whomever. `hold` says why nhc must
    not change its state now (it reboots, it is powered down, it is reserved for maintenance), "" where it may.
    `groups` are the partitions, queues or pools it is in. `silence` says that the node died or its daemon did; None
    where it is heard, and where its absence is somebody's intention (powered down, being rebooted). `uid` names this
    registration of the node: after a node was deleted, one that registers under its name has another; "" where the
    other side has none. `placed` says where the node is, as far as the other side knows: the kind and the name of each
    blast radius (zone, pool, rack, leaf, nvlink_domain). `absent` says that there is no machine now (powered down, not
    part of the cluster yet): a share of the fleet is a share of the nodes that are there. `returns` says that it is
    out only until it is heard again, whatever mark it carries: its scheduler puts it back then by itself. `undone`
    names the one part of our mark that somebody has undone (its cordon, its taint), which need not be a person's
    decision; "" where it is whole, or no part is left.
    `rebooting` says that its scheduler has it rebooted, or powered up, and waits for it to register. `booted` is when
    the boot began that it has registered in (Unix time, right to a few seconds), 0.0 where that is not known, and
    `boot_id` the kernel's name of that boot, "" where the other side keeps none. `machine` are all nodes of a machine
    that it shares with others (several slurmd on one host), read with it, itself among them; empty where it has its
    machine alone.
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
    """How one node came out of an operation. FAILED may be tried again; REFUSED must not be forced."""

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
    """The other side cannot be asked at all: not installed, not reachable, not allowed. One line for a person."""


class SettingError(AdapterError):
    """One of an adapter's settings makes no sense. `key` names it; who read it from a file says which file and line."""

    status = EXIT_USAGE

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key, self.problem = key, problem


class NodeSource(Protocol):
    """Something that knows nodes."""

    def nodes(self, names: Optional[Sequence[str]] = None) -> List[NodeState]:
        """The state of these nodes (None: of all), sorted by name. A name it does not know is left out.

        Raises AdapterError.
        """


class ConditionReport(NamedTuple):
    """The status that another program gives a node, as a report.

    The report's `started` is when that was said, and its `boot_id` the boot that it was said in, "" where nobody knows:
    what stands on a node since before its reboot says nothing of the time after. `since` is since when each failure
    stands (Unix time), by its cause (`marks.cause_of`). `standing` are the causes that count until they are taken
    back, however long ago they were said.
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
        """One step for each node, which must be out of service: what still runs there and why, "" for nothing more.

        Called again until nothing runs. The text is the same while nothing has changed: each other one is a row of the
        audit log. Raises AdapterError.
        """


class NodeStep(NamedTuple):
    """One step of a repair, for whoever looks at the node: what its episode has come to and why, or what it waits for.

    `state` is the episode's (`nhc.remedy.machine.EpisodeState`), `ends` says that the episode has ended with it.
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
    """A cluster in which persons look at a node itself to see what becomes of it."""

    def show_steps(self, steps: Sequence[NodeStep]) -> List[str]:
        """Show these steps on their nodes, in their order; one line for each that could not be shown. Never raises."""


@port
class MovesWork(Protocol):
    """A cluster that keeps work bound to a silent node (volumes, a StatefulSet's pods) as long as it may still run."""

    def move_work(self, names: Sequence[str]) -> List[Applied]:
        """Let the work of these silent nodes start elsewhere. Their machines are proved to be off or to have restarted:
        nothing of it can run there any more. It is undone when the node is heard again. Raises AdapterError.
        """


@port
class Tidies(Protocol):
    """A cluster on which something of our mark is left where a person puts a node back by hand."""

    def tidy(self) -> List[Applied]:
        """Take off what is left of our marks on nodes that are back in service; of those that `nodes` has read last.

        One that has nothing left of ours is not among the results. Raises AdapterError.
        """


class MakeAdapter(Protocol):
    """How nhc constructs an adapter: what stands under its name is called like this, and reaches nobody yet."""

    def __call__(
        self,
        settings: Optional[Mapping[str, str]] = None,
        environ: Optional[Mapping[str, str]] = None,
        timeout: float = 30.0,
    ) -> NodeSource:
        """`settings` are nhc's variables (NHC_*), `environ` replaces the process's own environment.

        `timeout` is in seconds, for one question or operation. Raises AdapterError where the settings make no sense.
        """


@port
class Marker(NodeSource, Protocol):
    """Something that can take nodes out of service and return them to it.

    Both operations read the nodes first unless `seen` holds states read a moment ago, obey `may_mark` and
    `may_clear`, and return one Applied for every name asked for. They raise AdapterError only when nothing
    was done.

    Its attribute `owner` is what OWNER_SETTING was when it was made: in that name it marks and clears. The remedy loop
    takes no adapter without it, since a healthy report would then put back a node whose repair is not proved.
    """

    def mark(self, marks: Mapping[str, Mark], seen: Optional[Iterable[NodeState]] = None) -> List[Applied]:
        """Take nodes out of service. Marking again changes nothing, or the reason where that is new."""

    def clear(self, names: Sequence[str], seen: Optional[Iterable[NodeState]] = None) -> List[Applied]:
        """Return nodes to service that carry our mark; every other node stays as it is."""


class DeviceState(NamedTuple):
    """What a cluster says of one accelerator of a node. `busy`: work holds it. `mark` is what takes it out, by
    whomever; None where new work is given it. `disputed`: reasons that its driver says are no fault of it, each with
    what the driver says. A fault that stands on these alone is left to a person.
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

        With `nodes` only of these, and read anew: something is about to be done to them. Without, it may be what a
        watch has kept. Raises AdapterError.
        """

    def mark_device(self, node: str, device: DeviceId, mark: Mark) -> Applied:
        """Take it out of service. Marking again changes nothing, or the reason. REFUSED where the mark is somebody
        else's, or where this accelerator cannot be marked. Raises AdapterError.
        """

    def clear_device(self, node: str, device: DeviceId) -> Applied:
        """Take our mark off; UNCHANGED where there is none, REFUSED where it is another's. Raises AdapterError."""


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
        """Set the remark, "" to take ours away. False where somebody else's is there and stays. Raises AdapterError."""

    def comments(self) -> Mapping[str, str]:
        """The remarks of all nodes that have one, by whomever. Raises AdapterError."""


@port
class JobMessages(Protocol):
    """Something that can tell the owner of a job why it did not start."""

    def tell_job(self, job: str, text: str) -> None:
        """Raises AdapterError."""


@port
class OtherJobs(Protocol):
    """Something that knows which jobs run on a node."""

    def other_jobs(self, node: str, user: str, job: str) -> List[str]:
        """The user's jobs that are on the node's machine now, without `job`; everybody's where `user` is "".

        Nothing of theirs may be cleaned up or disturbed. Raises AdapterError.
        """


def read_mark(source: NodeSource, name: str) -> Optional[Mark]:
    """The mark on one node, None where it carries none or is not known."""
    return next((state.mark for state in source.nodes([name]) if state.name == name), None)
