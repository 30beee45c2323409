"""Each channel's form, against what its receiver publishes: limits, marks of a cut, and text of nodes as data."""

from __future__ import annotations

import base64
import json
import time

import jsonschema
import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from nhc.console.notices import channels
from nhc.console.notices.notice import Notice, cut

NOTICE = Notice(
    "open", "k" * 40, 1, "main", "check_gpu", "GpuLost", "rack r1", "CRIT", "reboot", "gone", "n[1-3]", 3,
    1700000000.0, 1700000040.0, link="https://console/x",
)  # fmt: skip
HOSTILE = "<!channel> [x](http://evil) {noformat} *b* & \u202e\r\nBcc: x@y" * 3000
LONG = NOTICE._replace(message=HOSTILE, nodes="é" * 50000, reason="R" * 5000, place="p" * 3000, check="c" * 3000)
BOTH = pytest.mark.parametrize("notice", [NOTICE, LONG], ids=["plain", "hostile"])


def closed(properties, required=()):
    return {
        "type": "object", "properties": properties, "required": [*required], "additionalProperties": False,
    }  # fmt: skip


def text(longest, shortest=1):
    return {"type": "string", "maxLength": longest, "minLength": shortest}


#: https://developer.pagerduty.com/api-reference/368ae3d938c9e-send-an-event-to-pager-duty
PAGERDUTY = closed({
    "routing_key": text(32, 32), "event_action": {"enum": ["trigger", "acknowledge", "resolve"]},
    "dedup_key": text(255),
    "payload": closed({
        "summary": text(1024), "source": text(255), "severity": {"enum": ["critical", "error", "warning", "info"]},
        "timestamp": text(40), "component": text(255), "class": text(255), "custom_details": {"type": "object"},
    }, ["summary", "source", "severity"]),
    "links": {"type": "array", "items": closed({"href": text(1000), "text": text(100)}, ["href"])},
}, ["routing_key", "event_action", "payload"])  # fmt: skip
#: https://docs.slack.dev/reference/block-kit/blocks: header 150, section 3000 characters, 50 blocks
PLAIN = {"enum": ["plain_text"]}
SLACK = closed({
    "text": text(4000), "unfurl_links": {"type": "boolean"},
    "blocks": {"type": "array", "maxItems": 50, "items": {"oneOf": [
        closed({"type": {"const": kind}, "text": closed({"type": PLAIN, "text": text(most), "emoji": {}})}, ["text"])
        for kind, most in (("header", 150), ("section", 3000))
    ]}},
}, ["text"])  # fmt: skip
SERVICENOW = closed({"records": {"type": "array", "items": closed({
    "source": text(100), "event_class": text(100), "node": text(100), "resource": text(100), "type": text(100),
    "severity": {"enum": list("012345")}, "message_key": text(1024), "description": text(4000),
    "additional_info": {"type": "string"},
}, ["source", "node", "type", "severity"])}}, ["records"])  # fmt: skip
JIRA = closed({"fields": closed({
    "project": closed({"key": text(10)}), "issuetype": closed({"name": text(60)}), "summary": text(255),
    "description": text(32767), "labels": {"type": "array", "items": {"type": "string", "pattern": r"^\S{1,255}$"}},
}, ["project", "issuetype", "summary"])}, ["fields"])  # fmt: skip


@BOTH
@pytest.mark.parametrize("kind", ["open", "resolved", "test"])
def test_the_forms_are_those_that_are_published(notice, kind):
    notice = notice._replace(kind=kind)
    jsonschema.validate(channels.pagerduty_payload(notice, "r" * 32), PAGERDUTY)
    jsonschema.validate(channels.slack_payload(notice), SLACK)
    jsonschema.validate(channels.servicenow_payload(notice), SERVICENOW)
    jsonschema.validate(channels.jira_payload(notice, "OPS", "Task"), JIRA)
    assert len(json.dumps(channels.pagerduty_payload(notice, "r" * 32)).encode()) < 512_000
    assert len(json.dumps(channels.teams_payload(notice), ensure_ascii=False).encode()) <= 20_000
    assert len(channels.webhook_payload(notice)) <= 20_000


def test_what_is_cut_says_so():
    assert cut("abcdef", 4) == "abc…"
    assert channels.slack_payload(LONG)["blocks"][1]["text"]["text"].endswith("…")
    assert channels.jira_payload(LONG, "OPS", "Task")["fields"]["summary"].endswith("…")


def test_text_of_nodes_is_data():
    shown = channels.slack_payload(LONG._replace(reason="<!channel>&"))
    assert "<" not in shown["text"]
    assert all(block["text"]["type"] == "plain_text" for block in shown["blocks"])
    body = channels.teams_payload(LONG)["attachments"][0]["content"]["body"]
    assert {block["type"] for block in body} == {"RichTextBlock"}, "a TextBlock would read Markdown"
    assert channels.jira_payload(LONG, "OPS", "Task")["fields"]["description"].count("{noformat}") == 2
    mailed = channels.mail_payload(LONG._replace(reason="x\r\nBcc: a@b"), "nhc@example.org", ("ops@example.org",))
    assert "Bcc" not in mailed
    assert "\n" not in mailed["Subject"]


def test_one_incident_is_one_for_each_receiver():
    end = NOTICE._replace(kind="resolved", message="other", nodes="n9", verdict="WARN", affected=9, at=1700009999.0)
    assert channels.pagerduty_payload(end, "r")["dedup_key"] == channels.pagerduty_payload(NOTICE, "r")["dedup_key"]
    assert channels.pagerduty_payload(end, "r")["event_action"] == "resolve"
    opened, ended = channels.servicenow_payload(NOTICE)["records"][0], channels.servicenow_payload(end)["records"][0]
    assert (opened["message_key"], opened["severity"]) == (ended["message_key"], "1")
    assert ended["severity"] == "0"
    assert channels.alertmanager_payload(end)[0]["labels"] == channels.alertmanager_payload(NOTICE)[0]["labels"]
    assert "" not in channels.alertmanager_payload(NOTICE._replace(place="", cluster=""))[0]["labels"].values()
    first, second = (channels.mail_payload(one, "a@example.org", ("b@c",)) for one in (NOTICE, end))
    assert second["In-Reply-To"] == second["References"] == first["Message-ID"] != second["Message-ID"]


def test_the_signature_is_what_standard_webhooks_takes():
    old, new = ("whsec_" + base64.b64encode(letter * 24).decode() for letter in (b"o", b"n"))
    body = channels.webhook_payload(NOTICE)
    keys = tuple(channels.secret_bytes(one) for one in (new, old))
    headers = channels.signed(NOTICE.id, int(time.time()), body, keys)
    for secret in (old, new):
        assert Webhook(secret).verify(body, headers)["data"]["reason"] == "GpuLost"
    with pytest.raises(WebhookVerificationError):
        Webhook(new).verify(body.replace(b"GpuLost", b"GpuFine"), headers)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_!!", "whsec_" + base64.b64encode(b"x" * 23).decode(), "abc"])
def test_a_secret_that_is_none_is_refused(secret):
    with pytest.raises(ValueError, match="whsec_"):
        channels.secret_bytes(secret)
