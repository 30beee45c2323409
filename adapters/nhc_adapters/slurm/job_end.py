"""How a job of Slurm ended: from `scontrol show job` while slurmctld knows it (MinJobAge), from `sacct` after that.

Any user may ask for jobs of his own. sacct says who cancelled a job, and how each step ended; without accounting
(slurmdbd) it says nothing.
"""

from __future__ import annotations

import re
import time
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from nhc.core.matching.node_ranges import expand
from nhc.core.model import printable
from nhc.core.units import whole_of_digits
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.job_ends import JobEndRecord, JobLogText
from nhc.marks.ports.jobs import JobLoss, JobName, LossCause, Phase, Wish
from nhc_adapters._command import Commands, complaint, understood
from nhc_adapters.slurm.job_states import CAUSES, KIND, SlurmJob, exit_text, gpus_of, job_of, moment, parse_jobs

_COLUMNS = ("JobID", "State", "ExitCode", "Start", "End", "NodeList", "NTasks", "User", "AllocTRES")
_PLAIN = re.compile(r"\d{1,10}(?:_\d{1,10}|\+\d{1,4})?")
_ENDED = ("COMPLETED", "CANCELLED", *CAUSES)


def is_job(name: str) -> bool:
    """Whether a job of Slurm can have this name: `17`, a task `17_3`, a component `17+1`."""
    return bool(_PLAIN.fullmatch(name))


def read_end(command: Commands, name: str, down: Mapping[str, str]) -> Optional[JobEndRecord]:
    """The record of a job. `down` are nodes that are down now, and why. Raises AdapterError."""
    if not is_job(name):
        raise AdapterError(f"{printable(name, 60)!r} is no job of Slurm: 17, or 17_3")
    job = next(iter(show_job(command, name)), None)
    kept, missing = _accounted(command, name)
    if job is None and kept is None:
        if missing:
            raise AdapterError(f"slurmctld knows job {name} no more, and {missing}")
        return None
    if job is None:
        return kept
    record = _from_controller(job, down)
    if kept is None:
        return record._replace(missing=(missing,) if missing else ())
    losses = tuple(dict.fromkeys([*kept.losses, *record.losses])) if kept.losses else record.losses
    return record._replace(losses=losses, nodes=record.nodes or kept.nodes)


def show_job(command: Commands, name: str) -> List[SlurmJob]:
    """What slurmctld shows of a job, none where it does not know it (any more). Raises AdapterError."""
    done = command("scontrol", "show", "job", name)
    if done.status and "invalid job id" in (done.stdout + done.stderr).lower():
        return []
    if done.status:
        raise AdapterError(f"scontrol show job {name}: {complaint(done)}")
    return parse_jobs(done.stdout)


def _from_controller(job: SlurmJob, down: Mapping[str, str]) -> JobEndRecord:
    view = understood("Slurm's", job_of, job, Wish())
    ended = moment(job["EndTime"])
    nodes = job.nodes("NodeList")
    losses: List[JobLoss] = []
    for loss in view.losses:
        lost = [node for node in nodes if node in down] if loss.cause is LossCause.NODE else []
        losses += [loss._replace(node=node, detail=f"{loss.detail}: {down[node]}") for node in lost] or [loss]
    if view.phase is Phase.CANCELLED:
        losses.append(JobLoss("", LossCause.CANCELLED, "it was cancelled", ended or 0.0))
    if view.phase is Phase.ENDING and job["ExitCode"] not in ("", "0:0"):  # in its epilog, where its state is not shown
        losses.append(JobLoss("", LossCause.EXIT, exit_text(job["ExitCode"]), ended or time.time()))
    paths = dict.fromkeys(path for path in (job["StdErr"], job["StdOut"]) if path and path != "/dev/null")
    return JobEndRecord(view.job, job["JobState"], nodes, moment(job["StartTime"]), ended, tuple(losses),
                        tuple(JobLogText(path.rpartition("/")[2], path) for path in paths), job["User"],
                        whole_of_digits(job["NumTasks"]) or 0, job["JobState"] not in (*_ENDED, "COMPLETING"),
                        gpus=job.gpus, mail=job["MailUser"])  # fmt: skip


def _accounted(command: Commands, name: str) -> Tuple[Optional[JobEndRecord], str]:
    """What sacct has of a job, and why it has nothing."""
    try:
        done = command("sacct", "-n", "-P", "-j", name, "-o", ",".join(_COLUMNS))
    except AdapterError as error:
        return None, str(error)
    if done.status:
        return None, f"sacct: {complaint(done)}"
    rows = [dict(zip(_COLUMNS, line.split("|"))) for line in done.stdout.splitlines() if line.count("|") >= 7]
    return (_from_rows(name, rows), "") if rows else (None, "")


def _from_rows(name: str, rows: Sequence[Dict[str, str]]) -> JobEndRecord:
    job = rows[0]
    state, _, by = job["State"].partition(" by ")
    ended = moment(job["End"])
    losses = []
    for row in rows:
        losses += _losses(row, ended)
    if by:
        losses = [loss._replace(detail=f"it was cancelled by user {by}") if loss.cause is LossCause.CANCELLED else loss
                  for loss in losses]  # fmt: skip
    nodes = job["NodeList"] if job["NodeList"] not in ("", "None assigned", "Unknown") else ""
    tasks = max((whole_of_digits(row["NTasks"]) or 0 for row in rows), default=0)
    return JobEndRecord(JobName(KIND, "", name), state, tuple(expand(nodes)) if nodes else (), moment(job["Start"]),
                        ended, tuple(dict.fromkeys(losses)), (), job["User"], tasks,
                        state not in _ENDED, gpus=gpus_of(job.get("AllocTRES", "")))  # fmt: skip


def _losses(row: Mapping[str, str], ended: Optional[float]) -> List[JobLoss]:
    """What the row of a job or of one of its steps says. A step that was cancelled only follows from another end."""
    state, at = row["State"].partition(" ")[0], moment(row["End"]) or ended or 0.0
    step = row["JobID"].partition(".")[2]
    if state == "CANCELLED" and not step:
        return [JobLoss("", LossCause.CANCELLED, "it was cancelled", at)]
    if state not in CAUSES:
        return []
    cause, detail = CAUSES[state]
    return [JobLoss("", cause, detail or exit_text(row["ExitCode"]), at)]
