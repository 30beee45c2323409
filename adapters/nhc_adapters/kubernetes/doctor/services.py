"""Whether the services beside the controller (remedy loop, job loop, console) run, and what their pods wait for."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Tuple

from nhc.model import printable
from nhc_adapters.kubernetes.doctor.installation import OK, PROBLEM, WARN, Check, DoctorFinding, Installation, spec_of

PENDING_AFTER = 60.0
"""Seconds that a pod may take to start."""


def services(found: Installation) -> Iterator[DoctorFinding]:
    """Each StatefulSet of ours, by how many of its pods are ready."""
    for one in found.statefulsets:
        name, ready = str(one["metadata"]["name"]), int((one.get("status") or {}).get("readyReplicas") or 0)
        wanted = int(spec_of(one).get("replicas", 1))
        level = OK if ready >= wanted else WARN if ready else PROBLEM
        advice = "" if ready >= wanted else f"kubectl -n {found.namespace} describe statefulset {name}"
        yield DoctorFinding(level, "services", f"{name}: {ready} of {wanted} ready", advice)


def pods(found: Installation) -> Iterator[DoctorFinding]:
    """Each pod of ours that has not started for longer than that takes, and what it waits for."""
    for pod in found.pods:
        status: Mapping[str, Any] = pod.get("status") or {}
        waits = found.now() - found.created(pod)
        if status.get("phase") != "Pending" or waits <= PENDING_AFTER:
            continue
        name = str(pod["metadata"]["name"])
        text = f"{name} is Pending for {waits / 60:.0f} min: {printable(_why(status), 200)}"
        yield DoctorFinding(PROBLEM, "pods", text, f"kubectl -n {found.namespace} describe pod {name}")


def _why(status: Mapping[str, Any]) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("status") == "False" and condition.get("message"):
            return f"{condition.get('reason', '')}: {condition['message']}"
    for one in status.get("containerStatuses") or ():
        waiting = (one.get("state") or {}).get("waiting") or {}
        if waiting:
            return f"{waiting.get('reason', '')}: {waiting.get('message', '')}"
    return "nobody says why"


CHECKS: Tuple[Check, ...] = (services, pods)
