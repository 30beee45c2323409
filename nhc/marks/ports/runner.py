"""How nhc runs a program on nodes: one contract, over SSH, as a Kubernetes Job, by Systems Manager, as a Slurm job.

A run is known by its group and its key, which its caller chooses. Every runner promises of it:

- **Never twice.** A run that was started is not started again, by whomever and after a lost answer too.
- **Found again.** The caller keeps nothing: another process that names the same run polls and stops it.
- **Bounded.** It ends after its limit of seconds. Of its output the first bytes up to the limit are kept.
- **Whole.** When it is over, by itself, by `stop` or by its limit, it has left no process on its nodes.
- **A lost answer is UNKNOWN.** Only what is proved to be over is ENDED, STOPPED or LOST.

`nhc.lab.testing.runners` holds the contract as tests. Ours stand in `nhc.marks.plugins.RUNNERS` and `LAUNCHERS`.
"""

from __future__ import annotations

from enum import Enum
from typing import FrozenSet, Mapping, NamedTuple, Optional, Protocol, Sequence, Tuple
from typing import runtime_checkable as port

from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import Answer, Machine, Sent

NHC = "{nhc}"
"""The word of a run's arguments that stands for the path of nhc on its node."""


def with_nhc(argv: Sequence[str], nhc: str = "nhc") -> Tuple[str, ...]:
    """The arguments with nhc as it is called there."""
    return tuple(nhc if word == NHC else word for word in argv)


class RunLimits(NamedTuple):
    """How long a run may take (seconds), and how many bytes of its output are kept."""

    seconds: float
    output: int = 32 << 20


class NodeRun(NamedTuple):
    """One program on one node or on several at once.

    `key` and `group` are words of letters, digits and `-`, 64 characters at most; a group's runs are looked at together
    (a sweep). `argv` is executed without a shell; a word that is NHC stands for the nhc which is installed there.
    `tasks` are ranks on each node. `why` is one line for the node's log and for records of others.
    """

    key: str
    machines: Tuple[Machine, ...]
    argv: Tuple[str, ...]
    limits: RunLimits
    group: str = ""
    tasks: int = 1
    why: str = ""

    @property
    def nodes(self) -> Tuple[str, ...]:
        """The names of its nodes."""
        return tuple(machine.node for machine in self.machines)


class RunPhase(str, Enum):
    """How far a run is.

    ABSENT: nothing of it is there; it was not started, or was forgotten: long after its end, or as it was stopped.
    ENDED: the program ended by itself. STOPPED: somebody has ended it, by `stop` or by hand. LOST: it is over and has
    no result: past its limit, preempted, its node gone, or stopped where the transport does not tell. UNKNOWN: it
    cannot be told now; the run may be in any phase.
    """

    ABSENT = "absent"
    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"
    STOPPED = "stopped"
    LOST = "lost"
    UNKNOWN = "unknown"


class RunState(NamedTuple):
    """A run as it is now.

    `status` (the exit status, 128 + N after signal N) and `output` (what it printed on both streams; `cut` says that
    there was more) are there where it has ENDED. `why` is one line: what it waits for, how it was lost, what cannot be
    told. `name` is the transport's own name of it, for a person.
    """

    phase: RunPhase
    status: Optional[int] = None
    output: str = ""
    cut: bool = False
    why: str = ""
    name: str = ""


class NotStarted(AdapterError):
    """Proof that nothing was started. `later`: the same may be asked again. `right`: what is not allowed to us."""

    def __init__(self, message: str, later: bool = True, right: str = "") -> None:
        super().__init__(message)
        self.later, self.right = later, right

    def sent(self, before: str = "") -> Sent:
        """The same as the answer to an order. Where nobody can log in, the machine itself is in the way."""
        again = LATER if self.later else 0.0
        return Sent(Answer.REFUSED, f"{before}{self}", retry_after=again, by_machine=self.later, right=self.right)


LATER = 30.0
"""Seconds after which a node that did not answer is asked again."""


class Runner(Protocol):
    """Runs programs on nodes. It may be used from several threads, and blocks for at most its timeout a call."""

    def start(self, run: NodeRun) -> str:
        """Start a run, where it was not started before; the transport's own name of it.

        Raises NotStarted where surely nothing was started. After any other AdapterError `poll` shows what became of it.
        """

    def poll(self, runs: Sequence[NodeRun]) -> Mapping[str, RunState]:
        """The state of these runs of one group, by key. Raises AdapterError where none can be told now."""

    def stop(self, run: NodeRun) -> None:
        """End a run with all its processes; nothing where it is over. Raises AdapterError."""


@port
class Launcher(Runner, Protocol):
    """A runner for sweeps: it knows idle nodes, keeps other work off the nodes of a run, and gives way to real work."""

    def idle(self, nodes: Sequence[str]) -> FrozenSet[str]:
        """Those of the nodes on which nothing runs and on which a run may be started now. Raises AdapterError."""

    def finish(self, group: str) -> None:
        """The group is over: remove what nobody needs any more. Asked for twice it does nothing more.

        Raises AdapterError that names what could not be taken away or ended.
        """


@port
class SaysWhyBusy(Protocol):
    """A launcher that knows why a node was not idle when it last looked."""

    def why_busy(self, node: str) -> str:
        """One line, "" where nothing is known."""


class MakeRunner(Protocol):
    """How nhc constructs what stands in `nhc.marks.plugins.RUNNERS`; a launcher is made in the same way."""

    def __call__(self, settings: Mapping[str, str], environ: Optional[Mapping[str, str]] = None) -> Runner:
        """Raises SettingError where one of the settings makes no sense. Reaches nobody yet."""
