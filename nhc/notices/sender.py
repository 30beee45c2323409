"""One request to a receiver of notices: no redirect, no proxy of the environment, one try. The outbox tries again.

The address comes from the settings alone, never from a node's report. A message without an answer is sent again:
receivers recognise it by its id or its incident's key.
"""

from __future__ import annotations

import base64
import contextlib
import email.utils
import http.client
import json
import ssl
from typing import Dict, Mapping, Optional, Sequence, Tuple
from urllib.parse import quote, urlsplit

from nhc.notices.answer_line import cleaned
from nhc.system.exchange import Exchange

DEADLINE = 30.0
"""Seconds for all that one message takes: look-up, connections, requests and answers."""
LONGEST_ANSWER = 1 << 20
_AS_IT_IS = "%/:?#[]@!$&'()*+,;=~"
"""What an address keeps (RFC 3986, 2.2); anything else is encoded."""
LONGEST_WAIT = 3600.0
"""Seconds of a Retry-After that are believed."""


class SendLater(Exception):
    """It may succeed later: no answer, 429, 5xx. `after` are the seconds that the receiver asked for, 0.0 for none."""

    def __init__(self, why: str, after: float = 0.0) -> None:
        super().__init__(why)
        self.after = after


class SendRefused(Exception):
    """It never will succeed as it is: a wrong address, a wrong key, a message that is not taken."""


def basic_auth(user: str, password: str) -> Dict[str, str]:
    """The header of RFC 7617."""
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


class Sender:
    """Requests by http.client, a connection each. `tls` in place of the system's certificates."""

    def __init__(self, tls: Optional[ssl.SSLContext] = None) -> None:
        self._tls = tls

    def post(
        self, exchange: Exchange, url: str, body: object, headers: Mapping[str, str] = {}, secrets: Sequence[str] = ()
    ) -> None:
        """POST bytes, or a value as JSON. It is taken once the head of the answer says so: its body is not waited for.

        Raises SendLater, SendRefused. Neither names the address, a header or one of `secrets`.
        """
        data = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
        self._send(exchange, "POST", url, data, headers, secrets)

    def get(self, exchange: Exchange, url: str, headers: Mapping[str, str] = {}, secrets: Sequence[str] = ()) -> bytes:
        """The answer to a GET, at most 1 MiB of it. Raises SendLater, SendRefused, as `post` does."""
        return self._send(exchange, "GET", url, None, headers, secrets)

    def _send(
        self, exchange: Exchange, method: str, url: str, body: Optional[bytes], headers: Mapping[str, str],
        secrets: Sequence[str],
    ) -> bytes:  # fmt: skip
        given = {"Content-Type": "application/json", "User-Agent": "nhc", "Connection": "close", **headers}
        data = b""
        try:
            connection, path = self._connection(exchange, url)
            with contextlib.closing(connection):
                connection.request(method, path, body, given)
                answer = connection.getresponse()
                if exchange.over:
                    raise TimeoutError  # http.client takes a head that is cut for a whole one
                taken = 200 <= answer.status < 300
                if method == "GET" or not taken:
                    data = _read(answer, exchange, whole=taken)
        except (http.client.InvalidURL, ValueError):
            raise SendRefused("the address is no URL, or a header has characters that HTTP does not take") from None
        except (OSError, http.client.HTTPException) as error:
            raise SendLater(no_answer(error, exchange)) from None
        if taken:
            return data
        words = cleaned(data.decode("utf-8", "replace"), (url, *headers.values(), *secrets))
        said = f"status {answer.status}: {words}".rstrip(": ")
        if answer.status in (408, 425, 429) or answer.status >= 500:
            raise SendLater(said, retry_after(answer.headers.get("Retry-After", "")))
        raise SendRefused(said)

    def _connection(self, exchange: Exchange, url: str) -> Tuple[_Connection, str]:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            raise http.client.InvalidURL from None
        if not host or parts.scheme not in ("http", "https"):
            raise http.client.InvalidURL
        tls = (self._tls or ssl.create_default_context()) if parts.scheme == "https" else None
        path = quote(parts.path or "/", safe=_AS_IT_IS) + (
            f"?{quote(parts.query, safe=_AS_IT_IS)}" if parts.query else ""
        )
        return _Connection(host, port or (443 if tls else 80), exchange, tls), path


class _Connection(http.client.HTTPConnection):
    """A connection within an exchange."""

    def __init__(self, host: str, port: int, exchange: Exchange, tls: Optional[ssl.SSLContext]) -> None:
        super().__init__(host, port)
        self.default_port = 443 if tls else 80  # the header Host names another alone
        self._exchange, self._tls = exchange, tls

    def connect(self) -> None:
        self.sock = self._exchange.connect(self.host, self.port)
        if self._tls is not None:
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=self.host)


def _read(answer: http.client.HTTPResponse, exchange: Exchange, *, whole: bool) -> bytes:
    """The body; what came of it, where it need not be `whole`. Raises OSError, HTTPException."""
    try:
        data = answer.read(LONGEST_ANSWER)
    except (OSError, http.client.HTTPException):
        if whole:
            raise
        return b""
    if whole and exchange.over:
        raise TimeoutError
    return data


def no_answer(error: Exception, exchange: Exchange) -> str:
    """Why an exchange had no answer, in words that name neither an address nor what was sent."""
    if exchange.over or isinstance(error, TimeoutError):
        return f"no whole answer within {exchange.seconds:g} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {cleaned(error.verify_message)}"
    strerror = error.strerror if isinstance(error, OSError) else None
    return f"no answer: {strerror or type(error).__name__}"


def retry_after(text: str, now: Optional[float] = None) -> float:
    """The seconds that a Retry-After header asks for (RFC 9110, 10.2.3); 0.0 for none."""
    if text.strip().isdigit() and len(text.strip()) < 10:
        return min(float(text), LONGEST_WAIT)
    try:
        import time

        when = email.utils.parsedate_to_datetime(text).timestamp()
        return min(max(0.0, when - (time.time() if now is None else now)), LONGEST_WAIT)
    except (TypeError, ValueError, IndexError, OverflowError):
        return 0.0
