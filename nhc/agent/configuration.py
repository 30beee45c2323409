"""Reload the configuration while the agent runs: all of it or, if it has a mistake, nothing."""

from __future__ import annotations

import os
from typing import Callable, List, Optional, Tuple

from nhc.agent import agent_plan, npd_monitors
from nhc.agent.agent_plan import BadConfig
from nhc.agent.npd_monitors import Monitors
from nhc.agent.runtime import Runtime
from nhc.agent.settings import AgentSettings
from nhc.core.language.site_settings import FILES
from nhc.core.light import NamedTuple
from nhc.core.plan import Plan
from nhc.core.settings.settings_file import SettingsError

CHECK_FILES = 10.0
"""Seconds between two checks of the files' stamps."""


class Configuration(NamedTuple):
    """The contents of the files."""

    settings: AgentSettings
    plan: Plan
    monitors: Optional[Monitors]


class ConfigFiles:
    """The files that configure the agent. `settings` are those in force.

    `refused` is what is wrong with files that have changed since; `reloaded` is the Unix time of the last accepted
    reload.
    """

    def __init__(self, read: Callable[[], AgentSettings], settings: AgentSettings, runtime: Runtime) -> None:
        self._read, self.settings, self._runtime = read, settings, runtime
        self.refused: List[str] = []
        self.reloaded = runtime.host.time()
        self._stamps: Tuple[FileStamp, ...] = ()
        self._checked = 0.0
        self._listeners: List[Callable[[], None]] = []

    def call_after_reload(self, call: Callable[[], None]) -> None:
        """Call this after each reload."""
        self._listeners.append(call)

    def note(self, plan: Plan) -> None:
        """Note the files' current state as known."""
        self._stamps = stamps(plan, self.settings)

    def changed(self, plan: Plan) -> bool:
        """Whether a file or directory that the plan or the settings come from has changed.

        Looks at most every ten seconds, and not at all if the settings say so.
        """
        now = self._runtime.host.monotonic()
        if not self.settings.watch_config or now - self._checked < CHECK_FILES:
            return False
        self._checked = now
        return stamps(plan, self.settings) != self._stamps

    def read_anew(self) -> Configuration:
        """Read settings, checks and monitors. Raises BadConfig."""
        try:
            settings = self._read()
            plan = agent_plan.load(settings, self._runtime.node, self._runtime.host, self._runtime.state, strict=True)
            return Configuration(settings, plan, npd_monitors.load(settings))
        except SettingsError as error:
            raise BadConfig([str(error)]) from None

    def refuse(self, problems: List[str]) -> None:
        """The files as they are now are not accepted, because of these problems."""
        self.refused = problems

    def adopt(self, settings: AgentSettings) -> List[str]:
        """These settings are in force. Returns the changes that need a restart, one line each."""
        old, self.settings, self.refused = self.settings, settings, []
        self.reloaded = self._runtime.host.time()
        for call in self._listeners:
            call()
        return _unheeded(old, settings)


class FileStamp(NamedTuple):
    """A file as stat(2) sees it; zeros if it cannot be read."""

    path: str
    inode: int = 0
    size: int = 0
    changed_ns: int = 0


def stamps(plan: Plan, settings: AgentSettings) -> Tuple[FileStamp, ...]:
    """A value that changes when a file or directory that the plan or the settings come from changes."""
    files = []
    for path in (*plan.inputs, *settings.inputs, *FILES):
        try:
            at = os.stat(path)
            files.append(FileStamp(path, at.st_ino, at.st_size, at.st_mtime_ns))
        except OSError:
            files.append(FileStamp(path))
    return tuple(files)


def _unheeded(old: AgentSettings, new: AgentSettings) -> List[str]:
    lines: List[str] = []
    if (old.sinks, old.nvhcd, old.events, old.history) != (new.sinks, new.nvhcd, new.events, new.history):
        lines.append("sinks, services, events and history are as they were: they change when the agent is started anew")
    if old.root != new.root:
        lines.append("root is as it was: it changes when the agent is started anew")
    return lines
