"""The configuration read anew while the agent runs: all of it or, with a mistake in it, nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, List

from nhc.agent import agent_plan
from nhc.model import printable

if TYPE_CHECKING:
    from nhc.agent.service import Agent


def reload(agent: Agent) -> List[str]:
    """Read settings and configuration anew. Returns the problems; with any, everything stays as it was."""
    from nhc.agent.agent_plan import BadConfig
    from nhc.agent.npd.monitors import load as load_monitors
    from nhc.agent.settings import BadSettings

    agent.stamps = agent_plan.stamps(agent.plan, agent.settings)
    try:
        settings = agent.read_settings()
        plan = agent_plan.load(settings, agent.node, agent.host, agent.state, strict=True)
        monitors = load_monitors(settings)
    except (BadSettings, BadConfig) as error:
        problems = getattr(error, "problems", None) or [str(error)]
        if problems != agent.refused:
            for problem in problems:
                agent.log(f"refused: {problem}")
            agent.emit([agent.event("config.refused", message=printable("; ".join(problems), 1000))])
        agent.refused = problems
        return problems
    old, agent.settings, agent.refused = agent.settings, settings, []
    agent.board.recover, agent.schedule.jitter = settings.recover, settings.jitter
    if agent.monitors is not None:
        if monitors is not None:
            monitors.take_over(agent.monitors)
        else:
            agent.monitors.close()
            if agent.follower:
                agent.follower.readers = ()
    agent.monitors = monitors
    agent.adopt_plan(plan)
    if agent.monitors and agent.follower:
        agent.monitors.start(agent)
    if agent.follower:
        if settings.kernel_log and not agent.follower.live:
            agent.follower.start()
        elif not settings.kernel_log:
            agent.follower.close()
    agent.follow_journal()
    agent.reloaded = agent.host.time()
    for watcher in agent.watchers:
        watcher()
    if (old.sinks, old.events, old.events_format, old.history) != (
        settings.sinks, settings.events, settings.events_format, settings.history,
    ):  # fmt: skip
        agent.log("sinks, events and history are as they were: they change when the agent is started anew")
    if old.root != settings.root:
        agent.log("root is as it was: it changes when the agent is started anew")
    agent.log(f"configuration reloaded: {len(agent.items)} checks")
    agent.emit([agent.event("config.reloaded", checks=len(agent.items))])
    agent.changed()
    agent.tick()
    return []
