"""The console's routes: the right that each needs, and the function that answers it.

Every route is in ROUTES with the right that it needs; the guard denies any route that is not in the table, so a new
route is closed until its right is named.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from functools import partial
from importlib import resources
from typing import Awaitable, Callable, Dict, List, Mapping, NamedTuple, Optional, Protocol, cast

from aiohttp import web
from aiohttp.typedefs import Handler

from nhc import __version__
from nhc.console import acts, metrics, open_work, screens
from nhc.console.access import Grant, Person
from nhc.console.deep_reader import DeepReader
from nhc.console.doors import LIFETIME, PERSON, Doors, WrongLogins
from nhc.console.hub import Hub, StreamMessage
from nhc.console.scheduler import Scheduler
from nhc.console.settings import ConsoleSettings
from nhc.console.snapshot import NotFound, Snapshot
from nhc.console.sources import FleetSource, SourceError
from nhc.core.json_values import parse_object
from nhc.core.matching.node_ranges import expand, fold
from nhc.core.prometheus_family import page_for
from nhc.core.render.page_parts import PARTS, part
from nhc.node.planning.runbooks import explanation
from nhc.store.coverage import ReportSpan
from nhc.store.database import Store
from nhc.store.errors import RequestRefused, StoreError
from nhc.store.fleet_rates import FACTS


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

    def required_store(self) -> Store:
        """The store. Raises NotFound if there is none."""
        ...

    def verdict_reader(self) -> DeepReader:
        """The reader of deep verdicts. Raises NotFound if there is no store."""
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
    """A value as JSON, and the same compressed ("" if it is small): the same bytes for all requests."""

    body: bytes
    packed: bytes


LARGE = 4096
"""Bytes above which an answer is compressed."""


def pack_json(value: Mapping[str, object]) -> PackedJson:
    """A value as it is sent to every viewer."""
    body = _json(value)
    return PackedJson(body, gzip.compress(body, 6, mtime=0) if len(body) > LARGE else b"")


def answer_packed(request: web.Request, answer: PackedJson) -> web.Response:
    """An answer that was packed before; compressed if it is large and the client accepts that."""
    response = web.Response(body=answer.body, content_type="application/json")
    if answer.packed:
        response.headers["Vary"] = "Accept-Encoding"
        if takes_gzip(request.headers.get("Accept-Encoding", "")):
            response.body = answer.packed
            response.headers["Content-Encoding"] = "gzip"
    return response


def takes_gzip(accepted: str) -> bool:
    """Whether an Accept-Encoding header lets an answer be compressed with gzip (RFC 9110, section 12.5.3)."""
    for entry in accepted.lower().split(","):
        coding, _, weight = entry.replace(" ", "").partition(";")
        if coding in ("gzip", "x-gzip"):
            return weight not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=str).encode()


def answer_json(value: Mapping[str, object]) -> web.Response:
    """An answer as JSON, compressed if it is large."""
    body = _json(value)
    response = web.Response(body=body, content_type="application/json")
    if len(body) > LARGE:
        response.enable_compression()
    return response


# The answers to what a person does on the page: log in and out, decide about repairs, set and end holds.


EpisodeAct = Callable[[Store, Person, int, Mapping[str, str], float], Dict[str, object]]
"""What a person does to an episode: the episode's number, the form that was sent, the time."""


async def me(console: Console, request: web.Request) -> web.StreamResponse:
    """The sender, and what that person may do."""
    person: Person = request[PERSON]
    return answer_json({
        "name": person.name, "door": person.door, "roles": sorted(role.value for role in person.roles),
        "rights": sorted(scope.value for scope in Grant if person.may(scope)), "store": console.store is not None,
        "version": __version__,
    })  # fmt: skip


async def log_in(console: Console, request: web.Request) -> web.StreamResponse:
    """Begin a session with a token."""
    form = await form_of(request)
    value = console.doors.log_in(form.get("token", ""))
    if value is None:
        console.wrong.note(request, "login")
        return web.json_response({"error": "that token is not known, or has ended"}, status=401)
    response = answer_json({"ok": True})
    response.set_cookie(
        console.doors.cookie(), value, httponly=True, samesite="Strict", path="/", secure=console.doors.secure(),
        max_age=int(LIFETIME),
    )  # fmt: skip
    return response


async def log_out(console: Console, request: web.Request) -> web.StreamResponse:
    """End the session."""
    console.doors.log_out(request)
    response = answer_json({"ok": True})
    response.del_cookie(console.doors.cookie(), path="/")
    return response


