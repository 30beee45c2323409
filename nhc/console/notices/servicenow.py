"""ServiceNow's event management: POST /api/global/em/jsonv2, with the role evt_mgmt_integration."""

from __future__ import annotations

import json
from typing import Dict

from nhc.console.notices.notice import Notice, cut

PATH = "/api/global/em/jsonv2"
"""Below the instance's root."""
CLEAR = "0"
SEVERITY = {"CRIT": "1", "UNKNOWN": "3", "WARN": "4"}
"""1 critical, 2 major, 3 minor, 4 warning, 5 information, 0 clear."""


def payload(notice: Notice) -> Dict[str, object]:
    """One event; the same `message_key` is the same alert."""
    details = {"nodes": cut(notice.nodes, 4000), "since": notice.began, "flaps": notice.flaps, "link": notice.link}
    record = {
        "source": "nhc",
        "event_class": cut(notice.cluster or "nhc", 100),
        "node": cut(notice.place or notice.nodes, 100),
        "resource": cut(notice.check, 100),
        "type": cut(notice.reason or notice.check, 100),
        "severity": CLEAR if notice.resolved else SEVERITY.get(notice.verdict, "5"),
        "message_key": f"nhc/{notice.key}",
        "description": cut(notice.text, 4000),
        "additional_info": json.dumps(details, ensure_ascii=False),
    }
    return {"records": [record]}
