"""What the agent says of its node, and of itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from nhc import __version__
from nhc.model import Report
from nhc.render.json import to_dict
from nhc.run.engine import mutes_path
from nhc.state import mutes

if TYPE_CHECKING:
    from nhc.agent.service import Agent


def complete(agent: Agent) -> bool:
    """Whether every check has been judged, in this life or the last of this boot."""
    return all(key in agent.board.rows for key in agent.items)


def report(agent: Agent) -> Report:
    """How the node is."""
    now = agent.host.monotonic()
    return Report(
        host=agent.node,
        boot_id=agent.boot_id,
        started=agent.host.time() - min(agent.schedule.oldest(now), now - agent.began + 1.0),
        elapsed=agent.round_seconds,
        results=(*agent.board.results(agent.items), *agent.kernel.results()),
        notes=(*agent.plan.notes, *mutes.notes(agent.host, mutes_path())),
        version=__version__,
        labels=dict(agent.settings.labels),
    )


def state_bytes(agent: Agent) -> bytes:
    """How the node is, for sinks: JSON."""
    value = {
        "report": to_dict(report(agent)),
        "complete": complete(agent),
        "conditions": agent.monitors.conditions() if agent.monitors else [],
    }
    return json.dumps(value, ensure_ascii=False).encode()


def health(agent: Agent) -> str:
    """What keeps the checks from running, or what they find from going where it should; "" while all is well.

    A sink whose process cannot be started is not well; one whose server is away is told in the metrics.
    """
    if agent.stopping:
        return "stopping"
    if agent.paused:
        return str(agent.paused)
    never = [key for key, entry in agent.schedule.entries.items() if entry.judged is None]
    if never:
        return f"{len(never)} of {len(agent.schedule.entries)} checks have not run yet"
    late = agent.schedule.overdue(agent.host.monotonic())
    if late:
        return f"{len(late)} checks are overdue, as {agent.items[late[0]].name}"
    for name, outlet in agent.outlets.items():
        if outlet.dead:
            return f"the sink {name} is not running: {outlet.dead}"
    return ""
