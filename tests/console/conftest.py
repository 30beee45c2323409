"""A console of its own for each test, over a store with a small fleet."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import time
import urllib.error
import urllib.request

import pytest

from nhc.console.server import Server, serve
from nhc.console.settings import parse
from nhc.console.sources import StoreSource
from nhc.core.model import Action, CheckResult, Outcome, Report, Verdict
from nhc.store import episodes, nodes
from nhc.store.intake import Incoming
from nhc.store.reports import receive
from tests.support.new_store import new_store
from tests.support.ports import free_ports
from tests.support.waiting import until

TOKENS = {name: f"{name}-secret-token" for name in ("vera", "olga", "adam", "alma", "nina")}
ROLES = {"vera": "viewer", "olga": "operator", "adam": "admin", "alma": "auditor", "nina": "operator"}


def settings(port):
    return parse(settings_text(port))


def settings_text(port):
    people = "".join(
        f'[people.{name}]\nroles = ["{ROLES[name]}"]\n'
        + ('nodes = ["a*"]\n' if name == "nina" else "")
        + f'[[people.{name}.tokens]]\nsha256 = "{hashlib.sha256(token.encode()).hexdigest()}"\n'
        for name, token in TOKENS.items()
    )
    return f'listen = "127.0.0.1:{port}"\nrefresh = "0.5s"\nstale = "10m"\n{people}'


def report(node, verdict=Verdict.OK, reason="", started=0.0, target="", message=""):
    outcome = Outcome(
        verdict, reason, message or f"{reason} of {node}", target, action=Action.REBOOT if reason else Action.NONE
    )
    return Report(node, f"boot-{node}", started, 0.1, (CheckResult("check_gpu_lost", outcome),))


class Site:
    """A store with nodes a1 to a4 and b1 to b4, of two racks; b1 and b2 have lost a GPU, b4 has never reported."""

    def __init__(self, directory, clock=time.time):
        self.store = new_store(str(directory), anchor="")
        self.now = clock()
        names = [f"{rack}{number}" for rack in "ab" for number in range(1, 5)]
        sick = {"b1": "GpuFallenOffBus", "b2": "GpuFallenOffBus"}
        with self.store.write() as connection:
            nodes.describe(
                connection,
                [nodes.NodeDescription(name, kind="h100", groups={"rack": f"r-{name[0]}"}) for name in names],
            )
            receive(connection, [
                Incoming(report(name, Verdict.CRIT if name in sick else Verdict.OK, sick.get(name, ""), self.now - 30),
                         "agent", self.now - 29)
                for name in names if name != "b4"
            ])  # fmt: skip
            self.episode, _new = episodes.open_episode(
                connection, "b1", "check_gpu_lost|GpuFallenOffBus|", action="reboot", state="awaiting-approval",
                now=self.now - 20, by="nhc", rung="reboot",
            )  # fmt: skip

    def hear(self, *reports):
        with self.store.write() as connection:
            receive(connection, [Incoming(one, "agent", one.started) for one in reports])


class Running:
    """A console that listens, in a thread of its own."""

    def __init__(self, found, source, store, clock=time.time):
        self.server = Server(found, source, store, clock)
        self.address = found.listen
        self.loop = asyncio.new_event_loop()
        self.up = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        assert self.up.wait(60)

    def _run(self):
        asyncio.set_event_loop(self.loop)
        self.task = self.loop.create_task(serve(self.server, lambda _address: self.up.set()))
        try:
            self.loop.run_until_complete(self.task)
        except asyncio.CancelledError:
            pass
        finally:
            self.loop.close()

    def stop(self):
        self.loop.call_soon_threadsafe(self.task.cancel)
        self.thread.join(50)  # a stream that it waited for would hold it up for 60
        assert not self.thread.is_alive(), "the console has not ended"

    def ask(self, method, path, body=None, who=None, **headers):
        """Status, value (JSON or text) and headers of one request."""
        request = urllib.request.Request(f"http://{self.address}{path}", method=method)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        if who:
            request.add_header("Authorization", f"Bearer {TOKENS[who]}")
        for name, value in headers.items():
            request.add_header(name.replace("_", "-"), value)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, _value(answer.read()), answer.headers
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _value(error.read()), error.headers


def _value(data):
    try:
        return json.loads(data)
    except ValueError:
        return data.decode()


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path)
    yield made
    made.store.close()


@pytest.fixture
def console(site):
    found = settings(free_ports(1)[0])
    running = Running(found, StoreSource(site.store, found.stale), site.store)
    until(lambda: running.server.hub.snapshot, what="the first snapshot")
    yield running
    running.stop()
