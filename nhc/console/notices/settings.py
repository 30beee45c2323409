"""Where notices go and how often, from a TOML file (conf/notices.toml.example). Secrets stand in files of their own."""

from __future__ import annotations

import os
import stat
from functools import partial
from typing import Callable, Dict, Mapping, NamedTuple, Protocol

from nhc.console.notices import alertmanager, jira, mail, pagerduty, servicenow, slack, teams, webhook
from nhc.console.notices.incidents import NoticeTiming
from nhc.console.notices.job_faults import JOB_EVENTS, JobNoticeSettings
from nhc.console.notices.notice import Notice
from nhc.console.notices.sender import JsonChannel, Sender, basic_auth
from nhc.core.settings import settings_file
from nhc.core.settings.settings_file import Table
from nhc.core.system.bounded_read import cause, read_text
from nhc.core.system.exchange import Exchange
from nhc.core.system.http_client import CertificateRefused, Tls
from nhc.store import where
from nhc.store.problem_groups import RANK

PATH = "/etc/nhc/notices.toml"
DAY = 86400.0


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


class NoticesSettings(NamedTuple):
    """All of it. Times are in seconds."""

    store: str = where.DEFAULT
    cluster: str = ""
    group_by: str = "rack"
    link: str = ""
    least: int = RANK["CRIT"]
    every: float = 10.0
    give_up: float = 3 * DAY
    keep: float = 30 * DAY
    pace: NoticeTiming = NoticeTiming()
    jobs: JobNoticeSettings = JobNoticeSettings()
    channels: Mapping[str, NoticeChannel] = {}


def load(path: str = "") -> NoticesSettings:
    """The settings in a file. Raises SettingsError."""
    return read(settings_file.load(path or PATH))


def parse(text: str, path: str = PATH) -> NoticesSettings:
    """The settings in a text. Raises SettingsError."""
    return read(settings_file.parse(text, path))


def read(file: Table) -> NoticesSettings:
    """The settings in a table."""
    pace = NoticeTiming()
    settings = NoticesSettings(
        store=file.secret("store", where.url()),
        cluster=file.text("cluster"),
        group_by=file.text("group-by", "rack"),
        link=file.text("console"),
        least=file.choice("least", {verdict.lower(): rank for verdict, rank in RANK.items()}, RANK["CRIT"]),
        every=file.seconds("every", 10.0, least=0.1, most=60.0),
        give_up=file.seconds("give-up", 3 * DAY, least=60.0),
        keep=file.seconds("keep", 30 * DAY, least=3600.0),
        pace=pace._replace(
            wait=file.seconds("wait", pace.wait, most=3600.0),
            cooldown=file.seconds("cooldown", pace.cooldown, most=DAY),
            repeat=file.seconds("repeat", pace.repeat, least=60.0),
            settle=file.seconds("settle", pace.settle, most=DAY),
            flap_settle=file.seconds("settle-flapping", pace.flap_settle, most=DAY),
            burst=file.count("most-per-minute", pace.burst, least=1),
            spread=file.count("spread", pace.spread, least=1),
            silence=file.seconds("silence", pace.silence, most=3600.0),
        ),
        jobs=_jobs(file.table("jobs")),
        channels={name: _channel(name, table) for name, table in file.table("channels").tables().items()},
    )
    file.finish()
    owners = settings.jobs.owners
    if owners and (owners not in settings.channels or settings.channels[owners].kind != "mail"):
        raise file.table("jobs").wrong("owners", "the name of a channel of the kind mail")
    return settings


def _jobs(table: Table) -> JobNoticeSettings:
    jobs = JobNoticeSettings()
    return JobNoticeSettings(
        table.choices("tell", {event: event for event in JOB_EVENTS}, jobs.tell),
        table.seconds("held-for", jobs.held_for, most=DAY),
        table.seconds("restarted-for", jobs.restarted_for, most=DAY),
        table.text("owners"),
        table.count("most-per-owner", jobs.per_owner, least=1),
        table.count("most-to-owners", jobs.per_hour, least=1),
    )


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
    return JsonChannel(_plain_url(table).rstrip("/") + alertmanager.PATH, alertmanager.payload, sender)


def _webhook(table: Table, sender: Sender) -> Deliverer:
    lines = _secret(table, "secret-file").split()
    try:
        secrets = tuple(webhook.secret_bytes(line) for line in lines)
    except ValueError as error:
        raise table.error("secret-file", str(error)) from None
    return webhook.WebhookChannel(_plain_url(table), secrets, sender)


def _slack(table: Table, sender: Sender) -> Deliverer:
    return JsonChannel(_secret_url(table), slack.payload, sender)


def _teams(table: Table, sender: Sender) -> Deliverer:
    return JsonChannel(_secret_url(table), teams.payload, sender)


def _pagerduty(table: Table, sender: Sender) -> Deliverer:
    url = _plain_url(table) if "url" in table else pagerduty.URL
    key = _secret(table, "routing-key-file")
    return JsonChannel(url, partial(pagerduty.payload, routing_key=key), sender, secrets=(key,))


def _servicenow(table: Table, sender: Sender) -> Deliverer:
    table.require("user")
    url, user, password = _plain_url(table), table.text("user"), _secret(table, "password-file")
    headers = basic_auth(user, password)
    return JsonChannel(url.rstrip("/") + servicenow.PATH, servicenow.payload, sender, headers, (password,))


def _jira(table: Table, sender: Sender) -> Deliverer:
    table.require("project")
    project = table.text("project")
    if not project.replace("_", "").isalnum():
        raise table.wrong("project", "a project's key")
    return jira.JiraChannel(
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
    return mail.MailChannel(table.text("host"), port, tls, user, password, addresses[0], addresses[1:])


KINDS: Dict[str, Callable[[Table, Sender], Deliverer]] = {
    "alertmanager": _alertmanager, "webhook": _webhook, "mail": _mail, "slack": _slack, "teams": _teams,
    "pagerduty": _pagerduty, "servicenow": _servicenow, "jira": _jira,
}  # fmt: skip
