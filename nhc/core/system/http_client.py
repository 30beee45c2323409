"""One HTTP request within an Exchange: sent once, no redirect, a bounded answer, one deadline for all of it.

Every client of nhc goes through here, but the Kubernetes one (docs/decisions/0007), and the node's own small questions
(`plain_http`), since http.client costs 30 ms of a start. An error says whether the request may have arrived.
"""

from __future__ import annotations

import base64
import email.utils
import hashlib
import http.client
import select
import socket
import ssl
import time
import zlib
from typing import Dict, Mapping, NamedTuple, Optional, Tuple
from urllib.parse import SplitResult, quote, unquote, urlsplit

from nhc.core.system.exchange import Exchange

LONGEST_WAIT = 3600.0
"""Seconds of a Retry-After that are believed."""
_AS_IT_IS = "%/:?#[]@!$&'()*+,;=~"
"""What an address keeps (RFC 3986, 2.2); anything else is encoded."""
_FINGERPRINTS = {40: "sha1", 64: "sha256"}
"""Which digest a fingerprint is, by its hexadecimal digits."""


class HttpError(Exception):
    """There is no whole answer. The text names neither the address nor what was sent."""


class NotSent(HttpError):
    """The request did not leave: nobody has carried it out."""


class BadAddress(NotSent):
    """The address is no URL, or a header has characters that HTTP does not take: another try ends the same."""


class CertificateRefused(NotSent):
    """The certificate of the other side, or ours, is not what it should be."""


class NoAnswer(HttpError):
    """The request may have arrived: whether it was carried out is not known."""


class HttpAnswer(NamedTuple):
    """An answer, whatever its status. `headers` have lower-case names."""

    status: int
    headers: Mapping[str, str]
    data: bytes

    @property
    def retry_after(self) -> float:
        """The seconds that it asks to be left alone for (RFC 9110, 10.2.3), 0.0 for none."""
        return retry_after(self.headers.get("retry-after", ""))


class Tls(NamedTuple):
    """Paths of authorities ("": the system's), of our certificate and its key. A fingerprint stands for authorities."""

    ca: str = ""
    certificate: str = ""
    key: str = ""
    fingerprint: str = ""
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        """Read anew for each connection: who renews a certificate writes its file. Raises CertificateRefused."""
        path = self.ca
        try:
            made = (
                _any_certificate()
                if self.fingerprint or not self.verify
                else ssl.create_default_context(cafile=self.ca or None)
            )
            path = self.certificate
            if self.certificate:
                made.load_cert_chain(self.certificate, self.key or None, password="")  # never ask at a terminal
        except OSError as error:  # ssl.SSLError is one
            reason = error.strerror
            if isinstance(error, ssl.SSLError):
                reason = "holds no certificates, or not ours with its key"
            raise CertificateRefused(f"{path}: {reason}") from None
        return made

    def check(self, connection: ssl.SSLSocket) -> None:
        """Compare the fingerprint, where there is one. Raises CertificateRefused."""
        wanted = self.fingerprint.replace(":", "").lower()
        if not wanted:
            return
        kind = _FINGERPRINTS.get(len(wanted), "")
        if not kind or hashlib.new(kind, connection.getpeercert(binary_form=True) or b"").hexdigest() != wanted:
            raise CertificateRefused("the certificate has another fingerprint")


class _Unverified(ssl.SSLContext):
    """Takes any certificate: the caller compares its fingerprint, or asked for no verification."""

    def look_away(self) -> None:
        self.check_hostname = False
        self.verify_mode = ssl.CERT_NONE


def _any_certificate() -> ssl.SSLContext:
    made = _Unverified(ssl.PROTOCOL_TLS_CLIENT)
    made.look_away()
    return made


BY_THE_SYSTEM = Tls()


