"""What an agent runs on: the node, its own loop, state and log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

from nhc.core.host import root_of
from nhc.core.language.site_settings import site_settings
from nhc.core.light import NamedTuple

if TYPE_CHECKING:
    from nhc.agent.event_loop import Loop
    from nhc.agent.settings import AgentSettings
    from nhc.core.host import Host
    from nhc.core.state.store import State


class Runtime(NamedTuple):
    """Unchanged from the agent's start to its end. `began` is its start, on the host's monotonic clock."""

    host: Host
    state: State
    loop: Loop
    log: Callable[[str], None]
    node: str
    boot_id: str
    root: str
    began: float


def node_name(settings: AgentSettings, host: Host) -> str:
    """The node's name from the agent's settings, else the name that every part of nhc on this node uses."""
    return settings.node or site_settings().local_node_name(host)


def runtime(settings: AgentSettings, host: Host, state: State, loop: Loop, log: Callable[[str], None]) -> Runtime:
    """The runtime of an agent that starts now."""
    node, root = node_name(settings, host), root_of(settings.root)
    return Runtime(host, state, loop, log, node, host.boot_id(), root, host.monotonic())
