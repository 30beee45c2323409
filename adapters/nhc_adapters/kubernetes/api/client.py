"""A small Kubernetes client: requests whose retries are safe, and watches that notice silence.

urllib3 carries the bytes (docs/decisions/0007 has the measurements); this module knows the API's rules:
bearer tokens that rotate, Retry-After, continue tokens, resourceVersion, bookmarks and 410 Gone. Every write
of ours is safe to repeat (a patch with a resourceVersion test, a strategic merge of our own conditions, a
create under a name chosen beforehand), so that a connection that breaks after the server acted is retried.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import random
import socket
import threading
import time
from collections import Counter
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, TypedDict, Union, cast
from urllib.parse import quote, urlencode

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from nhc import __version__
from nhc.core.model import printable
from nhc.core.system.bounded_read import parse_json
from nhc.marks.ports.adapter import AdapterError
from nhc_adapters.kubernetes.api.access import Access
from nhc_adapters.kubernetes.api.errors import ApiError, Gone, Unreachable, api_error, plain

# The events of a watch, read from the bytes as they come: one JSON object a line.


LARGEST_EVENT = 64 << 20
"""Bytes of one event. etcd keeps objects of 1.5 MB at most."""

JsonObject = Dict[str, Any]
"""An object of the API. Its fields are Kubernetes' own, by its OpenAPI schema, or a site's: the reader checks them."""


class WatchEvent(NamedTuple):
    """One line of a watch. `kind` is ADDED, MODIFIED, DELETED or BOOKMARK."""

    kind: str
    object: JsonObject


def read_events(chunks: Iterable[bytes]) -> Iterator[WatchEvent]:
    """Each event as soon as its line is whole. The server flushes once an event.

    Raises Gone or ApiError as the server says, and Unreachable where it sends something that is no event.
    """
    rest = b""
    for chunk in chunks:
        rest += chunk
        if len(rest) > LARGEST_EVENT:
            raise Unreachable("the watch sent an event without an end")
        if b"\n" not in chunk:
            continue
        *lines, rest = rest.split(b"\n")
        for line in lines:
            if line.strip():
                yield _event(line)


def _event(line: bytes) -> WatchEvent:
    try:
        event = parse_json(line)
        kind, item = str(event["type"]), event["object"]
    except (ValueError, KeyError, TypeError):
        raise Unreachable("the watch sent something that is no event") from None
    if not isinstance(item, dict):
        raise Unreachable("the watch sent an event without an object")
    if kind != "ERROR":
        return WatchEvent(kind, item)
    code = item.get("code")
    if code == 410:
        raise Gone(str(item.get("message", "")))
    raise ApiError(code if isinstance(code, int) else 500, str(item.get("reason", "")), str(item))


JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

RETRY_FOR = 15.0
"""Seconds over which one request is tried again before it fails."""

CONNECT_TIMEOUT = 5.0
READ_TIMEOUT = 30.0

ANSWER_TIME = 60.0
"""Seconds for a whole answer: READ_TIMEOUT restarts with each byte."""

WATCH_TIME = 300
"""Seconds after which the server ends a watch."""

WATCH_IDLE = 90.0
"""Seconds of silence after which a watch counts as dead. The server sends a bookmark about once a minute."""

PAGE = 500
"""Objects asked for at a time: a real node's object is 20 kB, so a page is about 10 MB on the wire."""

ATTEMPTS = 8
"""How often a change is planned again after another client has written first."""

RETRIED = frozenset({429, 500, 502, 503, 504})

# A peer that has vanished is noticed in half a minute, with data under way or without.
_KEEPALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, getattr(socket, "TCP_USER_TIMEOUT", 18), 30_000),
]


class _AnswerWait(threading.local):
    """`seconds` for the whole answer that this thread waits for, from when its request was sent."""

    seconds = ANSWER_TIME

    def allow(self, seconds: float) -> None:
        self.seconds = seconds


