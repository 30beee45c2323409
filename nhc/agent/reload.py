"""The configuration read anew while the agent runs: all of it or, with a mistake in it, nothing."""

from __future__ import annotations

from typing import Callable, List, Optional, Tuple

from nhc.agent import agent_plan, npd_monitors
from nhc.agent.agent_plan import BadConfig, FileStamp, stamps
from nhc.agent.npd_monitors import Monitors
from nhc.agent.settings import AgentSettings
from nhc.core.host import Host
from nhc.core.light import NamedTuple
from nhc.core.plan import Plan
from nhc.core.settings.settings_file import SettingsError
from nhc.core.state.store import State

CHECK_FILES = 10.0
"""Seconds between two looks at the files' stamps."""


class ConfigFiles:
    """Whether a file or directory has changed that the plan or the settings were made of."""

    def __init__(self) -> None:
        self._stamps: Tuple[FileStamp, ...] = ()
        self._checked = 0.0

    def note(self, plan: Plan, settings: AgentSettings) -> None:
        """Take the files as they are now for known."""
        self._stamps = stamps(plan, settings)

    def changed(self, plan: Plan, settings: AgentSettings, now: float) -> bool:
        """Whether they are not as they were noted. Looks at most every ten seconds; `now` is monotonic."""
        if now - self._checked < CHECK_FILES:
            return False
        self._checked = now
        return stamps(plan, settings) != self._stamps


class Configuration(NamedTuple):
    """What the files say."""

    settings: AgentSettings
    plan: Plan
    monitors: Optional[Monitors]


def read_anew(read_settings: Callable[[], AgentSettings], node: str, host: Host, state: State) -> Configuration:
    """Read settings, checks and monitors. Raises BadConfig."""
    try:
        settings = read_settings()
        plan = agent_plan.load(settings, node, host, state, strict=True)
        return Configuration(settings, plan, npd_monitors.load(settings))
    except SettingsError as error:
        raise BadConfig([str(error)]) from None


def unheeded(old: AgentSettings, new: AgentSettings) -> List[str]:
    """What has changed that only a restart of the agent brings in, one line each."""
    lines: List[str] = []
    if (old.sinks, old.nvhcd, old.events, old.events_format, old.history) != (
        new.sinks, new.nvhcd, new.events, new.events_format, new.history,
    ):  # fmt: skip
        lines.append("sinks, services, events and history are as they were: they change when the agent is started anew")
    if old.root != new.root:
        lines.append("root is as it was: it changes when the agent is started anew")
    return lines
