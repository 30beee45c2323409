"""What one life of the agent leaves to the next, and to `nhc check local`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

from nhc.agent import latest_report
from nhc.agent.pause import Pause
from nhc.model import Verdict
from nhc.planning.kept_verdict import forget
from nhc.ports import Standing
from nhc.render.json import to_dict

if TYPE_CHECKING:
    from nhc.agent.service import Agent

STATE = "agent"
REPORT = "report-agent"
LONGEST_PAUSE = 30 * 86400.0
"""Seconds: the agent's control takes no longer one (`nhc.agent.control_socket`)."""


def save(agent: Agent) -> None:
    """Keep what the next life needs."""
    if agent.saving:
        agent.saving.cancel()
        agent.saving = None
    agent.state.save(
        STATE,
        {
            "boot_id": agent.boot_id,
            "rows": agent.board.dump(),
            "inherited": [list(one) for one in agent.kernel.inherited],
            "adopted": sorted(agent.adopted),
            "paused": list(agent.paused) if agent.paused else None,
            "monitors": agent.monitors.dump() if agent.monitors else None,
        },
    )


def keep_report(agent: Agent) -> None:
    """Leave the report where `nhc check local --max-age` and the prolog find it."""
    if latest_report.complete(agent) and not any(entry.judged is None for entry in agent.schedule.entries.values()):
        report = latest_report.report(agent)
        if report.verdict is not Verdict.OK:
            forget(agent.state)
        asked = {"config": list(agent.settings.config), "scripts": list(agent.settings.scripts), "root": agent.root}
        agent.state.save(REPORT, {**to_dict(report), **asked, "profile": agent.settings.profile})


def recall(agent: Agent) -> None:
    """Take over what the last life left, if it was this boot's; what does not fit is left out."""
    kept = agent.state.load(STATE)
    pause: Any = kept.get("paused")
    if _fits(pause, (float, str, str)) and agent.host.time() < pause[0] < agent.host.time() + LONGEST_PAUSE:
        agent.paused = Pause(*pause)
        agent.pause_ends = agent.host.monotonic() + pause[0] - agent.host.time()
    if not agent.boot_id or kept.get("boot_id") != agent.boot_id:
        return
    rows = kept.get("rows")
    if isinstance(rows, dict):
        agent.board.load({key: row for key, row in rows.items() if key in agent.items})
    adopted, inherited = kept.get("adopted"), kept.get("inherited")
    agent.adopted.update(str(sink) for sink in (adopted if isinstance(adopted, list) else ()))
    for one in inherited if isinstance(inherited, list) else ():
        if _fits(one, (str, str, str, float)):
            agent.kernel.inherited.append(Standing(*one))
    if agent.monitors and isinstance(kept.get("monitors"), dict):
        agent.monitors.load(kept["monitors"])


def _fits(value: Any, kinds: Sequence[type]) -> bool:
    """Whether these are the fields of a value that was kept; a number has to be a time."""
    if not isinstance(value, list) or len(value) != len(kinds):
        return False
    return all(
        isinstance(one, str) if kind is str else isinstance(one, (int, float)) and 0 <= one < 1e11
        for one, kind in zip(value, kinds)
    )
