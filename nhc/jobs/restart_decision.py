"""The next step for one job. Pure: takes a judgement, the job's restarts and the bounds, and returns one step.

A run is restarted at most once, a job at most as often as its limit says, and only after an infrastructure fault. A
restart that has begun is finished by looking at the job: its state shows which call took effect.
"""

from __future__ import annotations

from enum import Enum
from typing import AbstractSet, FrozenSet, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.system.steady_time import SteadyTime
from nhc.jobs.failure_cause import RunFinding, RunJudgement
from nhc.jobs.settings import RESEND, RestartLimits
from nhc.marks.ports.job_control import JobView, Phase
from nhc.store import job_restarts
from nhc.store.job_restarts import JobRestart


class StepKind(str, Enum):
    """A step."""

    NOTHING = "nothing"
    WAIT = "wait"
    LEAVE = "leave"
    """Said once: this run is not restarted, and why."""
    NOTE = "note"
    """Its controller has started it by itself, off the faulty nodes: counted and remembered."""
    BEGIN = "begin"
    SEND_HOLD = "send-hold"
    HELD = "held"
    SEND_RELEASE = "send-release"
    RESTARTED = "restarted"
    SUPERSEDED = "superseded"
    FAILED = "failed"
    END = "end"
    """The job needs no watching any more."""


class LeaveReason(str, Enum):
    """Why a run that failed is left alone. The last three are given up: the infrastructure has failed them."""

    APPLICATION = "application"
    UNCLEAR = "unclear"
    """Nothing says whether it was the infrastructure: a person must look."""
    OVER = "over"
    """It was restarted before, and somebody else has taken the job in hand."""
    LIMIT = "limit"
    """All restarts that it may have are used up."""
    FINAL = "final"
    """It ended for good, and creating it again is not enabled."""
    FAILED = "failed"
    """It was to be restarted, and could not be."""


class JobStep(NamedTuple):
    """`exclude` are the nodes to avoid, for BEGIN; `nodes` those that failed the run; `left` is for LEAVE."""

    kind: StepKind
    why: str = ""
    nodes: Tuple[str, ...] = ()
    exclude: Tuple[str, ...] = ()
    left: Optional[LeaveReason] = None


class RestartBounds(NamedTuple):
    """What bounds the restarts of one job: `max_restarts` of it in all, and the site's limits.

    `left` restarts may still begin now for the whole fleet's rate. `wants` is how many nodes the job needs. `anew`
    allows a job that ended for good to be created again.
    """

    limits: RestartLimits
    max_restarts: int
    left: int
    wants: int = 1
    anew: bool = False


class JobScene(NamedTuple):
    """What bears on a job besides itself. `held` is why nothing may begin now; `healthy` are the nodes in service on
    which it may run, None where that was not asked. `faulty` are nodes with a fault now, and what is wrong with each.
    """

    time: SteadyTime
    held: str = ""
    healthy: Optional[FrozenSet[str]] = None
    unseen: str = ""
    faulty: Mapping[str, str] = {}


def first(
    job: JobView,
    judgement: RunJudgement,
    past: Sequence[JobRestart],
    pairs: Sequence[str],
    bounds: RestartBounds,
    scene: JobScene,
) -> JobStep:
    """For a job without a restart under way. `pairs` are nodes that failed it before, the newest first."""
    if judgement.finding is not RunFinding.INFRASTRUCTURE:
        return _left(job, judgement)
    before = [restart for restart in past if restart.run == judgement.run]
    if before:
        if judgement.again:
            return JobStep(StepKind.NOTHING)
        left = LeaveReason.FAILED if before[-1].outcome == job_restarts.FAILED else LeaveReason.OVER
        return JobStep(StepKind.LEAVE, "this run was restarted before, and its restart is over", left=left)
    nodes = judgement.nodes
    avoid = [node for node in dict.fromkeys([*nodes, *pairs]) if node not in job.bound]
    exclude = tuple(avoid[: max(bounds.limits.avoid, len(nodes))])
    if len(past) >= bounds.max_restarts:
        why = f"{len(past)} of {bounds.max_restarts} restarts are used up ({judgement.why})"
        return JobStep(StepKind.LEAVE, why, nodes, left=LeaveReason.LIMIT)
    if judgement.again and job.phase is Phase.RUNNING:
        return JobStep(StepKind.NOTE, judgement.why, nodes, exclude)
    if job.phase is Phase.ENDING:
        return JobStep(StepKind.WAIT, "it still leaves its nodes")
    if job.busy_elsewhere:
        return JobStep(StepKind.WAIT, job.busy_elsewhere)
    if job.final and not bounds.anew:
        why = f"it ended for good and would have to be made anew, which is not enabled ({judgement.why})"
        return JobStep(StepKind.LEAVE, why, nodes, left=LeaveReason.FINAL)
    if scene.held:
        return JobStep(StepKind.WAIT, scene.held)
    newest = max((restart.written for restart in past), default=0.0)
    cooldown = bounds.limits.cooldown
    passed = scene.time.elapsed(newest) if past else cooldown
    if passed < cooldown:
        return JobStep(StepKind.WAIT, f"the last restart was {passed:.0f} s ago: {cooldown:.0f} s are kept")
    if bounds.left <= 0:
        return JobStep(StepKind.WAIT, "the rate of restarts is used up")
    return JobStep(StepKind.BEGIN, judgement.why, nodes, exclude)


