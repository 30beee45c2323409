"""`nhc doctor kubernetes`: what would keep an installation from working, found before it is missed.

It reads and never writes. Each finding is a line: `ok`, `warn`, `problem`, or `unknown` where the user who asks may
not look. What is wrong says what to do about it.
"""

from __future__ import annotations

import json
from typing import Any, Iterator, List, Mapping, Sequence, Tuple

from nhc.core.model import printable
from nhc.core.timestamps import from_utc
from nhc_adapters.kubernetes.api.client import Client
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.controller.settings import ControllerSettings
from nhc_adapters.kubernetes.devices.rules import find_api
from nhc_adapters.kubernetes.devices.watch import DeviceWatch
from nhc_adapters.kubernetes.doctor import controller, nodes
from nhc_adapters.kubernetes.doctor.installation import (
    OK,
    PROBLEM,
    UNKNOWN,
    WARN,
    Check,
    DoctorFinding,
    Installation,
    pods_refused,
    spec_of,
    why_waiting,
)
from nhc_adapters.kubernetes.nodes.accelerators import device_plugin

# Whether the services beside the controller (remedy loop, job loop, console) run, and what their pods wait for.


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


SERVICE_CHECKS: Tuple[Check, ...] = (services, pods)


# What the doctor asks of single devices: whether the cluster can take one out, and whose devices it knows.


def devices(site: Installation) -> Iterator[DoctorFinding]:
    if not site.settings.devices.on:
        return
    api = find_api(site.client)
    if api is None:
        yield DoctorFinding(
            PROBLEM,
            "devices",
            "[devices] keep = device, and the cluster serves no DeviceTaintRule: faults of devices mark their nodes",
            "Kubernetes 1.37 serves it; before, the API server needs --runtime-config and the gate DRADeviceTaintRules",
        )
        return
    watch = DeviceWatch(site.client)
    watch.load()
    nodes = watch.slices.nodes()
    count = sum(len(watch.slices.physical(name)) for name in nodes)
    if nodes:
        yield DoctorFinding(OK, "devices", f"{len(nodes)} nodes publish {count} devices; rules are {api.rules}")
    else:
        yield DoctorFinding(
            WARN, "devices", "no ResourceSlice names a device by UUID or PCI address: each fault marks its node",
            "install a DRA driver, or set [devices] keep = node",
        )  # fmt: skip
    both = [str(node["metadata"]["name"]) for node in site.nodes if device_plugin(node)]
    both = sorted(set(both) & set(nodes))
    if both:
        more = f" and {len(both) - 1} more" if len(both) > 1 else ""
        yield DoctorFinding(
            WARN, "devices", f"{both[0]}{more}: a device plugin gives devices out as well: each fault marks its node",
            "leave the devices of a node to one of the two",
        )  # fmt: skip


CHECKS: Tuple[Check, ...] = (devices,)


def examine(client: Client, namespace: str, settings: ControllerSettings) -> List[DoctorFinding]:
    """All findings. Raises AdapterError where the cluster cannot be used at all."""
    installation = Installation(client, namespace, settings)
    checks: Tuple[Check, ...] = (*controller.CHECKS, *CHECKS, *SERVICE_CHECKS, *nodes.CHECKS)
    findings: List[DoctorFinding] = []
    for check in checks:
        try:
            findings += check(installation)
        except ApiError as error:
            topic = check.__name__.replace("_", " ")
            findings.append(DoctorFinding(UNKNOWN, topic, f"cannot be looked at: {error}"))
    return list(dict.fromkeys([*installation.unread, *findings]))


def as_text(findings: Sequence[DoctorFinding]) -> str:
    width = max((len(finding.topic) for finding in findings), default=0)
    lines = []
    for finding in findings:
        lines.append(f"{finding.level:7}  {finding.topic:{width}}  {finding.text}")
        if finding.advice:
            lines.append(f"{'':7}  {'':{width}}  -> {finding.advice}")
    problems = sum(1 for finding in findings if finding.level == PROBLEM)
    warnings = sum(1 for finding in findings if finding.level in (WARN, UNKNOWN))
    lines.append(f"{problems} problems, {warnings} warnings")
    return "\n".join(lines) + "\n"


def as_json(findings: Sequence[DoctorFinding]) -> str:
    return json.dumps([finding._asdict() for finding in findings], indent=2) + "\n"


def sick(findings: Sequence[DoctorFinding]) -> bool:
    return any(finding.level == PROBLEM for finding in findings)
