"""What the agent knows at one moment of its node and of itself: its pages, answers and kept state are made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, Optional, Sequence

from nhc.core.light import NamedTuple

if TYPE_CHECKING:
    from nhc.agent.kernel_findings import KernelLog
    from nhc.agent.kernel_sources import KernelSources
    from nhc.agent.npd_monitors import Monitors
    from nhc.agent.pause import Pause
    from nhc.agent.problems import Board
    from nhc.agent.publisher import Publisher
    from nhc.agent.schedule import Schedule
    from nhc.agent.settings import AgentSettings
    from nhc.core.host import Host
    from nhc.core.plan import Item, Plan


class NodeView(NamedTuple):
    """To be read, and not kept: the agent goes on.

    `began` is when the agent did, on the monotonic clock; `reloaded` the Unix time of its last configuration;
    `round_seconds` what the last round of checks took; `refused` what is wrong with files that have changed since.
    """

    settings: AgentSettings
    host: Host
    node: str
    root: str
    boot_id: str
    began: float
    reloaded: float
    plan: Plan
    items: Mapping[str, Item]
    schedule: Schedule
    board: Board
    kernel: KernelLog
    sources: KernelSources
    publisher: Publisher
    monitors: Optional[Monitors]
    paused: Optional[Pause]
    stopping: bool
    round_seconds: float
    refused: Sequence[str]
