"""Why a run failed, by its scheduler's record and its logs, as `nhc job why` says it: read once, and kept in the store.

It also decides: a run that failed on a faulty node may have ended by a fault of its own, and then a restart on other
nodes does not help. Only a cause that the faulty nodes cannot have brought about counts.
"""

from __future__ import annotations

import pwd
from typing import Dict, List, Optional, Sequence, Tuple

from nhc.core.model import printable
from nhc.core.system.service_log import failure
from nhc.core.system.steady_time import SteadyTime
from nhc.jobs import owner_mail
from nhc.jobs.acting import JobActuators
from nhc.jobs.failure_cause import JobNodeFault, RunFinding, RunJudgement
from nhc.jobs.log_catalogue import GPU, INITIATING, LIMITS, NODE, PROGRAM, UNKNOWN
from nhc.jobs.owner_mail import OwnerMail
from nhc.jobs.why import CHECKS, ESTABLISHED, NOT_KNOWN, SKEW, Clue, JobVerdict, dated, judge_end
from nhc.jobs.why_logs import JobLogSource, places, read_logs, record_clues
from nhc.jobs.why_report import JobWhy, summary
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.job_control import JobController, JobEndRecord, JobEnds, JobName, JobView, LossCause, Phase
from nhc.store import job_restarts
from nhc.store.job_restarts import JobEnd, WatchedJob

KEPT = 4096
"""Runs whose answer this process keeps, so that their logs are read once."""
A_ROUND = 4
"""Runs whose logs are read in a round although nothing depends on them: reading takes seconds."""
AGAIN = 300.0
"""Seconds after which a record that could not be read is asked for again: of one run a round, the longest-waiting."""
_FAILED = (RunFinding.INFRASTRUCTURE, RunFinding.APPLICATION, RunFinding.UNCLEAR)


class RunEnds:
    """How runs ended that failed: read once, kept in the store and for the lifetime of this process."""

    def __init__(self, actuators: JobActuators, mail_domains: Sequence[str] = ()) -> None:
        self._actuators, self._domains = actuators, mail_domains
        self._known: Dict[Tuple[JobName, str], JobEnd] = {}
        self._unread: Dict[Tuple[JobName, str], float] = {}
        self._left = A_ROUND
        self._time = SteadyTime(0.0)
        self.problems: List[str] = []
        """What could not be read in this round."""

    def begin_round(self, time: SteadyTime) -> None:
        """A new round may read as many again."""
        self._left, self._time, self.problems = A_ROUND, time, []
        waiting = next(iter(self._unread), None)
        if waiting is not None and time.elapsed(self._unread[waiting]) >= AGAIN:
            del self._unread[waiting]

    def look(
        self, controller: JobController, row: WatchedJob, job: JobView, judgement: RunJudgement,
        faults: Sequence[JobNodeFault], writes: bool,
    ) -> RunJudgement:  # fmt: skip
        """The same judgement; that of the application, where its log says that it failed by itself.

        What cannot be read changes nothing. `writes`: the answer may be kept in the store.
        """
        decides = judgement.finding is RunFinding.INFRASTRUCTURE
        if judgement.finding not in _FAILED or judgement.again or job.phase is not Phase.FAILED:
            return judgement
        key = (job.job, judgement.run)
        end = self._known.get(key)
        if end is None:
            if not isinstance(controller, JobEnds) or key in self._unread or (not decides and self._left <= 0):
                return judgement
            self._left -= 0 if decides else 1
            end = self._end(controller, row, job, judgement, faults, writes)
            self._keep(key, end)
        exits = bool(job.losses) and all(loss.cause is LossCause.EXIT for loss in job.losses)
        if not decides or not exits or end is None or not end.own_fault:
            return judgement
        return judgement._replace(finding=RunFinding.APPLICATION, why=end.own_fault, nodes=())

    def _keep(self, key: Tuple[JobName, str], end: Optional[JobEnd]) -> None:
        if end is None:
            if len(self._unread) >= KEPT:
                self._unread.clear()
            self._unread[key] = self._time.now
            return
        if len(self._known) >= KEPT:
            self._known.clear()
        self._known[key] = end

    def _end(
        self, controller: JobEnds, row: WatchedJob, job: JobView, judgement: RunJudgement,
        faults: Sequence[JobNodeFault], writes: bool,
    ) -> Optional[JobEnd]:  # fmt: skip
        """Of the store, else read now; None where there is no record yet. Raises StoreError."""
        with self._actuators.store.read() as connection:
            kept = job_restarts.end_of_run(connection, row.id, judgement.run) if row.id else None
        if kept is not None:
            return kept
        try:
            record = controller.end(job.job.text() if job.job.namespace else job.job.name)
        except AdapterError:
            return None
        if record is None:
            return None
        mail = None
        try:
            end, lines = run_end(record, [fault for fault in faults if fault.node in judgement.nodes])
            mail = self._mail(record, row, judgement.run, end, lines)
        except Exception as error:  # kept as the answer: the same logs would end the next round in the same way
            self.problems.append(f"{row.text()}: why it failed is not known: {failure(error)}")
            end = _unread(record, failure(error))
        end = end._replace(job=row.id, run=judgement.run, ended=end.ended or job.ended or self._actuators.clock())
        if writes and row.id:
            self._actuators.keep_end(row, end, mail and mail._replace(ended=end.ended))
        return end

    def _mail(
        self, record: JobEndRecord, row: WatchedJob, run: str, end: JobEnd, lines: Sequence[str]
    ) -> Optional[OwnerMail]:
        to = owner_mail.address(record.mail, record.user or row.user, self._domains)
        if not to or not owner_mail.is_due(end.cause, end.sure):
            return None
        return OwnerMail(to, row.text(), run, (f"job {row.text()}: {lines[0]}", *lines[1:]), end.ended)


