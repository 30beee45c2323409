"""What each chat, pager, ticket system and webhook is sent. Mail is nhc.console.notices.mail.

The webhook is signed as Standard Webhooks 1.0 has it (https://www.standardwebhooks.com).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import html
import json
import time
import urllib.parse
from typing import Dict, List, NamedTuple, Tuple

from nhc.console.notices.notice import OPEN, TEST, Notice, cut
from nhc.console.notices.sender import Sender, SendLater, basic_auth
from nhc.core.json_values import object_from
from nhc.core.system.exchange import Exchange
from nhc.core.timestamps import utc

# Jira: one issue for one incident (https://developer.atlassian.com/server/jira/platform/rest/v2/).
#
# Before nhc makes an issue, it searches for one by a label made of the incident's key: a lost answer makes no second
# one. nhc writes nothing into an open issue and closes none. An issue that a person closed stays closed: the next
# occurrence of the incident gets a new one.


def label(notice: Notice) -> str:
    """What the issue is found by."""
    return f"nhc-{notice.key}-{notice.number}"


def query(notice: Notice, project: str) -> str:
    """The path of the search for the issue."""
    asked = {"jql": f'project = "{project}" AND labels = "{label(notice)}"', "maxResults": "1", "fields": "key"}
    return f"/rest/api/2/search?{urllib.parse.urlencode(asked)}"


def jira_payload(notice: Notice, project: str, kind: str) -> Dict[str, object]:
    """A new issue. {noformat} keeps what nodes say from being read as markup."""
    text = cut(notice.text, 32_000).replace("{noformat}", "(noformat)")
    return {
        "fields": {
            "project": {"key": project},
            "issuetype": {"name": kind},
            "summary": cut(notice.title, 255),
            "description": f"{{noformat}}\n{text}\n{{noformat}}",
            "labels": ["nhc", label(notice)],
        }
    }


class JiraChannel(NamedTuple):
    """`url` is Jira's root. With a user the token is a password (Atlassian's cloud), else a personal access token."""

    url: str
    project: str
    kind: str
    user: str
    token: str
    sender: Sender

    def deliver(self, notice: Notice, exchange: Exchange) -> None:
        """Raises SendLater, SendRefused."""
        if notice.kind not in (OPEN, TEST):
            return
        bearer = {"Authorization": f"Bearer {self.token}"}
        headers = basic_auth(self.user, self.token) if self.user else bearer
        root = self.url.rstrip("/")
        answer = self.sender.get(exchange, root + query(notice, self.project), headers, (self.token,))
        issues = object_from(answer).get("issues")
        if not isinstance(issues, list):
            raise SendLater("the search's answer is no list of issues")
        if not issues:
            issue = jira_payload(notice, self.project, self.kind)
            self.sender.post(exchange, f"{root}/rest/api/2/issue", issue, headers, (self.token,))


# Alertmanager's API v2 (https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml).


ALERTMANAGER_PATH = "/api/v2/alerts"
"""Below Alertmanager's root."""
LASTS = 600.0
"""Seconds after which an alert that was not said again resolves: five refreshes of `Pace.refresh`."""


def alertmanager_payload(notice: Notice) -> List[Dict[str, object]]:
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


# ServiceNow's event management: POST /api/global/em/jsonv2, with the role evt_mgmt_integration.


PATH = "/api/global/em/jsonv2"
"""Below the instance's root."""
CLEAR = "0"
SERVICENOW_SEVERITY = {"CRIT": "1", "UNKNOWN": "3", "WARN": "4"}
"""1 critical, 2 major, 3 minor, 4 warning, 5 information, 0 clear."""


def servicenow_payload(notice: Notice) -> Dict[str, object]:
    """One event; the same `message_key` is the same alert."""
    details = {"nodes": cut(notice.nodes, 4000), "since": notice.began, "flaps": notice.flaps, "link": notice.link}
    record = {
        "source": "nhc",
        "event_class": cut(notice.cluster or "nhc", 100),
        "node": cut(notice.place or notice.nodes, 100),
        "resource": cut(notice.check, 100),
        "type": cut(notice.reason or notice.check, 100),
        "severity": CLEAR if notice.resolved else SERVICENOW_SEVERITY.get(notice.verdict, "5"),
        "message_key": f"nhc/{notice.key}",
        "description": cut(notice.text, 4000),
        "additional_info": json.dumps(details, ensure_ascii=False),
    }
    return {"records": [record]}