async def decide(console: Console, request: web.Request) -> web.StreamResponse:
    """Agree to a repair of an episode, or refuse it."""
    return await _act_on_episode(console, request, acts.decide_repair)


async def abort(console: Console, request: web.Request) -> web.StreamResponse:
    """End an episode."""
    return await _act_on_episode(console, request, acts.abort)


async def _act_on_episode(console: Console, request: web.Request, act: EpisodeAct) -> web.StreamResponse:
    form = await form_of(request)
    row = number(request, "id")
    done = await asyncio.to_thread(act, console.required_store(), request[PERSON], row, form, console.clock())
    console.hub.notify("episodes")
    return answer_json(done)


async def decide_alike(console: Console, request: web.Request) -> web.StreamResponse:
    """Agree to one repair of several nodes by one confirmation, or refuse it."""
    form = await form_of(request)
    done = await asyncio.to_thread(
        acts.decide_repairs, console.required_store(), request[PERSON], form, console.clock()
    )
    console.hub.notify("episodes")
    return answer_json(done)


async def hold(console: Console, request: web.Request) -> web.StreamResponse:
    """Set a hold."""
    form = await form_of(request)
    concerned = _concerned(console.snapshot(), form.get("scope", "node"), form.get("name", ""))
    done = await asyncio.to_thread(
        acts.set_hold, console.required_store(), request[PERSON], form, len(concerned), console.clock()
    )
    console.hub.notify("holds")
    return answer_json(done)


async def preview(console: Console, request: web.Request) -> web.StreamResponse:
    """The nodes that a hold would concern."""
    concerned = _concerned(console.snapshot(), request.query.get("scope", "node"), request.query.get("name", ""))
    return answer_json({"count": len(concerned), "nodes": fold(concerned[: screens.NAMES])})


def _concerned(snapshot: Snapshot, scope: str, name: str) -> List[str]:
    """The nodes that a hold would keep."""
    if scope == "fleet":
        return list(snapshot.names)
    if scope == "group":
        fact, _, value = name.partition("=")
        return [node for node in snapshot.names if snapshot.nodes[node].groups.get(fact) == value]
    return [node for node in snapshot.names if node == name]


async def release(console: Console, request: web.Request) -> web.StreamResponse:
    """End a hold."""
    form = await form_of(request)
    done = await asyncio.to_thread(acts.end_hold, console.required_store(), request[PERSON], form, console.clock())
    console.hub.notify("holds")
    return answer_json(done)


HOUR = 3600.0
"""Seconds for which the scraper gets the same count of a month's faults."""
BEAT = 15.0
"""Seconds after which a silent stream gets a comment line, so that no proxy closes it as dead."""
LOOK = 2.0
"""Seconds after which a silent stream checks whether its person may still see it."""
STILL_HERE = StreamMessage(0, b": still here\n\n")
OFFENDERS = "offenders"
"""The count over a month that the server makes ahead."""
VIEWERS = 2000
"""Streams at a time."""
VENDORED = {
    "uPlot.js": "uPlot.iife.min.js", "uPlot.css": "uPlot.min.css", "modern-normalize.css": "modern-normalize.css",
}  # fmt: skip
"""Files of others as they were published (vendor/lock.json), by the names that the page has for them."""
KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
"""What the page's files are."""


class PageRoute(NamedTuple):
    """One route: what it takes, and what answers it."""

    method: str
    path: str
    scope: Grant
    answer: Answer


# Answers.


async def _page(_console: Console, _request: web.Request) -> web.StreamResponse:
    return web.Response(text=_file("console.html"), content_type="text/html")


async def _static(_console: Console, request: web.Request) -> web.StreamResponse:
    name = request.match_info["name"]
    kind = next((kind for ending, kind in KINDS.items() if name.endswith(ending)), "")
    if not kind or name not in _names():
        raise NotFound("there is no such file")
    return web.Response(text=_file(name), content_type=kind, headers={"Cache-Control": "no-cache"})


def _names() -> List[str]:
    return [*(entry.name for entry in (resources.files("nhc.console") / "static").iterdir()), *PARTS, *VENDORED]


def _file(name: str) -> str:
    if name in PARTS:
        return part(name)
    room = resources.files("nhc.console")
    if name in VENDORED:
        text = (room / "vendor" / VENDORED[name]).read_text(encoding="utf-8")
        # Its small build names a variable; as a module it is loaded where something is plotted, and only then.
        return f"{text}\nexport default uPlot;\n" if name == "uPlot.js" else text
    return (room / "static" / name).read_text(encoding="utf-8")


