"""The console's settings, /etc/nhc/console.toml (conf/console.toml.example)."""

from __future__ import annotations

import calendar
import ipaddress
import re
import time
from typing import FrozenSet, Mapping, NamedTuple, Optional, Tuple

from nhc.console.access import Person, PersonToken, Register, Role
from nhc.core.settings import declared
from nhc.core.settings.settings_file import SettingsError, Table
from nhc.core.system.addresses import host_and_port, is_loopback
from nhc.core.system.web_listener import WebBounds
from nhc.store import location

DEFAULT_LISTEN = "127.0.0.1:9810"
ROLES = {role.value: role for role in Role}
PATH = "/etc/nhc/console.toml"
HEAD = """
/etc/nhc/console.toml: the web page over a fleet (docs/console.md). What is commented out is the default.
"""


def _network(text: str) -> str:
    """An address, or a network. Raises ValueError."""
    try:
        ipaddress.ip_network(text)
    except ValueError:
        raise ValueError(f"{text!r} is not an address or a network such as 10.0.0.7 or 10.0.0.0/24") from None
    return text


def _day(text: str) -> float:
    """The Unix time at which a day begins. Raises ValueError."""
    try:
        return float(calendar.timegm(time.strptime(text, "%Y-%m-%d")))
    except ValueError:
        raise ValueError(f"{text!r} is not a date such as 2027-01-31") from None


@declared.settings
class Proxy(NamedTuple):
    """A proxy that identifies people: trusted only from these addresses or a Unix socket, and with the secret."""

    secret_file: str = declared.text(
        "secret_file", declared.NEEDED, "the proxy sends it as X-Nhc-Proxy-Secret", shown='"/etc/nhc/console.secret"'
    )
    user_header: str = declared.text("user_header", "X-Remote-User")
    groups_header: str = declared.text("groups_header", "X-Remote-Groups")
    addresses: Tuple[str, ...] = declared.texts("addresses", (), each=_network, shown='["10.0.0.7"]')


@declared.settings
class ListenerTls(NamedTuple):
    """Certificate and key of the listener, and the authorities of client certificates ("" asks for none)."""

    certificate: str = declared.text("certificate", "", shown='"/etc/nhc/console.pem"')
    key: str = declared.text("key", "", shown='"/etc/nhc/console.key"')
    clients: str = declared.text("clients", "", "authorities of client certificates", shown='"/etc/nhc/people-ca.pem"')


@declared.settings
class TokenSettings(NamedTuple):
    """A person's bearer token. `ends` is Unix time."""

    sha256: str = declared.text("sha256", declared.NEEDED, shown=f'"{"0123456789abcdef" * 4}"')
    ends: Optional[float] = declared.converted("ends", _day, None, shown='"2027-01-31"')

    def checked(self, table: Table) -> TokenSettings:
        """The same. Raises SettingsError."""
        if not re.fullmatch(r"[0-9a-fA-F]{64}", self.sha256):
            raise table.error("sha256", "is not a SHA-256 in hexadecimal (nhc token person makes one)")
        return self


@declared.settings
class PersonSettings(NamedTuple):
    """A person: what they may do, to which nodes, and by what they are recognised."""

    name: str
    roles: FrozenSet[Role] = declared.choices(
        "roles", ROLES, frozenset({Role.VIEWER}), shown='["operator"]', made=frozenset, live=True
    )
    nodes: Tuple[str, ...] = declared.texts(
        "nodes", ("*",), 'which nodes her acts may concern; "*" is all', one=True, shown='["gpu*"]', live=True
    )
    users: Tuple[str, ...] = declared.texts(
        "users", (), 'her user on this machine, for listen = "unix:..."', one=True, shown='["anna"]', live=True
    )
    certificates: Tuple[str, ...] = declared.texts(
        "certificates", (), "the common name of her certificate", one=True, shown='["anna"]', live=True
    )
    tokens: Tuple[TokenSettings, ...] = declared.tables_in_order(
        "tokens", TokenSettings, "From `nhc token person anna`."
    )


