"""The messages to each chat, pager, ticket system, webhook and mail server.

The webhook is signed as Standard Webhooks 1.0 has it (https://www.standardwebhooks.com).
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import email.utils
import hashlib
import hmac
import html
import json
import smtplib
import ssl
import time
import urllib.parse
from email.message import EmailMessage
from email.policy import SMTP
from typing import Any, Dict, List, NamedTuple, Tuple

from nhc.console.notices.notice import OPEN, TEST, Notice, cleaned, cut
from nhc.console.notices.sender import Sender, SendLater, SendRefused, basic_auth
from nhc.core.json_values import object_from
from nhc.core.model import printable
from nhc.core.system.exchange import Exchange
from nhc.core.system.http_client import problem
from nhc.core.timestamps import utc

# Jira: one issue for one incident (https://developer.atlassian.com/server/jira/platform/rest/v2/).
#
# Before nhc makes an issue, it searches for one by a label made of the incident's key: a lost answer makes no second
# one. nhc writes nothing into an open issue and closes none. An issue that a person closed stays closed: the next
# occurrence of the incident gets a new one.


def jira_label(notice: Notice) -> str:
    """What the issue is found by."""
    return f"nhc-{notice.key}-{notice.number}"


def jira_query(notice: Notice, project: str) -> str:
    """The path of the search for the issue."""
    asked = {"jql": f'project = "{project}" AND labels = "{jira_label(notice)}"', "maxResults": "1", "fields": "key"}
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
            "labels": ["nhc", jira_label(notice)],
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
        answer = self.sender.get(exchange, root + jira_query(notice, self.project), headers, (self.token,))
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
"""Seconds after which an alert resolves if it is not repeated: five refreshes of `Pace.refresh`."""


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


SERVICENOW_PATH = "/api/global/em/jsonv2"
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


PAGERDUTY_URL = "https://events.pagerduty.com/v2/enqueue"
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


def webhook_payload(notice: Notice) -> bytes:
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
    """The key in `whsec_BASE64`. Raises ValueError if it is none or has less than 24 bytes."""
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
        body = webhook_payload(notice)
        self.sender.post(exchange, self.url, body, signed(notice.id, int(time.time()), body, self.secrets))


# Mail: one thread for one incident (RFC 5322, 3.6.4).


def mail_payload(notice: Notice, sender: str, to: Tuple[str, ...]) -> EmailMessage:
    """The mail. The first of an incident has an id made of its key; the others answer it."""
    domain = sender.rpartition("@")[2].rstrip(">") or "localhost"
    first = f"<nhc.{notice.key}.{notice.number}@{domain}>"
    message = EmailMessage(policy=SMTP)
    message["From"], message["To"] = sender, ", ".join(to)
    message["Subject"] = cut(printable(notice.title), 200)
    message["Date"] = email.utils.formatdate(notice.at)
    if notice.kind in (OPEN, TEST):
        message["Message-ID"] = first
    else:
        message["Message-ID"] = f"<nhc.{notice.id}@{domain}>"
        message["In-Reply-To"] = message["References"] = first
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(cut(notice.text, 20_000) + "\n")
    return message


class MailChannel(NamedTuple):
    """A server of mail. `tls` is none, starttls or tls."""

    host: str
    port: int
    tls: str
    user: str
    password: str
    sender: str
    to: Tuple[str, ...]

    def deliver(self, notice: Notice, exchange: Exchange) -> None:
        """Raises SendLater, SendRefused.

        A message is refused if the server rejects it or the login. Any other fault of a server is temporary: its
        greeting, an answer without an end, an invalid answer.
        """
        to = (notice.to,) if notice.to else self.to
        message = mail_payload(notice, self.sender, to)
        message.as_bytes()  # what is wrong with the message itself is no fault of the server
        try:
            with _MailServer(self, exchange) as server:
                if self.tls == "starttls":
                    server.starttls(context=ssl.create_default_context())
                if self.user:
                    server.login(self.user, self.password)
                server.send_message(message, self.sender, list(to))
        except smtplib.SMTPRecipientsRefused as error:
            codes = [code for code, _ in error.recipients.values()]
            if codes and all(code in _FOR_GOOD for code in codes):
                raise SendRefused(f"every recipient is refused: {codes[0]}") from None
            raise SendLater(f"recipients are refused for now: {codes[:1]}") from None
        except smtplib.SMTPResponseException as error:
            raw = error.smtp_error
            text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
            answer = f"{error.smtp_code} {cleaned(text, (self.user, self.password, self._plain()))}".rstrip()
            about_us = (smtplib.SMTPSenderRefused, smtplib.SMTPDataError, smtplib.SMTPAuthenticationError)
            if error.smtp_code in _FOR_GOOD and isinstance(error, about_us):
                raise SendRefused(answer) from None
            raise SendLater(answer) from None
        except (OSError, smtplib.SMTPException, ValueError) as error:
            raise SendLater(f"no answer: {problem(error, exchange)}") from None

    def _plain(self) -> str:
        """What AUTH PLAIN sends (RFC 4616)."""
        return f"\0{self.user}\0{self.password}"


_FOR_GOOD = range(500, 600)
"""RFC 5321, 4.2.1: a message that is refused with one of these codes must not be sent again as it is."""
_LINES = 100
"""Lines of one answer: EHLO's are some twenty."""


class _FewLines:
    """What a server sends, of which one answer has so many lines at most."""

    def __init__(self, file: Any) -> None:
        self._file, self.left = file, _LINES

    def readline(self, size: int) -> bytes:
        """See io. Raises SMTPServerDisconnected."""
        self.left -= 1
        if self.left < 0:
            raise smtplib.SMTPServerDisconnected("an answer has no end")
        line: bytes = self._file.readline(size)
        return line

    def close(self) -> None:
        """See io."""
        self._file.close()


class _MailServer(smtplib.SMTP):
    """A connection to the server within an exchange."""

    def getreply(self) -> Tuple[int, bytes]:
        """See smtplib, which says 500 by itself of a line that is too long. Raises SMTPServerDisconnected, OSError."""
        if self.sock is None:
            raise smtplib.SMTPServerDisconnected("the connection is closed")
        if self.file is None:
            self.file = _FewLines(self.sock.makefile("rb"))
        self.file.left = _LINES
        try:
            return super().getreply()
        except smtplib.SMTPResponseException as error:
            self.close()
            raise smtplib.SMTPServerDisconnected(f"an answer that is none: {error.smtp_error!r}") from None

    def __init__(self, channel: MailChannel, exchange: Exchange) -> None:
        self._exchange, self._tls = exchange, channel.tls == "tls"
        super().__init__(channel.host, channel.port)

    def connect(self, host: str = "localhost", port: int = 0, source_address: Any = None) -> Tuple[int, bytes]:
        self.sock = self._exchange.connect(host, port)
        if self._tls:
            self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=host)
        return self.getreply()

    def __exit__(self, *_error: object) -> None:
        with contextlib.suppress(OSError):  # the message is taken or refused by then, whatever it answers to QUIT
            self.docmd("QUIT")
        self.close()