def _left(job: JobView, judgement: RunJudgement) -> JobStep:
    if job.phase in (Phase.SUCCEEDED, Phase.CANCELLED):
        return JobStep(StepKind.END, judgement.why)
    if judgement.finding is RunFinding.UNDECIDED:
        return JobStep(StepKind.WAIT, judgement.why)
    if judgement.finding is RunFinding.APPLICATION:
        return JobStep(StepKind.LEAVE, judgement.why, left=LeaveReason.APPLICATION)
    if judgement.finding is RunFinding.UNCLEAR:
        return JobStep(StepKind.LEAVE, judgement.why, left=LeaveReason.UNCLEAR)
    return JobStep(StepKind.NOTHING, judgement.why)


def following(job: Optional[JobView], restart: JobRestart, bounds: RestartBounds, scene: JobScene) -> JobStep:
    """For a job whose restart is under way; `job` None: there is none of that name and uid now.

    With a manifest, HOLD deletes the job and RELEASE creates it again (with another uid, which `job` then has).
    """
    made_anew = bool(restart.manifest)
    if restart.state == job_restarts.HOLDING:
        return _holding(job, restart, made_anew, bounds, scene)
    if restart.state == job_restarts.HELD:
        return _held(job, restart, made_anew, bounds, scene)
    if job is None and not made_anew:
        return JobStep(StepKind.SUPERSEDED, "the job is gone")
    if job is not None and _shows(job, restart) and not job.held:
        return JobStep(StepKind.RESTARTED)
    if job is not None and not made_anew and not job.held and job.phase is not Phase.HELD:
        return JobStep(StepKind.SUPERSEDED, "somebody else has released it")
    if job is not None and made_anew and not _shows(job, restart):
        return JobStep(StepKind.SUPERSEDED, "somebody else has made it anew")
    return _again(StepKind.SEND_RELEASE, restart, bounds, scene)


def _holding(
    job: Optional[JobView], restart: JobRestart, made_anew: bool, bounds: RestartBounds, scene: JobScene
) -> JobStep:
    if job is None:
        return JobStep(StepKind.HELD) if made_anew else JobStep(StepKind.SUPERSEDED, "the job is gone")
    if job.phase in (Phase.SUCCEEDED, Phase.CANCELLED):
        return JobStep(
            StepKind.SUPERSEDED, f"the job has {job.phase.value}" if job.phase is Phase.SUCCEEDED else "cancelled"
        )
    if _shows(job, restart) and job.held:
        return JobStep(StepKind.HELD)
    if job.run != restart.run and job.phase is Phase.RUNNING and job.nodes:
        return JobStep(StepKind.SUPERSEDED, "somebody else has started it anew")
    return _again(StepKind.SEND_HOLD, restart, bounds, scene)


def _held(
    job: Optional[JobView], restart: JobRestart, made_anew: bool, bounds: RestartBounds, scene: JobScene
) -> JobStep:
    if job is None and not made_anew:
        return JobStep(StepKind.SUPERSEDED, "the job is gone")
    if job is not None and (made_anew or not job.held):
        why = "somebody else has made it anew" if made_anew else "somebody else has released it, or ended it"
        return JobStep(StepKind.SUPERSEDED, why)
    if scene.held:
        return JobStep(StepKind.WAIT, scene.held)
    for node in job.bound if job is not None else ():
        if node in scene.faulty:
            return JobStep(StepKind.WAIT, f"it must run on {node}, which is not repaired: {scene.faulty[node]}")
    if scene.healthy is None:
        return JobStep(StepKind.WAIT, scene.unseen or "its nodes were not asked for yet")
    return _enough(job, set(restart.avoided), bounds.wants, scene)


def _enough(job: Optional[JobView], avoided: AbstractSet[str], wants: int, scene: JobScene) -> JobStep:
    healthy = scene.healthy or frozenset()
    if job is not None and not job.excludes and avoided & healthy:
        names = ", ".join(sorted(avoided & healthy)[:3])
        return JobStep(
            StepKind.WAIT, f"{names} must be out of service first: this job cannot be kept off nodes by their names"
        )
    usable = len(healthy - avoided - scene.faulty.keys())
    if usable < wants:
        return JobStep(StepKind.WAIT, f"it needs {wants} healthy nodes, and there are {usable}")
    return JobStep(StepKind.SEND_RELEASE)


def _again(kind: StepKind, restart: JobRestart, bounds: RestartBounds, scene: JobScene) -> JobStep:
    """Send, or wait until what was sent must have shown its effect."""
    timeout = bounds.limits.hold_timeout
    if scene.time.elapsed(restart.written) > timeout and kind is StepKind.SEND_HOLD:
        return JobStep(StepKind.FAILED, f"it could not be held within {timeout:.0f} s")
    asked = restart.sent if restart.sent is not None else restart.updated
    if scene.time.elapsed(asked) < RESEND:
        return JobStep(StepKind.WAIT, "the effect of the last call is looked for")
    return JobStep(kind)


def _shows(job: JobView, restart: JobRestart) -> bool:
    """Whether the job carries the number of this restart, or of a later one."""
    return job.number >= restart.number
