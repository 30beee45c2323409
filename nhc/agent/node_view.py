"""What the agent knows of its node and of itself at one moment, and what it says of them: pages, answers, state."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Mapping, Optional, Sequence

from nhc import __version__
from nhc.core.light import NamedTuple
from nhc.core.model import Report
from nhc.core.render.json import to_dict
from nhc.core.state import mutes
from nhc.marks.ports.sinks import REFUSED
from nhc.node.facts.machine_identity import labels
from nhc.node.run.engine import mutes_path

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


def complete(node: NodeView) -> bool:
    """Whether every check has been judged, since this start of the agent or, within this boot, the one before."""
    return all(key in node.board.rows for key in node.items)


def report(node: NodeView) -> Report:
    """How the node is."""
    now = node.host.monotonic()
    return Report(
        host=node.node,
        boot_id=node.boot_id,
        started=node.host.time() - min(node.schedule.oldest(now), now - node.began + 1.0),
        elapsed=node.round_seconds,
        results=(*node.board.results(node.items), *node.kernel.results()),
        notes=(*node.plan.notes, *mutes.notes(node.host, mutes_path())),
        version=__version__,
        labels={**labels(node.host, may_ask=False), **node.settings.labels},
    )


def state_bytes(node: NodeView) -> bytes:
    """How the node is, for sinks: JSON."""
    value = {
        "report": to_dict(report(node)),
        "complete": complete(node),
        "conditions": node.monitors.conditions() if node.monitors else [],
        "contexts": {key: item.contexts for key, item in node.items.items() if item.contexts},
    }
    return json.dumps(value, ensure_ascii=False).encode()


def health(node: NodeView) -> str:
    """What keeps the checks from running, or what they find from going where it should; "" while all is well.

    A sink whose process cannot be started is not well, nor is one whose server refuses what it is sent; one whose
    server is away is in the metrics.
    """
    if node.stopping:
        return "stopping"
    if node.paused:
        return str(node.paused)
    never = [key for key, entry in node.schedule.entries.items() if entry.judged is None]
    if never:
        return f"{len(never)} of {len(node.schedule.entries)} checks have not run yet"
    late = node.schedule.overdue(node.host.monotonic())
    if late:
        return f"{len(late)} checks are overdue, as {node.items[late[0]].name}"
    for name, handle in node.publisher.sinks.items():
        if handle.dead:
            return f"the sink {name} is not running: {handle.dead}"
        if handle.problem.startswith(REFUSED):
            return f"the sink {name}: {handle.problem}"
    return ""
