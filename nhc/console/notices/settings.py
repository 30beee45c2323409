"""The receivers of notices and how often they are sent, from a TOML file (conf/notices.toml.example). Secrets are in
separate files.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Dict, Mapping, NamedTuple, Protocol, Tuple

from nhc.console.notices import channels
from nhc.console.notices.incidents import NoticeTiming
from nhc.console.notices.job_faults import JobNoticeSettings
from nhc.console.notices.notice import Notice
from nhc.console.notices.sender import JsonChannel, Sender, basic_auth
from nhc.core.settings import declared
from nhc.core.settings.settings_file import Table
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
CHANNELS = """
Who is told. Secrets stand in files that others cannot read (chmod 0640 or stricter); what is told to a channel that
needs none is shown, the others are behind #.
"""


class Deliverer(Protocol):
    """A channel as the service uses it."""

    def deliver(self, notice: Notice, exchange: Exchange) -> None:
        """Send one notice within an exchange. Raises SendLater, SendRefused."""
        ...


class NoticeChannel(NamedTuple):
    """One receiver. `refreshes`: it forgets an incident that is not repeated."""

    name: str
    kind: str
    refreshes: bool
    way: Deliverer


def _url(text: str) -> str:
    if not text.startswith(("https://", "http://")):
        raise ValueError("the value (not shown) is no URL that begins with https:// or http://")
    return text


def _tls(ca: str) -> Tls:
    tls = Tls(ca)
    try:
        tls.context()
    except CertificateRefused as error:
        raise ValueError(str(error)) from None
    return tls


def _address(default: Any, sample: str) -> Any:
    return declared.converted("url", _url, default, shown=f'"{sample}"')


CA = declared.converted("ca", _tls, Tls(), "default: the system's authorities", shown='"/etc/ssl/ours.pem"',
                        show=lambda tls: tls.ca)  # fmt: skip


@declared.settings
class AlertmanagerSettings(NamedTuple):
    url: str = _address(declared.NEEDED, "http://127.0.0.1:9093")
    tls: Tls = CA

    def way(self) -> Deliverer:
        url = self.url.rstrip("/") + channels.ALERTMANAGER_PATH
        return JsonChannel(url, channels.alertmanager_payload, Sender(self.tls))


@declared.settings
class MailSettings(NamedTuple):
    host: str = declared.text("host", declared.NEEDED, shown='"mail.example.org"')
    sender: str = declared.text("from", declared.NEEDED, shown='"nhc@example.org"')
    to: Tuple[str, ...] = declared.texts("to", declared.NEEDED, shown='["ops@example.org"]')
    tls: str = declared.word("tls", ("starttls", "tls", "none"))
    port: int = declared.count("port", 0, "default: 587, of tls 465, of none 25", most=65535)
    user: str = declared.text("user", shown='"nhc"')
    password: str = declared.secret_file("password-file", "", "of the user", shown='"/etc/nhc/secrets/mail"')

    def checked(self, table: Table) -> MailSettings:
        """The same. Raises SettingsError."""
        if self.user and self.tls == "none":
            raise table.wrong("tls", "starttls or tls: a password is not sent in the clear")
        if self.user:
            table.require("password-file")
        addresses = (self.sender, *self.to)
        if not self.to or not all("@" in address and address.isprintable() for address in addresses):
            raise table.error("to", "from and to need addresses such as ops@example.org")
        return self

    def way(self) -> Deliverer:
        port = self.port or {"none": 25, "starttls": 587, "tls": 465}[self.tls]
        password = self.password if self.user else ""
        return channels.MailChannel(self.host, port, self.tls, self.user, password, self.sender, self.to)


@declared.settings
class WebhookSettings(NamedTuple):
    url: str = _address(declared.NEEDED, "https://hooks.example.org/nhc")
    secrets: Tuple[bytes, ...] = declared.secret_file(
        "secret-file", declared.NEEDED, "whsec_..., one a line: the newest first", shown='"/etc/nhc/secrets/hook"',
        each=lambda text: tuple(map(channels.secret_bytes, text.split())),
    )  # fmt: skip
    tls: Tls = CA

    def way(self) -> Deliverer:
        return channels.WebhookChannel(self.url, self.secrets, Sender(self.tls))


@declared.settings
class SlackSettings(NamedTuple):
    url: str = declared.secret_file("url-file", declared.NEEDED, each=_url, shown='"/etc/nhc/secrets/slack-url"')
    tls: Tls = CA

    def way(self) -> Deliverer:
        return JsonChannel(self.url, channels.slack_payload, Sender(self.tls))


@declared.settings
class TeamsSettings(NamedTuple):
    url: str = declared.secret_file("url-file", declared.NEEDED, each=_url, shown='"/etc/nhc/secrets/teams-url"')
    tls: Tls = CA

    def way(self) -> Deliverer:
        return JsonChannel(self.url, channels.teams_payload, Sender(self.tls))


@declared.settings
class PagerdutySettings(NamedTuple):
    key: str = declared.secret_file("routing-key-file", declared.NEEDED, shown='"/etc/nhc/secrets/pagerduty"')
    url: str = declared.converted("url", _url, channels.PAGERDUTY_URL)
    tls: Tls = CA

    def way(self) -> Deliverer:
        payload = partial(channels.pagerduty_payload, routing_key=self.key)
        return JsonChannel(self.url, payload, Sender(self.tls), secrets=(self.key,))


@declared.settings
class ServicenowSettings(NamedTuple):
    url: str = _address(declared.NEEDED, "https://INSTANCE.service-now.com")
    user: str = declared.text("user", declared.NEEDED, shown='"nhc"')
    password: str = declared.secret_file(
        "password-file", declared.NEEDED, shown='"/etc/nhc/secrets/servicenow"'
    )  # fmt: skip
    tls: Tls = CA

    def way(self) -> Deliverer:
        return JsonChannel(
            self.url.rstrip("/") + channels.SERVICENOW_PATH, channels.servicenow_payload, Sender(self.tls),
            basic_auth(self.user, self.password), (self.password,),
        )  # fmt: skip


def _project(text: str) -> str:
    if not text.replace("_", "").isalnum():
        raise ValueError(f"{text!r} is not a project's key")
    return text


@declared.settings
class JiraSettings(NamedTuple):
    url: str = _address(declared.NEEDED, "https://jira.example.org")
    project: str = declared.converted("project", _project, declared.NEEDED, shown='"OPS"')
    token: str = declared.secret_file("token-file", declared.NEEDED, shown='"/etc/nhc/secrets/jira"')
    issue_type: str = declared.text("issue-type", "Task")
    user: str = declared.text("user", "", "then the token is a password, of Atlassian's cloud", shown='"nhc"')
    tls: Tls = CA

    def way(self) -> Deliverer:
        return channels.JiraChannel(
            self.url, self.project, self.issue_type, self.user, self.token, Sender(self.tls)
        )  # fmt: skip


KINDS: Dict[str, Tuple[str, type]] = {
    "alertmanager": ("am", AlertmanagerSettings), "mail": ("ops-mail", MailSettings),
    "webhook": ("hook", WebhookSettings), "slack": ("chat", SlackSettings), "teams": ("teams", TeamsSettings),
    "pagerduty": ("pager", PagerdutySettings), "servicenow": ("snow", ServicenowSettings),
    "jira": ("tickets", JiraSettings),
}  # fmt: skip
"""Each with the name of its table in the example."""


def _channel(name: str, kind: str, found: Any) -> NoticeChannel:
    return NoticeChannel(name, kind, kind == "alertmanager", found.way())


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
    channels: Mapping[str, NoticeChannel] = declared.tables_of_kinds("channels", KINDS, CHANNELS, made=_channel)

    def checked(self, table: Table) -> NoticesSettings:
        """The same. Raises SettingsError if the mails to owners have no channel."""
        owners = self.jobs.owners
        if owners and (owners not in self.channels or self.channels[owners].kind != "mail"):
            raise table.table("jobs").wrong("owners", "the name of a channel of the kind mail")
        return self


FILE = declared.SettingsFile(NoticesSettings, PATH, HEAD)
load, parse = FILE.load, FILE.parse
