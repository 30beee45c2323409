"""Decides whether a job failed because of the infrastructure, from its controller's view and the faults of its nodes.

Pure. The first loss of a run decides, with those that follow within the window: later failures are consequences.
A failure on healthy nodes is the application's, however often it happens.
"""

from __future__ import annotations

from enum import Enum
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from nhc.core.settings import declared
from nhc.core.system.steady_time import SteadyTime
from nhc.marks.ports.job_control import JobLoss, JobView, LossCause, Phase

SHARED = 3
"""Nodes of a run that fail together, from which on the cause is none of their own: two may be both ends of a link."""


class RunFinding(str, Enum):
    """Why a run ended. UNDECIDED waits for late reports about the nodes; UNCLEAR is left to a person."""

    NONE = "none"
    INFRASTRUCTURE = "infrastructure"
    APPLICATION = "application"
    UNDECIDED = "undecided"
    UNCLEAR = "unclear"


class JobNodeFault(NamedTuple):
    """Something critical that stands or stood on a node. Times are Unix seconds; `ended` None: it stands."""

    node: str
    what: str
    began: float
    ended: Optional[float] = None


class JobRun(NamedTuple):
    """The earlier data of a run: it is judged by this after the controller has started the job again by itself."""

    run: str
    nodes: Tuple[str, ...]
    active: bool


@declared.settings
class EvidenceRules(NamedTuple):
    """How to judge, in seconds.

    `window`: a fault of a node counts if it stood within so long of the failure. A kernel log's Xid and the exit of the
    rank are seconds apart; a check that runs every minute adds its cadence. `settle`: how long after an end without
    a fault late reports are waited for. `running` is how long a fault may stand under a job that still runs before the
    job counts as failed (a collective call hangs), None: for ever.
    """

    window: float = declared.seconds(
        "window",
        180.0,
        "a critical problem of a node counts if it stood within so long of the job's failure",
        least=1.0,
    )
    settle: float = declared.seconds(
        "settle", 120.0, "late reports are waited for so long before a failure counts as the application's"
    )
    running: Optional[float] = declared.seconds(
        "running", None,
        "A job that still runs on a node with such a problem counts as failed after so long. Default: it is never "
        "stopped.", least=1.0, shown='"10m"',
    )  # fmt: skip


class RunJudgement(NamedTuple):
    """`run` is the run that is judged, `nodes` those to blame. `again`: its controller has started it by itself."""

    finding: RunFinding
    why: str
    run: str
    nodes: Tuple[str, ...] = ()
    again: bool = False


def judge(
    job: JobView, before: Optional[JobRun], faults: Iterable[JobNodeFault], time: SteadyTime, rules: EvidenceRules
) -> RunJudgement:
    """Judge the newest run of a job, or the one that its controller replaced since it was seen last."""
    known = list(faults)
    if before is not None and before.run != job.run and before.active and job.phase not in (
        Phase.SUCCEEDED, Phase.CANCELLED
    ):  # fmt: skip
        bad = _standing(known, before.nodes, time.now, rules.window)
        lost = [loss for loss in job.losses if loss.cause in (LossCause.NODE, LossCause.EVICTED)]
        if bad:
            return RunJudgement(RunFinding.INFRASTRUCTURE, _text(bad), before.run, _own(bad, before.nodes), again=True)
        if not lost and job.phase is not Phase.FAILED:
            return RunJudgement(RunFinding.NONE, "its controller has started it anew", before.run, again=True)
    if job.phase in (Phase.SUCCEEDED, Phase.CANCELLED):
        return RunJudgement(
            RunFinding.NONE, f"it has {job.phase.value}" if job.phase is Phase.SUCCEEDED else "cancelled", job.run
        )
    earlier = before.nodes if before is not None and before.run == job.run else ()
    nodes = tuple(dict.fromkeys([*earlier, *job.nodes]))
    losses = _relevant(job, rules.window)
    if not losses and job.phase is not Phase.FAILED:
        return _running(job, nodes, known, time, rules)
    return _failed(job, nodes, losses, known, time, rules)


