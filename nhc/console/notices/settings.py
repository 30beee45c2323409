"""Where notices go and how often, from a TOML file (conf/notices.toml.example). Secrets stand in files of their own."""

from __future__ import annotations

import os
import stat
from functools import partial
from typing import Callable, Dict, Mapping, NamedTuple, Protocol

from nhc.console.notices import channels
from nhc.console.notices import channels as notices_channels
from nhc.console.notices.incidents import NoticeTiming
from nhc.console.notices.job_faults import JobNoticeSettings
from nhc.console.notices.notice import Notice
from nhc.console.notices.sender import JsonChannel, Sender, basic_auth
from nhc.core.settings import declared
from nhc.core.settings.settings_file import Table
from nhc.core.system.bounded_read import cause, read_text
from nhc.core.system.exchange import Exchange
from nhc.core.system.http_client import CertificateRefused, Tls
from nhc.store import location
from nhc.store.problems import RANK

PATH = "/etc/nhc/notices.toml"
DAY = 86400.0
LEAST = {verdict.lower(): rank for verdict, rank in RANK.items()}
HEAD = """
Who is told what is wrong, and how often: nhc serve notices. docs/monitoring.md
"""
CHANNELS = "Secrets stand in files that others cannot read (chmod 0640 or stricter)."
EXAMPLES = """
[channels.am]
kind = "alertmanager"
url = "http://127.0.0.1:9093"

[channels.ops-mail]
kind = "mail"
host = "mail.example.org"
tls = "starttls"           # or tls, none
from = "nhc@example.org"
to = ["ops@example.org"]

# [channels.hook]
# kind = "webhook"
# url = "https://hooks.example.org/nhc"
# secret-file = "/etc/nhc/secrets/hook"       # whsec_..., one a line: the newest first
#
# [channels.chat]
# kind = "slack"                              # or teams
# url-file = "/etc/nhc/secrets/slack-url"
#
# [channels.pager]
# kind = "pagerduty"
# routing-key-file = "/etc/nhc/secrets/pagerduty"
#
# [channels.snow]
# kind = "servicenow"
# url = "https://INSTANCE.service-now.com"
# user = "nhc"
# password-file = "/etc/nhc/secrets/servicenow"
#
# [channels.tickets]
# kind = "jira"
# url = "https://jira.example.org"
# project = "OPS"
# issue-type = "Task"
# token-file = "/etc/nhc/secrets/jira"
""".strip()


class Deliverer(Protocol):
    """A channel as the service uses it."""

    def deliver(self, notice: Notice, exchange: Exchange) -> None:
        """Send one notice within an exchange. Raises SendLater, SendRefused."""
        ...


class NoticeChannel(NamedTuple):
    """One receiver. `refreshes`: it forgets an incident that is not said again."""

    name: str
    kind: str
    refreshes: bool
    way: Deliverer


def _channel(name: str, table: Table) -> NoticeChannel:
    table.require("kind")
    make = table.choice("kind", KINDS, _alertmanager)
    kind = table.text("kind")
    return NoticeChannel(name, kind, kind == "alertmanager", make(table, Sender(_tls(table))))


def _tls(table: Table) -> Tls:
    tls = Tls(table.text("ca"))
    try:
        tls.context()
    except CertificateRefused as error:
        raise table.error("ca", str(error)) from None
    return tls


def _secret(table: Table, key: str) -> str:
    """What a file holds that only its owner, or a group, may read."""
    table.require(key)
    path = table.text(key)
    try:
        if os.stat(path).st_mode & stat.S_IROTH:
            raise table.error(key, f"{path} can be read by everybody: chmod o-r")
        text = read_text(path).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise table.error(key, f"{path}: {cause(error)}") from None
    if not text:
        raise table.error(key, f"{path} is empty")
    return text


def _url(table: Table, key: str, text: str) -> str:
    if not text.startswith(("https://", "http://")):
        raise table.error(key, "the value (not shown) is no URL that begins with https:// or http://")
    return text


def _plain_url(table: Table) -> str:
    table.require("url")
    return _url(table, "url", table.text("url"))


def _secret_url(table: Table) -> str:
    return _url(table, "url-file", _secret(table, "url-file"))


def _alertmanager(table: Table, sender: Sender) -> Deliverer:
    return JsonChannel(
        _plain_url(table).rstrip("/") + notices_channels.ALERTMANAGER_PATH,
        notices_channels.alertmanager_payload,
        sender,
    )


def _webhook(table: Table, sender: Sender) -> Deliverer:
    lines = _secret(table, "secret-file").split()
    try:
        secrets = tuple(notices_channels.secret_bytes(line) for line in lines)
    except ValueError as error:
        raise table.error("secret-file", str(error)) from None
    return notices_channels.WebhookChannel(_plain_url(table), secrets, sender)


