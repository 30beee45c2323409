"""A recent report in place of a new run: a prolog need not repeat what the health check just found.

Off unless the configuration sets an age (`NHC_PROLOG_MAX_AGE=60`). Only a healthy report is used: on
anything else the checks run again, since the fault may have been repaired a second ago.
"""

from __future__ import annotations

from nhc.light import TYPE_CHECKING
from nhc.model import Report
from nhc.state.store import State

if TYPE_CHECKING:
    from typing import Mapping, Optional, Sequence

CONTEXTS = ("prolog", "healthcheck", "agent")


def remember(state: State, context: str, report: Report) -> None:
    """Keep a report for other hooks."""
    from nhc.render.json import to_dict
    from nhc.state.reports import kept_as

    state.save(kept_as(context), to_dict(report))  # several nodes on one host overwrite each other: `host` tells


def max_age(context: str, settings: Mapping[str, str]) -> float:
    """The age in seconds that the configuration allows this hook, 0 for never."""
    from nhc.units import seconds

    try:
        return seconds(settings.get(f"NHC_{context.upper().replace('-', '_')}_MAX_AGE", "0"))
    except ValueError:
        return 0.0


def fresh_report(
    state: State, node: str, max_age: float, now: float, boot_id: str, contexts: Sequence[str] = CONTEXTS
) -> Optional[Report]:
    """The newest healthy report on this node of these hooks, from this boot, at most `max_age` seconds old."""
    if max_age <= 0:
        return None
    from nhc.ports import healthy
    from nhc.state.reports import fresh, kept_as

    best: Optional[Report] = None
    for context in contexts:
        report = fresh(state.load(kept_as(context)), max_age, now, boot_id)
        if report is None or report.host != node or not healthy(report):
            continue
        if best is None or report.started > best.started:
            best = report
    return best
