"""Whether a run that failed on a faulty node ended by a fault of its own: then a restart on other nodes does not help.

The job's own log decides, as for `nhc job why`; only a cause that the faulty nodes cannot have brought about counts.
"""

from __future__ import annotations

import os
import pwd
from typing import Dict, List, Sequence, Tuple

from nhc.jobs.judge import JobNodeFault, RunFinding, RunJudgement
from nhc.jobs.log_catalogue import INITIATING, LIMITS, NODE, PROGRAM
from nhc.jobs.why import CHECKS, ESTABLISHED, SKEW, Clue, dated, decide
from nhc.jobs.why_logs import JobLogs
from nhc.jobs.why_record import places, record_clues
from nhc.ports.adapter import AdapterError
from nhc.ports.job_ends import JobEndRecord, JobEnds, JobLogText
from nhc.ports.jobs import JobController, JobName, JobView, LossCause, Phase
from nhc.system.bounded_read import open_file

LOG_BYTES = 8 << 20
"""Bytes of a log's end that are read."""
KEPT = 4096
"""Runs whose answer this process keeps, so that their logs are read once."""


class OwnFaults:
    """Reads the logs of runs that failed, each once in the lifetime of this process."""

    def __init__(self) -> None:
        self._known: Dict[Tuple[JobName, str], str] = {}

    def look(
        self, controller: JobController, job: JobView, found: RunJudgement, faults: Sequence[JobNodeFault]
    ) -> RunJudgement:
        """The same judgement; that of the application, where its log says that it failed by itself.

        What cannot be read changes nothing.
        """
        exits = bool(job.losses) and all(loss.cause is LossCause.EXIT for loss in job.losses)
        if found.finding is not RunFinding.INFRASTRUCTURE or found.again or job.phase is not Phase.FAILED or not exits:
            return found
        if not isinstance(controller, JobEnds):
            return found
        key = (job.job, found.run)
        if key not in self._known:
            if len(self._known) >= KEPT:
                self._known.clear()
            try:
                record = controller.end(job.job.text() if job.job.namespace else job.job.name)
            except AdapterError:
                record = None
            near = [fault for fault in faults if fault.node in found.nodes]
            self._known[key] = own_fault(record, near) if record is not None else ""
        own = self._known[key]
        return found._replace(finding=RunFinding.APPLICATION, why=own, nodes=()) if own else found


def own_fault(record: JobEndRecord, faults: Sequence[JobNodeFault]) -> str:
    """What the program, or a limit of its own, ended the job by; "" where a faulty node may have had to do with it."""
    logs = JobLogs(record.nodes, places(record))
    nodes: Dict[str, str] = {}
    for log in record.logs:
        logs.read(log.name or log.path, _lines(log, record.user), rank=log.rank)
        nodes[log.name or log.path] = log.node
    clues = dated([*logs.clues(), *record_clues(record)], record.ended or logs.last)
    clues += [Clue(CHECKS, NODE, INITIATING, "problem", fault.what, fault.began, 0, fault.node, fault.node)
              for fault in faults]  # fmt: skip
    verdict = decide(clues, record.ended or logs.last)
    first = verdict.first
    if first is None or verdict.cause not in (PROGRAM, *LIMITS):
        return ""
    if first.kind.startswith("cuda-") and verdict.sure != ESTABLISHED:
        return ""  # a broken GPU shows itself so, too
    node = first.node or nodes.get(first.where.rpartition(":")[0], "")
    for fault in faults:
        after = first.at is not None and fault.began > first.at + SKEW
        if not after and (not node or node == fault.node):
            return ""
    where = f" on {node}" if node else ""
    return f"its own fault{where}: {verdict.what}, though {faults[0].node}: {faults[0].what}" if faults else ""


def _lines(log: JobLogText, user: str) -> List[str]:
    """The end of a log. A file is read only if it is the job's user's own: this process may read more than he may."""
    if not log.path:
        return log.text.splitlines()
    try:
        with os.fdopen(open_file(log.path), "rb") as file:
            status = os.fstat(file.fileno())
            if not user or status.st_uid != pwd.getpwnam(user).pw_uid:
                return []
            file.seek(max(status.st_size - LOG_BYTES, 0))
            return file.read(LOG_BYTES).decode("utf-8", "replace").splitlines()
    except (OSError, KeyError):
        return []
