"""`nhc kubernetes doctor`: what would keep an installation from working, found before it is missed.

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
    found: List[DoctorFinding] = []
    for check in checks:
        try:
            found += check(installation)
        except ApiError as error:
            topic = check.__name__.replace("_", " ")
            found.append(DoctorFinding(UNKNOWN, topic, f"cannot be looked at: {error}"))
    return list(dict.fromkeys([*installation.unread, *found]))


def as_text(found: Sequence[DoctorFinding]) -> str:
    width = max((len(one.topic) for one in found), default=0)
    lines = []
    for one in found:
        lines.append(f"{one.level:7}  {one.topic:{width}}  {one.text}")
        if one.advice:
            lines.append(f"{'':7}  {'':{width}}  -> {one.advice}")
    problems = sum(1 for one in found if one.level == PROBLEM)
    warnings = sum(1 for one in found if one.level in (WARN, UNKNOWN))
    lines.append(f"{problems} problems, {warnings} warnings")
    return "\n".join(lines) + "\n"


def as_json(found: Sequence[DoctorFinding]) -> str:
    return json.dumps([one._asdict() for one in found], indent=2) + "\n"


def sick(found: Sequence[DoctorFinding]) -> bool:
    return any(one.level == PROBLEM for one in found)
