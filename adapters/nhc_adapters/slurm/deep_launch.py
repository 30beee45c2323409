"""Tests of groups of nodes as Slurm jobs: one exclusive job a test, its tool a step; preemption ends it at once.

    partition = "hc"            # low PriorityTier, PreemptMode=CANCEL, GraceTime=0: real jobs start within a second
    qos, reservation, account   # as sbatch has them
    mpi = "pmix"                # srun's --mpi
    directory = "/shared/nhc"   # on a file system that the nodes share
    path, conf                  # where Slurm's commands are, and slurm.conf

With a GraceTime above 0 Slurm sends SIGTERM to steps only; a batch shell that waited for nothing else would hold the
node for all of it (22.05: 17 s with GraceTime=4, 0.05 s with 0). So the script waits for its step alone and ends with
it, and ends its step on SIGTERM.
"""

from __future__ import annotations

import os
import shlex
from typing import Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence

from nhc.core.settings import declared
from nhc.core.system.bounded_read import read_head, read_text
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.group_launch import GroupJob, GroupOrder, GroupOutput
from nhc.marks.ports.part_settings import Given, read
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
[ ! -e marker ] || exit 0
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
answer was lost, runs its test once."""

OUTPUT_LIMIT = 32 << 20
"""Bytes of a test's output that are read: NCCL_DEBUG=INFO writes some 20 KiB a rank. A figure beyond is none."""


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

    def launch(self, sweep: str, order: GroupOrder) -> str:
        """One exclusive job on exactly these nodes."""
        place = self._place(sweep, order.key)
        mpi = f" --mpi={shlex.quote(self.settings.mpi)}" if self.settings.mpi else ""
        script = SCRIPT.format(
            place=shlex.quote(place), count=len(order.nodes), tasks=len(order.nodes) * order.tasks, each=order.tasks,
            mpi=mpi, argv=" ".join(shlex.quote(argument) for argument in order.argv), token=shlex.quote(sweep),
        )  # fmt: skip
        try:
            os.makedirs(place, mode=0o755, exist_ok=True)
            with open(f"{place}/job.sh", "w", encoding="utf-8") as file:
                file.write(script)
        except OSError as error:
            raise AdapterError(f"{place}: {error.strerror}") from None
        # Explicitly what srun and the tool are found by: not whatever the sweep's own environment holds.
        exported = ",".join(f"{name}={self.command.env[name]}" for name in ("PATH", "SLURM_CONF")
                            if name in self.command.env)  # fmt: skip
        minutes = max(1, -(-int(order.seconds) // 60))
        argv = ["sbatch", "--parsable", f"--job-name={self._name(sweep)}", f"--comment={order.key}", "--exclusive",
                f"--nodes={len(order.nodes)}", f"--nodelist={','.join(plain(node) for node in order.nodes)}",
                f"--ntasks-per-node={order.tasks}", "--no-requeue", f"--time={minutes}", f"--export={exported}",
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

    def jobs(self, sweep: str) -> Dict[str, GroupJob]:
        """What squeue still has under the sweep's name."""
        listed: Dict[str, GroupJob] = {}
        for line in self.command.ask("squeue", "-h", "-n", self._name(sweep), "-o", "%A %T %k").splitlines():
            fields: List[str] = line.split()
            if len(fields) == 3:
                listed[fields[2]] = GroupJob(fields[0], fields[1] not in ("PENDING", "CONFIGURING", "REQUEUED"))
        return listed

    def finished(self, sweep: str, key: str) -> Optional[GroupOutput]:
        """The marker with this sweep's token, and the step's output beside it."""
        place = self._place(sweep, key)
        try:
            fields = read_text(f"{place}/marker").split()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise AdapterError(f"{place}/marker: {error}") from None
        if len(fields) != 2 or fields[0] != sweep or not fields[1].isdigit():
            return None
        try:
            output = read_head(f"{place}/output", OUTPUT_LIMIT).decode("utf-8", "replace")
        except FileNotFoundError:
            output = ""  # srun could not start: its complaint is in job.out
        except OSError as error:
            raise AdapterError(f"{place}/output: {error.strerror}") from None
        return GroupOutput(int(fields[1]), output)

    def failure(self, sweep: str, key: str) -> str:
        """Nothing: slurmctld forgets a job minutes after its end, and its word would decide nothing."""
        return ""

    def end(self, handle: str) -> None:
        """Cancel the job; one that has ended is none of scancel's errors."""
        self.command.ask("scancel", plain(handle))

    def finish(self, sweep: str) -> None:
        """Outputs and markers stay in the shared directory: they are the evidence."""

    def _place(self, sweep: str, key: str) -> str:
        return os.path.join(self.directory, plain(sweep), plain(key))

    def _name(self, sweep: str) -> str:
        return f"nhc-sweep-{plain(sweep)}"
