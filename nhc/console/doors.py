"""The checks of every request before its route: is it meant for this server, does it come from our page, and who sent
it.

Acts need no form token: browsers themselves report where a request comes from (Sec-Fetch-Site), and treat another port
of the same host as another origin, while cookies and SameSite ignore ports. A program that is no browser sends no such
header and shows a bearer token.
"""

from __future__ import annotations

import asyncio
import grp
import hmac
import ipaddress
import os
import pwd
import secrets
import socket
import sys
import time
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Set, Tuple
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from nhc.console.access import Grant, Person
from nhc.console.settings import ConsoleSettings
from nhc.core.model import printable
from nhc.core.system.addresses import is_loopback, peer_user
from nhc.core.system.bounded_read import read_text
from nhc.core.system.web_listener import WebRefusals
from nhc.store import audit
from nhc.store.database import Store
from nhc.store.errors import StoreError

# Wrong tokens and logins: each is a line in the log and a row of the audit log, both in bounds.
#
# An attacker who guesses would fill both: the log has one line for each address and minute, the audit log so many rows
# a minute, and the next row says how many attempts it covers.


ACTOR = "nhc console"
ROWS = 10
MINUTE = 60.0


class WrongLogins:
    """The record of one console. `store` None: only the log."""

    def __init__(self, refusals: WebRefusals, store: Optional[Store]) -> None:
        self._refusals, self._store = refusals, store
        self._began, self._rows, self._unwritten = float("-inf"), 0, 0
        self._writing: Set[asyncio.Future[None]] = set()

    def note(self, request: web.Request, door: str) -> None:
        """Someone showed unknown credentials at this `door`: token, login, certificate, proxy."""
        now, peer = time.monotonic(), printable(request.remote or "a local socket", 100)
        self._refusals.refuse("login", peer, f"an unknown {printable(door, 100)}", now)
        if self._store is None:
            return
        if now - self._began >= MINUTE:
            self._began, self._rows = now, 0
        if self._rows >= ROWS:
            self._unwritten += 1
            return
        self._rows += 1
        detail: Dict[str, object] = {
            "door": door,
            "from": peer,
            **({"others": self._unwritten} if self._unwritten else {}),
        }
        self._unwritten = 0
        loop = asyncio.get_running_loop()
        writing = loop.run_in_executor(None, self._write, self._store, detail)
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)

    def _write(self, store: Store, detail: Dict[str, object]) -> None:
        try:
            with store.write() as connection:
                audit.append(connection, time.time(), ACTOR, "console.login-refused", detail=detail)
        except StoreError as error:
            self._refusals.note(f"a refused login is not in the audit log: {error}")


# Whether a visitor without a name is at this machine, or behind a proxy that runs on it.
#
# A connection from loopback alone proves nothing: a reverse proxy on the same machine makes one for every user. Most
# proxies are recognised by their headers and host name, the others by the kernel: a proxy runs as a service account, a
# person does not.


FORWARDED = (
    "Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Server",
    "X-Forwarded-User", "X-Real-IP", "X-Remote-User", "X-Request-Id", "X-Envoy-Expected-Rq-Timeout-Ms",
)  # fmt: skip
"""Headers that proxies add and browsers do not (RFC 7239; RFC 9110, 7.6.3; the names that nginx, Apache, HAProxy,
Envoy and oauth2-proxy document)."""


def by_a_person(request: web.Request, settings: ConsoleSettings) -> bool:
    """Whether a request from loopback comes from a person at this machine."""
    return not behind_proxy(request, settings) and is_login_account(_uid(request))


def behind_proxy(request: web.Request, settings: ConsoleSettings) -> bool:
    """Whether a request has come through a proxy, or the settings say that visitors do."""
    outside = settings.origin and not is_loopback(urlsplit(settings.origin).hostname or "")
    host = (request.headers.get("Host") or "").rpartition(":")[0]
    return bool(settings.proxy or outside or not is_loopback(host) or is_forwarded(request))


def is_forwarded(request: web.Request) -> bool:
    """Whether a proxy has added its headers."""
    return any(name in request.headers for name in FORWARDED)


def is_login_account(uid: Optional[int]) -> bool:
    """Whether a user ID may be a person's: root's, ours, or none that distributions and systemd keep for services.

    1 to 999: login.defs(5), SYS_UID_MAX. 60000 to 65535: https://systemd.io/UIDS-GIDS/ (DynamicUser=, nobody).
    """
    if uid is None:
        return False
    return uid in (0, os.geteuid()) or 1000 <= uid < 60000 or uid > 65535


def _uid(request: web.Request) -> Optional[int]:
    """The user whose socket is at the other end of a connection within this machine; None if the kernel lists none."""
    transport = request.transport
    if transport is None:
        return None
    client, server = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
    if not client or not server:
        return None
    wanted = [_kernel_form(client), _kernel_form(server)]
    try:
        table = read_text("/proc/net/tcp6" if ":" in client[0] else "/proc/net/tcp", 256 << 20)
    except (OSError, UnicodeDecodeError):
        return None
    for line in table.splitlines():
        fields = line.split()  # proc_net_tcp.rst: sl local_address rem_address st tx:rx tr:tm retrnsmt uid
        if fields[1:3] == wanted:
            return int(fields[7])
    return None


