"""`batch/v1` Job. Suspending deletes its pods and counts no failure; a Job that has Failed stays so.

A Job's pods may be independent of one another, so a pod that its controller replaces is no failure of the Job: only
the Job's own end is. Scheduling may be changed while it is suspended and its status has no start time (KEP-2926).
"""

from __future__ import annotations

from nhc_adapters.kubernetes.jobs.kinds import JobKind, by_conditions, count, get

KIND = JobKind(
    "Job",
    "apis/batch/v1",
    "jobs",
    ("spec", "suspend"),
    lambda job: f"batch.kubernetes.io/controller-uid={get(job, 'metadata', 'uid')}",
    lambda job: [("spec", "template")],
    by_conditions(("Complete", "SuccessCriteriaMet"), ("Failed",)),
    lambda job: "0",
    lambda job: count(get(job, "spec", "parallelism"), 1),
    affinity=True,
    gang=False,
    clear_start=True,
)
