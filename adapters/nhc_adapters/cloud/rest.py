"""Sends one HTTP request to a cloud, once, and says what a failure proves.

Bearer tokens that expire are fetched when needed, cached until shortly before their end, and never shown.
"""

from __future__ import annotations

import json
import time
from typing import Any, Callable, Dict, FrozenSet, Mapping, NamedTuple, Optional

from nhc import __version__
from nhc.core.json_values import number_of, object_from, object_of, text_in
from nhc.core.model import printable
from nhc.core.system.bounded_read import parse_json
from nhc.core.system.exchange import Exchange
from nhc.core.system.http_client import HttpAnswer, HttpClient, HttpError, NotSent
from nhc.core.units import whole_of_digits
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import Answer
from nhc_adapters.repair import LATER, CallFailed

LARGEST = 16 << 20
"""Bytes of an answer; a page of managed instances has 1 MB."""


class RestReply(NamedTuple):
    """An answer of success. `headers` have lower-case names."""

    status: int
    headers: Mapping[str, str]
    data: bytes

    def json(self) -> Mapping[str, Any]:
        """The answer's object, empty where there is none. Raises CallFailed where it is no object."""
        if not self.data.strip():
            return {}
        try:
            value = parse_json(self.data)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise CallFailed(Answer.AMBIGUOUS, "the answer makes no sense (a proxy's page?)")
        return value


class ProviderMessage(NamedTuple):
    """What a provider's error says: its code, its message, and the permission that it names as missing."""

    code: str
    message: str
    right: str = ""


ErrorReader = Callable[[bytes], ProviderMessage]
"""Reads a provider's error."""


class Rest:
    """Requests to one provider, through a `proxy` where there is one.

    `refused` are codes that prove, with any status, that nothing was begun; `denied` are those, besides 403, that mean
    that a changing call is not allowed.
    """

    def __init__(
        self, timeout: float, read_error: ErrorReader, refused: FrozenSet[str] = frozenset(), proxy: str = "",
        denied: FrozenSet[str] = frozenset(),
    ) -> None:  # fmt: skip
        self.timeout, self._read_error, self._refused, self._denied = timeout, read_error, refused, denied
        self._http = HttpClient(proxy=proxy)

    def call(
        self,
        name: str,
        method: str,
        url: str,
        headers: Optional[Mapping[str, str]] = None,
        body: Optional[Mapping[str, object]] = None,
        content: Optional[bytes] = None,
        right: str = "",
    ) -> RestReply:
        """One request; messages call it `name`, and never show the address or a header. Raises CallFailed.

        `right` is the permission that the request takes, for messages; `name` where it is not given.
        """
        sent: Dict[str, str] = {"User-Agent": f"nhc/{__version__}", "Accept": "application/json", **(headers or {})}
        data = content
        if body is not None:
            data = json.dumps(body, separators=(",", ":")).encode()
            sent["Content-Type"] = "application/json"
        try:
            with Exchange(self.timeout) as exchange:
                answer = self._http.send(exchange, method, url, data, sent, limit=LARGEST)
        except NotSent as error:
            raise CallFailed(Answer.REFUSED, f"{name}: {printable(str(error), 200)}", retry_after=LATER) from None
        except HttpError as error:
            raise CallFailed(Answer.AMBIGUOUS, f"{name}: {printable(str(error), 200)}") from None
        if answer.status < 300:
            return RestReply(*answer)
        failed = self._judged(name, answer)
        missing = answer.status == 403 and failed.code not in self._refused
        if missing or (method != "GET" and failed.code in self._denied):
            named = self._read_error(answer.data).right or right or name
            raise CallFailed(Answer.REFUSED, str(failed), failed.code, right=named)
        raise failed

    def _judged(self, name: str, answer: HttpAnswer) -> CallFailed:
        """A 4xx was refused. A 5xx may come after the work was begun, unless its code says otherwise.

        401 is for credentials that have run out or were not renewed in time.
        """
        problem, status = self._read_error(answer.data), answer.status
        message = f"{name}: {problem.code or status}: {problem.message or 'no reason given'}"
        proved = status < 500 or problem.code in self._refused
        later = status in (401, 409, 429) or problem.code in self._refused
        wait = answer.retry_after or LATER if proved and later else 0.0
        return CallFailed(Answer.REFUSED if proved else Answer.AMBIGUOUS, message, problem.code or str(status), wait)


def plain_message(answer: bytes) -> ProviderMessage:
    """Errors of something that has no form for them."""
    return ProviderMessage("", printable(answer[:200].decode(errors="replace"), 200))


def json_at(answer: bytes, *path: str) -> Mapping[str, Any]:
    """The object at a path of an error's JSON, {} if there is none."""
    value = object_from(answer)
    for name in path:
        value = object_of(value.get(name))
    return value


EARLY = 120.0
"""Seconds before its end at which a token is renewed. Google's and Azure's metadata services hand out a new one at five
minutes before the end at the latest.
"""


class AccessToken(NamedTuple):
    """A token, and the seconds for which it is good."""

    text: str
    seconds: float

    def __repr__(self) -> str:
        return f"AccessToken(…, {self.seconds:g} s)"


def of_machine(rest: Rest, provider: str, address: str, headers: Mapping[str, str]) -> AccessToken:
    """The token of this machine's own account, from its metadata service. Raises CallFailed, AdapterError."""
    service = f"{provider}'s metadata service"
    try:
        answer = rest.call(service, "GET", address, headers).json()
        seconds = number_of(answer.get("expires_in"))
        seconds = whole_of_digits(answer.get("expires_in")) if seconds is None else seconds  # Azure writes a text
        if seconds is None:
            raise ValueError("expires_in")
        return AccessToken(text_in(answer, "access_token"), float(seconds))
    except CallFailed as error:
        hint = f"outside of {provider}'s machines set repairers.{provider.lower()}.credentials"
        raise CallFailed(error.answer, f"{error} ({hint})", error.code, error.retry_after) from None
    except ValueError:
        raise AdapterError(f"{service}: its answer holds no token") from None


CREDENTIALS = ("auto", "metadata", "default")
"""Where a token comes from: this machine's own account, or what the provider's library finds."""


def by_library(how: str, configured: object) -> bool:
    """Whether the provider's library finds the credentials: by the setting, else where they are `configured`."""
    return how == "default" or (how == "auto" and bool(configured))


class Bearer:
    """The current Authorization header."""

    def __init__(self, fetch: Callable[[], AccessToken], clock: Callable[[], float] = time.monotonic) -> None:
        self._fetch, self._clock = fetch, clock
        self._token: Optional[AccessToken] = None
        self._until = 0.0

    def header(self) -> str:
        """Raises what `fetch` raises."""
        if self._token is None or self._clock() >= self._until:
            self._token = self._fetch()
            self._until = self._clock() + max(0.0, self._token.seconds - EARLY)
        return f"Bearer {self._token.text}"
