"""Slurm's batch jobs, restarted after infrastructure faults: requeued, held, kept off nodes, released.

    [controllers.slurm]
    partitions = "train,gpu"     # restart every batch job of these; others only if their comment asks for it
    path = "/opt/slurm/bin"      # where Slurm's commands are
    conf = "/etc/slurm/slurm.conf"

HOLD is `scontrol requeuehold` (`hold` if slurmctld itself has requeued the job after a node failure), then the nodes to
avoid in ExcNodeList and a note in AdminComment, which later shows what took effect. RELEASE removes the delay of a
requeued job and releases it. A user's own exclusions stay. The script starts from its top with SLURM_RESTART_COUNT
raised, as after any requeue.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from collections import Counter
from typing import Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.matching.node_ranges import expand, fold_for_scheduler
from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.core.system.process import Completed
from nhc.core.units import whole_of_digits
from nhc.marks.ports.adapter import AdapterError, NodeState
from nhc.marks.ports.job_control import (
    JobEndRecord,
    JobLogText,
    JobLoss,
    JobName,
    JobOrder,
    JobView,
    LossCause,
    Phase,
    Submission,
    Submitted,
    Wish,
)
from nhc.marks.ports.part_settings import Given, read
from nhc.marks.ports.repair import Answer, Sent
from nhc_adapters._command import Commands, NotEnded, Runner, complaint, run_command, understood
from nhc_adapters.slurm.adapter import Slurm
from nhc_adapters.slurm.commands import SlurmPlace
from nhc_adapters.slurm.job_states import (
    CAUSES,
    KIND,
    OURS,
    SlurmJob,
    exit_text,
    gpus_of,
    job_of,
    moment,
    new_note,
    parse_jobs,
)

# The words of sbatch for a job that is to be restarted: requeued, its wish in the comment, its spare nodes. Pure.


def wished_words(words: Sequence[str], wish: Wish, spares: int) -> List[str]:
    """The words of sbatch with what was wished for. Raises AdapterError where they do not say how many nodes."""
    comment, rest = _taken(words, "--comment")
    wanted = "nhc-restart" if wish.max_restarts is None else f"nhc-restart={wish.max_restarts}"
    wanted += f" nhc-checkpoint={wish.checkpoint}" if wish.checkpoint else ""
    own = ["--requeue", f"--comment={comment} {wanted}" if comment else f"--comment={wanted}"]
    if spares:
        count, rest = _taken(rest, "--nodes", "-N")
        if not count.isdigit():
            raise AdapterError("--spares: say among the words how many nodes the job needs: --nodes=4")
        own += ["--no-kill", f"--nodes={int(count) + spares}"]
    return [*own, *rest]


def _taken(words: Sequence[str], name: str, short: str = "") -> Tuple[str, List[str]]:
    """The value of an option, "" if it is not there, and the words without it; what follows the script is its own."""
    rest = list(words)
    for at, word in enumerate(rest):
        if word in (name, short) and at + 1 < len(rest):
            return rest[at + 1], [*rest[:at], *rest[at + 2 :]]
        match = re.fullmatch(rf"{name}=(.*)", word, re.DOTALL) or (
            re.fullmatch(rf"{short}(\d+)", word) if short else None
        )
        if match:
            return match[1], [*rest[:at], *rest[at + 1 :]]
        if not word.startswith("-") and (at == 0 or not rest[at - 1].startswith("-") or "=" in rest[at - 1]):
            break
    return "", rest


# How a job of Slurm ended: from `scontrol show job` while slurmctld knows it (MinJobAge), from `sacct` after that.
#
# Any user may ask for jobs of his own. sacct says who cancelled a job, and how each step ended; without accounting
# (slurmdbd) it says nothing.


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
    if view.phase is Phase.ENDING and job["ExitCode"] not in ("", "0:0"):  # the epilog does not show its state
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


@declared.settings
class SlurmJobSettings(NamedTuple):
    """The table [controllers.slurm] of jobs.toml."""

    partitions: FrozenSet[str] = declared.texts(
        "partitions", frozenset(), "only jobs of these, with commas between them; none: of all", made=frozenset
    )
    place: SlurmPlace = declared.part("", SlurmPlace)


UNCERTAIN = ("timed out", "zero bytes", "connection reset", "transmitted or received", "unexpected message")
"""What a command says that does not know whether slurmctld has carried it out (src/common/slurm_errno.c)."""

LOST = frozenset({"DOWN", "ERROR", "FAIL", "NOT_RESPONDING", "INVALID_REG", "POWERED_DOWN", "REBOOT_ISSUED"})
"""Flags of a node that has lost, or is losing, its jobs."""


class SlurmJobs:
    """Batch jobs through scontrol, by argv. An administrator's rights are needed: it changes others' jobs."""

    SETTINGS = SlurmJobSettings

    def __init__(
        self, settings: Given = None, environ: Given = None, timeout: float = 30.0, run: Runner = run_command
    ) -> None:
        own = read(SlurmJobSettings, settings, "controllers.slurm")
        self.environ = dict(os.environ if environ is None else environ)
        self._run = run
        self.partitions = own.partitions
        self.nodes = Slurm(own.place.variables(), environ, timeout, run)
        self.command = self.nodes.command

    # Reading.

    def jobs(self) -> Sequence[JobView]:
        """The jobs that asked for it, those of the partitions, and those that carry our note. Raises AdapterError."""
        done = self.command("scontrol", "show", "job", "-a")
        if done.status and "no jobs in the system" not in (done.stdout + done.stderr).lower():
            raise AdapterError(f"scontrol show job: {complaint(done)}")
        listed = parse_jobs(done.stdout)
        times = Counter(job.number for job in listed)
        views: Dict[JobName, JobView] = {}
        for job in listed:
            if self._wish(job) is None and not job.noted()[0]:
                continue
            # Some of it may be a user's text: slurmctld's own comes by number.
            own = self._show(job.number) if times[job.number] > 1 or job.parts else job
            if own is not None:
                view = self._job(own)
                views[view.job] = view
        return list(views.values())

    def look(self, job: JobName) -> Optional[JobView]:
        """One job, None if slurmctld has forgotten it (MinJobAge). Raises AdapterError."""
        listed = self._show(job.name)
        return None if listed is None else self._job(listed)

    def end(self, job: str) -> Optional[JobEndRecord]:
        """How a job ended. Raises AdapterError."""
        record = read_end(self.command, job, {})
        if record is None or not any(loss.cause is LossCause.NODE for loss in record.losses):
            return record
        return read_end(self.command, job, self.node_faults(record.nodes))

    def _show(self, number: str) -> Optional[SlurmJob]:
        return next((job for job in show_job(self.command, _number(number)) if job.number == number), None)

    def _wish(self, job: SlurmJob) -> Optional[Wish]:
        asked = job.wish()
        if asked is None and self.partitions & set(job.partitions) and job["Batch"] == "1" and job["Requeue"] == "1":
            return Wish()
        return asked

    def _job(self, job: SlurmJob) -> JobView:
        return understood("Slurm's", job_of, job, self._wish(job) or Wish())

    def manifest(self, job: JobView) -> str:
        """No job of Slurm ends for good as long as slurmctld knows it."""
        return ""

    # Acting.

    def hold(self, order: JobOrder) -> Sent:
        """Requeue the job into a held state, or hold it where it waits already; then the nodes to avoid."""
        try:
            job = self._show(order.job.job.name)
            if job is None:
                return Sent(Answer.REFUSED, "slurmctld does not know the job any more")
            now = self._job(job)
        except AdapterError as error:
            return Sent(Answer.REFUSED, str(error))
        if now.busy_elsewhere:
            return Sent(Answer.REFUSED, now.busy_elsewhere)
        if now.number >= order.number and now.held:
            return Sent(Answer.ACCEPTED, "it is held already")
        if not (now.phase is Phase.HELD and job["Reason"] in OURS):
            verb = "hold" if now.phase in (Phase.PENDING, Phase.HELD) else "requeuehold"
            sent = self._send("scontrol", verb, job.number)
            if sent.answer is not Answer.ACCEPTED:
                return sent
        _number_before, ours = job.noted()
        users = {node for node in job.nodes("ExcNodeList") if node not in ours}
        note = new_note(job["AdminComment"], order.number, [n for n in order.exclude if n not in users], order.because)
        for at, part in reversed(list(enumerate(job.parts))):  # each keeps its own exclusions, the leader's come last
            sent = self._avoid(f"{job.number}+{at}", part, order, ours)
            if sent.answer is not Answer.ACCEPTED:
                return sent
        if job.parts:
            return self._send("scontrol", "update", f"JobId={job.number}", f"AdminComment={note}")
        return self._avoid(job.number, job, order, ours, f"AdminComment={note}")

    def _avoid(self, name: str, job: SlurmJob, order: JobOrder, ours: Sequence[str], *more: str) -> Sent:
        """Keep a job, or one component of it, off the nodes to avoid as well as off those that its user named."""
        theirs = [node for node in job.nodes("ExcNodeList") if node not in ours]
        avoid = [*theirs, *(node for node in order.exclude if node not in theirs)]
        return self._send(
            "scontrol", "update", f"JobId={name}", f"ExcNodeList={fold_for_scheduler(avoid) if avoid else ''}", *more
        )  # fmt: skip

    def release(self, order: JobOrder) -> Sent:
        """Let a held job start, at once where Slurm would let a requeued one wait (`requeue_delay`)."""
        number = order.job.job.name
        now = self._send("scontrol", "update", f"JobId={_number(number)}", "StartTime=now")
        sent = self._send("scontrol", "release", _number(number))
        return (
            sent
            if sent.answer is not Answer.ACCEPTED or now.answer is Answer.ACCEPTED
            else Sent(Answer.ACCEPTED, f"released; it may wait for requeue_delay: {now.message}")
        )

    def _send(self, *argv: str) -> Sent:
        try:
            done: Completed = self.command(*argv)
        except AdapterError as error:
            return Sent(Answer.AMBIGUOUS if isinstance(error, NotEnded) else Answer.REFUSED, str(error))
        if done.status == 0:
            return Sent(Answer.ACCEPTED, "")
        answer = complaint(done)
        uncertain = bool(done.signal) or any(text in answer.lower() for text in UNCERTAIN)
        return Sent(Answer.AMBIGUOUS if uncertain else Answer.REFUSED, f"{' '.join(argv[:2])}: {answer}")

    def note(self, job: JobName, text: str) -> None:
        """A line in the job's AdminComment; slurmctld takes none for a job that has ended. Raises AdapterError."""
        listed = self._show(job.name)
        if listed is None or self._job(listed).phase in (Phase.FAILED, Phase.SUCCEEDED, Phase.CANCELLED):
            return
        others = listed["AdminComment"]
        if text not in others:
            whole = f"{others} | {text}" if others else text
            self.command.ask("scontrol", "update", f"JobId={_number(job.name)}", f"AdminComment={whole}")

    def submit(self, submission: Submission) -> Submitted:
        """sbatch, in the user's own environment, with the wish in the job's comment."""
        if submission.manifests:
            return Submitted((), "Slurm takes words for sbatch, and no manifests")
        argv, extra = list(submission.words), {}
        if submission.wish is not None:
            try:
                argv = wished_words(argv, submission.wish, submission.spares)
            except AdapterError as error:
                return Submitted((), str(error))
            if submission.wish.checkpoint:
                extra["NHC_CHECKPOINT"] = submission.wish.checkpoint
            if submission.spares:
                extra["NHC_SPARES"] = str(submission.spares)
        argv = ["sbatch", "--parsable", *argv]
        if submission.dry_run:
            variables = [f"{name}={value}" for name, value in extra.items()]
            return Submitted((), rendered=shlex.join([*(["env", *variables] if variables else []), *argv]))
        try:
            done = self._run(argv, self.command.timeout, {**self.environ, **self.command.env, **extra})
        except OSError as error:
            return Submitted((), f"sbatch cannot be run: {error.strerror or error}")
        if done.timed_out:
            return Submitted((), f"sbatch did not end within {self.command.timeout:g} s", ambiguous=True)
        if done.status:
            answer = complaint(done)
            return Submitted((), f"sbatch: {answer}", any(text in answer.lower() for text in UNCERTAIN))
        return Submitted((f"batch/{done.stdout.strip().partition(';')[0]}",))

    # Nodes.

    def healthy(self, order: JobOrder) -> FrozenSet[str]:
        """The nodes of its partitions that are in service; none where a node that it requires is not."""
        job = self._show(order.job.job.name)
        if job is None:
            raise AdapterError(f"slurmctld does not know job {order.job.job.name} any more")
        wanted = set(job.partitions)
        usable = {node.name for node in self.nodes.nodes() if _usable(node) and wanted & set(node.groups)}
        required = set(job.nodes("ReqNodeList"))
        if required - (usable - set(order.exclude)):
            return frozenset()
        return frozenset(usable)

    def node_faults(self, names: Iterable[str]) -> Mapping[str, str]:
        """Nodes that are down, not responding or failing, and those that nhc has drained. Raises AdapterError."""
        faults = {}
        for node in self.nodes.nodes(list(names)):
            why = _fault(node)
            if why:
                faults[node.name] = why
        return faults


def _usable(node: NodeState) -> bool:
    return node.available and not node.hold and "NOT_RESPONDING" not in node.flags


def _fault(node: NodeState) -> str:
    why = node.mark.why if node.mark is not None else ""
    lost = node.flags & LOST
    if lost:
        return f"{node.shown}: {why}" if why else node.shown
    ours: Tuple[bool, bool] = (not node.available, node.mark is not None and node.mark.ours)
    return f"taken out of service: {why}" if all(ours) else ""


def _number(job: str) -> str:
    """A job's number, or an array's with its task, as commands take it for this job alone. Raises AdapterError."""
    if not re.fullmatch(r"[0-9]+(_[0-9]+)?", job):
        raise AdapterError(f"{job!r} is not a job's number")
    return job
