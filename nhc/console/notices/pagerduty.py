"""PagerDuty's Events API v2 (https://developer.pagerduty.com/docs/events-api-v2/trigger-events/)."""

from __future__ import annotations

from typing import Dict

from nhc.console.notices.notice import Notice, cut
from nhc.core.timestamps import utc

URL = "https://events.pagerduty.com/v2/enqueue"
SEVERITY = {"CRIT": "critical", "UNKNOWN": "error", "WARN": "warning"}


def payload(notice: Notice, routing_key: str) -> Dict[str, object]:
    """A trigger or a resolve; the same key while it is open adds to it."""
    event: Dict[str, object] = {
        "routing_key": routing_key,
        "event_action": "resolve" if notice.resolved else "trigger",
        "dedup_key": f"nhc/{notice.key}",
        "payload": {
            "summary": cut(notice.title, 1024),
            "source": cut(notice.place or notice.cluster or "nhc", 255),
            "severity": SEVERITY.get(notice.verdict, "info"),
            "timestamp": utc(notice.at),
            "component": cut(notice.check, 255),
            "class": cut(notice.reason, 255),
            "custom_details": {"text": cut(notice.text, 8000)},
        },
    }
    if notice.link and not notice.resolved:
        event["links"] = [{"href": notice.link, "text": "Console"}]
    return event
