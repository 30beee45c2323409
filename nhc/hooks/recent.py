"""A recent report in place of a new run: a prolog need not repeat what the health check just found.

Off unless the configuration sets an age (`NHC_PROLOG_MAX_AGE=60`). Only a healthy report is used: otherwise the checks
run again, since the fault may have been repaired a second ago. The report must also be of this configuration: it has a
result for each line that the hook would run, and no file of the configuration has changed since the report was begun.
"""

from __future__ import annotations

import os

from nhc.core.language import site_settings
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Report, printable
from nhc.core.state.store import State

if TYPE_CHECKING:
    from typing import Mapping, Optional, Sequence

    from nhc.core.plan import Plan

CONTEXTS = ("prolog", "healthcheck", "agent")
SETTLED = 0.1
"""Seconds for which a file must have been unchanged before the report was begun, as for the stored verdict."""


def remember(state: State, context: str, report: Report) -> None:
    """Store a report for other hooks."""
    from nhc.core.render.json import to_dict
    from nhc.core.state.reports import report_name

    state.save(report_name(context), to_dict(report))  # several nodes on one host overwrite each other: `host` tells


def max_age(context: str, settings: Mapping[str, str]) -> float:
    """The age in seconds that the configuration allows this hook, 0 for never."""
    from nhc.core.units import seconds

    try:
        return seconds(settings.get(f"NHC_{context.upper().replace('-', '_')}_MAX_AGE", "0"))
    except ValueError:
        return 0.0


def fresh_report(
    state: State,
    node: str,
    max_age: float,
    now: float,
    boot_id: str,
    plan: Plan,
    settings: Mapping[str, str],
    contexts: Sequence[str] = CONTEXTS,
) -> Optional[Report]:
    """The newest healthy report of these hooks on this node, from this boot, at most `max_age` seconds old.

    `plan` is what this hook would run with `settings`: a report of another configuration does not count.
    """
    if max_age <= 0:
        return None
    from nhc.core.state.reports import fresh, report_name
    from nhc.marks.ports.marks import healthy

    best: Optional[Report] = None
    for context in contexts:
        report = fresh(state.load(report_name(context)), max_age, now, boot_id)
        if report is None or report.host != node or not healthy(report):
            continue
        if best is not None and report.started <= best.started:
            continue
        if _judges_all(report, plan) and _last_change(plan, settings) < report.started - SETTLED:
            best = report
    return best


def _judges_all(report: Report, plan: Plan) -> bool:
    """Whether the report has a result for every line of the plan, from the same place of the same file."""
    judged = {(result.source, result.line) for result in report.results}
    return all((printable(item.source), printable(item.line)) in judged for item in plan.items)


def _last_change(plan: Plan, settings: Mapping[str, str]) -> float:
    """When a file or directory that decides on the checks last changed, by its inode's change time: no tool sets that.

    The Unix time in seconds. For a missing file the directory that would hold it counts: the file may have been
    removed.
    """
    from nhc.node.planning.cache import code_path

    directory = settings.get("CONFDIR") or site_settings.CONFDIR
    paths = {*plan.inputs, *plan.scripts, *site_settings.FILES, directory, code_path()}
    paths.update(settings[name] for name in ("CONFFILE", "INCDIR") if settings.get(name))
    return max(_changed(os.path.abspath(path)) for path in paths)


def _changed(path: str) -> float:
    while True:
        try:
            return os.stat(path).st_ctime
        except OSError:
            if path == "/":
                raise
            path = os.path.dirname(path)
