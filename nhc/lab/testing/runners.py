"""The contract of a runner as tests (`nhc.marks.ports.runner`): every runner passes them, ours and a site's own.

    from nhc.lab.testing.runners import RunnerContract, RunnerWorld

    class TestMine(RunnerContract):
        @pytest.fixture
        def world(self):
            return MyWorld()

A world is a runner in front of real nodes whose programs run on the machine of the tests: they write into its folder.
"""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Callable, List, Optional, Tuple

from nhc.core.system.bounded_read import read_head
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import Machine
from nhc.marks.ports.runner import NodeRun, RunLimits, Runner, RunPhase, RunState

OVER = (RunPhase.ENDED, RunPhase.STOPPED, RunPhase.LOST)


class RunnerWorld:
    """What a test of a runner needs around it. Override all of it."""

    machines: Tuple[Machine, ...]
    """The nodes of a run."""
    folder: Path
    """A folder that the programs of runs can write to."""
    patience = 60.0
    """Seconds within which a short run has come to its end."""
    past_limit = 0.0
    """Seconds within which a run with a limit of one second is over, 0 where that takes minutes."""

    forgets_stopped = False
    """Whether nothing is left of a run that was stopped."""

    tracks_processes = True
    """Whether the other side knows the processes that a program has left behind (Slurm: proctrack/cgroup)."""

    def runner(self) -> Runner:
        """A runner as a new process makes it: it shares nothing with another."""
        raise NotImplementedError

    def unreachable(self) -> Optional[Runner]:
        """A runner that gets no answer from the other side; None where the other side cannot be silent."""
        raise NotImplementedError


class RunnerContract:
    """Subclass it, with a fixture `world`."""

    def test_it_is_started_once_and_found_again_by_whoever_names_it(self, world: RunnerWorld) -> None:
        run = _run(
            world, "echo begun >> trace; while [ ! -e gate ]; do sleep 0.1; done; echo out; echo err >&2; exit 7"
        )
        assert _state(world.runner(), run).phase is RunPhase.ABSENT
        world.runner().start(run)
        _until(world, lambda: _lines(world, "trace") == 1)
        world.runner().start(run)
        assert _state(world.runner(), run).phase is RunPhase.RUNNING
        (world.folder / "gate").touch()
        state = _ended(world, run)
        assert (state.phase, state.status, state.cut) == (RunPhase.ENDED, 7, False), state
        assert set(state.output.split()) >= {"out", "err"}
        world.runner().start(run)
        assert _state(world.runner(), run).phase is RunPhase.ENDED
        assert _lines(world, "trace") == 1

    def test_its_output_is_kept_up_to_the_limit(self, world: RunnerWorld) -> None:
        run = _run(world, "head -c 300000 /dev/zero | tr '\\0' x; exit 0", output=10_000)
        world.runner().start(run)
        state = _ended(world, run)
        assert (state.phase, state.status, state.cut) == (RunPhase.ENDED, 0, True), state._replace(output="")
        assert 0 < len(state.output) <= 10_000
        assert set(state.output) == {"x"}

    def test_it_is_stopped_together_with_its_children(self, world: RunnerWorld) -> None:
        run = _run(world, PARENT)
        world.runner().start(run)
        _until(world, lambda: _lines(world, "pids") == 3)
        world.runner().stop(run)
        gone = (RunPhase.STOPPED, RunPhase.LOST, *((RunPhase.ABSENT,) if world.forgets_stopped else ()))
        _until(world, lambda: _state(world.runner(), run).phase in gone)
        _until(world, lambda: not _alive(world))
        world.runner().stop(run)

    def test_past_its_limit_it_is_over_and_so_are_its_children(self, world: RunnerWorld) -> None:
        if not world.past_limit:
            return
        run = _run(world, PARENT, seconds=1.0)
        world.runner().start(run)
        _until(world, lambda: _lines(world, "pids") == 3)
        state = _ended(world, run, world.past_limit)
        assert state.phase is RunPhase.LOST, state
        _until(world, lambda: not _alive(world))

    def test_what_it_leaves_running_ends_with_it(self, world: RunnerWorld) -> None:
        if not world.tracks_processes:
            return
        run = _run(world, "setsid sh -c 'echo $$ >> pids; exec sleep 600' < /dev/null > /dev/null 2>&1 & "
                          "while [ ! -s pids ]; do sleep 0.1; done; exit 0")  # fmt: skip
        world.runner().start(run)
        assert _ended(world, run).status == 0
        _until(world, lambda: not _alive(world))

    def test_a_lost_answer_is_unknown_and_no_failure(self, world: RunnerWorld) -> None:
        silent = world.unreachable()
        if silent is None:
            return
        run = _run(world, "echo begun >> trace; exit 0")
        world.runner().start(run)
        _ended(world, run)
        try:
            state = _state(silent, run)
        except AdapterError:
            return
        assert (state.phase, bool(state.why)) == (RunPhase.UNKNOWN, True)


PARENT = (
    "echo $$ >> pids; sh -c 'echo $$ >> pids; exec sleep 600' & "
    "setsid sh -c 'echo $$ >> pids; exec sleep 600' < /dev/null > /dev/null 2>&1 & wait"
)
"""A program with a child, and one that has left its session and its output."""


def _run(world: RunnerWorld, script: str, seconds: float = 300.0, output: int = 1 << 20) -> NodeRun:
    argv = ("/bin/sh", "-c", f"cd {world.folder}; {script}")
    return NodeRun(uuid.uuid4().hex[:20], world.machines, argv, RunLimits(seconds, output), group="contract")


def _state(runner: Runner, run: NodeRun) -> RunState:
    return runner.poll([run])[run.key]


def _ended(world: RunnerWorld, run: NodeRun, patience: float = 0.0) -> RunState:
    """The state of a run that is over, as a new process sees it."""
    seen: List[RunState] = []

    def over() -> bool:
        seen.append(_state(world.runner(), run))
        return seen[-1].phase in OVER

    _until(world, over, patience)
    return seen[-1]


def _until(world: RunnerWorld, holds: Callable[[], bool], patience: float = 0.0) -> None:
    until = time.monotonic() + (patience or world.patience)
    while not holds():
        assert time.monotonic() < until, "it is not so in time"
        time.sleep(0.1)


def _lines(world: RunnerWorld, name: str) -> int:
    path = world.folder / name
    return len(path.read_text().split()) if path.exists() else 0


def _alive(world: RunnerWorld) -> List[str]:
    """The processes that wrote their ids down and are there; one that nobody has reaped yet is not."""
    alive = []
    for pid in (world.folder / "pids").read_text().split():
        try:
            if read_head(f"/proc/{pid}/stat", 4096).rpartition(b")")[2].split()[0] != b"Z":
                alive.append(pid)
        except (OSError, IndexError):
            continue
    return alive


__all__ = ["RunnerContract", "RunnerWorld"]