_answer = _AnswerWait()


class _Timed(io.RawIOBase):
    """What a socket receives within its thread's time; TimeoutError afterwards, however many bytes still come."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket, self._file, self._timeout = sock, sock.makefile("rb", buffering=0), sock.gettimeout()
        self._deadline = time.monotonic() + _answer.seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> Optional[int]:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the whole answer was not there in time")
        if self._timeout is None or left < self._timeout:
            self._socket.settimeout(left)
        return self._file.readinto(buffer)

    def close(self) -> None:
        if self._socket.gettimeout() != self._timeout:  # the next request is sent with it
            with contextlib.suppress(OSError):  # the connection is closed already
                self._socket.settimeout(self._timeout)
        self._file.close()
        super().close()


class _Answer(http.client.HTTPResponse):
    """urllib3's answers, the head as well, within the time for all of it."""

    def __init__(self, sock: socket.socket, *words: Any, **options: Any) -> None:
        super().__init__(sock, *words, **options)
        self.fp.close()
        self.fp = io.BufferedReader(_Timed(sock))


class _Http(HTTPConnection):
    response_class = _Answer


class _Https(HTTPSConnection):
    response_class = _Answer


class _HttpPool(HTTPConnectionPool):
    ConnectionCls = _Http


class _HttpsPool(HTTPSConnectionPool):
    ConnectionCls = _Https


_POOLS = {"http": _HttpPool, "https": _HttpsPool}


class _Pools(urllib3.PoolManager):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.pool_classes_by_scheme = _POOLS


class _ProxiedPools(urllib3.ProxyManager):
    def __init__(self, proxy: str, **options: Any) -> None:
        super().__init__(proxy, **options)
        self.pool_classes_by_scheme = _POOLS


Body = Union[Mapping[str, Any], List[JsonObject]]

ListMeta = TypedDict("ListMeta", {"continue": str, "resourceVersion": str}, total=False)


class ListPage(TypedDict, total=False):
    """A part of a collection. `continue` in its metadata asks for the next part, "" or missing in the last one."""

    metadata: ListMeta
    items: Optional[List[JsonObject]]