def _of_snapshot(show: Callable[[Snapshot, web.Request], screens.Value]) -> Answer:
    async def answer(console: Console, request: web.Request) -> web.StreamResponse:
        return await _packed(console, request, partial(show, console.snapshot(), request))

    return answer


async def _packed(console: Console, request: web.Request, make: Callable[[], screens.Value]) -> web.StreamResponse:
    """What `make` returns, once for all requests, with the present trouble."""
    trouble = console.hub.problem
    key = f"{request.path_qs}\0{trouble}"
    made = await console.hub.once(key, lambda: pack_json({**make(), "trouble": trouble}))
    return answer_packed(request, made)


def _of_store(show: Callable[[Console, Store, web.Request], screens.Value]) -> Answer:
    async def answer(console: Console, request: web.Request) -> web.StreamResponse:
        return answer_json(await asyncio.to_thread(show, console, console.required_store(), request))

    return answer


async def _node(console: Console, request: web.Request) -> web.StreamResponse:
    name = request.match_info["node"]
    person: Person = request[PERSON]
    snapshot = console.snapshot()
    report = await asyncio.to_thread(console.source.report, name) if person.may(Grant.EVIDENCE) else None
    value = screens.node(snapshot, name, report, dict(console.settings.links), console.settings.stale)
    if console.store is not None:
        value["episodes"] = await asyncio.to_thread(screens.episodes_of, console.store, name)
        value["service"] = open_work.out_of(snapshot.standing.get(name, ()))
        value["work"] = await asyncio.to_thread(screens.work_on_node, console.store, name, console.clock())
        if console.scheduler is not None:
            value["scheduler"] = await console.scheduler.state(name)
    return answer_json(value)


async def _scheduler_work(console: Console, request: web.Request) -> web.StreamResponse:
    """What runs on a node according to its scheduler; nothing if no scheduler is set."""
    name = request.match_info["node"]
    if name not in console.snapshot().nodes:
        raise NotFound(f"no node is called {name}")
    if console.scheduler is None:
        return answer_json({})
    watched = await asyncio.to_thread(screens.watched_jobs, console.store, name) if console.store is not None else {}
    return answer_json(await console.scheduler.work(name, watched))


def _nodes(snapshot: Snapshot, request: web.Request) -> screens.Value:
    asked = (request.query.get(name, "") for name in ("text", "set", "by", "group", "show", "out"))
    try:
        return screens.list_nodes(snapshot, screens.NodeQuery(*asked))
    except ValueError as error:
        raise RequestRefused(str(error)) from None


async def _explain(_console: Console, request: web.Request) -> web.StreamResponse:
    """What `nhc explain` says of a reason, or of a check."""
    name = request.match_info["name"]
    sections = await asyncio.to_thread(explanation, name)
    if not sections:
        raise NotFound(f"no runbook and no check is called {name}")
    return answer_json({"name": name, "sections": sections})


async def _history(console: Console, request: web.Request) -> web.StreamResponse:
    """How the fleet was: counted once a minute for each of the few spans that a person may choose."""
    hours = number(request, "hours", 24 * number(request, "days", 1))
    if hours not in screens.HOURS:
        raise RequestRefused(f"hours is one of {', '.join(map(str, screens.HOURS))}")
    devices, fresh = console.snapshot().devices, console.settings.stale
    made = partial(screens.history, console.required_store(), console.clock(), hours, devices, fresh)
    return answer_json(await console.hub.once_a_minute(f"history {hours}", made))


async def _strips(console: Console, request: web.Request) -> web.StreamResponse:
    """The last day of the nodes of a set, as many as a table has rows."""
    known = console.snapshot().nodes
    try:
        names = [name for name in expand(request.query.get("set", "")) if name in known][: screens.ROWS]
    except ValueError as error:
        raise RequestRefused(str(error)) from None
    made = partial(screens.strips, console.required_store(), console.clock(), names, console.settings.stale)
    return answer_json(await asyncio.to_thread(made))


async def _needs(console: Console, request: web.Request) -> web.StreamResponse:
    return await _packed(console, request, partial(screens.needs, console.snapshot(), console.store))


async def _deep(console: Console, request: web.Request) -> web.StreamResponse:
    reader, snapshot = console.verdict_reader(), console.snapshot()
    fact, suite = request.query.get("fact", ""), request.query.get("suite", "")
    return answer_json(await asyncio.to_thread(reader.view, snapshot, fact, suite))