class HttpClient:
    """Sends requests to one server, a connection each; `keep`: they follow on one connection while it lasts.

    `proxy` is the http:// address of one, `unix` the path of a socket to use in place of TCP. Not for several threads.
    """

    def __init__(self, tls: Tls = BY_THE_SYSTEM, *, proxy: str = "", unix: str = "", keep: bool = False) -> None:
        self._tls, self._proxy, self._unix, self._keep = tls, proxy, unix, keep
        self._kept: Optional[Tuple[str, http.client.HTTPConnection]] = None

    def send(
        self, exchange: Exchange, method: str, url: str, body: Optional[bytes] = None, headers: Mapping[str, str] = {},
        *, limit: int = 1 << 20, heads: bool = False,
    ) -> HttpAnswer:  # fmt: skip
        """The answer. Of an error's body as much as came; `heads`: the body of a success is not waited for, either.

        Raises BadAddress, CertificateRefused, NotSent; NoAnswer, also where a success has more than `limit` bytes.
        """
        parts = _parts(url)
        try:
            connection = self._connected(exchange, parts)
        except (OSError, http.client.HTTPException) as error:
            kind = CertificateRefused if isinstance(error, ssl.SSLCertVerificationError) else NotSent
            raise kind(problem(error, exchange)) from None
        except ValueError:  # UnicodeError: a name that DNS cannot have. A certificate's error is a ValueError as well
            raise BadAddress("the address is no URL") from None
        answer: Optional[http.client.HTTPResponse] = None
        whole = False
        try:
            connection.request(method, self._path(parts), body, self._headers(parts, headers))
            answer = connection.getresponse()
            if exchange.over:
                raise TimeoutError  # http.client takes a head that is cut for a whole one
            success = 200 <= answer.status < 300
            data = b"" if success and heads else _body(answer, exchange, limit, success)
            whole = answer.isclosed() and not answer.will_close
        except (OSError, http.client.HTTPException, zlib.error) as error:
            raise NoAnswer(problem(error, exchange)) from None
        except ValueError:
            raise BadAddress("a header has characters that HTTP does not take") from None
        finally:
            if whole and self._keep and not exchange.over:
                self._kept = (parts.scheme + parts.netloc, connection)
            else:
                connection.close()
                if answer is not None:
                    answer.close()
        lower: Dict[str, str] = {}
        for name, value in answer.headers.items():
            lower.setdefault(name.lower(), value)
        return HttpAnswer(answer.status, lower, data)

    def close(self) -> None:
        """End the connection that was kept."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept[1].close()

    def _connected(self, exchange: Exchange, parts: SplitResult) -> http.client.HTTPConnection:
        kept, self._kept = self._kept, None
        if kept is not None:
            held = kept[1].sock
            if kept[0] == parts.scheme + parts.netloc and held is not None and not _readable(held):
                exchange.hold(held)
                return kept[1]
            kept[1].close()  # data that nobody asked for is its end
        secure = parts.scheme == "https"
        host, port = parts.hostname or "", parts.port or (443 if secure else 80)
        made = _Connection(exchange, host, port, self._tls if secure else None, self._unix)
        if self._proxy:
            made.go_through(_parts(self._proxy))
        try:
            made.connect()
        except BaseException:
            made.close()
            raise
        return made

    def _path(self, parts: SplitResult) -> str:
        path = quote(parts.path or "/", safe=_AS_IT_IS)
        query = f"?{quote(parts.query, safe=_AS_IT_IS)}" if parts.query else ""
        return f"http://{parts.netloc}{path}{query}" if self._proxy and parts.scheme == "http" else path + query

    def _headers(self, parts: SplitResult, given: Mapping[str, str]) -> Dict[str, str]:
        headers = dict(given) if self._keep else {"Connection": "close", **given}
        if self._proxy and parts.scheme == "http":
            headers.update(_proxy_login(_parts(self._proxy)))
        return headers


class _Connection(http.client.HTTPConnection):
    """A connection within an exchange."""

    def __init__(self, exchange: Exchange, host: str, port: int, tls: Optional[Tls], unix: str) -> None:
        super().__init__(host, port)
        self.default_port = 443 if tls else 80  # the header Host names another alone
        self._exchange, self._tls, self._unix, self._server = exchange, tls, unix, host
        self._through: Optional[SplitResult] = None

    def go_through(self, proxy: SplitResult) -> None:
        """Reach it by a proxy: through a tunnel where TLS is spoken to the end."""
        if proxy.scheme != "http":
            raise BadAddress("the proxy's address does not begin with http://")
        self._through = proxy
        if self._tls is not None:
            self.set_tunnel(self.host, self.port, _proxy_login(proxy))

    def connect(self) -> None:
        if self._unix:
            self.sock = self._exchange.connect_unix(self._unix)
            return
        host, port = self.host, self.port
        if self._through is not None:
            host, port = self._through.hostname or "", self._through.port or 80
        self.sock = self._exchange.connect(host, port)
        if self._tls is not None:
            if self._through is not None:
                self._tunnel()  # type: ignore[attr-defined]
            secure = self._tls.context().wrap_socket(self.sock, server_hostname=self._server)
            self.sock = secure
            self._tls.check(secure)


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        good = bool(parts.hostname) and parts.scheme in ("http", "https") and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise BadAddress("the address is no URL")
    return parts


def _proxy_login(proxy: SplitResult) -> Dict[str, str]:
    if not proxy.username:
        return {}
    login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}


def _readable(connection: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


def _body(answer: http.client.HTTPResponse, exchange: Exchange, limit: int, success: bool) -> bytes:
    """The body; what came of it, where the status says enough. Raises OSError, HTTPException, zlib.error."""
    data = b""
    try:
        data = _all_of(answer, limit + 1)
        if exchange.over:
            raise TimeoutError
        if answer.headers.get("Content-Encoding", "").lower() in ("gzip", "x-gzip"):  # unasked, as some BMCs do
            unpacker = zlib.decompressobj(31)
            data = unpacker.decompress(data, limit + 1)
            if len(data) <= limit and not unpacker.eof:
                raise zlib.error
        if len(data) > limit:
            raise OSError(0, f"the answer has more than {limit} bytes")
    except (OSError, http.client.HTTPException, zlib.error):
        if success:
            raise
    return data[:limit]


def _all_of(answer: http.client.HTTPResponse, most: int) -> bytes:
    """In pieces: Python 3.9 makes room for all that is asked for. Raises IncompleteRead."""
    pieces, left = [], most
    while left > 0:
        piece = answer.read(min(left, 1 << 16))
        if not piece:
            break
        pieces.append(piece)
        left -= len(piece)
    if left and answer.length:
        raise http.client.IncompleteRead(b"")
    return b"".join(pieces)


def problem(error: Exception, exchange: Exchange) -> str:
    """Why an exchange has no whole answer, in words that name neither an address nor what was sent."""
    if exchange.over or isinstance(error, TimeoutError):
        return f"no whole answer within {exchange.seconds:g} s"
    return network_problem(error) or getattr(error, "strerror", None) or _NAMES.get(type(error), type(error).__name__)


_NAMES = {
    http.client.RemoteDisconnected: "the connection was closed without an answer",
    http.client.IncompleteRead: "the answer breaks off",
    http.client.BadStatusLine: "what answers speaks no HTTP",
    zlib.error: "the answer cannot be unpacked",
}


def network_problem(error: BaseException) -> str:
    """Why there is no connection, "" for another cause: a person mends each of these in another place."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused: nothing listens there"
    if isinstance(error, socket.gaierror):
        again = error.errno == socket.EAI_AGAIN
        return "the name cannot be resolved for now: DNS gives no answer" if again else "no such host"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {error.verify_message or error.strerror}"[:200]
    return ""


def retry_after(text: str, now: Optional[float] = None) -> float:
    """The seconds that a Retry-After header asks for (RFC 9110, 10.2.3), at most an hour; 0.0 for none."""
    if text.strip().isdecimal() and len(text.strip()) < 10:
        return min(float(text), LONGEST_WAIT)
    try:
        when = email.utils.parsedate_to_datetime(text).timestamp()
        return min(max(0.0, when - (time.time() if now is None else now)), LONGEST_WAIT)
    except (TypeError, ValueError, IndexError, OverflowError):
        return 0.0