def _kernel_form(address: Tuple[str, int]) -> str:
    """An address as /proc/net/tcp has it: 32-bit words in this machine's order, in hexadecimal."""
    packed = socket.inet_pton(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, address[0].partition("%")[0])
    parts = (int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4))
    return "".join(f"{part:08X}" for part in parts) + f":{address[1]:04X}"


HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
IDLE = 30 * 60.0
"""Seconds after which a session that does nothing ends."""
LIFETIME = 12 * 3600.0
"""Seconds after which every session ends."""
SESSIONS = 10_000
"""The most sessions: each costs some hundred bytes, and only the owner of a token can begin one."""
SAFE = ("GET", "HEAD")
ATTENDED = "X-Nhc-Attended"
"""The header by which the page says that it was used within the last minute."""

PERSON: Any = web.RequestKey("person", Person) if hasattr(web, "RequestKey") else "person"
"""The key of a request's sender; aiohttp for Python 3.9 accepts only texts."""


class BrowserSession(NamedTuple):
    """A browser that has shown a token. `token` is stored to check that it is still valid."""

    person: Person
    token: str
    made: float
    used: float


class Doors:
    """Recognises people and refuses what is not meant for this page."""

    def __init__(self, settings: ConsoleSettings, clock: Callable[[], float] = time.time) -> None:
        self.settings, self.clock = settings, clock
        self.sessions: Dict[str, BrowserSession] = {}
        self.hosts = _hosts(settings)

    # The middlewares' work.

    def refusal(self, request: web.Request) -> str:
        """Why a request is refused before its sender is checked, "" if it is not."""
        host = (request.headers.get("Host") or "").lower()
        if not self._over_socket(request) and host not in self.hosts:
            return f"the host {host!r} is not this console's: set origin"  # a name that was rebound to loopback
        if request.method in SAFE:
            return ""
        site = request.headers.get("Sec-Fetch-Site")
        if site is not None:
            return "" if site in ("same-origin", "none") else "sent by another page"
        origin = request.headers.get("Origin")
        if origin is not None:
            return "" if _host_of(origin) in self.hosts else "sent by another page"
        if "Authorization" in request.headers or self._over_socket(request) or self._certificate(request):
            return ""
        return "neither a browser's page nor a bearer token"

    def person(self, request: web.Request) -> Person:
        """Who sent it, by a token, a session, a certificate, the proxy, the socket's peer, or as a person at this
        machine.
        """
        register = self.settings.register
        bearer = request.headers.get("Authorization", "")
        if bearer.lower().startswith("bearer "):
            return register.by_token(bearer[7:].strip(), self.clock()) or _nobody("token")
        session = self._session(request)
        if session is not None:
            if _by_a_hand(request):
                self.sessions[self._cookie_value(request)] = session._replace(used=self.clock())
            return session.person
        proxied = self._proxied(request)
        if proxied is not None:
            return proxied
        name = self._certificate(request)
        if name:
            return register.by_certificate(name) or _nobody("certificate")
        if self._over_socket(request):
            return _nobody("socket, a proxy") if is_forwarded(request) else register.by_socket(*_peer(request))
        if is_loopback(request.remote or ""):
            return register.by_loopback(person=by_a_person(request, self.settings))
        return _nobody("network")

    def holds(self, request: web.Request) -> bool:
        """Whether the sender of a request that is still being answered is still allowed: sessions and tokens end."""
        bearer = request.headers.get("Authorization", "")
        if bearer.lower().startswith("bearer "):
            return self.settings.register.by_token(bearer[7:].strip(), self.clock()) is not None
        return request[PERSON].door != "token" or self._session(request) is not None

    # Sessions.

    def log_in(self, token: str) -> Optional[str]:
        """The cookie's value for a valid token, None for an invalid one."""
        now = self.clock()
        person = self.settings.register.by_token(token, now)
        if person is None:
            return None
        self._forget_old(now)
        value = secrets.token_urlsafe(32)
        self.sessions[value] = BrowserSession(person, token, now, now)
        return value

    def log_out(self, request: web.Request) -> None:
        self.sessions.pop(self._cookie_value(request), None)

    def cookie(self) -> str:
        """The session cookie's name: bound to the host if it is sent over TLS."""
        return "__Host-nhc" if self.secure() else "nhc"

    def secure(self) -> bool:
        return bool(self.settings.tls.certificate) or self.settings.origin.startswith("https:")

    def _session(self, request: web.Request) -> Optional[BrowserSession]:
        value = self._cookie_value(request)
        session = self.sessions.get(value)
        if session is None:
            return None
        now = self.clock()
        alive = now - session.used < IDLE and now - session.made < LIFETIME
        if not alive or self.settings.register.by_token(session.token, now) is None:
            del self.sessions[value]
            return None
        return session

    def _cookie_value(self, request: web.Request) -> str:
        return request.cookies.get(self.cookie(), "")

    def _forget_old(self, now: float) -> None:
        for value, session in list(self.sessions.items()):
            if now - session.used >= IDLE or now - session.made >= LIFETIME:
                del self.sessions[value]
        while len(self.sessions) >= SESSIONS:
            del self.sessions[min(self.sessions, key=lambda value: self.sessions[value].used)]

    # The origin of a request.

    def _over_socket(self, request: web.Request) -> bool:
        peer = _of_connection(request, "socket")
        return peer is not None and peer.family == socket.AF_UNIX

    def _certificate(self, request: web.Request) -> str:
        """The common name of a client certificate that the listener has verified, "" for none."""
        certificate = _of_connection(request, "peercert")
        subject = certificate.get("subject", ()) if certificate else ()
        return next((value for row in subject for key, value in row if key == "commonName"), "")

    def _proxied(self, request: web.Request) -> Optional[Person]:
        """The person whom the proxy names. Its headers count only from its own addresses and with its secret."""
        proxy = self.settings.proxy
        name = request.headers.get(proxy.user_header, "") if proxy is not None else ""
        if proxy is None or not name:
            return None
        if not self._over_socket(request) and not _inside(request.remote or "", proxy.addresses):
            return _nobody("proxy: not from its address")
        try:
            secret = read_text(proxy.secret_file).strip()
        except (OSError, UnicodeDecodeError):
            return _nobody("proxy: its secret cannot be read")
        given = request.headers.get("X-Nhc-Proxy-Secret", "")
        if len(secret) < 16 or not hmac.compare_digest(secret.encode(), given.encode(errors="surrogatepass")):
            return _nobody("proxy: without its secret")
        groups = [group.strip() for group in request.headers.get(proxy.groups_header, "").split(",")]
        return self.settings.register.by_proxy(name, [group for group in groups if group])


