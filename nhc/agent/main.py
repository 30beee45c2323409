"""Builds the agent and runs it: `nhc serve agent`."""

from __future__ import annotations

import gc
import logging
import os
import signal
from functools import partial
from typing import TYPE_CHECKING, Callable, Dict, List, Mapping, Optional, Tuple

from nhc.agent import npd_monitors
from nhc.agent.agent_plan import BadConfig
from nhc.agent.configuration import ConfigFiles
from nhc.agent.control_socket import Control, default_socket
from nhc.agent.event_loop import Loop
from nhc.agent.events import EventStream, shape
from nhc.agent.http_server import Http
from nhc.agent.runtime import runtime
from nhc.agent.service import Agent
from nhc.agent.settings import AgentSettings, NvhcdSettings
from nhc.agent.sink_process import Make
from nhc.core.host import BadRoot, Host
from nhc.core.plugins import NoAdapter
from nhc.core.settings.settings_file import SettingsError
from nhc.core.state.store import State
from nhc.core.system.children import fork
from nhc.core.system.service_log import ServiceLog
from nhc.marks.plugins import sink
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.sinks import Delivery, NotYetDelivered, Sink, Standing
from nhc.node.hosts.live import live_host

if TYPE_CHECKING:
    from nhc.agent.history import EventHistory


complain = ServiceLog("agent", logging.WARNING)
"""Most messages of an agent report that something does not work."""


def run(read_settings: Callable[[], AgentSettings], host: Optional[Host] = None) -> int:
    """Run until SIGTERM. Returns the exit status: 0, or 2 if the settings or configuration cannot be used."""
    loop = Loop(complain=complain)
    try:
        settings = read_settings()
        state = State(settings.state or None)
        if host is None:
            host = live_host(settings.root, state)
        host.remember_in(state)  # what a round found out, such as which machine this is
        here = runtime(settings, host, state, loop, complain)
        agent = Agent(
            here, ConfigFiles(read_settings, settings, here), npd_monitors.load(settings), sinks(settings, here.node)
        )
    except (SettingsError, BadConfig, AdapterError, BadRoot) as error:
        complain.error(str(error))
        return 2
    loop.signals({signal.SIGTERM: agent.stop, signal.SIGINT: agent.stop, signal.SIGHUP: agent.reload})
    control: Optional[Control] = None
    http: Optional[Http] = None
    try:
        control = Control(loop, agent, settings.socket or default_socket(settings.state))
        http = Http(loop, agent.node)
        agent.node.config.call_after_reload(http.relisten)
        agent.start()
    except BadConfig as error:
        for problem in error.problems:
            complain.error(problem)
        return _end(agent, control, http, 2)
    except OSError as error:
        complain.error(f"{error.filename or 'cannot start'}: {error.strerror}")
        return _end(agent, control, http, 2)
    for warning in state.warnings:
        complain(warning)
    _notify("READY=1")
    _watchdog(loop)
    gc.collect()
    loop.run()
    return _end(agent, control, http, 0)


def _end(agent: Agent, control: Optional[Control], http: Optional[Http], status: int) -> int:
    agent.stop()
    if http:
        http.close()
    if control:
        control.close()
    return status


def sinks(settings: AgentSettings, node: str) -> Dict[str, Make]:
    """A function for each sink that makes it in its own process. Raises SettingsError if a name is not known."""
    makes: Dict[str, Make] = {}
    if settings.events or settings.history:
        makes["local"] = partial(_local, settings)
    for name, table in settings.sinks.items():
        if name == "otel":
            makes[name] = partial(_otel, table, node, settings)
            continue
        problem = _what_keeps_from_loading(name)
        if problem:
            raise SettingsError(f"{settings.path}: sinks.{name}: {problem}")
        makes[name] = partial(_named, name, table, node)
    if settings.nvhcd is not None:
        control = settings.socket or default_socket(settings.state)
        makes["serve.nvhcd"] = partial(_nvhcd, settings.nvhcd, node, control)
    return makes


def _nvhcd(settings: NvhcdSettings, node: str, control: str, log: Callable[[str], None]) -> Sink:
    from nhc.agent.nvhcd import NvhcdServer

    return NvhcdServer(settings, node, log, control)


def _what_keeps_from_loading(name: str) -> str:
    """Why there is no sink of this name, "" if there is one. A child process checks.

    What a sink imports (an HTTP client, TLS) is 10 MB, which the agent, and each round that it forks, saves.
    """

    def child(pipe: Tuple[int, int]) -> None:
        os.close(pipe[0])
        try:
            sink(name)
        except NoAdapter as error:
            os.write(pipe[1], str(error).encode())

    try:
        pid, ((reading, writing),) = fork(child)
    except OSError as error:  # starting the sink, which is tried again and again, will show it
        complain(f"sinks.{name}: whether there is such a sink cannot be found out now: {error.strerror}")
        return ""
    os.close(writing)
    with open(reading, encoding="utf-8") as answer:
        problem = answer.read()
    os.waitpid(pid, 0)
    return problem


def _named(name: str, settings: Mapping[str, object], node: str, log: Callable[[str], None]) -> Sink:
    made: Sink = sink(name)(dict(settings), node, log)
    return made


def _otel(table: Mapping[str, object], node: str, settings: AgentSettings, log: Callable[[str], None]) -> Sink:
    from nhc.agent.otel import Otel

    return Otel(table, node, settings.labels, log)


def _local(settings: AgentSettings, log: Callable[[str], None]) -> Sink:
    history: Optional[EventHistory] = None
    if settings.history:
        from nhc.agent.history import EventHistory

        history = EventHistory(settings.history, settings.history_keep, settings.history_rows, log)
    stream = EventStream(settings.events, log, int(settings.events_limit)) if settings.events else None
    return LocalSink(stream, settings.events_format, settings.labels, history)


class LocalSink:
    """The sink for data that stays on this node: the stream and the history. `history` is None if none is kept."""

    def __init__(
        self, stream: Optional[EventStream], form: str, labels: Mapping[str, str], history: Optional[EventHistory]
    ) -> None:
        self.stream, self.form, self.labels, self.history = stream, form, labels, history

    def standing(self) -> List[Standing]:
        return []

    def deliver(self, delivery: Delivery) -> None:
        for event in delivery.events:
            if self.stream:
                line = shape(event, self.form, self.labels)
                if line:
                    self.stream.add(line)
            if self.history:
                self.history.add(event)
        delivered = self.stream.flush() if self.stream else True
        if self.history:
            delivered = self.history.flush() and delivered
        if not delivered:
            raise NotYetDelivered("the stream or the history cannot be written")

    def close(self) -> None:
        if self.stream:
            self.stream.flush()
        if self.history:
            self.history.close()


def _notify(text: str) -> None:
    """Notify systemd, if it asks for it (sd_notify(3))."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return
    import socket

    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as peer:
            peer.connect(f"\0{path[1:]}" if path[0] == "@" else path)
            peer.send(text.encode())
    except OSError as error:
        complain(f"NOTIFY_SOCKET: {error.strerror}")


def _watchdog(loop: Loop) -> None:
    """Tell systemd that the loop still runs, if it asks for it (WatchdogSec=, sd_watchdog_enabled(3))."""
    asked = os.environ.pop("WATCHDOG_USEC", "")
    if not asked.isdigit() or os.environ.pop("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return
    every = int(asked) / 1e6 / 3

    def alive() -> None:
        _notify("WATCHDOG=1")
        loop.after(every, alive)

    alive()
