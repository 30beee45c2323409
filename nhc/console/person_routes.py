"""The answers to what a person does on the page: log in and out, decide about repairs, set and end holds."""

from __future__ import annotations

import asyncio
from typing import Callable, Dict, List, Mapping

from aiohttp import web

from nhc import __version__
from nhc.console import acts, screens
from nhc.console.access import Grant, Person
from nhc.console.doors import LIFETIME, PERSON
from nhc.console.route_values import Console, answer_json, form_of, number
from nhc.console.snapshot import Snapshot
from nhc.core.matching.node_ranges import fold
from nhc.store.database import Store

EpisodeAct = Callable[[Store, Person, int, Mapping[str, str], float], Dict[str, object]]
"""What a person does to an episode: the episode's number, the form that was sent, the time."""


async def me(console: Console, request: web.Request) -> web.StreamResponse:
    """Who asks, and what that person may do."""
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
    return await _act_on_episode(console, request, acts.decide)


async def abort(console: Console, request: web.Request) -> web.StreamResponse:
    """End an episode."""
    return await _act_on_episode(console, request, acts.abort)


async def _act_on_episode(console: Console, request: web.Request, act: EpisodeAct) -> web.StreamResponse:
    form = await form_of(request)
    row = number(request, "id")
    done = await asyncio.to_thread(act, console.kept(), request[PERSON], row, form, console.clock())
    console.hub.notify("episodes")
    return answer_json(done)


async def decide_alike(console: Console, request: web.Request) -> web.StreamResponse:
    """Agree to one repair of several nodes by one confirmation, or refuse it."""
    form = await form_of(request)
    done = await asyncio.to_thread(acts.decide_alike, console.kept(), request[PERSON], form, console.clock())
    console.hub.notify("episodes")
    return answer_json(done)


async def hold(console: Console, request: web.Request) -> web.StreamResponse:
    """Set a hold."""
    form = await form_of(request)
    concerned = _concerned(console.snapshot(), form.get("scope", "node"), form.get("name", ""))
    done = await asyncio.to_thread(
        acts.set_hold, console.kept(), request[PERSON], form, len(concerned), console.clock()
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
    done = await asyncio.to_thread(acts.end_hold, console.kept(), request[PERSON], form, console.clock())
    console.hub.notify("holds")
    return answer_json(done)