def guard(doors: Doors, scopes: Mapping[Tuple[str, str], Grant], wrong: WrongLogins) -> Middleware:
    """The middleware. `scopes` gives what each route needs, by method and path; a route that is not in it is denied."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        refused = doors.refusal(request)
        if refused:
            return _denied(403, refused)
        person = doors.person(request)
        request[PERSON] = person
        if not person.name and person.door.partition(":")[0] in ("token", "certificate", "proxy"):
            wrong.note(request, person.door)
        if request.match_info.http_exception is not None:
            return _denied(request.match_info.http_exception.status, "there is no such page")
        resource = request.match_info.route.resource
        method = "GET" if request.method == "HEAD" else request.method
        scope = scopes.get((method, resource.canonical if resource else ""))
        if scope is None or not person.may(scope):
            status, right = 403 if person.may(Grant.STATE) else 401, scope.value if scope else "none"
            return _denied(
                status, f"{person.name or 'who is not logged in'} may not see or do this: it takes the right {right}"
            )
        return await handler(request)

    return middleware


async def add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """The headers of every answer."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)


def _denied(status: int, why: str) -> web.Response:
    return web.json_response({"error": why}, status=status, headers={"Vary": "Cookie, Authorization"})


def _nobody(door: str) -> Person:
    return Person("", frozenset(), door, ())


def _host_of(origin: str) -> str:
    """The host and port of an origin, "" if it is none (`http://[::1`)."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _by_a_hand(request: web.Request) -> bool:
    """Whether a person uses the page: it also sends requests by itself, and must not keep its own session alive."""
    by_navigation = request.headers.get("Sec-Fetch-Mode") == "navigate"
    return request.method not in SAFE or by_navigation or request.headers.get(ATTENDED) == "yes"


def _hosts(settings: ConsoleSettings) -> set[str]:
    """The values of the Host header that are ours."""
    hosts = set()
    if settings.origin:
        hosts.add(urlsplit(settings.origin).netloc.lower())
    host, _, port = settings.listen.rpartition(":")
    if not settings.listen.startswith("unix:"):
        names = ["localhost", "127.0.0.1", "[::1]"] if is_loopback(host) else [host]
        hosts |= {f"{name}:{port}" for name in {*names, host}}
    return hosts


def _of_connection(request: web.Request, name: str) -> Any:
    """The value of a request's connection under this name, None if it is closed."""
    return request.transport.get_extra_info(name) if request.transport else None


def _peer(request: web.Request) -> tuple[str, list[str]]:
    """The user at the other end of a Unix socket, and its groups."""
    peer = _of_connection(request, "socket")
    if peer is None:
        return "", []
    uid = peer_user(peer)
    try:
        user = pwd.getpwuid(uid)
    except KeyError:
        return str(uid), []  # as `nhc approve episode` names that person: two names would be two approvals
    own = [group.gr_name for group in grp.getgrall() if user.pw_name in group.gr_mem or group.gr_gid == user.pw_gid]
    return user.pw_name, own


def _inside(address: str, networks: tuple[str, ...]) -> bool:
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(ip in ipaddress.ip_network(network) for network in networks)
