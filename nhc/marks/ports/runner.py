"""How nhc runs a program on nodes: one contract, over SSH, as a Kubernetes Job, by Systems Manager, as a Slurm job.

A run is identified by its group and its key, which its caller chooses. Every runner guarantees:

- **Never twice.** A run that was started is not started again, by any caller, also after a lost answer.
- **Found again.** The caller stores nothing: another process that names the same run can poll and stop it.
- **Bounded.** It ends after its limit of seconds. Of its output the first bytes up to the limit are kept.
- **Whole.** When it has ended, by itself, by `stop` or by its limit, it leaves no process on its nodes.
- **A lost answer is UNKNOWN.** Only a run that is proved to have ended is ENDED, STOPPED or LOST.

`nhc.lab.testing.runners` holds the contract as tests. Ours are listed in `nhc.marks.plugins.RUNNERS` and `LAUNCHERS`.
"""

from __future__ import annotations

from enum import Enum
from typing import FrozenSet, Mapping, NamedTuple, Optional, Protocol, Sequence, Tuple
from typing import runtime_checkable as port

from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import Answer, Machine, Sent

NHC = "{nhc}"
"""The placeholder in a run's arguments for the path of nhc on its node."""


def with_nhc(argv: Sequence[str], nhc: str = "nhc") -> Tuple[str, ...]:
    """The arguments with the path of nhc on that node."""
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
    """The phase of a run.

    ABSENT: nothing of it exists; it was not started, or was deleted: long after its end, or when it was stopped. ENDED:
    the program ended by itself. STOPPED: someone ended it, by `stop` or by hand. LOST: it ended without a result: at
    its limit, preempted, its node gone, or stopped if the transport does not show that. UNKNOWN: it cannot be read now;
    the run may be in any phase.
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
    there was more) are set if it has ENDED. `why` is one line: what it waits for, how it was lost, what cannot be read.
    `name` is the transport's own name of it, for a person.
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
        """The same as the answer to an order. If no login is possible, the machine itself prevents it."""
        again = LATER if self.later else 0.0
        return Sent(Answer.REFUSED, f"{before}{self}", retry_after=again, by_machine=self.later, right=self.right)


LATER = 30.0
"""Seconds after which a node that did not answer is asked again."""


class Runner(Protocol):
    """Runs programs on nodes. It may be used from several threads, and blocks for at most its timeout a call."""

    def start(self, run: NodeRun) -> str:
        """Start a run if it was not started before; returns the transport's own name of it.

        Raises NotStarted if surely nothing was started. After any other AdapterError, `poll` shows the state of the
        run.
        """

    def poll(self, runs: Sequence[NodeRun]) -> Mapping[str, RunState]:
        """The state of these runs of one group, by key. Raises AdapterError if none can be read now."""

    def stop(self, run: NodeRun) -> None:
        """End a run with all its processes; does nothing if it has ended. Raises AdapterError."""


@port
class Launcher(Runner, Protocol):
    """A runner for sweeps: it knows idle nodes, keeps other work off the nodes of a run, and gives way to real work."""

    def idle(self, nodes: Sequence[str]) -> FrozenSet[str]:
        """Those of the nodes that are idle and on which a run may be started now. Raises AdapterError."""

    def finish(self, group: str) -> None:
        """The group has ended: remove what is no longer needed. A second call does nothing more.

        Raises AdapterError that names what could not be removed or ended.
        """


@port
class SaysWhyBusy(Protocol):
    """A launcher that knows why a node was not idle when it last looked."""

    def why_busy(self, node: str) -> str:
        """One line, "" if nothing is known."""


class MakeRunner(Protocol):
    """How nhc constructs what stands in `nhc.marks.plugins.RUNNERS`; a launcher is made in the same way."""

    def __call__(self, settings: Mapping[str, str], environ: Optional[Mapping[str, str]] = None) -> Runner:
        """Raises SettingError if one of the settings is invalid. Sends no request yet."""
