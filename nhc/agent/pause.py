"""A pause, for work on the node: no check runs, and what one that was under way saw is no news."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nhc.agent import agent_plan
from nhc.agent.check_round import Finished
from nhc.light import NamedTuple
from nhc.model import printable

if TYPE_CHECKING:
    from nhc.agent.service import Agent


class Pause(NamedTuple):
    """Checks do not run until this Unix time."""

    until: float
    by: str = ""
    why: str = ""

    def __str__(self) -> str:
        return f"paused by {self.by}{f': {self.why}' if self.why else ''}"


def pause(agent: Agent, seconds: float, by: str, why: str) -> None:
    """Run no checks for so many seconds, and end those that run. Who waits for results is told."""
    agent.paused = Pause(agent.host.time() + seconds, printable(by, 80), printable(why, 200))
    agent.pause_ends = agent.host.monotonic() + seconds
    for one in agent.rounds:
        if not any(agent_plan.is_kernel_log(item) for item in one.plan.items):  # what it has read is not read again
            one.kill()
    for waiter in list(agent.waiting):
        waiter(Finished((), {}, 0.0))
    agent.emit([agent.event("agent.paused", message=f"by {by}: {why}" if why else f"by {by}")])
    agent.save()


def resume(agent: Agent, by: str) -> None:
    """End a pause: every check is due."""
    if agent.paused is None:
        return
    agent.paused = None
    now = agent.host.monotonic()
    agent.schedule.set(agent.schedule.entries, now)
    for key in agent.items:
        agent.schedule.hurry(key, now)
    agent.emit([agent.event("agent.resumed", message=by)])
    agent.save()


def interrupted(agent: Agent, finished: Finished) -> Finished:
    """Of a round that a pause came into, what the kernel said before; the rest may show the work on the node."""
    kept = tuple(key for key in finished.keys if key in agent.items and agent_plan.is_kernel_log(agent.items[key]))
    for key in finished.keys:
        if key not in kept:
            agent.schedule.end(key, agent.host.monotonic(), 0.0, judged=False)
    return finished._replace(keys=kept, problem=finished.problem if kept else "")
