"""`nhc doctor kubernetes`: what would keep an installation from working, found before it is missed.

It reads and never writes. Each finding is a line: `ok`, `warn`, `problem`, or `unknown` where the user who asks may
not look. What is wrong says what to do about it.
"""

from __future__ import annotations

import json
from typing import List, Sequence, Tuple

from nhc_adapters.kubernetes.api.client import Client
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.controller.settings import ControllerSettings
from nhc_adapters.kubernetes.doctor import controller, devices, nodes, services
from nhc_adapters.kubernetes.doctor.installation import PROBLEM, UNKNOWN, WARN, Check, DoctorFinding, Installation


def examine(client: Client, namespace: str, settings: ControllerSettings) -> List[DoctorFinding]:
    """All findings. Raises AdapterError where the cluster cannot be used at all."""
    installation = Installation(client, namespace, settings)
    checks: Tuple[Check, ...] = (*controller.CHECKS, *devices.CHECKS, *services.CHECKS, *nodes.CHECKS)
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
