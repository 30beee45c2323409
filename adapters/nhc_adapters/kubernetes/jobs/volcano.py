"""`batch.volcano.sh/v1alpha1` Job. It has no switch: a Command AbortJob stops it, and ResumeJob lets it start again.

Volcano counts each resumption in `status.retryCount`, ours too, and fails a job whose count has reached `maxRetry`; a
job without a retry left is not touched.
"""

from __future__ import annotations

from typing import Any, Dict

from nhc_adapters.kubernetes.api.objects import Object, get, name_of
from nhc_adapters.kubernetes.jobs.kinds import count

COMMANDS = "apis/bus.volcano.sh/v1alpha1"
STOPPED = ("Aborted", "Aborting")
DEFAULT_RETRY = 3


def is_stopped(job: Object) -> bool:
    """Whether it was aborted, by whomever."""
    return get(job, "status", "state", "phase") in STOPPED


def spent(job: Object) -> str:
    """Why Volcano would fail the job on a restart, "" if it would not."""
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
