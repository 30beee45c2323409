"""What the agent leaves to the next one after a restart, and to `nhc check local`."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

from nhc.agent import latest_report
from nhc.agent.node_view import NodeView
from nhc.agent.pause import LONGEST, Pause
from nhc.core.light import NamedTuple
from nhc.core.model import Verdict
from nhc.core.render.json import to_dict
from nhc.core.state.reports import kept_as
from nhc.core.state.store import State
from nhc.marks.ports.sinks import Standing
from nhc.node.planning.kept_verdict import forget

STATE = "agent"


class Recalled(NamedTuple):
    """What an earlier agent left; all but the pause is of this boot.

    `rows` are the board's, `adopted` the sinks that reported faults from before the agent, `inherited` those faults.
    """

    pause: Optional[Pause] = None
    rows: Mapping[str, Any] = {}
    adopted: Tuple[str, ...] = ()
    inherited: Tuple[Standing, ...] = ()
    monitors: Optional[Mapping[str, Any]] = None


def save(node: NodeView, state: State) -> None:
    """Keep what the next agent needs."""
    kept: Dict[str, Any] = {
        "boot_id": node.boot_id,
        "rows": node.board.dump(),
        "inherited": [list(fault) for fault in node.kernel.inherited],
        "adopted": sorted(node.kernel.adopted),
        "paused": list(node.paused) if node.paused else None,
        "monitors": node.monitors.dump() if node.monitors else None,
    }
    state.save(STATE, kept)


def keep_report(node: NodeView, state: State) -> None:
    """Leave the report where `nhc check local --max-age` and the prolog find it."""
    if latest_report.complete(node) and not any(entry.judged is None for entry in node.schedule.entries.values()):
        report = latest_report.report(node)
        if report.verdict is not Verdict.OK:
            forget(state)
        asked = {"config": list(node.settings.config), "scripts": list(node.settings.scripts), "root": node.root}
        state.save(kept_as("agent"), {**to_dict(report), **asked, "profile": node.settings.profile})


def recall(state: State, boot_id: str, now: float) -> Recalled:
    """What the last agent left, if it was this boot's; what does not fit is left out. `now` is the Unix time."""
    kept = state.load(STATE)
    recalled = Recalled()
    pause: Any = kept.get("paused")
    if _fits(pause, (float, str, str)) and now < pause[0] < now + LONGEST:
        recalled = recalled._replace(pause=Pause(*pause))
    if not boot_id or kept.get("boot_id") != boot_id:
        return recalled
    rows, adopted, inherited, monitors = (kept.get(name) for name in ("rows", "adopted", "inherited", "monitors"))
    return recalled._replace(
        rows=rows if isinstance(rows, dict) else {},
        adopted=tuple(str(sink) for sink in (adopted if isinstance(adopted, list) else ())),
        inherited=tuple(
            Standing(*fault)
            for fault in (inherited if isinstance(inherited, list) else ())
            if _fits(fault, (str, str, str, float))
        ),
        monitors=monitors if isinstance(monitors, dict) else None,
    )


def _fits(value: object, kinds: Sequence[type]) -> bool:
    """Whether these are the fields of a value that was kept; a number has to be a time."""
    if not isinstance(value, list) or len(value) != len(kinds):
        return False
    return all(
        isinstance(field, str) if kind is str else isinstance(field, (int, float)) and 0 <= field < 1e11
        for field, kind in zip(value, kinds)
    )
