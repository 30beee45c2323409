"""The console's routes: what each takes, and how it is answered.

Every route is in ROUTES with the right that it takes; the guard denies what is not in that table, so that a route that
somebody adds is closed until it is said who may use it.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from importlib import resources
from typing import Awaitable, Callable, Dict, List, Mapping, NamedTuple, Protocol

from aiohttp import web
from aiohttp.typedefs import Handler

from nhc import __version__
from nhc.console import acts, screens, work
from nhc.console.access import Person, Scope
from nhc.console.deep_reader import DeepReader
from nhc.console.doors import LIFETIME, PERSON, Doors
from nhc.console.hub import Hub
from nhc.console.metrics import exposition
from nhc.console.settings import ConsoleSettings
from nhc.console.snapshot import Snapshot
from nhc.console.sources import FleetSource, SourceError
from nhc.matching.node_ranges import fold
from nhc.render.page_parts import PARTS, part
from nhc.store.database import Store
from nhc.store.errors import StoreError

BEAT = 15.0
"""Seconds after which a silent stream gets a comment line, so that no proxy takes it for dead."""
OFFENDERS = "offenders"
"""The count over a month that the server makes ahead."""
VIEWERS = 2000
"""Streams at a time."""
KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
"""What the page's files are."""


class Console(Protocol):
    """The server's parts, as its routes see them (`nhc.console.server.Server`)."""

    settings: ConsoleSettings
    source: FleetSource
    store: Store | None
    hub: Hub
    doors: Doors
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


class PageRoute(NamedTuple):
    """One route: what it takes, and what answers it."""

    method: str
    path: str
    scope: Scope
    answer: Answer


# Answers.


async def _page(_console: Console, _request: web.Request) -> web.StreamResponse:
    return web.Response(text=_file("console.html"), content_type="text/html")


async def _static(_console: Console, request: web.Request) -> web.StreamResponse:
    name = request.match_info["name"]
    kind = next((kind for ending, kind in KINDS.items() if name.endswith(ending)), "")
    if not kind or name not in _names():
        raise screens.Missing("there is no such file")
    return web.Response(text=_file(name), content_type=kind, headers={"Cache-Control": "no-cache"})


def _names() -> List[str]:
    return [*(entry.name for entry in (resources.files("nhc.console") / "static").iterdir()), *PARTS]


def _file(name: str) -> str:
    if name in PARTS:
        return part(name)
    return (resources.files("nhc.console") / "static" / name).read_text(encoding="utf-8")


async def _me(console: Console, request: web.Request) -> web.StreamResponse:
    person: Person = request[PERSON]
    return _json({
        "name": person.name, "door": person.door, "roles": sorted(role.value for role in person.roles),
        "rights": sorted(scope.value for scope in Scope if person.may(scope)), "store": console.store is not None,
        "version": __version__,
    })  # fmt: skip


async def _log_in(console: Console, request: web.Request) -> web.StreamResponse:
    form = await _form(request)
    value = console.doors.log_in(request, form.get("token", ""))
    if value is None:
        return web.json_response({"error": "that token is not known, or has ended"}, status=401)
    response = _json({"ok": True})
    response.set_cookie(
        console.doors.cookie(), value, httponly=True, samesite="Strict", path="/", secure=console.doors.secure(),
        max_age=int(LIFETIME),
    )  # fmt: skip
    return response


async def _log_out(console: Console, request: web.Request) -> web.StreamResponse:
    console.doors.log_out(request)
    response = _json({"ok": True})
    response.del_cookie(console.doors.cookie(), path="/")
    return response


def _of_snapshot(show: Callable[[Snapshot, web.Request], screens.Value]) -> Answer:
    async def answer(console: Console, request: web.Request) -> web.StreamResponse:
        snapshot = console.snapshot()
        value = await console.hub.once(request.path_qs, lambda: show(snapshot, request))
        return _json({**value, "trouble": console.hub.problem})

    return answer


def _of_store(show: Callable[[Console, Store, web.Request], screens.Value]) -> Answer:
    async def answer(console: Console, request: web.Request) -> web.StreamResponse:
        return _json(await asyncio.to_thread(show, console, console.kept(), request))

    return answer


async def _node(console: Console, request: web.Request) -> web.StreamResponse:
    name = request.match_info["node"]
    person: Person = request[PERSON]
    snapshot = console.snapshot()
    report = await asyncio.to_thread(console.source.report, name) if person.may(Scope.EVIDENCE) else None
    value = screens.node(snapshot, name, report, dict(console.settings.links), console.settings.stale)
    if console.store is not None:
        value["episodes"] = (
            await asyncio.to_thread(screens.list_episodes, console.store, console.clock(), None, name)
        )["episodes"]
        value["work"] = await asyncio.to_thread(work.work_of, console.store, name, console.clock())
    return _json(value)


async def _deep(console: Console, request: web.Request) -> web.StreamResponse:
    reader, snapshot = console.verdict_reader(), console.snapshot()
    fact, suite = request.query.get("fact", ""), request.query.get("suite", "")
    return _json(await asyncio.to_thread(reader.view, snapshot, fact, suite))


