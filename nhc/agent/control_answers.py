"""What the agent answers on its control socket, as `nhc agent` reads it. Times are Unix times or seconds."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, TypedDict, Union


class NotAnswered(TypedDict):
    """No answer: the request is not understood, not allowed, or not possible now."""

    error: str


class CheckStatus(TypedDict):
    """One configured check. `age` is None if it has not been judged yet."""

    check: str
    line: str
    source: str
    every: float
    verdict: Optional[str]
    age: Optional[float]
    running: bool
    elapsed: float


class ProblemStatus(TypedDict):
    """One thing that is wrong with the node."""

    check: str
    verdict: str
    text: str
    reason: str
    target: str


class KernelLogStatus(TypedDict):
    """How the kernel log is read, and how much of it was read."""

    live: bool
    records: int
    lost: int
    problem: str
    journald: bool
    journald_problem: str


class SinkStatus(TypedDict):
    """One sink. `problem` is "" while it delivers, `pid` None without a process of its own."""

    problem: str
    waiting: int
    lost: int
    pid: Optional[int]


class AgentStatus(TypedDict):
    """The answer to `status`."""

    version: str
    pid: int
    node: str
    uptime: float
    health: str
    verdict: str
    complete: bool
    paused_until: Optional[float]
    paused_by: str
    config_problems: List[str]
    problems: List[ProblemStatus]
    inherited: List[str]
    kernel_log: KernelLogStatus
    sinks: Dict[str, SinkStatus]
    log_problems: List[str]
    history: str
    checks: List[CheckStatus]


class Paused(TypedDict):
    """The answer to `pause`."""

    paused_until: float


class Resumed(TypedDict):
    """The answer to `resume`."""

    was_paused: bool


class Reloaded(TypedDict):
    """The answer to `reload`: why it was refused, empty if it was not; and how many checks are in force."""

    problems: List[str]
    checks: int


class Acknowledged(TypedDict):
    """The answer to `ack`: keys of findings that ended, and of those that are not active."""

    ended: List[str]
    missing: List[str]


class ChecksStarted(TypedDict):
    """The answer to a `check` that does not wait."""

    started: int


class ChecksJudged(TypedDict):
    """The answer to `check`: results as a report has them (docs/report.schema.json)."""

    results: List[Mapping[str, Any]]


Answer = Union[
    NotAnswered, AgentStatus, Paused, Resumed, Reloaded, Acknowledged, ChecksStarted, ChecksJudged,
]  # fmt: skip
