"""One push of reports to nhc's own server, over HTTPS: its settings, the request, and what the answer means."""

from __future__ import annotations

from typing import List, Mapping, NamedTuple
from urllib.parse import urlsplit

from nhc import __version__
from nhc.core.json_values import object_from, text_of, texts_of
from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.core.settings.settings_file import Table
from nhc.core.system.bounded_read import cause, read_text
from nhc.core.system.exchange import Exchange
from nhc.core.system.http_client import HttpClient, HttpError, Tls
from nhc.marks import push
from nhc.marks.ports.sinks import sink_settings

ANSWER = 64 << 10
"""Bytes of an answer that are read."""
_HOPELESS = (400, 413, 415, 422)


def _url(text: str) -> str:
    parts = urlsplit(text)
    local = parts.hostname in ("127.0.0.1", "::1", "localhost")
    if not parts.hostname or parts.scheme not in ("http", "https") or parts.query or parts.username:
        raise ValueError("expected https://HOST:PORT")
    if parts.scheme == "http" and not local:
        raise ValueError("expected https: a token does not travel in the clear")
    return text.rstrip("/")


@declared.settings
class PushSettings(NamedTuple):
    """The table [sinks.server]."""

    url: str = declared.converted("url", _url, declared.NEEDED, shown='"https://nhc.example.org:20259"')
    token_file: str = declared.text("token-file", "", "or certificate and key", shown='"/etc/nhc/server.token"')
    certificate: str = declared.text("certificate", "", shown='"/etc/nhc/node.crt"')
    key: str = declared.text("key", "", shown='"/etc/nhc/node.key"')
    ca: str = declared.text("ca", "", "default: the system's authorities", shown='"/etc/nhc/ca.crt"')
    every: float = declared.seconds("every", 60.0, "for a report that says nothing new", least=1.0)
    whole: float = declared.seconds("whole", 3600.0, "between two whole reports where nothing is new", least=1.0)
    timeout: float = declared.seconds("timeout", 15.0, least=0.1, most=300.0)
    spool: str = declared.text("spool", "/var/lib/nhc/server-spool", "where reports wait while the server is away")
    spool_size: int = declared.size("spool-size", 64 << 20, least=4096)
    spool_age: float = declared.seconds("spool-age", 86400.0, least=60.0)

    def checked(self, table: Table) -> PushSettings:
        """The same. Raises SettingsError if no setting gives the node's identity."""
        if not self.token_file and not self.certificate:
            raise table.error("token-file", "missing: it takes token-file, or certificate and key")
        return self


def read_push_settings(settings: Mapping[str, object]) -> PushSettings:
    """The table [sinks.server]. Raises AdapterError."""
    return sink_settings(PushSettings, settings, "server")


class NotNow(Exception):
    """The push was not accepted; try it again. `after`: for how long the server asked us not to."""

    def __init__(self, message: str, after: float = 0.0) -> None:
        super().__init__(message)
        self.after = after


class Hopeless(Exception):
    """The server never accepts this push as it is."""


class PushAnswer(NamedTuple):
    """A line for each report that the server refused, and its notes on the others or on this node's clock.

    `digest` is that of the report which the server now has of this node, "" from a server that accepts only whole
    reports. `whole`: it refused a report that was sent as unchanged.
    """

    refused: List[str]
    notes: List[str]
    digest: str = ""
    whole: bool = False


class Pusher:
    """Sends pushes. A token is read from its file each time: it may have changed."""

    def __init__(self, settings: PushSettings) -> None:
        self._settings = settings
        self._http = HttpClient(Tls(settings.ca, settings.certificate, settings.key), keep=True)

    def push(self, body: bytes) -> PushAnswer:
        """Send one push; returns the server's answer. Raises NotNow, Hopeless."""
        headers = {
            "Content-Type": "application/json", "Content-Encoding": "gzip", "User-Agent": f"nhc-agent/{__version__}",
        }  # fmt: skip
        if self._settings.token_file:
            headers["Authorization"] = f"Bearer {self._token()}"
        try:
            with Exchange(self._settings.timeout) as exchange:
                url = self._settings.url + push.PATH
                answer = self._http.send(exchange, "POST", url, body, headers, limit=ANSWER)
        except HttpError as error:
            raise NotNow(f"{self._settings.url}: {printable(str(error), 200)}") from None
        if answer.status == 200:
            return _parsed(answer.data)
        problem = f"{self._settings.url}: HTTP {answer.status}: {_error(answer.data)}"
        if answer.status in _HOPELESS:
            raise Hopeless(problem)
        raise NotNow(problem, answer.retry_after)

    def close(self) -> None:
        """End the connection."""
        self._http.close()

    def _token(self) -> str:
        try:
            token = read_text(self._settings.token_file, 4096).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise NotNow(f"{self._settings.token_file}: {cause(error)}") from None
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise NotNow(f"{self._settings.token_file}: holds no token")
        return token


def _parsed(answer: bytes) -> PushAnswer:
    value = object_from(answer)
    if "refused" not in value:
        raise NotNow("the answer is no answer of nhc's server")
    refused, notes = texts_of(value["refused"]), texts_of(value.get("notes"))
    return PushAnswer(refused, notes, text_of(value.get("digest")), value.get("whole") is True)


def _error(answer: bytes) -> str:
    value = object_from(answer)
    return printable(str(value.get("error", "")), 200) if value else "no answer of nhc's server"
