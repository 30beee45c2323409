"""Sends one HTTP request to a cloud, once, and says what a failure proves."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, FrozenSet, Mapping, NamedTuple, Optional

from nhc import __version__
from nhc.core.json_values import object_from, object_of
from nhc.core.model import printable
from nhc.core.system.bounded_read import parse_json
from nhc.core.system.exchange import Exchange
from nhc.core.system.http_client import HttpAnswer, HttpClient, HttpError, NotSent
from nhc.marks.ports.repair import Answer
from nhc_adapters.repair.calls import LATER, CallFailed

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

    `refused` are codes that prove that nothing was begun, whatever their status is; `denied` those by which a call
    that changes something is not allowed, besides 403.
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
    """The object at a path of an error's JSON, {} where there is none."""
    value = object_from(answer)
    for name in path:
        value = object_of(value.get(name))
    return value