async def _deep_letters(console: Console, _request: web.Request) -> web.StreamResponse:
    reader, snapshot = console.verdict_reader(), console.snapshot()
    return answer_json(await asyncio.to_thread(reader.letters, snapshot))


async def _offenders(console: Console, _request: web.Request) -> web.StreamResponse:
    store = console.required_store()
    made = partial(screens.offenders, store, console.clock())
    return answer_json(await console.hub.once_a_minute(OFFENDERS, made))


async def _rates(console: Console, request: web.Request) -> web.StreamResponse:
    """How often nodes fail: counted once for all who ask of one picture of the fleet."""
    store, now, fact = console.required_store(), console.clock(), request.query.get("by", "")
    days, date = number(request, "days", 30), number(request, "since", 0)
    if (fact and fact not in FACTS) or not 1 <= days <= 365 or (date and not 0 < date < now - screens.DAY):
        raise RequestRefused(f"by is one of {', '.join(FACTS)}; days 1 to 365; since Unix seconds, a day ago or more")
    made = partial(screens.rates, store, now, fact, days, float(date), console.settings.stale)
    return await _packed(console, request, made)


def _window(console: Console, request: web.Request) -> ReportSpan:
    now = console.clock()
    try:
        ended = float(request.query.get("to", now))
        began = float(request.query.get("from", ended - screens.DAY))
    except ValueError:
        raise RequestRefused("from and to are Unix seconds") from None
    if not began < ended <= now + screens.DAY or ended - began > 400 * screens.DAY:
        raise RequestRefused("from is before to, and at most 400 days")
    return ReportSpan(began, ended)


async def _stream(console: Console, request: web.Request) -> web.StreamResponse:
    """Events until the browser goes, does not read them, or its person has logged out or has a token that ended."""
    if console.hub.viewers >= VIEWERS:
        raise web.HTTPServiceUnavailable(headers={"Retry-After": "30"})
    last = request.headers.get("Last-Event-ID", "")
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
    await response.prepare(request)
    queue = console.hub.join(int(last) if last.isdigit() and len(last) < 16 else None)
    silent = 0.0
    try:
        while True:
            event: Optional[StreamMessage] = STILL_HERE
            try:
                event = await asyncio.wait_for(queue.get(), LOOK)
            except asyncio.TimeoutError:
                silent += LOOK
            if event is None or not console.doors.holds(request):
                break
            if event is not STILL_HERE or silent >= BEAT:
                silent = 0.0
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
        value["silent"] = screens.silent(hub.snapshot)
        value["counts"] = hub.snapshot.counts()
        value["notes"] = hub.snapshot.notes
    return answer_json(value)


async def _ready(console: Console, _request: web.Request) -> web.StreamResponse:
    fresh = console.hub.snapshot is not None and not console.hub.problem
    return web.Response(text="ok\n" if fresh else "not ready\n", status=200 if fresh else 503)


async def _metrics(console: Console, request: web.Request) -> web.StreamResponse:
    rates: metrics.Rates = {}
    if console.store is not None:
        made = partial(metrics.count_rates, console.store, console.clock(), console.settings.stale)
        rates = cast("metrics.Rates", await console.hub.once_a_minute("rates", made, lasts=HOUR))
    text = await asyncio.to_thread(metrics.exposition, console.hub, console.store, console.clock(), rates)
    kind, page = page_for(request.headers.get("Accept", ""), text)
    return web.Response(text=page, headers={"Content-Type": kind})


WHICH = {"open": True, "ended": False}

