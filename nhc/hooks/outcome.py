"""A hook's result: its exit status, and which part of a report counts for its job."""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Report

if TYPE_CHECKING:
    from typing import FrozenSet, Optional

UNHEALTHY = 75
"""The prolog's exit status for an unhealthy node (sysexits.h: EX_TEMPFAIL, try again elsewhere).

Not 1, with which a Python that cannot start exits as well: the wrapper in adapters/slurm passes only this status to
Slurm, so that a damaged installation cannot drain a cluster.
"""


def unknown_cause(report: Report) -> str:
    """Which check was UNKNOWN and why, as the end of a line; "" for a report without results."""
    from nhc.core.model import Verdict, describe

    unsure = [result for result in report.results if result.verdict is Verdict.UNKNOWN]
    more = f" (and {len(unsure) - 1} more)" if len(unsure) > 1 else ""
    return f": {describe(unsure[0])}{more}" if unsure else ""


def results_for_job(report: Report, devices: Optional[str], without: FrozenSet[str] = frozenset()) -> Report:
    """The report for one job: without results for GPUs of others, and without skipped checks."""
    if devices is None and not without:
        return report
    from nhc.hooks.job_environment import concerns

    kept = tuple(
        result for result in report.results
        if result.check not in without and (devices is None or concerns(result.outcome.target, devices))
    )  # fmt: skip
    return report if len(kept) == len(report.results) else report._replace(results=kept)
