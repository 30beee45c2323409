"""The console's settings, /etc/nhc/console.toml (conf/console.toml.example)."""

from __future__ import annotations

import calendar
import ipaddress
import re
import time
from typing import Dict, FrozenSet, List, NamedTuple, Optional, Tuple

from nhc.console.access import Person, PersonToken, Register, Role
from nhc.core.settings import settings_file
from nhc.core.settings.settings_file import SettingsError, Table
from nhc.core.system.addresses import host_and_port, is_loopback
from nhc.core.system.web_listener import WebBounds
from nhc.store import where

DEFAULT_LISTEN = "127.0.0.1:9810"
ROLES = {role.value: role for role in Role}


class Proxy(NamedTuple):
    """A proxy that says who somebody is: believed from these addresses or a Unix socket, and with the secret alone."""

    user_header: str
    groups_header: str
    addresses: Tuple[str, ...]
    secret_file: str


class ListenerTls(NamedTuple):
    """Certificate and key of the listener, and the authorities of client certificates ("" asks for none)."""

    certificate: str = ""
    key: str = ""
    clients: str = ""


class ConsoleSettings(NamedTuple):
    """All of it. `listen` is HOST:PORT or unix:PATH; `origin` how browsers reach the page, where that is not `listen`.

    A node's state is stale after `stale` seconds without a report. `scheduler` is the adapter that is asked for
    the state that a node's page shows, "" for none.
    """

    listen: str = DEFAULT_LISTEN
    store: str = where.DEFAULT
    origin: str = ""
    refresh: float = 2.0
    stale: float = 600.0
    tls: ListenerTls = ListenerTls()
    proxy: Optional[Proxy] = None
    register: Register = Register()
    links: Tuple[Tuple[str, str], ...] = ()
    scheduler: str = ""
    bounds: WebBounds = WebBounds(2000, 250, 20.0)


def load(path: str) -> ConsoleSettings:
    """Read a file. Raises SettingsError."""
    return _read(settings_file.load(path))


def parse(text: str, path: str = "console.toml") -> ConsoleSettings:
    """The settings in a text. Raises SettingsError."""
    return _read(settings_file.parse(text, path))


def _read(file: Table) -> ConsoleSettings:
    tls = file.table("tls")
    settings = ConsoleSettings(
        listen=file.text("listen", DEFAULT_LISTEN),
        store=file.text("store", where.url()),
        origin=file.text("origin").rstrip("/"),
        refresh=file.seconds("refresh", 2.0, least=0.5, most=60.0),
        stale=file.seconds("stale", 600.0, least=10.0),
        tls=ListenerTls(tls.text("certificate"), tls.text("key"), tls.text("clients")),
        proxy=_proxy(file),
        register=_register(file),
        links=tuple((name, file.table("links").text(name)) for name in file.table("links").names()),
        scheduler=file.text("scheduler"),
    )
    settings = settings._replace(bounds=_bounds(file.table("limits"), settings.bounds))
    _check(file, settings)
    file.finish()
    return settings


def _bounds(limits: Table, standard: WebBounds) -> WebBounds:
    return WebBounds(
        limits.count("connections", standard.connections, least=1),
        limits.count("connections-an-address", standard.connections_each, least=1),
        limits.seconds("slow", standard.slow, least=0.1, most=600.0),
    )


def _proxy(file: Table) -> Optional[Proxy]:
    if "proxy" not in file:
        return None
    table = file.table("proxy")
    table.require("secret_file")
    addresses = table.texts("addresses")
    for address in addresses:
        try:
            ipaddress.ip_network(address)
        except ValueError:
            raise table.wrong("addresses", "addresses or networks such as 10.0.0.7 or 10.0.0.0/24") from None
    return Proxy(
        table.text("user_header", "X-Remote-User"), table.text("groups_header", "X-Remote-Groups"), addresses,
        table.text("secret_file"),
    )  # fmt: skip


def _register(file: Table) -> Register:
    people: Dict[str, Person] = {}
    users: Dict[str, str] = {}
    certificates: Dict[str, str] = {}
    tokens: List[PersonToken] = []
    for name, person in file.table("people").tables().items():
        roles = frozenset(person.choices("roles", ROLES, (Role.VIEWER,)))
        people[name] = Person(name, roles, "", person.text_or_texts("nodes", ("*",)))
        users.update(dict.fromkeys(person.text_or_texts("users"), name))
        certificates.update(dict.fromkeys(person.text_or_texts("certificates"), name))
        tokens += [_token(token, name) for token in person.list_of_tables("tokens")]
    groups: Dict[str, FrozenSet[Role]] = {}
    for name in file.table("groups").names():
        groups[name] = frozenset(file.table("groups").choices(name, ROLES))
    anyone = frozenset(file.choices("anyone", ROLES, (Role.VIEWER,)))
    if anyone - {Role.VIEWER}:
        raise file.wrong("anyone", '["viewer"] or []: a person without a name may only look')
    return Register(people, users, groups, certificates, tuple(tokens), anyone)


def _token(table: Table, person: str) -> PersonToken:
    table.require("sha256")
    if not re.fullmatch(r"[0-9a-fA-F]{64}", table.text("sha256")):
        raise table.error("sha256", "is not a SHA-256 in hexadecimal (nhc token person makes one)")
    ends = table.text("ends")
    try:
        when = float(calendar.timegm(time.strptime(ends, "%Y-%m-%d"))) if ends else None
    except ValueError:
        raise table.wrong("ends", "a date such as 2027-01-31") from None
    return PersonToken(person, table.text("sha256"), when)


def _check(file: Table, settings: ConsoleSettings) -> None:
    if bool(settings.tls.certificate) != bool(settings.tls.key):
        raise file.error("tls", "needs both certificate and key")
    why = unfit(settings)
    if why:
        raise file.wrong("listen", why)


def parse_listen(settings: ConsoleSettings) -> ConsoleSettings:
    """The same settings, where what was given on the command line fits them. Raises SettingsError."""
    why = unfit(settings)
    if why:
        raise SettingsError(f"--listen: {settings.listen!r} is not {why}")
    return settings


def unfit(settings: ConsoleSettings) -> str:
    """What `listen` should be and is not: a console that others can reach needs TLS and a way to identify people."""
    if settings.listen.startswith("unix:"):
        return "" if len(settings.listen) > 5 else "unix:PATH"
    try:
        host, _port = host_and_port(settings.listen)
    except ValueError:
        return "HOST:PORT or unix:PATH"
    if is_loopback(host):
        return ""
    if not settings.tls.certificate:
        return "a loopback address: another one needs [tls] certificate and key"
    known = settings.register
    if not (known.tokens or known.certificates or settings.proxy):
        return "a loopback address: another one needs tokens, client certificates or a proxy"
    return ""