def run_end(record: JobEndRecord, faults: Sequence[JobNodeFault]) -> Tuple[JobEnd, List[str]]:
    """Why this run ended, beside these faults of its nodes, and the three lines that say it.

    `ended` is 0.0 where the record does not say it. A log that is not its user's own is not read. Raises Unreadable,
    OSError: the logs cannot be read.
    """
    owner = _owner(record.user)
    sources = [JobLogSource(log.name or log.path, log.path, log.text, log.rank, owner=owner) for log in record.logs]
    logs = read_logs(sources, record.nodes, places(record)).logs
    nodes = {log.name or log.path: log.node for log in record.logs}
    clues = dated([*logs.clues(), *record_clues(record)], record.ended or logs.last)
    clues += [Clue(CHECKS, NODE, INITIATING, "problem", fault.what, fault.began, 0, fault.node, fault.node)
              for fault in faults]  # fmt: skip
    verdict = judge_end(clues, record.ended or logs.last)
    first = verdict.first
    node = (first.node or nodes.get(first.where.rpartition(":")[0], "")) if first is not None else ""
    cause = UNKNOWN if verdict.cause == GPU else verdict.cause
    lines = summary(JobWhy("", verdict))
    return JobEnd(0, "", cause, verdict.sure, lines[0], node, verdict.restart, own_fault(verdict, node, faults),
                  record.gpus, record.started, record.ended or 0.0), lines  # fmt: skip


def _unread(record: JobEndRecord, why: str) -> JobEnd:
    """The end of a run whose logs could not be read."""
    return JobEnd(0, "", UNKNOWN, NOT_KNOWN, printable(f"not known: {why}", 300), "", "unknown", "", record.gpus,
                  record.started, record.ended or 0.0)  # fmt: skip


def own_fault(verdict: JobVerdict, node: str, faults: Sequence[JobNodeFault]) -> str:
    """What the program, or a limit of its own, ended the job by; "" where a faulty node may have had to do with it."""
    first = verdict.first
    if first is None or verdict.cause not in (PROGRAM, *LIMITS):
        return ""
    if first.kind.startswith("cuda-") and verdict.sure != ESTABLISHED:
        return ""  # a broken GPU shows itself so, too
    for fault in faults:
        after = first.at is not None and fault.began > first.at + SKEW
        if not after and (not node or node == fault.node):
            return ""
    where = f" on {node}" if node else ""
    return f"its own fault{where}: {verdict.what}, though {faults[0].node}: {faults[0].what}" if faults else ""


def _owner(user: str) -> int:
    """The uid of a job's user, -1 where nobody has the name: this process may read more than the user."""
    try:
        return pwd.getpwnam(user).pw_uid if user else -1
    except KeyError:
        return -1
