"""What the server answers: POST /v1/reports, GET /healthz, GET /metrics. Every refusal is one line of JSON.

200 {"taken": 2, "refused": []}      the reports are on the disk; "notes" says what the node should know of them;
                                     "digest" is of the newest: the next may say that nothing changed since;
                                     "whole" asks for the whole of one that did so, and of which nothing was taken
400 401 403 404 405 408 413 415 422  the push is wrong: do not send it again as it is
429 503 with Retry-After             not now: send it again later
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import Awaitable, Callable, List, NamedTuple, Tuple
from weakref import WeakValueDictionary

from aiohttp import web

from nhc.core.model import Verdict, printable
from nhc.core.prometheus_family import page_for
from nhc.core.render.json import parse
from nhc.core.system.bounded_read import GZIP, TooLarge, unpacked
from nhc.core.system.service_log import problem as wrong
from nhc.core.system.web_listener import OpenConnections
from nhc.marks import push
from nhc.marks.push import Push
from nhc.store.errors import StoreError
from nhc.store.intake import SKEW, Incoming, Receipt
from nhc.store.reports import Received
from nhc.store.server import access, push_reader
from nhc.store.server.access import KnownTokens
from nhc.store.server.counters import ServerCounters
from nhc.store.server.settings import ServerSettings
from nhc.store.server.writer import Busy, Writer

# Rate limits: token buckets that fill with time. Pure, except for the clock that is passed in.


class BucketRate(NamedTuple):
    """A limit: so many at once, and so many a second after that."""

    burst: float
    a_second: float


class NodeVolume(NamedTuple):
    """What one push brings: its bytes, unpacked, its reports, and the problems that they name, each once."""

    bytes: int
    reports: int
    problems: int


LEAST = 30
"""Pushes a minute that a node may always send."""
A_PUSH = NodeVolume(256 << 10, 10, 12)
"""What a node may bring in a minute, by the pushes that it may send then. A report of 150 results has some 60 kB; one
node reports the same few problems repeatedly."""


class NodeVolumes:
    """How much each node may send: the token on one node is not enough to fill the store."""

    def __init__(self, pushes: int) -> None:
        each = max(pushes, LEAST)
        self._most = NodeVolume(*(each * part for part in A_PUSH))
        self._buckets = [Buckets(BucketRate(float(most), most / 60)) for most in self._most]

    def take(self, node: str, volume: NodeVolume, now: float) -> Tuple[float, str]:
        """Accept a push. Returns 0.0 and "", or the seconds until there is room, and which limit was exceeded."""
        for name, most, count, bucket in zip(NodeVolume._fields, self._most, volume, self._buckets):
            wait = bucket.take(node, now, count)
            if wait:
                return wait, f"too many {name}: at most {most} a minute"
        return 0.0, ""


class Buckets:
    """One bucket for each name; the least recently used ones are dropped, which refills them."""

    def __init__(self, rate: BucketRate, most: int = 200_000) -> None:
        self._rate, self._most = rate, most
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str, now: float, count: float = 1.0) -> float:
        """Take some out. Returns 0.0, or the seconds until there is enough."""
        level, at = self._levels.pop(name, (self._rate.burst, now))
        level = min(self._rate.burst, level + max(0.0, now - at) * self._rate.a_second)
        wait = 0.0
        if level >= min(count, self._rate.burst):
            level -= count  # below zero for a push larger than the bucket: the next waits longer
        else:
            wait = (min(count, self._rate.burst) - level) / self._rate.a_second
        self._levels[name] = (level, now)
        if len(self._levels) > self._most:
            self._levels.popitem(last=False)
        return wait


# When the reports of a push were made, by this server's clock. A node's clock may be wrong, and be set at any time.


SOURCE = "agent"


class Dated(NamedTuple):
    """The reports of a push.

    `ahead` is by how many seconds the node's clock is ahead of this one, 0 if that is not known or within SKEW.
    """

    reports: List[Incoming]
    ahead: float = 0.0


def dated(pushed: Push, received: float) -> Dated:
    """A push that came in at `received` (Unix time). A report of the boot in which the push was sent carries its age.

    Results of deep checks keep the node's time: it identifies them when they are sent twice.
    """
    reports, off = [], 0.0
    for report, complete, at, suite, seq, unchanged, text in pushed.reports:
        incoming = Incoming(report, SOURCE, received, complete, at, suite, seq, unchanged=unchanged, text=text)
        if 0 < seq <= pushed.seq and pushed.boot and report.boot_id == pushed.boot and not suite:
            made = received - (pushed.seq - seq) / 1000
            incoming = incoming._replace(made=made, stamped=at)
            if abs(at - made) > SKEW:
                off = at - made
                whole = parse(text.decode()) if text else report
                incoming = incoming._replace(at=made, report=whole._replace(started=report.started - off), text=b"")
        reports.append(incoming)
    return Dated(reports, off)


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
INLINE = 256 << 10
"""Bytes of a push, unpacked, that are read between other requests: 3 ms of reading at most."""
TURN = 5.0
"""Seconds that a push waits for an earlier one of the same node."""
READERS = 2
"""Threads that read larger pushes: each holds one in memory."""


class RefusedPush(Exception):
    """An answer that is not 200. `why` is a word for the counters, `after` the seconds until a retry."""

    def __init__(self, status: int, why: str, message: str, after: float = 0.0) -> None:
        super().__init__(message)
        self.status, self.why, self.message, self.after = status, why, message, after


class Intake:
    """The handlers, and what they share."""

    def __init__(
        self,
        settings: ServerSettings,
        tokens: KnownTokens,
        writer: Writer,
        counters: ServerCounters,
        connections: OpenConnections,
    ) -> None:
        self.settings, self.tokens, self.writer, self.counters = settings, tokens, writer, counters
        self._connections = connections
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._readers = ThreadPoolExecutor(READERS, "nhc-reader")
        burst = max(10.0, settings.node_rate / 2)
        self._nodes = Buckets(BucketRate(burst, settings.node_rate / 60))
        self._volumes = NodeVolumes(settings.node_rate)
        self._all = Buckets(BucketRate(settings.rate * 2.0, settings.rate)) if settings.rate else None
        self.problem = ""
        """Why the store does not answer, "" while it does."""

    def application(self) -> web.Application:
        """The routes. Bodies are read here, in bounds, not by aiohttp."""
        made = web.Application(middlewares=[self._answering])
        made.router.add_post(push.PATH, self.take)
        made.router.add_get("/healthz", self.healthz)
        made.router.add_get("/metrics", self.metrics)
        return made

    async def take(self, request: web.Request) -> web.Response:
        """One push of one node. Its rate and size are checked before any of it is read."""
        node = self._node_shown(request)
        sender = node or " ".join(sorted(self._names(request)))
        wait = self._nodes.take(sender, time.monotonic())
        if wait:
            raise RefusedPush(429, "rate", f"{printable(sender, 100)} pushes too often", wait)
        turn = self._turns.get(sender)
        if turn is None:  # it is free: `wait_for` would make a task of each push, 18 us
            turn = self._turns[sender] = asyncio.Lock()
            await turn.acquire()
        else:
            try:
                await asyncio.wait_for(turn.acquire(), TURN)
            except asyncio.TimeoutError:
                raise RefusedPush(429, "busy", f"{printable(sender, 100)} pushes already: one at a time", 1.0) from None
        try:
            return await self._taken(request, node)
        finally:
            turn.release()

    async def _taken(self, request: web.Request, node: str) -> web.Response:
        body = await self._body(request)
        try:
            pushed, size = await self._parsed(request.headers.get("Content-Encoding", "identity").strip().lower(), body)
        except TooLarge as error:
            raise RefusedPush(413, "large", str(error)) from None
        except ValueError as error:
            raise RefusedPush(400, "malformed", str(error)) from None
        self._same_node(request, node, pushed)
        wait, too_many = self._volumes.take(pushed.node, _volume(pushed, size), time.monotonic())
        if wait:
            raise RefusedPush(429, "volume", f"{printable(pushed.node, 100)} pushes {too_many}", wait)
        if self._all is not None:
            wait = self._all.take("", time.monotonic(), len(pushed.reports))
            if wait:
                raise RefusedPush(429, "rate", "all nodes together push too often", wait)
        push_dated = dated(pushed, time.time())
        received = await self._written(push_dated)
        if pushed.lost:
            self.counters.count_lost(printable(pushed.node, 100), pushed.lost, time.monotonic())
        return web.json_response(self._answer(request, push_dated, received))

    def store_said(self, problem: str) -> None:
        """Why the store did not answer just now, "" if it did."""
        if problem != self.problem:
            self.counters.note(wrong(f"the store does not answer: {problem}") if problem else "the store answers again")
        self.problem = problem
        self.counters.store_answers(not problem)

    async def healthz(self, _request: web.Request) -> web.Response:
        """Whether the store answers."""
        if self.problem:
            return web.Response(status=503, text=f"the store does not answer: {self.problem}\n")
        return web.Response(text="ok\n")

    async def metrics(self, request: web.Request) -> web.Response:
        """The counters."""
        kind, page = page_for(request.headers.get("Accept", ""), self.counters.text())
        return web.Response(body=page.encode(), headers={"Content-Type": kind})

    @web.middleware
    async def _answering(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        began = time.monotonic()
        try:
            response = await handler(request)
            if request.path == push.PATH:
                self.counters.took(time.monotonic() - began)
        except RefusedPush as error:
            response = self._refusal(request, error)
        except web.HTTPException as error:
            response = self._refusal(request, RefusedPush(error.status, "request", error.reason))
        if self._connections.crowded:
            response.force_close()
        return response

    def _refusal(self, request: web.Request, error: RefusedPush) -> web.Response:
        peer = request.remote or "somebody"
        self.counters.refuse(error.why, peer, f"{error.status}: {error.message}", time.monotonic())
        response = web.json_response({"error": printable(error.message, 300)}, status=error.status)
        if error.after:
            response.headers["Retry-After"] = str(max(1, math.ceil(error.after)))
        if request.can_read_body and not request.content.is_eof():
            response.force_close()  # what is left of the body is not read
        return response

    def _node_shown(self, request: web.Request) -> str:
        """The node of the token; "" if only a certificate is shown. Raises RefusedPush for neither."""
        token = access.bearer(request.headers.get("Authorization", ""))
        node = self.tokens.node(token) if token else ""
        if (token and not node) or (not token and not self._names(request)):
            why = "the token is not known, or was revoked" if token else "neither a token nor a client certificate"
            raise RefusedPush(401, "login", why)
        return node

    def _same_node(self, request: web.Request, token_node: str, pushed: push.Push) -> None:
        why = access.allowed(pushed.node, token_node, self._names(request))
        other = next((sent.report.host for sent in pushed.reports if sent.report.host != pushed.node), "")
        if not why and other:
            why = f"{pushed.node} pushes a report of {other}"
        if why:
            raise RefusedPush(403, "node", printable(why, 300))

    @staticmethod
    def _names(request: web.Request) -> frozenset[str]:
        transport = request.transport
        return access.names(transport.get_extra_info("peercert") if transport is not None else None)

    async def _body(self, request: web.Request) -> bytes:
        limit = self.settings.body
        length = request.content_length
        if length is not None and length > limit:
            raise RefusedPush(413, "large", f"{length} bytes: at most {limit}")
        if request.content.is_eof() and not request.content.exception():  # it came with its head, as a small one does
            body = request.content.read_nowait()
            if len(body) > limit:
                raise RefusedPush(413, "large", f"more than {limit} bytes")
            return body
        try:
            return await asyncio.wait_for(self._read(request, limit), self.settings.slow)
        except asyncio.TimeoutError:
            raise RefusedPush(408, "slow", f"the push did not arrive within {self.settings.slow:g} s") from None
        except (web.RequestPayloadError, ConnectionError) as error:
            raise RefusedPush(400, "malformed", f"the body is cut: {type(error).__name__}") from None

    @staticmethod
    async def _read(request: web.Request, limit: int) -> bytes:
        parts, size = [], 0
        async for part in request.content.iter_any():
            size += len(part)
            if size > limit:
                raise RefusedPush(413, "large", f"more than {limit} bytes")
            parts.append(part)
        return b"".join(parts)

    async def _parsed(self, encoding: str, body: bytes) -> Tuple[push.Push, int]:
        """The content of a push, and its size in bytes, unpacked. A small one is read here: a thread would cost
        more.
        """
        if encoding not in ("gzip", "identity"):
            raise RefusedPush(415, "malformed", f"Content-Encoding {printable(encoding, 40)}: expected gzip or none")
        packed = encoding == "gzip"
        try:
            plain = _plain(body, packed, min(INLINE, self.settings.unpacked))
        except TooLarge:
            return await asyncio.get_running_loop().run_in_executor(
                self._readers, lambda: _read(_plain(body, packed, self.settings.unpacked))
            )
        return _read(plain)

    async def _written(self, pushed: Dated) -> List[Received]:
        try:
            return await self.writer.put(pushed.reports)
        except Busy:
            raise RefusedPush(503, "busy", f"{self.counters.waiting} reports wait to be written", 5.0) from None
        except StoreError as error:
            if error.refused:
                raise RefusedPush(422, "store", f"the store does not take it: {error}") from None
            if error.held:
                raise RefusedPush(503, "held", "somebody else changes this node's row in the store", 10.0) from None
            self.store_said(str(error))
            raise RefusedPush(503, "store", "the store does not answer", 10.0) from None

    def _answer(self, request: web.Request, pushed: Dated, received: List[Received]) -> dict[str, object]:
        self.counters.taken.update(report.receipt.value for report in received)
        refused = [report.message for report in received if report.receipt is Receipt.REFUSED]
        for message in refused[:1]:
            self.counters.refuse(
                "report", request.remote or "somebody", f"a report of {received[0].node}: {message}", time.monotonic()
            )
        answer: dict[str, object] = {"taken": len(received) - len(refused), "refused": refused}
        notes = self._notes(request, pushed, received)
        if notes:
            answer["notes"] = notes
        wholes = sum(report.receipt is Receipt.WHOLE for report in received)
        if wholes:
            answer.update(taken=len(received) - len(refused) - wholes, whole=True)
        newest = next((report for report, sent in zip(received[::-1], pushed.reports[::-1]) if not sent.suite), None)
        if newest is not None and newest.digest:
            answer["digest"] = newest.digest
        return answer

    def _notes(self, request: web.Request, pushed: Dated, received: List[Received]) -> List[str]:
        """Notes about reports that did not change the node's state, and about a clock that is off."""
        notes = []
        node = printable(received[0].node, 100)
        if pushed.ahead:
            self.counters.count_clock_off()
            which = "ahead of" if pushed.ahead > 0 else "behind"
            notes.append(
                f"the clock of {node} is {abs(pushed.ahead):.0f} s {which} the server's, which dates its reports"
            )
        late = [report.message for report in received if report.receipt is Receipt.LATE]
        if late:
            notes.append(f"{len(late)} of {len(received)} reports are late: {late[0]}")
        for line in notes:
            self.counters.mention(request.remote or "somebody", line, time.monotonic())
        return notes


def _read(plain: bytes) -> Tuple[push.Push, int]:
    return push_reader.read(plain), len(plain)


def _volume(pushed: push.Push, size: int) -> NodeVolume:
    results = [
        result
        for sent in pushed.reports
        for result in sent.report.results
        if result.outcome.verdict is not Verdict.OK and result.is_problem
    ]
    named = {(result.check, result.outcome.reason, result.outcome.target) for result in results}
    return NodeVolume(size, len(pushed.reports), len(named))


def _plain(body: bytes, packed: bool, limit: int) -> bytes:
    """The JSON document. Raises TooLarge, ValueError."""
    if packed:
        return unpacked(body, limit, GZIP)
    if len(body) > limit:
        raise TooLarge(f"more than {limit} bytes")
    return body
