"""Sends one HTTP request to a cloud, once, and says what a failure proves.

urllib3 carries it, as it does for Kubernetes. Nothing is repeated and no redirect is followed.
"""

from __future__ import annotations

import json
import time
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, NamedTuple, Optional

import urllib3
from urllib3 import exceptions

from nhc import __version__
from nhc.model import printable
from nhc.ports.repair import Answer
from nhc.system.bounded_read import parse_json
from nhc_adapters.kubernetes.api.errors import plain
from nhc_adapters.repair.calls import LATER, CallFailed

CONNECT_TIMEOUT = 5.0
LARGEST = 16 << 20
"""Bytes of an answer; a page of managed instances has 1 MB."""

_BEFORE = (
    exceptions.NewConnectionError,
    exceptions.ConnectTimeoutError,
    exceptions.LocationParseError,
    exceptions.ProxyError,
)
"""Errors that come before a request leaves. A proxy's is one: it could not be reached, or would not open the tunnel."""


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
            found = parse_json(self.data)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise CallFailed(Answer.AMBIGUOUS, "the answer makes no sense (a proxy's page?)")
        return found


class ProviderMessage(NamedTuple):
    """What a provider's error says: its code, its message, and the permission that it names as missing."""

    code: str
    message: str
    right: str = ""


Words = Callable[[bytes], ProviderMessage]
"""Reads a provider's error."""


class Rest:
    """Requests to one provider, through a `proxy` where there is one.

    `refused` are codes that prove that nothing was begun, whatever their status is; `denied` those by which a call
    that changes something is not allowed, besides 403.
    """

    def __init__(
        self, timeout: float, words: Words, refused: FrozenSet[str] = frozenset(), proxy: str = "",
        denied: FrozenSet[str] = frozenset(),
    ) -> None:  # fmt: skip
        self.timeout, self._words, self._refused, self._denied = timeout, words, refused, denied
        wait = urllib3.Timeout(connect=min(CONNECT_TIMEOUT, timeout), read=timeout)
        self._manager: urllib3.PoolManager = urllib3.PoolManager(maxsize=1, retries=False, timeout=wait)
        if proxy:
            self._manager = urllib3.ProxyManager(proxy, maxsize=1, retries=False, timeout=wait)

    def call(
        self,
        said: str,
        method: str,
        url: str,
        headers: Optional[Mapping[str, str]] = None,
        body: Optional[Mapping[str, object]] = None,
        content: Optional[bytes] = None,
        right: str = "",
    ) -> RestReply:
        """One request; `said` names it in messages, which never show the address or a header. Raises CallFailed.

        `right` is the permission that the request takes, for messages; `said` where it is not given.
        """
        sent: Dict[str, str] = {"User-Agent": f"nhc/{__version__}", "Accept": "application/json", **(headers or {})}
        data = content
        if body is not None:
            data = json.dumps(body, separators=(",", ":")).encode()
            sent["Content-Type"] = "application/json"
        elif content is None and method in ("POST", "PUT"):
            sent["Content-Length"] = "0"
        try:
            response = self._manager.request(
                method, url, body=data, headers=sent, redirect=False, preload_content=False, retries=False
            )
            try:
                answer = self._read(response)
            finally:
                response.close()
        except _BEFORE as error:
            raise CallFailed(Answer.REFUSED, f"{said}: {plain(error)}", retry_after=LATER) from None
        except exceptions.HTTPError as error:
            raise CallFailed(Answer.AMBIGUOUS, f"{said}: {plain(error)}") from None
        lower = {name.lower(): value for name, value in response.headers.items()}
        if response.status < 300:
            return RestReply(response.status, lower, answer)
        failed = self._judged(said, response.status, lower, answer)
        missing = response.status == 403 and failed.code not in self._refused
        if missing or (method != "GET" and failed.code in self._denied):
            named = self._words(answer).right or right or said
            raise CallFailed(Answer.REFUSED, str(failed), failed.code, right=named)
        raise failed

    def _read(self, response: urllib3.BaseHTTPResponse) -> bytes:
        """The whole answer, bounded in size and in time. `read` would wait as long as a byte now and then arrives."""
        until, size = time.monotonic() + self.timeout, 0
        parts: List[bytes] = []
        while True:
            part = response.read1(1 << 16)
            if not part:
                return b"".join(parts)
            parts.append(part)
            size += len(part)
            if size > LARGEST or time.monotonic() > until:
                raise exceptions.HTTPError("the answer does not end")

    def _judged(self, said: str, status: int, headers: Mapping[str, str], answer: bytes) -> CallFailed:
        """A 4xx was refused. A 5xx may come after the work was begun, unless its code says otherwise.

        401 is for credentials that have run out or were not renewed in time.
        """
        problem = self._words(answer)
        message = f"{said}: {problem.code or status}: {problem.message or 'no reason given'}"
        proved = status < 500 or problem.code in self._refused
        later = status in (401, 409, 429) or problem.code in self._refused
        wait = retry_after(headers) or LATER if proved and later else 0.0
        return CallFailed(Answer.REFUSED if proved else Answer.AMBIGUOUS, message, problem.code or str(status), wait)


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds of the Retry-After header, 0 where there is none or it is a date."""
    try:
        return max(0.0, float(headers.get("retry-after", "")))
    except ValueError:
        return 0.0


def no_words(answer: bytes) -> ProviderMessage:
    """Errors of something that has no form for them."""
    return ProviderMessage("", printable(answer[:200].decode(errors="replace"), 200))


def said_in(answer: bytes, *path: str) -> Mapping[str, Any]:
    """The object at a path of an error's JSON, {} where there is none."""
    try:
        found: Any = parse_json(answer)
    except ValueError:
        return {}
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}
