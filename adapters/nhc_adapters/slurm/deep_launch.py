"""Tests of groups of nodes as Slurm jobs: each test is one exclusive job, its tool a step; preemption ends it at once.

    partition = "hc"            # low PriorityTier, PreemptMode=CANCEL, GraceTime=0: real jobs start within a second
    qos, reservation, account   # as sbatch has them
    mpi = "pmix"                # srun's --mpi
    directory = "/shared/nhc"   # on a file system that the nodes share
    path, conf                  # where Slurm's commands are, and slurm.conf

With a GraceTime above 0 Slurm sends SIGTERM to steps only; a batch shell that only waits would block the node for all
that time (22.05: 17 s with GraceTime=4, 0.05 s with 0). So the script waits for its step alone and ends with it, and
ends its step on SIGTERM.
"""

from __future__ import annotations

import os
import shlex
from typing import Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence

from nhc.core.settings import declared
from nhc.core.system.bounded_read import read_head, read_text
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.part_settings import Given, read
from nhc.marks.ports.runner import NodeRun, RunPhase, RunState, with_nhc
from nhc_adapters._command import Runner, plain, run_command
from nhc_adapters.slurm.adapter import Slurm
from nhc_adapters.slurm.commands import SlurmPlace


@declared.settings
class SlurmLaunchSettings(NamedTuple):
    """How tests become jobs."""

    directory: str = declared.path(
        "directory", declared.NEEDED, "where jobs write: an absolute path that the nodes share",
        shown='"/scratch/nhc"',
    )  # fmt: skip
    partition: str = declared.text("partition")
    qos: str = declared.text("qos")
    reservation: str = declared.text("reservation", "", "tests run in it; its nodes count as idle")
    account: str = declared.text("account")
    mpi: str = declared.text("mpi", "", "srun's --mpi")
    place: SlurmPlace = declared.part("", SlurmPlace)


SCRIPT = """\
#!/bin/sh
cd {place} || exit 1
mkdir begun || exit 0
trap 'kill $step 2>/dev/null; exit 143' TERM
srun --nodes={count} --ntasks={tasks} --ntasks-per-node={each} --kill-on-bad-exit=1 --input=none{mpi} \\
    --output=output --error=output {argv} &
step=$!
wait $step
status=$?
printf '%s %s\\n' {token} $status > marker.new && mv marker.new marker
exit $status
"""
"""The marker is renamed into place: it is whole, or not there. A job that was submitted twice, since sbatch's first
answer was lost, runs its test once: the other finds that it was begun."""


