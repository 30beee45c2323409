"""Tests of groups as their launchers know them."""

from __future__ import annotations

from typing import Optional, Sequence

from nhc.marks.ports.repair import Machine
from nhc.marks.ports.runner import Launcher, NodeRun, RunLimits, RunPhase, RunState


def group_run(
    group: str, nodes: Sequence[str], argv: Sequence[str], key: str = "k1", seconds: float = 60.0, tasks: int = 1
) -> NodeRun:
    """A test of these nodes."""
    return NodeRun(key, tuple(Machine(node) for node in nodes), tuple(argv), RunLimits(seconds), group, tasks)


def look(launcher: Launcher, run: NodeRun) -> RunState:
    """The state of one test."""
    return launcher.poll([run])[run.key]


def is_running(launcher: Launcher, run: NodeRun) -> bool:
    """Whether it has begun and not ended."""
    return look(launcher, run).phase is RunPhase.RUNNING


def at_work(launcher: Launcher, run: NodeRun) -> bool:
    """Whether it waits or runs."""
    return look(launcher, run).phase in (RunPhase.WAITING, RunPhase.RUNNING)


def result(launcher: Launcher, run: NodeRun) -> Optional[RunState]:
    """What a test left that came to its end; None of any other."""
    state = look(launcher, run)
    return state if state.phase is RunPhase.ENDED else None