ROUTES = (
    PageRoute("GET", "/", Grant.OPEN, _page),
    PageRoute("GET", "/static/{name}", Grant.OPEN, _static),
    PageRoute("GET", "/view/{rest:.*}", Grant.OPEN, _page),
    PageRoute("GET", "/healthz", Grant.OPEN, _ready),
    PageRoute("POST", "/login", Grant.OPEN, log_in),
    PageRoute("POST", "/logout", Grant.OPEN, log_out),
    PageRoute("GET", "/api/me", Grant.OPEN, me),
    PageRoute("GET", "/api/stream", Grant.STATE, _stream),
    PageRoute("GET", "/api/counts", Grant.STATE, _of_snapshot(lambda s, _r: screens.counts(s))),
    PageRoute("GET", "/api/layout", Grant.STATE, _of_snapshot(lambda s, _r: screens.layout(s))),
    PageRoute("GET", "/api/fleet", Grant.STATE, _of_snapshot(lambda s, _r: screens.fleet(s))),
    PageRoute("GET", "/api/check/{check}", Grant.STATE, _of_snapshot(
        lambda s, r: screens.letters_of_check(s, r.match_info["check"]))),
    PageRoute("GET", "/api/deep", Grant.STATE, _deep),
    PageRoute("GET", "/api/deep/letters", Grant.STATE, _deep_letters),
    PageRoute("GET", "/api/job/{id}", Grant.STATE, _of_store(lambda _c, s, r: screens.job(s, number(r, "id")))),
    PageRoute("GET", "/api/jobs", Grant.STATE, _of_store(
        lambda _c, s, r: screens.find_jobs(s, r.query.get("text", "").strip()))),
    PageRoute("GET", "/api/causes", Grant.STATE, _of_snapshot(lambda s, _r: screens.causes(s))),
    PageRoute("GET", "/api/cause", Grant.STATE, _of_snapshot(
        lambda s, r: screens.cause(s, r.query.get("check", ""), r.query.get("reason", "")))),
    PageRoute("GET", "/api/checks", Grant.STATE, _of_snapshot(lambda s, r: screens.checks(s, r.query.get("fact", "")))),
    PageRoute("GET", "/api/groups", Grant.STATE, _of_snapshot(lambda s, r: screens.groups(s, r.query.get("fact", "")))),
    PageRoute("GET", "/api/nodes", Grant.STATE, _of_snapshot(_nodes)),
    PageRoute("GET", "/api/explain/{name}", Grant.STATE, _explain),
    PageRoute("GET", "/api/history", Grant.STATE, _history),
    PageRoute("GET", "/api/strips", Grant.STATE, _strips),
    PageRoute("GET", "/api/maintenance", Grant.STATE, _of_store(lambda c, s, _r: screens.maintenance(s, c.clock()))),
    PageRoute("GET", "/api/health", Grant.STATE, _health),
    PageRoute("GET", "/api/node/{node}", Grant.STATE, _node),
    PageRoute("GET", "/api/node/{node}/work", Grant.EVIDENCE, _scheduler_work),
    PageRoute("GET", "/api/node/{node}/timeline", Grant.STATE, _of_store(
        lambda c, s, r: screens.timeline(s, r.match_info["node"], _window(c, r), c.settings.stale))),
    PageRoute("GET", "/api/node/{node}/metrics", Grant.STATE, _of_store(
        lambda c, s, r: screens.measured(s, r.match_info["node"], _window(c, r)))),
    PageRoute("GET", "/api/episodes", Grant.STATE, _of_store(
        lambda c, s, r: screens.list_episodes(s, c.clock(), WHICH.get(r.query.get("which", "")), number(r, "page")))),
    PageRoute("GET", "/api/episode/{id}", Grant.STATE, _of_store(
        lambda _c, s, r: {**screens.episode(s, number(r, "id")), "digest": acts.shown_digest(s, number(r, "id"))})),
    PageRoute("GET", "/api/needs", Grant.STATE, _needs),
    PageRoute("GET", "/api/held", Grant.STATE, _of_store(lambda c, s, _r: screens.held_back(s, c.clock()))),
    PageRoute("GET", "/api/rates", Grant.STATE, _rates),
    PageRoute("GET", "/api/offenders", Grant.STATE, _offenders),
    PageRoute("GET", "/api/hold/preview", Grant.ACT, preview),
    PageRoute("GET", "/api/audit", Grant.AUDIT, _of_store(
        lambda _c, s, r: screens.audit_page(s, number(r, "after"), r.query.get("node", "")))),
    PageRoute("GET", "/metrics", Grant.METRICS, _metrics),
    PageRoute("POST", "/api/episode/{id}/decision", Grant.APPROVE, decide),
    PageRoute("POST", "/api/episode/{id}/abort", Grant.APPROVE, abort),
    PageRoute("POST", "/api/decisions", Grant.APPROVE, decide_alike),
    PageRoute("POST", "/api/hold", Grant.ACT, hold),
    PageRoute("POST", "/api/release", Grant.ACT, release),
)  # fmt: skip


@web.middleware
async def plain_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """An error becomes one line and a status."""
    try:
        return await handler(request)
    except NotFound as error:
        return web.json_response({"error": str(error)}, status=404)
    except RequestRefused as error:
        return web.json_response({"error": str(error)}, status=409)
    except (StoreError, SourceError) as error:
        return web.json_response({"error": str(error)}, status=503)