def _failed(
    job: JobView,
    nodes: Sequence[str],
    losses: Sequence[JobLoss],
    known: List[JobNodeFault],
    time: SteadyTime,
    rules: EvidenceRules,
) -> RunJudgement:
    at = losses[0].at if losses else job.ended if job.ended is not None else time.now
    causes = {loss.cause for loss in losses}
    bad = _standing(known, (*nodes, *(loss.node for loss in losses)), at, rules.window)
    if LossCause.CANCELLED in causes:
        return RunJudgement(RunFinding.NONE, "it was cancelled", job.run)
    lost = [loss for loss in losses if loss.cause in (LossCause.NODE, LossCause.EVICTED)]
    first = losses[0] if losses else None
    if lost and (first is None or first.cause is not LossCause.LIMIT):
        blamed = dict.fromkeys([*bad, *(loss.node for loss in lost if loss.cause is LossCause.NODE and loss.node)])
        why = _text(bad) if bad else "; ".join(dict.fromkeys(_loss(loss) for loss in lost[:3]))
        return RunJudgement(RunFinding.INFRASTRUCTURE, why, job.run, _own(blamed, nodes))
    if LossCause.PREEMPTED in causes and LossCause.EXIT not in causes:
        return RunJudgement(RunFinding.NONE, "it was preempted: its scheduler starts it again", job.run)
    if first is not None and LossCause.LIMIT in causes:
        limit = next(loss for loss in losses if loss.cause is LossCause.LIMIT)
        return RunJudgement(RunFinding.APPLICATION, _loss(limit), job.run)
    if bad:
        return RunJudgement(RunFinding.INFRASTRUCTURE, _text(bad), job.run, _own(bad, nodes))
    if time.elapsed(at) < rules.settle:
        return RunJudgement(RunFinding.UNDECIDED, "its nodes seem healthy; late reports are waited for", job.run)
    if first is None or first.cause is LossCause.UNKNOWN:
        said_why = _loss(first) if first is not None else "its controller does not say why"
        return RunJudgement(RunFinding.UNCLEAR, f"{said_why}, and its nodes seem healthy", job.run)
    return RunJudgement(RunFinding.APPLICATION, f"{_loss(first)}, and its nodes are healthy", job.run)


def _running(
    job: JobView, nodes: Sequence[str], known: List[JobNodeFault], time: SteadyTime, rules: EvidenceRules
) -> RunJudgement:
    if job.phase is Phase.RUNNING and rules.running is not None:
        ripe = [fault for fault in known if fault.ended is None and time.elapsed(fault.began) >= rules.running]
        bad = _standing(ripe, nodes, time.now, rules.window)
        if bad:
            why = f"it still runs, but {_text(bad)}"
            return RunJudgement(RunFinding.INFRASTRUCTURE, why, job.run, _own(bad, nodes))
    return RunJudgement(RunFinding.NONE, "", job.run)


def _relevant(job: JobView, window: float) -> List[JobLoss]:
    """The losses of this run: the first, and what came within the window of it."""
    own = sorted((loss for loss in job.losses if loss.at >= (job.started or 0.0)), key=lambda loss: loss.at)
    return [loss for loss in own if loss.at <= own[0].at + window] if own else []


def _standing(faults: Sequence[JobNodeFault], nodes: Iterable[str], at: float, window: float) -> Dict[str, str]:
    """The faulty ones of these nodes about that time, and what is wrong with each."""
    names = set(nodes)
    bad: Dict[str, str] = {}
    for fault in sorted(faults, key=lambda fault: (fault.node, fault.began)):
        near = fault.began <= at + window and (fault.ended is None or fault.ended >= at - window)
        if fault.node in names and near:
            bad.setdefault(fault.node, fault.what)
    return bad


def _own(bad: Iterable[str], nodes: Iterable[str]) -> Tuple[str, ...]:
    """The nodes to blame: none where all nodes of a run fail at once, which is something that they share (a file
    system, the fabric, the power). A job that was kept off them would wait after that has passed.
    """
    blamed, all_nodes = tuple(bad), set(nodes)
    return () if len(all_nodes) >= SHARED and all_nodes <= set(blamed) else blamed


def _text(bad: Dict[str, str]) -> str:
    parts = [f"{node}: {what}" for node, what in list(bad.items())[:3]]
    return "; ".join(parts) + (f"; and {len(bad) - 3} nodes more" if len(bad) > 3 else "")


def _loss(loss: JobLoss) -> str:
    return f"{loss.node}: {loss.detail}" if loss.node and loss.node not in loss.detail else loss.detail
