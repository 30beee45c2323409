"""What the agent knows about its node and itself at one moment, and how it shows that: pages, answers, state."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Optional

from nhc import __version__
from nhc.agent.pause import PauseTimer
from nhc.core.model import Report
from nhc.core.render.json import to_dict
from nhc.core.state import mutes
from nhc.marks.ports.sinks import REFUSED
from nhc.node.facts.machine_identity import labels
from nhc.node.run.engine import mutes_path

if TYPE_CHECKING:
    from nhc.agent.agent_plan import Checks
    from nhc.agent.configuration import ConfigFiles
    from nhc.agent.kernel_findings import KernelLog
    from nhc.agent.kernel_sources import KernelSources
    from nhc.agent.npd_monitors import Monitors
    from nhc.agent.publisher import Publisher
    from nhc.agent.rounds import Rounds
    from nhc.agent.runtime import Runtime
    from nhc.agent.settings import AgentSettings


class NodeView:
    """The parts of an agent that know something about the node. Only the agent changes them; others read."""

    def __init__(
        self,
        runtime: Runtime,
        config: ConfigFiles,
        checks: Checks,
        publisher: Publisher,
        sources: KernelSources,
        kernel: KernelLog,
        rounds: Rounds,
        monitors: Optional[Monitors],
    ) -> None:
        self.runtime, self.config, self.checks, self.publisher = runtime, config, checks, publisher
        self.sources, self.kernel, self.rounds, self.monitors = sources, kernel, rounds, monitors
        self.pause = PauseTimer(runtime.host)
        self.stopping = False

    def follow_by(self, monitors: Optional[Monitors]) -> None:
        """These are node-problem-detector's monitors from now on."""
        self.monitors = monitors

    def stop(self) -> None:
        """From now on the agent is stopping."""
        self.stopping = True

    @property
    def settings(self) -> AgentSettings:
        """Those in force."""
        return self.config.settings


def report(node: NodeView) -> Report:
    """How the node is."""
    now = node.runtime.host.monotonic()
    return Report(
        host=node.runtime.node,
        boot_id=node.runtime.boot_id,
        started=node.runtime.host.time() - min(node.checks.schedule.oldest(now), now - node.runtime.began + 1.0),
        elapsed=node.rounds.seconds,
        results=(*node.checks.board.results(node.checks.items), *node.kernel.results()),
        notes=(*node.checks.plan.notes, *mutes.notes(node.runtime.host, mutes_path())),
        version=__version__,
        labels={**labels(node.runtime.host, may_ask=False), **node.settings.labels},
    )


def state_bytes(node: NodeView) -> bytes:
    """How the node is, for sinks: JSON."""
    value = {
        "report": to_dict(report(node)),
        "complete": node.checks.complete(),
        "conditions": node.monitors.conditions() if node.monitors else [],
        "contexts": {key: item.contexts for key, item in node.checks.items.items() if item.contexts},
    }
    return json.dumps(value, ensure_ascii=False).encode()


def health(node: NodeView) -> str:
    """Why checks do not run, or why their findings are not delivered; "" while all is well.

    A sink whose process cannot be started is a problem, and so is one whose server refuses what it is sent; a sink
    whose server is away shows in the metrics.
    """
    if node.stopping:
        return "stopping"
    if node.pause.current:
        return str(node.pause.current)
    never = [key for key, entry in node.checks.schedule.entries.items() if entry.judged is None]
    if never:
        return f"{len(never)} of {len(node.checks.schedule.entries)} checks have not run yet"
    late = node.checks.schedule.overdue(node.runtime.host.monotonic())
    if late:
        return f"{len(late)} checks are overdue, as {node.checks.items[late[0]].name}"
    for name, handle in node.publisher.sinks.items():
        if handle.dead:
            return f"the sink {name} is not running: {handle.dead}"
        if handle.problem.startswith(REFUSED):
            return f"the sink {name}: {handle.problem}"
    return ""