class Client:
    """One API server, used as one user; safe to use from several threads.

    `connections` is how many stay open. `counts` says how many requests went out, by method.
    """

    def __init__(
        self,
        access: Access,
        *,
        connections: int = 4,
        retry_for: float = RETRY_FOR,
        read_timeout: float = READ_TIMEOUT,
        answer_time: float = ANSWER_TIME,
        agent: str = "nhc",
    ) -> None:
        self.access = access
        self.retry_for = retry_for
        self.counts: Counter[str] = Counter()
        self.stopping = threading.Event()
        self._timeout = urllib3.Timeout(connect=CONNECT_TIMEOUT, read=read_timeout)
        self._answer_time = answer_time
        self._connections = connections
        self._agent = f"{agent}/{__version__}"
        self._lock = threading.Lock()
        self._manager = self._open()

    def _open(self) -> urllib3.PoolManager:
        options: Dict[str, Any] = {
            "maxsize": self._connections,
            "block": False,
            "retries": False,
            "socket_options": [*HTTPConnection.default_socket_options, *_KEEPALIVE],
        }
        context = self.access.tls()
        if context is not None:
            options["ssl_context"] = context
        if self.access.known_by.server_name:
            options.update(
                assert_hostname=self.access.known_by.server_name, server_hostname=self.access.known_by.server_name
            )
        made = (
            urllib3.ProxyManager(self.access.proxy, **options) if self.access.proxy else urllib3.PoolManager(**options)
        )
        made.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}
        return made

    def close(self) -> None:
        """End all waiting and close the connections."""
        self.stopping.set()
        self._manager.clear()

    # One object or action at a time.

    def get(self, path: str, **query: str) -> JsonObject:
        return self.request("GET", path, query=query)

    def find(self, path: str) -> Optional[JsonObject]:
        """An object, None if there is none. Raises as `request`."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    def post(self, path: str, body: Body, *, retry: bool = True) -> JsonObject:
        return self.request("POST", path, body=body, retry=retry)

    def put(self, path: str, body: Body) -> JsonObject:
        return self.request("PUT", path, body=body)

    def patch(self, path: str, body: Body, kind: str, **query: str) -> JsonObject:
        return self.request("PATCH", path, body=body, content_type=kind, query=query)

    def delete(self, path: str, body: Optional[Body] = None) -> JsonObject:
        return self.request("DELETE", path, body=body)

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Optional[Body] = None,
        content_type: str = "application/json",
        query: Optional[Mapping[str, str]] = None,
        retry: bool = True,
    ) -> JsonObject:
        """One request for a JSON object, tried again for `retry_for` seconds. Raises ApiError or Unreachable.

        With `retry` off, an answer of the server is final (an eviction's 429 means a budget, not too many requests).
        """
        return _decoded(self._request(method, path, body, content_type, query, retry))

    def text(self, path: str, *, retry: bool = True, **query: str) -> str:
        """A pod's log, or another text. With `retry` off, an answer is final: a dead kubelet's log gives 5xx, too."""
        return self._request("GET", path, query=query, retry=retry).decode(errors="replace")

    def date(self) -> str:
        """The server's clock, as the Date header of an answer has it. Raises Unreachable."""
        try:
            return str(self._send("GET", "/version", None, "", None)[1].get("Date", ""))
        except urllib3.exceptions.HTTPError as error:
            raise Unreachable(f"{self.access.server}: {plain(error)}") from None

    def _request(
        self,
        method: str,
        path: str,
        body: Optional[Body] = None,
        content_type: str = "application/json",
        query: Optional[Mapping[str, str]] = None,
        retry: bool = True,
    ) -> bytes:
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        deadline = time.monotonic() + self.retry_for
        attempt, asked_anew = 0, False
        while True:
            failure: AdapterError
            wait = 0.0
            try:
                status, headers, answer = self._send(method, path, data, content_type, query)
                if status < 300:
                    return answer
                failure = api_error(status, headers, answer)
                if status == 401 and not asked_anew:
                    asked_anew = True
                    self._log_in_again()
                    continue
                if not retry or status not in RETRIED:
                    raise failure
                wait = failure.retry_after
            except urllib3.exceptions.HTTPError as error:
                failure = Unreachable(f"{self.access.server}: {plain(error)}")
                if isinstance(error, urllib3.exceptions.SSLError):
                    self._reconnect()  # certificates may have been rotated under us
            attempt += 1
            wait = max(wait, _backoff(attempt))
            if time.monotonic() + wait > deadline or self.stopping.wait(wait):
                raise failure

    def _log_in_again(self) -> None:
        """After a 401, which the API server also answers to a client certificate that has expired."""
        self.access.forget()
        self._reconnect()

    def _reconnect(self) -> None:
        """Use new connections from now on, with the present certificates."""
        with self._lock:
            before, self._manager = self._manager, self._open()
        before.clear()

    def _send(
        self, method: str, path: str, data: Optional[bytes], content_type: str, query: Optional[Mapping[str, str]]
    ) -> tuple[int, Mapping[str, str], bytes]:
        _answer.allow(self._answer_time)
        response = self._manager.request(
            method,
            self._url(path, query),
            body=data,
            headers=self._headers(content_type if data is not None else ""),
            timeout=self._timeout,
        )
        self.counts[method] += 1
        return response.status, response.headers, response.data

    def _url(self, path: str, query: Optional[Mapping[str, str]]) -> str:
        return f"{self.access.server}{path}" + (f"?{urlencode(query)}" if query else "")

    def _headers(self, content_type: str) -> Dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": self._agent, **self.access.headers}
        authorization = self.access.authorization()
        if authorization:
            headers["Authorization"] = authorization
        if content_type:
            headers["Content-Type"] = content_type
        return headers

    def change(
        self,
        path: str,
        plan: Callable[[Mapping[str, Any]], List[JsonObject]],
        seen: Optional[Mapping[str, Any]] = None,
        **query: str,
    ) -> Optional[JsonObject]:
        """Patch an object as planned; plan again if another client wrote in between. A plan begins with a test of the
        version.

        Returns the object as it is afterwards, None if there was nothing to do. Raises AdapterError.
        """
        for _attempt in range(ATTEMPTS):
            ops = plan(self.get(path) if seen is None else seen)
            if not ops:
                return None
            try:
                return self.patch(path, ops, JSON_PATCH, **query)
            except ApiError as error:
                if not error.conflict:
                    raise
                seen = None
        raise ApiError(409, "Conflict", f"{path} changed under our hands {ATTEMPTS} times")

    # Collections.

    def pages(self, path: str, **query: str) -> Iterator[ListPage]:
        """A collection a page at a time, as List objects. Raises Gone when it expires midway."""
        query.setdefault("limit", str(PAGE))
        while True:
            try:
                page = cast("ListPage", self.get(path, **query))
            except ApiError as error:
                if error.status == 410:
                    raise Gone(error.message) from None
                raise
            yield page
            following = page.get("metadata", {}).get("continue")
            if not following:
                return
            query["continue"] = following

    def items(self, path: str, **query: str) -> Iterator[JsonObject]:
        """The objects of a collection."""
        for page in self.pages(path, **query):
            yield from page.get("items") or ()

    def watch(self, path: str, version: str, *, idle: float = WATCH_IDLE, **query: str) -> Iterator[WatchEvent]:
        """What happens to a collection after `version`, until the server ends the watch (some minutes).

        Raises Gone when `version` is too old, Unreachable when the connection breaks or stays silent.
        """
        query.update(watch="1", resourceVersion=version, allowWatchBookmarks="true", timeoutSeconds=str(WATCH_TIME))
        response = None
        try:
            self.counts["WATCH"] += 1
            _answer.allow(WATCH_TIME + idle)
            response = self._manager.request(
                "GET",
                self._url(path, query),
                headers=self._headers(""),
                timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT, read=idle),
                preload_content=False,
            )
            if response.status >= 300:
                error = api_error(response.status, response.headers, response.read())
                if response.status == 401:
                    self._log_in_again()
                raise Gone(error.message) if response.status == 410 else error
            yield from read_events(response.read_chunked())
        except urllib3.exceptions.HTTPError as error:
            raise Unreachable(f"{self.access.server}: {plain(error)}") from None
        finally:
            if response is not None:
                response.close()  # never back to the pool: the next request would read the rest as its answer
                response.release_conn()


def node_path(name: str) -> str:
    return f"/api/v1/nodes/{quote(name, safe='')}"


def namespaced(namespace: str, resource: str, name: str = "", group: str = "api/v1") -> str:
    """`/api/v1/namespaces/NS/pods/NAME`; `group` is "apis/policy/v1" and such for the other groups."""
    path = f"/{group}/namespaces/{quote(namespace, safe='')}/{resource}"
    return f"{path}/{quote(name, safe='')}" if name else path


def _backoff(attempt: int) -> float:
    """0.05 s doubled up to 5 s, and a random part of as much again, so that a fleet does not return in step."""
    step = min(0.05 * 2 ** min(attempt - 1, 10), 5.0)
    return float(step * (0.5 + random.random()))  # noqa: S311 (nothing secret)


def _decoded(answer: bytes) -> JsonObject:
    try:
        value = parse_json(answer.decode(errors="replace"))
    except ValueError:
        raise Unreachable(f"an answer that is no JSON: {printable(answer[:80].decode(errors='replace'))}") from None
    if not isinstance(value, dict):
        raise Unreachable("an answer that is no JSON object")
    return value
