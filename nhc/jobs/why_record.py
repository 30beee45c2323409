"""A scheduler's record of a job's end as clues, and where its ranks ran by it."""

from __future__ import annotations

import re
from typing import Dict, List

from nhc.jobs.log_catalogue import DISK, INITIATING, MEMORY, NODE, PROGRAM, SCHEDULER, TIME, UNKNOWN
from nhc.jobs.why import RECORD, Clue
from nhc.jobs.why_logs import RankPlace
from nhc.marks.ports.job_ends import JobEndRecord
from nhc.marks.ports.jobs import JobLoss, LossCause

_SIGNAL = re.compile(r"signal (\d+)")
_STATUS = re.compile(r"exit status (\d+)")
CRASHES = {4: "SIGILL", 8: "SIGFPE", 11: "SIGSEGV"}
"""Signals that a program gets for what it did itself. SIGABRT follows from NCCL's watchdog as well, SIGBUS from a full
/dev/shm or bad memory, SIGKILL and SIGTERM from outside."""
_CAUSES = {LossCause.NODE: NODE, LossCause.EVICTED: SCHEDULER, LossCause.PREEMPTED: SCHEDULER,
           LossCause.CANCELLED: SCHEDULER}  # fmt: skip


def record_clues(record: JobEndRecord) -> List[Clue]:
    """What the record says, the first loss first."""
    return [_clue(loss, record) for loss in sorted(record.losses, key=lambda loss: loss.at)]


def _clue(loss: JobLoss, record: JobEndRecord) -> Clue:
    cause, text = _CAUSES.get(loss.cause, UNKNOWN), loss.detail or loss.cause.value
    if loss.cause is LossCause.LIMIT:
        cause = TIME if re.search(r"time limit|deadline", text) else DISK if "ephemeral" in text else MEMORY
    if loss.cause is LossCause.EXIT:
        number = _signal(text)
        if number in CRASHES:
            cause, text = PROGRAM, f"the program crashed ({CRASHES[number]}): {text}"
    return Clue(RECORD, cause, INITIATING, record.state, text, loss.at or record.ended, 0, record.job.text(), loss.node)


def _signal(text: str) -> int:
    """The signal that ended a process: a shell says 128 and the number where the signal ended its child."""
    named, status = _SIGNAL.search(text), _STATUS.search(text)
    if named:
        return int(named[1])
    return int(status[1]) - 128 if status and 128 < int(status[1]) < 192 else 0


def places(record: JobEndRecord) -> Dict[int, RankPlace]:
    """The node and GPU of each rank, where every node has as many tasks: blocks, as srun distributes them."""
    count = len(record.nodes)
    if not count or record.tasks < count or record.tasks % count or record.tasks == 1:
        return {}
    each = record.tasks // count
    return {rank: RankPlace(record.nodes[rank // each], rank % each) for rank in range(record.tasks)}
