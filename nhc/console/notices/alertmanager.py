"""Alertmanager's API v2 (https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml)."""

from __future__ import annotations

from typing import Dict, List

from nhc.console.notices.notice import Notice
from nhc.core.timestamps import utc

PATH = "/api/v2/alerts"
"""Below Alertmanager's root."""
LASTS = 600.0
"""Seconds after which an alert that was not said again resolves: five refreshes of `Pace.refresh`."""


def payload(notice: Notice) -> List[Dict[str, object]]:
    """One alert. Its labels are its identity, so nothing in them changes; the rest are annotations."""
    labels = {
        "alertname": "NhcIncident", "cluster": notice.cluster, "check": notice.check, "reason": notice.reason,
        "place": notice.place, "incident": notice.key[:12],
    }  # fmt: skip
    annotations = {
        "summary": notice.title, "description": notice.text, "nodes": notice.nodes, "verdict": notice.verdict,
    }  # fmt: skip
    ends = notice.at if notice.resolved else notice.at + LASTS
    alert: Dict[str, object] = {
        "labels": {name: value for name, value in labels.items() if value},
        "annotations": {name: value for name, value in annotations.items() if value},
        "startsAt": utc(notice.began), "endsAt": utc(ends),
    }  # fmt: skip
    if notice.link:
        alert["generatorURL"] = notice.link
    return [alert]