@declared.settings
class ConsoleSettings(NamedTuple):
    """All of it. `listen` is HOST:PORT or unix:PATH; `origin` how browsers reach the page, if that is not `listen`.

    A node's state is stale after `stale` seconds without a report. `scheduler` is the adapter that is asked for
    the state that a node's page shows, "" for none.
    """

    listen: str = declared.text(
        "listen", DEFAULT_LISTEN, "HOST:PORT or unix:PATH; another address than loopback needs [tls] and people"
    )
    store: str = declared.text("store", location.DEFAULT, "default: $NHC_STORE, else store.toml's", absent=location.url)
    origin: str = declared.converted(
        "origin", lambda text: text.rstrip("/"), "", "how browsers reach the page through a proxy",
        shown='"https://console.cluster"',
    )  # fmt: skip
    refresh: float = declared.seconds(
        "refresh", 2.0, "how often the fleet is read, once for all viewers; while nobody looks, a fifth as often",
        least=0.5, most=60.0,
    )  # fmt: skip
    stale: float = declared.seconds(
        "stale", 600.0, "a node without a report for so long is stale, never healthy", least=10.0
    )
    scheduler: str = declared.text(
        "scheduler", "", "an adapter: a node's page shows its state and the work there, at most 30 s old",
        shown='"slurm"',
    )  # fmt: skip
    anyone: FrozenSet[Role] = declared.choices(
        "anyone", ROLES, frozenset({Role.VIEWER}),
        "a person at this machine without a name, not behind a proxy; []: nobody", made=frozenset,
    )  # fmt: skip
    bounds: WebBounds = declared.part(
        "limits", WebBounds, default=WebBounds(2000, 250, 20.0),
        connections=declared.count("connections", 2000, "open at once; a browser has one to six", least=1),
        connections_each=declared.count(
            "connections-an-address", 250, "more where viewers come through a proxy or one gateway", least=1
        ),
        slow=declared.seconds("slow", 20.0, "in which the head of a request comes in whole", least=0.1, most=600.0),
    )  # fmt: skip
    tls: ListenerTls = declared.part("tls", ListenerTls)
    people: Tuple[PersonSettings, ...] = declared.tables(
        "people", PersonSettings, "Who may do what: the roles are viewer, operator, admin, auditor, metrics.",
        sample="anna", live=True,
    )  # fmt: skip
    groups: Mapping[str, FrozenSet[Role]] = declared.entries(
        "groups", lambda table, name: frozenset(table.choices(name, ROLES)),
        "Groups of this machine, or of the proxy, with their roles.", form="list of roles",
        shown='hpc-admins = ["admin"]', live=True,
    )  # fmt: skip
    proxy: Optional[Proxy] = declared.part(
        "proxy", Proxy, "Believed from these addresses, or a Unix socket, and with the secret alone.", optional=True
    )
    links: Tuple[Tuple[str, str], ...] = declared.entries(
        "links", Table.text, shown='Grafana = "https://grafana.cluster/d/node?var-node={node}"', live=True,
        made=lambda found: tuple(found.items()),
    )  # fmt: skip

    register: Register = Register()
    """The persons, and by what each is recognised."""

    def checked(self, table: Table) -> ConsoleSettings:
        """The same settings, after a check that they fit together. Raises SettingsError."""
        if self.anyone - {Role.VIEWER}:
            raise table.wrong("anyone", '["viewer"] or []: a person without a name may only look')
        if bool(self.tls.certificate) != bool(self.tls.key):
            raise table.error("tls", "needs both certificate and key")
        known = self._replace(register=_register(self))
        why = unfit(known)
        if why:
            raise table.wrong("listen", why)
        return known


def _register(settings: ConsoleSettings) -> Register:
    people = settings.people
    return Register(
        {one.name: Person(one.name, one.roles, "", one.nodes) for one in people},
        {user: one.name for one in people for user in one.users},
        settings.groups,
        {certificate: one.name for one in people for certificate in one.certificates},
        tuple(PersonToken(one.name, token.sha256, token.ends) for one in people for token in one.tokens),
        settings.anyone,
    )


FILE = declared.SettingsFile(ConsoleSettings, PATH, HEAD, optional=True)
load, parse = FILE.load, FILE.parse


def parse_listen(settings: ConsoleSettings) -> ConsoleSettings:
    """The same settings, after a check that the command line's arguments fit them. Raises SettingsError."""
    why = unfit(settings)
    if why:
        raise SettingsError(f"--listen: {settings.listen!r} is not {why}")
    return settings


def unfit(settings: ConsoleSettings) -> str:
    """What is wrong with `listen`: a console that others can reach needs TLS and a way to identify people."""
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