async def _deep_letters(console: Console, _request: web.Request) -> web.StreamResponse:
    reader, snapshot = console.verdict_reader(), console.snapshot()
    return _json(await asyncio.to_thread(reader.letters, snapshot))


async def _offenders(console: Console, _request: web.Request) -> web.StreamResponse:
    store = console.kept()
    made = partial(screens.offenders, store, console.clock())
    return _json(await console.hub.once_a_minute(OFFENDERS, made))


def _window(console: Console, request: web.Request) -> screens.Window:
    now = console.clock()
    try:
        ended = float(request.query.get("to", now))
        began = float(request.query.get("from", ended - screens.DAY))
    except ValueError:
        raise acts.ActionRefused("from and to are Unix seconds") from None
    if not began < ended <= now + screens.DAY or ended - began > 400 * screens.DAY:
        raise acts.ActionRefused("from is before to, and at most 400 days")
    return screens.Window(began, ended)


def _number(request: web.Request, name: str, default: int = 0) -> int:
    text = request.match_info.get(name) or request.query.get(name, str(default))
    if not text.isdigit() or len(text) > 15:
        raise acts.ActionRefused(f"{name} is a number")
    return int(text)


async def _decide(console: Console, request: web.Request) -> web.StreamResponse:
    form = await _form(request)
    number = _number(request, "id")
    done = await asyncio.to_thread(acts.decide, console.kept(), request[PERSON], number, form, console.clock())
    console.hub.notify("episodes")
    return _json(done)


async def _abort(console: Console, request: web.Request) -> web.StreamResponse:
    form = await _form(request)
    number = _number(request, "id")
    done = await asyncio.to_thread(acts.abort, console.kept(), request[PERSON], number, form, console.clock())
    console.hub.notify("episodes")
    return _json(done)


async def _hold(console: Console, request: web.Request) -> web.StreamResponse:
    form = await _form(request)
    concerned = _concerned(console.snapshot(), form.get("scope", "node"), form.get("name", ""))
    done = await asyncio.to_thread(
        acts.set_hold, console.kept(), request[PERSON], form, len(concerned), console.clock()
    )
    console.hub.notify("holds")
    return _json(done)


async def _preview(console: Console, request: web.Request) -> web.StreamResponse:
    concerned = _concerned(console.snapshot(), request.query.get("scope", "node"), request.query.get("name", ""))
    return _json({"count": len(concerned), "nodes": fold(concerned[: screens.ROWS])})


def _concerned(snapshot: Snapshot, scope: str, name: str) -> List[str]:
    """The nodes that a hold would keep."""
    if scope == "fleet":
        return list(snapshot.names)
    if scope == "group":
        fact, _, value = name.partition("=")
        return [node for node in snapshot.names if snapshot.nodes[node].groups.get(fact) == value]
    return [node for node in snapshot.names if node == name]


async def _release(console: Console, request: web.Request) -> web.StreamResponse:
    form = await _form(request)
    done = await asyncio.to_thread(acts.end_hold, console.kept(), request[PERSON], form, console.clock())
    console.hub.notify("holds")
    return _json(done)


async def _stream(console: Console, request: web.Request) -> web.StreamResponse:
    """Events until the browser goes, or does not read them."""
    if console.hub.viewers >= VIEWERS:
        raise web.HTTPServiceUnavailable(headers={"Retry-After": "30"})
    last = request.headers.get("Last-Event-ID", "")
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
    await response.prepare(request)
    queue = console.hub.join(int(last) if last.isdigit() and len(last) < 16 else None)
    try:
        while True:
            try:
                event = await asyncio.wait_for(queue.get(), BEAT)
            except asyncio.TimeoutError:
                await response.write(b": still here\n\n")
                continue
            if event is None:
                break
            await response.write(event.text)
    except (ConnectionResetError, asyncio.CancelledError):
        pass
    finally:
        console.hub.leave(queue)
    return response


async def _health(console: Console, _request: web.Request) -> web.StreamResponse:
    hub = console.hub
    value: Dict[str, object] = {
        "at": console.clock(), "source": console.source.name, "read_at": hub.read_at, "trouble": hub.problem,
        "viewers": hub.viewers, "dropped": hub.dropped, "sessions": len(console.doors.sessions),
        "started": console.started, "version": __version__,
    }  # fmt: skip
    if hub.snapshot is not None:
        silent = [name for name, letter in zip(hub.snapshot.names, hub.snapshot.letters) if letter in "sn"]
        value["silent"] = {"count": len(silent), "nodes": fold(silent[: screens.ROWS])}
        value["counts"] = hub.snapshot.counts()
    return _json(value)


async def _ready(console: Console, _request: web.Request) -> web.StreamResponse:
    fresh = console.hub.snapshot is not None and not console.hub.problem
    return web.Response(text="ok\n" if fresh else "not ready\n", status=200 if fresh else 503)


