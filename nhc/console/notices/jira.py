"""Jira: one issue for one incident (https://developer.atlassian.com/server/jira/platform/rest/v2/).

Before nhc makes an issue, it searches for one by a label made of the incident's key: a lost answer makes no second one.
nhc writes nothing into an open issue and closes none. An issue that a person closed stays closed: the next occurrence
of the incident gets a new one.
"""

from __future__ import annotations

import urllib.parse
from typing import Dict, NamedTuple

from nhc.console.notices.notice import OPEN, TEST, Notice, cut
from nhc.console.notices.sender import Sender, SendLater, basic_auth
from nhc.core.json_values import object_from
from nhc.core.system.exchange import Exchange


def label(notice: Notice) -> str:
    """What the issue is found by."""
    return f"nhc-{notice.key}-{notice.number}"


def query(notice: Notice, project: str) -> str:
    """The path of the search for the issue."""
    asked = {"jql": f'project = "{project}" AND labels = "{label(notice)}"', "maxResults": "1", "fields": "key"}
    return f"/rest/api/2/search?{urllib.parse.urlencode(asked)}"


def payload(notice: Notice, project: str, kind: str) -> Dict[str, object]:
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
            issue = payload(notice, self.project, self.kind)
            self.sender.post(exchange, f"{root}/rest/api/2/issue", issue, headers, (self.token,))