class SlurmLauncher:
    """Submits with sbatch, looks with squeue, ends with scancel."""

    SETTINGS = SlurmLaunchSettings

    def __init__(
        self, settings: Mapping[str, str], environ: Given = None, timeout: float = 30.0, run: Runner = run_command
    ) -> None:
        self.settings = read(SlurmLaunchSettings, settings)
        self.directory = self.settings.directory
        self._slurm = Slurm(self.settings.place.variables(), environ, timeout, run)
        self.command = self._slurm.command

    def idle(self, nodes: Sequence[str]) -> FrozenSet[str]:
        """Nodes that take work and have none; in a reservation of ours the scheduler's hold on them is our own."""
        reserved = bool(self.settings.reservation)
        return frozenset(
            state.name
            for state in self._slurm.nodes(nodes)
            if not state.busy and (reserved or (state.available and not state.hold))
        )

    def start(self, run: NodeRun) -> str:
        """One exclusive job on exactly these nodes; its number, "" for one that has gone."""
        place = self._place(run)
        known = self._jobs(run.group).get(run.key)
        if known is not None or os.path.isdir(f"{place}/begun") or os.path.exists(f"{place}/stopped"):
            return known.name if known is not None else ""
        mpi = f" --mpi={shlex.quote(self.settings.mpi)}" if self.settings.mpi else ""
        script = SCRIPT.format(
            place=shlex.quote(place), count=len(run.nodes), tasks=len(run.nodes) * run.tasks, each=run.tasks,
            mpi=mpi, argv=shlex.join(with_nhc(run.argv)), token=shlex.quote(run.group),
        )  # fmt: skip
        try:
            os.makedirs(place, mode=0o755, exist_ok=True)
            with open(f"{place}/job.sh", "w", encoding="utf-8") as file:
                file.write(script)
        except OSError as error:
            raise AdapterError(f"{place}: {error.strerror}") from None
        # Explicitly the variables that find srun and the tool, not the sweep's whole environment.
        exported = ",".join(f"{name}={self.command.env[name]}" for name in ("PATH", "SLURM_CONF")
                            if name in self.command.env)  # fmt: skip
        minutes = max(1, -(-int(run.limits.seconds) // 60))
        argv = ["sbatch", "--parsable", f"--job-name={self._name(run.group)}", f"--comment={run.key}", "--exclusive",
                f"--nodes={len(run.nodes)}", f"--nodelist={','.join(plain(node) for node in run.nodes)}",
                f"--ntasks-per-node={run.tasks}", "--no-requeue", f"--time={minutes}", f"--export={exported}",
                f"--output={place}/job.out", f"--chdir={place}"]  # fmt: skip
        own = self.settings
        chosen = (("partition", own.partition), ("qos", own.qos), ("reservation", own.reservation),
                  ("account", own.account))  # fmt: skip
        argv += [f"--{name}={value}" for name, value in chosen if value]
        answer = self.command.ask(*argv, f"{place}/job.sh").split()
        handle = answer[-1].partition(";")[0] if answer else ""
        if not handle.isdigit():
            raise AdapterError(f"sbatch answered {' '.join(answer)[:80]!r}, not a job's number")
        return handle

    def poll(self, runs: Sequence[NodeRun]) -> Mapping[str, RunState]:
        """What squeue still has under the group's name, and the markers of what it has no more."""
        jobs = self._jobs(runs[0].group) if runs else {}
        return {run.key: self._state(run, jobs.get(run.key)) for run in runs}

    def _jobs(self, group: str) -> Dict[str, RunState]:
        listed: Dict[str, RunState] = {}
        for line in self.command.ask("squeue", "-h", "-n", self._name(group), "-o", "%A %T %k").splitlines():
            fields: List[str] = line.split()
            if len(fields) == 3:
                waits = fields[1] in ("PENDING", "CONFIGURING", "REQUEUED")
                listed[fields[2]] = RunState(RunPhase.WAITING if waits else RunPhase.RUNNING, name=fields[0])
        return listed

    def _state(self, run: NodeRun, job: Optional[RunState]) -> RunState:
        """The marker with this group's token, and the step's output beside it; without a marker, squeue's answer.

        slurmctld forgets a job minutes after its end, and its answer would decide nothing.
        """
        place = self._place(run)
        try:
            fields = read_text(f"{place}/marker").split()
        except FileNotFoundError:
            fields = []
        except (OSError, UnicodeDecodeError) as error:
            return RunState(RunPhase.UNKNOWN, why=f"{place}/marker: {error}")
        if len(fields) != 2 or fields[0] != run.group or not fields[1].isdigit():
            if job is not None:
                return job
            if os.path.exists(f"{place}/stopped"):
                return RunState(RunPhase.STOPPED, why="it was stopped")
            return RunState(RunPhase.LOST if os.path.isdir(f"{place}/begun") else RunPhase.ABSENT)
        try:
            output = read_head(f"{place}/output", run.limits.output + 1)
        except FileNotFoundError:
            output = b""  # srun could not start: its complaint is in job.out
        except OSError as error:
            return RunState(RunPhase.UNKNOWN, why=f"{place}/output: {error.strerror}")
        text = output[: run.limits.output].decode("utf-8", "replace")
        return RunState(RunPhase.ENDED, int(fields[1]), text, len(output) > run.limits.output)

    def stop(self, run: NodeRun) -> None:
        """Cancel the job; one that has ended is none of scancel's errors."""
        job = self._jobs(run.group).get(run.key)
        if job is not None:
            try:
                with open(f"{self._place(run)}/stopped", "w", encoding="ascii"):
                    pass
            except OSError as error:
                raise AdapterError(f"{self._place(run)}: {error.strerror}") from None
            self.command.ask("scancel", plain(job.name))

    def finish(self, group: str) -> None:
        """Outputs and markers stay in the shared directory: they are the evidence."""

    def _place(self, run: NodeRun) -> str:
        return os.path.join(self.directory, plain(run.group), plain(run.key))

    def _name(self, group: str) -> str:
        return f"nhc-sweep-{plain(group)}"
