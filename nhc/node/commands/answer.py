"""The resident agent's answer to `nhc check local --max-age`: its report, if it is fresh and answers the same
question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from nhc.core.host import root_of
from nhc.core.model import Report
from nhc.core.state.reports import fresh, report_name

if TYPE_CHECKING:
    from nhc.core.command_line.options import CheckLocal
    from nhc.core.state.store import State


def of_agent(state: State, max_age: float, now: float, boot_id: str, args: CheckLocal) -> Optional[Report]:
    """The agent's report of this boot and node, at most `max_age` seconds old; None if there is none to use.

    The agent runs every check that is meant for it, also after a failure; `--check` and `--tag` select among its
    results. A report by another configuration, or for another context, is not used.
    """
    kept = state.load(report_name("agent"))
    if kept.get("config") != list(args.config) or kept.get("scripts", []) != list(args.scripts):
        return None
    if kept.get("root", "") != root_of(args.root):
        return None
    if args.context not in ("", "agent") or args.profile != kept.get("profile", "auto"):
        return None
    report = fresh(kept, max_age, now, boot_id)
    if report is None:
        return None
    if args.node and args.node != report.host:
        return None
    results = report.results
    if args.check:
        from fnmatch import fnmatchcase

        results = tuple(r for r in results if any(fnmatchcase(r.check, name) for name in args.check))
    if args.tag:
        wanted = set(args.tag)
        results = tuple(r for r in results if wanted & set(r.tags))
    if not results:
        return None
    return report._replace(
        results=results, notes=(*report.notes, f"the agent's report, {now - report.started:.0f} s old")
    )
