"""What nhc needs from a job controller to restart jobs: read a job's state, stop it and keep it waiting, let it start.

For operators: how a job ended (`JobEnds`), and what works on a node (`ListsWork`).

A controller (Slurm, a kind of job in Kubernetes) never decides: `nhc.jobs` does. Every restart has the same two steps
wherever it happens. HOLD stops what is left of the job and keeps it from starting, with the nodes that it must avoid;
RELEASE lets it start again. Between them the loop waits until enough healthy nodes exist. Each call is sent once; if it
gets no answer, `look` shows its effect.

Ours are listed in `nhc.marks.plugins.JOB_CONTROLLERS`; those of other packages have the entry point group
`nhc.job_controllers`.
"""

from __future__ import annotations

from enum import Enum
from typing import FrozenSet, Mapping, NamedTuple, Optional, Protocol, Sequence, Tuple
from typing import runtime_checkable as port

from nhc.marks.ports.repair import Sent


class Phase(str, Enum):
    """The phase of a job. HELD does not start until it is released; ENDING still leaves its nodes."""

    PENDING = "pending"
    RUNNING = "running"
    ENDING = "ending"
    HELD = "held"
    FAILED = "failed"
    SUCCEEDED = "succeeded"
    CANCELLED = "cancelled"


ENDS = frozenset({Phase.FAILED, Phase.SUCCEEDED, Phase.CANCELLED})


class LossCause(str, Enum):
    """Why a part of a job ended, as its controller says. Whether it was the infrastructure is decided elsewhere."""

    NODE = "node"
    """Its node failed, was lost, or could not start it."""
    EVICTED = "evicted"
    """It was asked to leave its node: a drain, a taint, the node's own pressure."""
    PREEMPTED = "preempted"
    """The scheduler gave its place to other work, and will start it again."""
    EXIT = "exit"
    """It ended by itself, with an exit status or by a signal."""
    LIMIT = "limit"
    """It went over a limit of its own: memory or time."""
    CANCELLED = "cancelled"
    """Its user, or an administrator, ended it."""
    UNKNOWN = "unknown"


class JobLoss(NamedTuple):
    """One part of a job that ended badly, or its whole run. `at` is Unix time; `node` is "" if it is not known."""

    node: str
    cause: LossCause
    detail: str
    at: float


class Wish(NamedTuple):
    """What the job's user asked for: at most so many restarts (None: as many as the settings say), and its checkpoint.

    `checkpoint` is a path or URL that is passed through to the job, which reads it by itself.
    """

    max_restarts: Optional[int] = None
    checkpoint: str = ""


class JobName(NamedTuple):
    """One job. `uid` tells it from a later one of the same name; "" where the controller's names are never used again.

    `kind` is the controller's word: `batch`, `PyTorchJob`.
    """

    kind: str
    namespace: str
    name: str
    uid: str = ""

    def text(self) -> str:
        """The name as a person writes it: `PyTorchJob/team/llama`, `batch/17`."""
        return "/".join(part for part in (self.kind, self.namespace, self.name) if part)


class JobView(NamedTuple):
    """A job as it is now. Times are Unix seconds.

    `run` stays the same until the job is started again: a failure is named by the run that failed. `nodes` are those of
    this run, () while it has none. `wants` is how many nodes it needs, 0 if it is not known now. `number` is the number
    of our newest restart that the job itself shows, 0 for none: this shows the effect of a call whose answer was lost.
    `held` says that it is held, and by us; `final` that it ended for good and can only be created again. `excludes`
    says that its controller can keep it off nodes by their names. `busy_elsewhere` is why it must not be touched now,
    "" if it may. `bound` are nodes that it must run on: nhc does not keep it off them, it waits for them.
    """

    job: JobName
    run: str
    phase: Phase
    nodes: Tuple[str, ...] = ()
    wants: int = 1
    user: str = ""
    started: Optional[float] = None
    ended: Optional[float] = None
    losses: Tuple[JobLoss, ...] = ()
    wish: Wish = Wish()
    number: int = 0
    held: bool = False
    final: bool = False
    excludes: bool = True
    busy_elsewhere: str = ""
    bound: Tuple[str, ...] = ()


class JobOrder(NamedTuple):
    """One HOLD or RELEASE, written down before it is sent.

    `key` never changes for one restart, `number` counts the restarts of a job from 1. `job` is the job as it was when
    the restart was decided. `exclude` are all nodes to avoid. `manifest` is what the job is created from if it ended
    for good, otherwise "".
    """

    key: str
    number: int
    job: JobView
    exclude: Tuple[str, ...]
    because: str
    manifest: str = ""


