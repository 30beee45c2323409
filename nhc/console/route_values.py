"""What every route of the console uses: the server's parts, the values of a request, and an answer in JSON."""

from __future__ import annotations

import gzip
import json
from typing import Awaitable, Callable, Mapping, NamedTuple, Protocol

from aiohttp import web

from nhc.console.deep_reader import DeepReader
from nhc.console.doors import Doors
from nhc.console.hub import Hub
from nhc.console.scheduler import Scheduler
from nhc.console.settings import ConsoleSettings
from nhc.console.snapshot import Snapshot
from nhc.console.sources import FleetSource
from nhc.console.wrong_logins import WrongLogins
from nhc.core.json_values import parse_object
from nhc.store.database import Store
from nhc.store.errors import RequestRefused


class Console(Protocol):
    """The server's parts, as its routes see them (`nhc.console.server.Server`)."""

    settings: ConsoleSettings
    source: FleetSource
    store: Store | None
    scheduler: Scheduler | None
    hub: Hub
    doors: Doors
    wrong: WrongLogins
    clock: Callable[[], float]
    started: float

    def snapshot(self) -> Snapshot:
        """The last one that could be read. Raises SourceError before there is one."""
        ...

    def kept(self) -> Store:
        """The store. Raises Missing where there is none."""
        ...

    def verdict_reader(self) -> DeepReader:
        """The reader of deep verdicts. Raises Missing where there is no store."""
        ...


Answer = Callable[[Console, web.Request], Awaitable[web.StreamResponse]]


def number(request: web.Request, name: str, default: int = 0) -> int:
    """A number of the path or the query. Raises RequestRefused."""
    text = request.match_info.get(name) or request.query.get(name, str(default))
    if not text.isdecimal() or len(text) > 15:
        raise RequestRefused(f"{name} is a number")
    return int(text)


async def form_of(request: web.Request) -> Mapping[str, str]:
    """A JSON object of texts. Raises RequestRefused."""
    if request.content_type != "application/json":
        raise RequestRefused("the body is JSON")
    try:
        value = parse_object(await request.text())
        json.dumps(value, ensure_ascii=False).encode()  # half a character (a lone surrogate) is no text
    except (ValueError, LookupError):  # LookupError: a charset that Python does not know
        raise RequestRefused("the body is no JSON") from None
    if not all(isinstance(text, str) for text in value.values()):
        raise RequestRefused("the body is an object of texts")
    return value


class PackedJson(NamedTuple):
    """A value as JSON, and that compressed ("" where it is small): the same bytes for all who ask."""

    body: bytes
    packed: bytes


LARGE = 4096
"""Bytes above which an answer is compressed."""


def pack_json(value: Mapping[str, object]) -> PackedJson:
    """A value as it goes to everybody who asks."""
    body = _json(value)
    return PackedJson(body, gzip.compress(body, 6, mtime=0) if len(body) > LARGE else b"")


def answer_packed(request: web.Request, answer: PackedJson) -> web.Response:
    """An answer that was packed before; compressed where it is large and the other side takes that."""
    response = web.Response(body=answer.body, content_type="application/json")
    if answer.packed:
        response.headers["Vary"] = "Accept-Encoding"
        if takes_gzip(request.headers.get("Accept-Encoding", "")):
            response.body = answer.packed
            response.headers["Content-Encoding"] = "gzip"
    return response


def takes_gzip(accepted: str) -> bool:
    """Whether an Accept-Encoding header lets an answer be compressed with gzip (RFC 9110, section 12.5.3)."""
    for part in accepted.lower().split(","):
        coding, _, weight = part.replace(" ", "").partition(";")
        if coding in ("gzip", "x-gzip"):
            return weight not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=str).encode()


def answer_json(value: Mapping[str, object]) -> web.Response:
    """An answer as JSON, compressed where it is large."""
    body = _json(value)
    response = web.Response(body=body, content_type="application/json")
    if len(body) > LARGE:
        response.enable_compression()
    return response