def _slack(table: Table, sender: Sender) -> Deliverer:
    return JsonChannel(_secret_url(table), notices_channels.slack_payload, sender)


def _teams(table: Table, sender: Sender) -> Deliverer:
    return JsonChannel(_secret_url(table), notices_channels.teams_payload, sender)


def _pagerduty(table: Table, sender: Sender) -> Deliverer:
    url = _plain_url(table) if "url" in table else notices_channels.PAGERDUTY_URL
    key = _secret(table, "routing-key-file")
    return JsonChannel(url, partial(notices_channels.pagerduty_payload, routing_key=key), sender, secrets=(key,))


def _servicenow(table: Table, sender: Sender) -> Deliverer:
    table.require("user")
    url, user, password = _plain_url(table), table.text("user"), _secret(table, "password-file")
    headers = basic_auth(user, password)
    return JsonChannel(
        url.rstrip("/") + notices_channels.SERVICENOW_PATH,
        notices_channels.servicenow_payload,
        sender,
        headers,
        (password,),
    )


def _jira(table: Table, sender: Sender) -> Deliverer:
    table.require("project")
    project = table.text("project")
    if not project.replace("_", "").isalnum():
        raise table.wrong("project", "a project's key")
    return notices_channels.JiraChannel(
        _plain_url(table), project, table.text("issue-type", "Task"), table.text("user"), _secret(table, "token-file"),
        sender,
    )  # fmt: skip


def _mail(table: Table, _sender: Sender) -> Deliverer:
    table.require("host", "from", "to")
    tls = table.choice("tls", {"none": "none", "starttls": "starttls", "tls": "tls"}, "starttls")
    user = table.text("user")
    if user and tls == "none":
        raise table.wrong("tls", "starttls or tls: a password is not sent in the clear")
    addresses = (table.text("from"), *table.texts("to"))
    if len(addresses) < 2 or not all("@" in address and address.isprintable() for address in addresses):
        raise table.error("to", "from and to need addresses such as ops@example.org")
    password = _secret(table, "password-file") if user else ""
    port = table.count("port", {"none": 25, "starttls": 587, "tls": 465}[tls], least=1, most=65535)
    return channels.MailChannel(table.text("host"), port, tls, user, password, addresses[0], addresses[1:])


KINDS: Dict[str, Callable[[Table, Sender], Deliverer]] = {
    "alertmanager": _alertmanager, "webhook": _webhook, "mail": _mail, "slack": _slack, "teams": _teams,
    "pagerduty": _pagerduty, "servicenow": _servicenow, "jira": _jira,
}  # fmt: skip


def _channels(table: Table, key: str, _default: object) -> Dict[str, NoticeChannel]:
    return {name: _channel(name, one) for name, one in table.table(key).tables().items()}


@declared.settings
class NoticesSettings(NamedTuple):
    """All of it. Times are in seconds."""

    store: str = declared.secret(
        "store", location.DEFAULT, "default: $NHC_STORE, else store.toml's", absent=location.url
    )
    cluster: str = declared.text("cluster", "", "how notices call it", shown='"main"')
    link: str = declared.text("console", "", "the link in each notice", shown='"https://console.example.org"')
    group_by: str = declared.text(
        "group-by", "rack", 'one incident for one cause in one of these; "" for the whole fleet'
    )
    least: int = declared.choice(
        "least", LEAST, RANK["CRIT"],
        "the verdict from which on people are told",
    )  # fmt: skip
    every: float = declared.seconds("every", 10.0, "between two looks", least=0.1, most=60.0)
    pace: NoticeTiming = declared.part("", NoticeTiming)
    give_up: float = declared.seconds(
        "give-up", 3 * DAY, "a message that a channel did not take by then is dropped and counted", least=60.0
    )
    keep: float = declared.seconds("keep", 30 * DAY, "how long what was told is remembered", least=3600.0)
    jobs: JobNoticeSettings = declared.part("jobs", JobNoticeSettings)
    channels: Mapping[str, NoticeChannel] = declared.own(
        "channels", {}, _channels, CHANNELS, form=f"tables, each of a kind: {', '.join(KINDS)}", within="NAME",
        shown=EXAMPLES, live=True,
    )  # fmt: skip

    def checked(self, table: Table) -> NoticesSettings:
        """The same. Raises SettingsError where the mails to owners have no channel."""
        owners = self.jobs.owners
        if owners and (owners not in self.channels or self.channels[owners].kind != "mail"):
            raise table.table("jobs").wrong("owners", "the name of a channel of the kind mail")
        return self


FILE = declared.SettingsFile(NoticesSettings, PATH, HEAD)
load, parse = FILE.load, FILE.parse
