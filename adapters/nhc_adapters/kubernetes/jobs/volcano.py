"""`batch.volcano.sh/v1alpha1` Job. It has no switch: a Command AbortJob stops it, and ResumeJob lets it start again.

Volcano counts each resumption in `status.retryCount`, ours too, and fails a job whose count has reached `maxRetry`; a
job without a retry left is not touched. Its webhook takes no other pod template: it cannot be kept off a node by name.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from nhc.ports.jobs import Phase
from nhc_adapters.kubernetes.jobs.kinds import JobEnding, JobKind, Object, Path, count, get, labelled, moment, name_of

COMMANDS = "apis/bus.volcano.sh/v1alpha1"
STOPPED = ("Aborted", "Aborting")
DEFAULT_RETRY = 3


def _templates(job: Object) -> List[Path]:
    return [("spec", "tasks", str(at), "template") for at in range(len(get(job, "spec", "tasks") or ()))]


def _ending(job: Object) -> Optional[JobEnding]:
    state = get(job, "status", "state") or {}
    phase, at = state.get("phase"), moment(state.get("lastTransitionTime"))
    text = ": ".join(str(state[name]) for name in ("reason", "message") if state.get(name))
    if phase == "Completed":
        return JobEnding(Phase.SUCCEEDED, at, "")
    if phase in ("Failed", "Terminated"):
        return JobEnding(Phase.FAILED, at, text or f"Volcano says {phase}")
    return None


def is_stopped(job: Object) -> bool:
    """Whether it was aborted, by whomever."""
    return get(job, "status", "state", "phase") in STOPPED


def spent(job: Object) -> str:
    """Why Volcano would fail the job on a restart, "" where it would not."""
    used, most = count(get(job, "status", "retryCount")), count(get(job, "spec", "maxRetry"), DEFAULT_RETRY)
    return f"Volcano counts each restart: {used} of maxRetry {most} are used" if used + 1 >= most else ""


def command(job: Object, action: str, key: str, why: str) -> Dict[str, Any]:
    """The Command that has Volcano do this to the job; its name is the restart's, so it is made once."""
    meta = job["metadata"]
    return {
        "apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", "action": action, "reason": "InfrastructureFault",
        "message": why,
        "metadata": {"name": f"nhc-{action.lower()}-{key}", "namespace": meta["namespace"]},
        "target": {
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": name_of(job), "uid": meta["uid"],
            "controller": True, "blockOwnerDeletion": False,
        },
    }  # fmt: skip


KIND = JobKind(
    "VolcanoJob",
    "apis/batch.volcano.sh/v1alpha1",
    "jobs",
    (),
    labelled("volcano.sh/job-name"),
    _templates,
    _ending,
    lambda job: str(count(get(job, "status", "retryCount"))),
    lambda job: sum(count(get(task, "replicas")) for task in get(job, "spec", "tasks") or ()),
    affinity=False,
    gang=True,
)