# PagerDuty's Events API v2 (https://developer.pagerduty.com/docs/events-api-v2/trigger-events/).


URL = "https://events.pagerduty.com/v2/enqueue"
SEVERITY = {"CRIT": "critical", "UNKNOWN": "error", "WARN": "warning"}


def pagerduty_payload(notice: Notice, routing_key: str) -> Dict[str, object]:
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


# Microsoft Teams by a workflow's webhook: an adaptive card (https://adaptivecards.io/explorer/).


LIMIT = 20_000
"""Bytes: 28 KB are documented, and refusals from 21 KB on were seen."""
COLOURS = {"CRIT": "attention", "UNKNOWN": "warning", "WARN": "warning"}


def teams_payload(notice: Notice) -> Dict[str, object]:
    """A card of plain text, cut until it fits."""
    card: Dict[str, object] = {}
    for limit in (8000, 2000, 400):
        card = _card(notice, limit)
        if len(json.dumps(card, ensure_ascii=False).encode()) <= LIMIT:
            break
    return card


def _card(notice: Notice, limit: int) -> Dict[str, object]:
    colour = "good" if notice.resolved else COLOURS.get(notice.verdict, "default")
    title = {"type": "TextRun", "text": cut(notice.title, 400), "weight": "bolder", "size": "medium", "color": colour}
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4",
        "body": [  # RichTextBlock, since TextBlock would read Markdown out of what nodes say
            {"type": "RichTextBlock", "inlines": [title]},
            {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": cut(notice.text, limit)}]},
        ],
    }  # fmt: skip
    kind = "application/vnd.microsoft.card.adaptive"
    return {"type": "message", "attachments": [{"contentType": kind, "contentUrl": None, "content": card}]}


# Slack's incoming webhook (https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks).


def slack_payload(notice: Notice) -> Dict[str, object]:
    """Plain text alone: no evidence of a node becomes a link, a mention or markup."""
    blocks = [
        {"type": "header", "text": {"type": "plain_text", "text": cut(notice.title, 150), "emoji": False}},
        {"type": "section", "text": {"type": "plain_text", "text": cut(notice.text, 3000), "emoji": False}},
    ]
    title = html.escape(cut(notice.title, 1024), quote=False)  # Slack finds neither mentions nor links in it
    return {"text": title, "blocks": blocks, "unfurl_links": False}


"""Bytes of a body."""


def payload(notice: Notice) -> bytes:
    """The body: the incident's values. Long texts are cut until it fits."""
    for limit in (8000, 2000, 400):
        data = {
            **notice._asdict(), "message": cut(notice.message, limit), "nodes": cut(notice.nodes, limit),
            "title": cut(notice.title, limit),
        }  # fmt: skip
        body = json.dumps({"type": f"nhc.incident.{notice.kind}", "data": data}, ensure_ascii=False).encode()
        if len(body) <= LIMIT:
            break
    return body


def secret_bytes(secret: str) -> bytes:
    """The key in `whsec_BASE64`. Raises ValueError where it is none or has less than 24 bytes."""
    try:
        key = base64.b64decode(secret.removeprefix("whsec_").encode(), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("a webhook's secret is whsec_ and base64") from None
    if not secret.startswith("whsec_") or len(key) < 24:
        raise ValueError("a webhook's secret is whsec_ and base64 of at least 24 bytes")
    return key


def signed(identity: str, at: int, body: bytes, secrets: Tuple[bytes, ...]) -> Dict[str, str]:
    """The headers: one signature for each secret, so that they can be changed one after the other."""
    content = b".".join((identity.encode(), str(at).encode(), body))
    marks = [base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode() for key in secrets]
    return {
        "webhook-id": identity, "webhook-timestamp": str(at), "webhook-signature": " ".join(f"v1,{m}" for m in marks),
    }  # fmt: skip


class WebhookChannel(NamedTuple):
    """Secrets as bytes; the first is the newest."""

    url: str
    secrets: Tuple[bytes, ...]
    sender: Sender

    def deliver(self, notice: Notice, exchange: Exchange) -> None:
        """Raises SendLater, SendRefused. A receiver that takes a message twice knows it by its id."""
        body = payload(notice)
        self.sender.post(exchange, self.url, body, signed(notice.id, int(time.time()), body, self.secrets))
