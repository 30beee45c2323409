"""One request to a receiver of notices. If it gets no answer, the outbox tries again.

The address comes from the settings alone, never from a node's report. A message without an answer is sent again:
receivers recognise it by its id or its incident's key.
"""

from __future__ import annotations

import base64
import json
from typing import Callable, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.console.notices.notice import Notice, cleaned
from nhc.core.system.exchange import Exchange
from nhc.core.system.http_client import BY_THE_SYSTEM, BadAddress, CertificateRefused, HttpClient, HttpError, Tls

DEADLINE = 30.0
"""Seconds for everything that one message needs: look-up, connections, requests and answers."""


class SendLater(Exception):
    """It may succeed later: no answer, 429, 5xx. `after` are the seconds that the receiver asked for, 0.0 for none."""

    def __init__(self, why: str, after: float = 0.0) -> None:
        super().__init__(why)
        self.after = after


class SendRefused(Exception):
    """It never will succeed as it is: a wrong address, a wrong key, a message that is not accepted."""


def basic_auth(user: str, password: str) -> Dict[str, str]:
    """The header of RFC 7617."""
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


class Sender:
    """Requests with the certificates of `tls`, a connection each."""

    def __init__(self, tls: Tls = BY_THE_SYSTEM) -> None:
        self._http = HttpClient(tls)

    def post(
        self, exchange: Exchange, url: str, body: object, headers: Mapping[str, str] = {}, secrets: Sequence[str] = ()
    ) -> None:
        """POST bytes, or a value as JSON. It is accepted once the head of the answer says so: nhc does not wait for the
        body.

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
        given = {"Content-Type": "application/json", "User-Agent": "nhc", **headers}
        try:
            answer = self._http.send(exchange, method, url, body, given, heads=method == "POST")
        except BadAddress as error:
            raise SendRefused(str(error)) from None
        except CertificateRefused as error:
            raise SendLater(f"no answer: {cleaned(str(error))}") from None
        except HttpError as error:
            raise SendLater(f"no answer: {error}") from None
        if 200 <= answer.status < 300:
            return answer.data
        reply = cleaned(answer.data.decode("utf-8", "replace"), (url, *headers.values(), *secrets))
        answer_line = f"status {answer.status}: {reply}".rstrip(": ")
        if answer.status in (408, 425, 429) or answer.status >= 500:
            raise SendLater(answer_line, answer.retry_after)
        raise SendRefused(answer_line)


class JsonChannel(NamedTuple):
    """A receiver that accepts each notice by one POST of JSON. `secrets` are what the body or a header must not
    show.
    """

    url: str
    payload: Callable[[Notice], object]
    sender: Sender
    headers: Mapping[str, str] = {}
    secrets: Tuple[str, ...] = ()

    def deliver(self, notice: Notice, exchange: Exchange) -> None:
        """Raises SendLater, SendRefused."""
        self.sender.post(exchange, self.url, self.payload(notice), self.headers, self.secrets)
