"""The demonstration: a made-up fleet, the real store, the real remedy loop and the real console, in one process.

Everything lies in a temporary directory that goes at the end. Nothing of this machine is judged, marked or repaired.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
import signal
import tempfile
import threading
import time
from typing import Callable, List, NamedTuple

from nhc.console import settings as console_settings
from nhc.console.server import Server, serve
from nhc.console.sources import StoreSource
from nhc.core.data.reader import read
from nhc.lab.demo.fleet import DemoFleet
from nhc.remedy import remedy_file
from nhc.remedy.actuators import Actuators
from nhc.remedy.controller import RemedyController
from nhc.remedy.repairers import RepairerEntry, Repairers
from nhc.remedy.settings import RepairerSettings
from nhc.store import nodes, reports
from nhc.store.connect import open_store
from nhc.store.database import Store
from nhc.store.intake import Incoming
from nhc.store.retention import Keep, Pruned, prune

STALE = 30.0
"""Seconds after which a report of the made-up fleet is not believed."""
TICK = 1.0
"""Seconds between two steps of the made-up fleet."""
HOUR = 3600.0
KEEP = Keep(*[HOUR] * len(Keep._fields))
"""What is over an hour old is deleted: a demonstration of days is as large as one of an hour, its repairs aside."""
FORGET = 600.0
"""Seconds between two times that the rest is deleted."""


class Demo(NamedTuple):
    """What runs. `token` logs the person `you` in on the page."""

    fleet: DemoFleet
    store: Store
    controller: RemedyController
    server: Server
    token: str


def make(directory: str, count: int, seed: int, listen: str) -> Demo:
    """All parts over a new store in a directory. Raises StoreError, SettingsError."""
    fleet = DemoFleet(count, seed)
    store = open_store(f"sqlite:///{directory}/store.db")
    with store.write() as connection:
        nodes.describe(connection, [
            nodes.NodeDescription(name, kind="demo", groups=groups) for name, groups in fleet.groups().items()
        ])  # fmt: skip
    policy = remedy_file.parse(f'{read("demo.toml")}[evidence]\ndirectory = "{directory}/evidence"\n')
    actuators = Actuators(fleet, Repairers([RepairerEntry(RepairerSettings("demo", "demo"), fleet)]))
    token = secrets.token_urlsafe(12)
    settings = console_settings.parse(
        f'listen = "{listen}"\nrefresh = "1s"\nstale = "{STALE:g}s"\n[people.you]\nroles = ["operator", "admin"]\n'
        f'[[people.you.tokens]]\nsha256 = "{hashlib.sha256(token.encode()).hexdigest()}"\n'
    )
    server = Server(settings, StoreSource(store, settings.stale), store)
    return Demo(fleet, store, RemedyController(store, policy, actuators), server, token)


def step(demo: Demo, faults: float) -> int:
    """One step: time passes, nodes report, the loop goes round. The number of episodes that ended in it."""
    demo.fleet.pass_time(faults)
    now = time.time()
    with demo.store.write() as connection:
        reports.receive(connection, [Incoming(report, "demo", now) for report in demo.fleet.reports(now)])
    return len(demo.controller.round().ended)


def forget(demo: Demo, directory: str, now: float) -> Pruned:
    """Delete what is older than KEEP. Raises StoreError."""
    return prune(demo.store, KEEP, now, segments=f"{directory}/audit", by="nhc demo", with_evidence=False)


def play(count: int, seed: int, faults: float, listen: str, tell: Callable[[str], None], in_terminal: bool) -> None:
    """Until Ctrl-C, or until `nhc top` ends where it is shown in the terminal instead of a browser.

    `faults` come a minute. Raises OSError where it cannot listen, StoreError.
    """
    with tempfile.TemporaryDirectory(prefix="nhc-demo-") as directory:
        demo = make(directory, count, seed, listen)
        stop = threading.Event()
        trouble: List[BaseException] = []

        def live() -> None:
            try:
                step(demo, 12.0)  # a fleet that has been running for a while
                forgot = time.monotonic()
                while not stop.wait(TICK):
                    step(demo, faults * TICK / 60)
                    if time.monotonic() - forgot > FORGET:
                        forgot = time.monotonic()
                        forget(demo, directory, time.time())
            except Exception as error:  # shown by the main thread, which ends
                trouble.append(error)

        thread = threading.Thread(target=live, name="nhc-demo")
        thread.start()

        def ready(address: str) -> None:
            tell(f"{count} made-up nodes, the remedy loop and the console: http://{address}")
            tell(f"To agree to replacements, log in with the token {demo.token}")
            tell(f"In another terminal: nhc top --store sqlite:///{directory}/store.db --apply")
            tell("Ctrl-C ends it; nothing is left.")

        try:
            if in_terminal:
                _show_top(demo.store)
            else:
                asyncio.run(_serve(demo.server, ready, trouble))
        except KeyboardInterrupt:
            pass
        finally:
            stop.set()
            thread.join()
            demo.controller.actuators.close()
            demo.store.close()
        if trouble:
            raise trouble[0]


def _show_top(store: Store) -> None:
    from nhc.console.top.app import TopApp, TopSettings

    TopApp(StoreSource(store, STALE), store, TopSettings(every=1.0, person="you")).run()


async def _serve(server: Server, ready: Callable[[str], None], trouble: List[BaseException]) -> None:
    task = asyncio.ensure_future(serve(server, ready))
    for number in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C: nothing is left
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    while not trouble and not task.done():
        await asyncio.wait([task], timeout=0.5)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
