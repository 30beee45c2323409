"""What a scheduler keeps of a job's end: its state, its losses, its nodes, and where its logs are."""

from __future__ import annotations

from typing import NamedTuple, Optional, Protocol, Tuple
from typing import runtime_checkable as port

from nhc.marks.ports.job_control import JobLoss, JobName


class JobLogText(NamedTuple):
    """One log: the file at `path`, else the `text`. `rank` and `node` are its writer's, -1 and "" where not known."""

    name: str
    path: str = ""
    text: str = ""
    rank: int = -1
    node: str = ""


class JobEndRecord(NamedTuple):
    """A job's end. `state` is the scheduler's own name for it; times are Unix seconds; `running`: it has not ended.

    `tasks` is the number of its tasks, 0 where nobody says; they are on `nodes` in blocks, which is Slurm's default.
    `gpus` is how many GPUs it had in all, 0 where nobody says. `missing` says what could not be read of it, one line
    each. `mail` is where its user has the scheduler write to, an address or a user's name, "" where nobody says.
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
    """A job controller that knows how jobs ended, also those that nobody asked it to restart."""

    def end(self, job: str) -> Optional[JobEndRecord]:
        """The record of the job that a person calls so, None where there is none. Raises AdapterError."""