class JobController(Protocol):
    """Something that runs jobs. It may block, for at most its timeout a call."""

    def jobs(self) -> Sequence[JobView]:
        """The jobs that asked to be restarted, and those that show a restart of ours. Raises AdapterError."""

    def look(self, job: JobName) -> Optional[JobView]:
        """The state of one job now, None if there is none with that name and uid. Raises AdapterError."""

    def manifest(self, job: JobView) -> str:
        """The manifest from which `release` creates the job after `hold` has deleted it. Raises AdapterError.

        "" if a job that ended for good cannot be created again.
        """

    def hold(self, order: JobOrder) -> Sent:
        """Stop the job and keep it from starting. Sent again it changes nothing. Never raises for what others do."""

    def release(self, order: JobOrder) -> Sent:
        """Let it start, kept off the nodes to avoid. Sent again it changes nothing. Never raises for what others do."""

    def healthy(self, order: JobOrder) -> FrozenSet[str]:
        """The nodes in service on which the job of a held restart may run, busy or not; those to avoid among them.

        Raises AdapterError.
        """

    def node_faults(self, names: Sequence[str]) -> Mapping[str, str]:
        """Which of these nodes are down or lost for their cluster now, and why. Raises AdapterError."""


@port
class JobNotes(Protocol):
    """A job controller that can write a line in a place where the job's user looks."""

    def note(self, job: JobName, text: str) -> None:
        """Raises AdapterError."""


class Submission(NamedTuple):
    """What a user submits: words for the scheduler's own command, or the text of manifests for `namespace`.

    `wish` None: it does not ask to be restarted. `spares` are nodes more than the job needs, for its own steps.
    `dry_run`: only say what would be sent.
    """

    words: Tuple[str, ...]
    manifests: str = ""
    namespace: str = ""
    wish: Optional[Wish] = None
    spares: int = 0
    dry_run: bool = False


class Submitted(NamedTuple):
    """The names of what was submitted, and why the rest was not. `ambiguous`: it is not known whether it was.

    `rendered` is what a dry run would have sent: a command line, or manifests.
    """

    jobs: Tuple[str, ...]
    problem: str = ""
    ambiguous: bool = False
    rendered: str = ""


@port
class JobSubmits(Protocol):
    """A job controller that users submit jobs through."""

    def submit(self, submission: Submission) -> Submitted:
        """Submit, each job once. Never raises for what others do."""


class MakeJobController(Protocol):
    """How nhc constructs a job controller: it calls what is registered under its name. This sends no request yet."""

    def __call__(
        self,
        settings: Optional[Mapping[str, str]] = None,
        environ: Optional[Mapping[str, str]] = None,
        timeout: float = 30.0,
    ) -> JobController:
        """`settings` are its table in the job settings (`[controllers.slurm]`), `environ` replaces the environment.

        Raises AdapterError if the settings are invalid.
        """


class JobLogText(NamedTuple):
    """One log: the file at `path`, else the `text`. `rank` and `node` are its writer's, -1 and "" where not known."""

    name: str
    path: str = ""
    text: str = ""
    rank: int = -1
    node: str = ""


class JobEndRecord(NamedTuple):
    """A job's end. `state` is the scheduler's own name for it; times are Unix seconds; `running`: it has not ended.

    `tasks` is the number of its tasks, 0 if unknown; they are on `nodes` in blocks, which is Slurm's default. `gpus` is
    how many GPUs it had in all, 0 if unknown. `missing` says what could not be read of it, one line each. `mail` is
    where the scheduler writes to its user, an address or a user's name, "" if unknown.
    """

    job: JobName
    state: str
    nodes: Tuple[str, ...] = ()
    started: Optional[float] = None
    ended: Optional[float] = None
    losses: Tuple[JobLoss, ...] = ()
    logs: Tuple[JobLogText, ...] = ()
    user: str = ""
    tasks: int = 0
    running: bool = False
    missing: Tuple[str, ...] = ()
    gpus: int = 0
    mail: str = ""


@port
class JobEnds(Protocol):
    """A job controller that knows how jobs ended, also jobs for which no restart was asked."""

    def end(self, job: str) -> Optional[JobEndRecord]:
        """The record of the job with this name, as a person writes it; None if there is none. Raises AdapterError."""


class WorkItem(NamedTuple):
    """One piece of the work on a node: a job, or a pod.

    `id` is what the other side's own commands take (`17_3`, `team/llama-0`). `name` and `user` are its users' texts;
    for a pod they are its controller and its namespace. `state` is in the other side's words, `started` Unix time, None
    if unknown. `jobs` are the names under which nhc may watch it (`JobName.text` of `nhc.marks.ports.job_control`).
    """

    id: str
    name: str
    user: str
    state: str
    started: Optional[float]
    jobs: Tuple[str, ...] = ()


class WorkList(NamedTuple):
    """The work on a node; `note` says what may be missing from it, and why."""

    items: Tuple[WorkItem, ...]
    note: str = ""


@port
class ListsWork(Protocol):
    """Something that knows what runs on a node now, whether or not nhc watches it."""

    def work_on(self, node: str) -> WorkList:
        """All that is on the node, as it is now; texts on one line each. For persons. Raises AdapterError."""
        ...
