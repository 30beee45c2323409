"""Whether the services beside the controller (remedy loop, job loop, console) run, and what their pods wait for."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Tuple

from nhc.core.model import printable
from nhc.core.timestamps import from_utc
from nhc_adapters.kubernetes.doctor.installation import (
    OK,
    PROBLEM,
    WARN,
    Check,
    DoctorFinding,
    Installation,
    pods_refused,
    spec_of,
    why_waiting,
)

PENDING_AFTER = 60.0
"""Seconds that a pod may take to start."""


def services(site: Installation) -> Iterator[DoctorFinding]:
    """Each StatefulSet of ours, by how many of its pods are ready."""
    for item in site.statefulsets:
        name, ready = str(item["metadata"]["name"]), int((item.get("status") or {}).get("readyReplicas") or 0)
        wanted = int(spec_of(item).get("replicas", 1))
        level = OK if ready >= wanted else WARN if ready else PROBLEM
        made = int((item.get("status") or {}).get("replicas") or 0)
        said = site.refused_pods("services", name) if made < wanted else ""
        advice = "" if ready >= wanted else f"kubectl -n {site.namespace} describe statefulset {name}"
        text = f"{name}: {ready} of {wanted} ready{f': {said}' if said else ''}"
        yield DoctorFinding(level, "services", text, pods_refused(said) if said else advice)


def pods(site: Installation) -> Iterator[DoctorFinding]:
    """Each pod of ours that has not started for longer than that takes, and what it waits for."""
    for pod in site.pods:
        status: Mapping[str, Any] = pod.get("status") or {}
        waits = site.now() - from_utc(pod["metadata"].get("creationTimestamp"))
        if status.get("phase") != "Pending" or waits <= PENDING_AFTER:
            continue
        name = str(pod["metadata"]["name"])
        text = f"{name} is Pending for {waits / 60:.0f} min: {printable(why_waiting(pod) or 'nobody says why', 200)}"
        yield DoctorFinding(PROBLEM, "pods", text, f"kubectl -n {site.namespace} describe pod {name}")


CHECKS: Tuple[Check, ...] = (services, pods)
