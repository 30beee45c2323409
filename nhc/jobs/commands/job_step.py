"""`nhc job step`: within an allocation of Slurm, run a step again without the nodes that failed it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import AbstractSet, Dict, Mapping, NamedTuple, Optional, Sequence, Set, Tuple, Union

from nhc.core.command_line import options
from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import click_command
from nhc.core.matching.node_ranges import expand
from nhc.core.model import printable
from nhc.core.plugins import NoAdapter
from nhc.marks.plugins import job_controller
from nhc.marks.ports.job_control import JobController

# Chooses the nodes of an allocation for a job step's next run, after a node has failed it. Pure.


class StepNodes(NamedTuple):
    """Run it on these nodes. `why` is what failed it before, "" for the first time."""

    nodes: Tuple[str, ...]
    why: str = ""


class StepEnds(NamedTuple):
    """It is not run again, and why."""

    why: str


def next_step(
    allocated: Sequence[str], wanted: int, used: Sequence[str], failed: AbstractSet[str], faults: Mapping[str, str],
    restarts: int, most: int,
) -> Union[StepNodes, StepEnds]:  # fmt: skip
    """The next step, or why there is none. `used` are the nodes of the last one, `failed` all that failed one."""
    guilty = [node for node in used if node in failed]
    why = "; ".join(f"{node}: {faults.get(node, 'it failed the step before')}" for node in guilty)
    if used and not guilty:
        return StepEnds("its nodes are healthy")
    if used and restarts >= most:
        return StepEnds(f"{restarts} of {most} restarts are used up ({why})")
    usable = [node for node in allocated if node not in failed]
    if len(usable) < wanted:
        return StepEnds(f"it needs {wanted} healthy nodes, and the allocation has {len(usable)}")
    stay = [node for node in used if node in usable]
    return StepNodes(tuple([*stay, *(node for node in usable if node not in stay)][:wanted]), why)


LOOK_EVERY = 2.0


class JobStepOptions(options.CommandOptions):
    words: Sequence[str] = options.arguments("-- [SRUN-OPTIONS] COMMAND", needed=True, foreign=True)
    max_restarts: int = options.whole(
        "--max-restarts", "N", "At most so often.", 1, least=0, most=1000, heading="How it is restarted"
    )
    nodes: Optional[int] = options.whole(
        "--count", "N", "Nodes that the step needs. Default: the allocation's without spares.", least=1
    )
    settle: float = options.real(
        "--settle", "SECONDS", "How long Slurm is asked whether a node failed.", 30.0, least=0.0, most=3600.0
    )


@click_command
def command(args: JobStepOptions) -> int:
    """Run `srun WORDS` on healthy nodes of this allocation; where a node failed it, again on others.

    A step that fails on healthy nodes is not run again. Exit status: the step's, 2 wrong usage, 3 no Slurm.
    """
    listed = os.environ.get("SLURM_JOB_NODELIST", "")
    if not listed:
        raise CommandError("there is no SLURM_JOB_NODELIST: it runs within an allocation (sbatch, salloc)", 2)
    allocated = expand(listed)
    spares = os.environ.get("NHC_SPARES", "0")
    wanted = args.nodes or max(len(allocated) - (int(spares) if spares.isdigit() else 0), 1)
    if wanted > len(allocated):
        raise CommandError(f"--nodes: {wanted}, and the allocation has {len(allocated)}", 2)
    try:
        controller: JobController = job_controller("slurm")({}, os.environ, 30.0)
    except NoAdapter as error:
        raise CommandError(str(error)) from None
    status, restarts = 0, 0
    failed: Set[str] = set()
    used: Tuple[str, ...] = ()
    while True:
        faults = _faults(controller, allocated)
        step = next_step(allocated, wanted, used, {*failed, *faults}, faults, restarts, args.max_restarts)
        if isinstance(step, StepEnds):
            _say(step.why)
            return status or 1
        if used:
            restarts += 1
            _say(f"restart {restarts} of {args.max_restarts} on {','.join(step.nodes)}: {step.why}")
        used = step.nodes
        status = _srun(args.words, used, restarts)
        if status == 0:
            return 0
        failed |= _failed(controller, used, args.settle)
        if not failed & set(used):
            _say(f"the step ended with {status}, and its nodes are healthy: it is not run again")
            return status


def _srun(program: Sequence[str], nodes: Sequence[str], restarts: int) -> int:
    argv = ["srun", f"--nodes={len(nodes)}", f"--nodelist={','.join(nodes)}", "--kill-on-bad-exit=1", *program]
    try:
        status = subprocess.call(argv, env={**os.environ, "NHC_RESTART": str(restarts)})
    except OSError as error:
        raise CommandError(f"srun cannot be run: {error.strerror or error}") from None
    return status if status >= 0 else 128 - status


def _failed(controller: JobController, nodes: Sequence[str], settle: float) -> Set[str]:
    """Those of the nodes that Slurm says are down, asked for so many seconds."""
    deadline = time.monotonic() + settle
    while True:
        faulty = set(_faults(controller, nodes))
        if faulty or time.monotonic() >= deadline:
            return faulty
        time.sleep(min(LOOK_EVERY, max(deadline - time.monotonic(), 0.05)))


def _faults(controller: JobController, nodes: Sequence[str]) -> Dict[str, str]:
    return dict(controller.node_faults(list(nodes)))


def _say(text: str) -> None:
    print(f"nhc job step: {printable(text)}", file=sys.stderr, flush=True)