async def _metrics(console: Console, _request: web.Request) -> web.StreamResponse:
    text = await asyncio.to_thread(exposition, console.hub, console.store, console.clock())
    return web.Response(text=text, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


WHICH = {"open": True, "ended": False}

ROUTES = (
    PageRoute("GET", "/", Scope.OPEN, _page),
    PageRoute("GET", "/static/{name}", Scope.OPEN, _static),
    PageRoute("GET", "/view/{rest:.*}", Scope.OPEN, _page),
    PageRoute("GET", "/healthz", Scope.OPEN, _ready),
    PageRoute("POST", "/login", Scope.OPEN, _log_in),
    PageRoute("POST", "/logout", Scope.OPEN, _log_out),
    PageRoute("GET", "/api/me", Scope.OPEN, _me),
    PageRoute("GET", "/api/stream", Scope.STATE, _stream),
    PageRoute("GET", "/api/layout", Scope.STATE, _of_snapshot(lambda s, _r: screens.layout(s))),
    PageRoute("GET", "/api/fleet", Scope.STATE, _of_snapshot(lambda s, _r: screens.fleet(s))),
    PageRoute("GET", "/api/check/{check}", Scope.STATE, _of_snapshot(
        lambda s, r: screens.letters_of_check(s, r.match_info["check"]))),
    PageRoute("GET", "/api/deep", Scope.STATE, _deep),
    PageRoute("GET", "/api/deep/letters", Scope.STATE, _deep_letters),
    PageRoute("GET", "/api/job/{id}", Scope.STATE, _of_store(lambda _c, s, r: work.job(s, _number(r, "id")))),
    PageRoute("GET", "/api/causes", Scope.STATE, _of_snapshot(lambda s, _r: screens.causes(s))),
    PageRoute("GET", "/api/cause", Scope.STATE, _of_snapshot(
        lambda s, r: screens.cause(s, r.query.get("check", ""), r.query.get("reason", "")))),
    PageRoute("GET", "/api/checks", Scope.STATE, _of_snapshot(lambda s, r: screens.checks(s, r.query.get("fact", "")))),
    PageRoute("GET", "/api/groups", Scope.STATE, _of_snapshot(lambda s, r: screens.groups(s, r.query.get("fact", "")))),
    PageRoute("GET", "/api/find", Scope.STATE, _of_snapshot(lambda s, r: screens.find(s, r.query.get("text", "")))),
    PageRoute("GET", "/api/health", Scope.STATE, _health),
    PageRoute("GET", "/api/node/{node}", Scope.STATE, _node),
    PageRoute("GET", "/api/node/{node}/timeline", Scope.STATE, _of_store(
        lambda c, s, r: screens.timeline(s, r.match_info["node"], _window(c, r), c.settings.stale))),
    PageRoute("GET", "/api/episodes", Scope.STATE, _of_store(
        lambda c, s, r: screens.list_episodes(s, c.clock(), WHICH.get(r.query.get("which", ""))))),
    PageRoute("GET", "/api/episode/{id}", Scope.STATE, _of_store(
        lambda _c, s, r: {**screens.episode(s, _number(r, "id")), "digest": acts.shown_digest(s, _number(r, "id"))})),
    PageRoute("GET", "/api/held", Scope.STATE, _of_store(lambda c, s, _r: screens.held_back(s, c.clock()))),
    PageRoute("GET", "/api/offenders", Scope.STATE, _offenders),
    PageRoute("GET", "/api/hold/preview", Scope.ACT, _preview),
    PageRoute("GET", "/api/audit", Scope.AUDIT, _of_store(
        lambda _c, s, r: screens.audit_page(s, _number(r, "after"), r.query.get("node", "")))),
    PageRoute("GET", "/metrics", Scope.STATE, _metrics),
    PageRoute("POST", "/api/episode/{id}/decision", Scope.APPROVE, _decide),
    PageRoute("POST", "/api/episode/{id}/abort", Scope.APPROVE, _abort),
    PageRoute("POST", "/api/hold", Scope.ACT, _hold),
    PageRoute("POST", "/api/release", Scope.ACT, _release),
)  # fmt: skip


# The edges.


async def _form(request: web.Request) -> Mapping[str, str]:
    """A JSON object of texts. Raises ActionRefused."""
    if request.content_type != "application/json":
        raise acts.ActionRefused("the body is JSON")
    try:
        value = json.loads(await request.text())
    except (ValueError, RecursionError):
        raise acts.ActionRefused("the body is no JSON") from None
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise acts.ActionRefused("the body is an object of texts")
    return value


def _json(value: Mapping[str, object]) -> web.Response:
    body = json.dumps(value, separators=(",", ":"), default=str).encode()
    response = web.Response(body=body, content_type="application/json")
    if len(body) > 4096:
        response.enable_compression()
    return response


@web.middleware
async def plain_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """What goes wrong is one line and a status."""
    try:
        return await handler(request)
    except screens.Missing as error:
        return web.json_response({"error": str(error)}, status=404)
    except acts.ActionRefused as error:
        return web.json_response({"error": str(error)}, status=409)
    except (StoreError, SourceError) as error:
        return web.json_response({"error": str(error)}, status=503)
