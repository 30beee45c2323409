"""Acts on a report when a scheduler runs nhc before a job, after a job, and every few minutes.

The command line (`nhc.cli`) loads the configuration and runs the checks. A healthy prolog passes here without importing
anything that acts.

Nothing here raises: a broken nhc must never take a cluster down. An error is logged, left on the node as a comment, and
the exit status is 0.
"""

from __future__ import annotations

import os

from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Report, Verdict
from nhc.core.state.store import State
from nhc.hooks.job_environment import (
    EPILOG,
    HEALTHCHECK,
    NOTES,
    PROLOG,
    PROLOG_SLURMCTLD,
    context_of,
    job_devices,
    skipped,
)

if TYPE_CHECKING:
    from typing import Mapping, Optional


def after_report(
    context: str, report: Report, environ: Mapping[str, str], settings: Mapping[str, str], state: Optional[State] = None
) -> int:
    """Act on a report in a hook, and return the hook's exit status.

    `report.host` is the scheduler's name of the node (`node_name`).
    """
    context = context_of(context, environ)
    try:
        state = state or State()
        if context == HEALTHCHECK:
            status = _after_healthcheck(report, environ, settings, state)
        elif context in (PROLOG, PROLOG_SLURMCTLD):
            status = _after_prolog(context, report, environ, settings, state)
        elif context == EPILOG:
            from nhc.hooks.epilog import epilog

            status = epilog(report, environ, settings, state)
        else:
            return 0
        if report.verdict in (Verdict.UNKNOWN, Verdict.CRIT):
            from nhc.hooks.internal_error import lines_that_cannot_run, tell_useless_lines

            lines = lines_that_cannot_run(report)
            if lines:
                tell_useless_lines(context, report.host, lines, environ, settings, state)
                return status
        if context == HEALTHCHECK or (not status and context != PROLOG_SLURMCTLD):  # the controller judges other nodes
            _end_comment(context, report, environ, settings, state)
        return status
    except Exception as error:
        from nhc.hooks.internal_error import broken

        return broken(context, error, environ, settings, state)


def _after_healthcheck(report: Report, environ: Mapping[str, str], settings: Mapping[str, str], state: State) -> int:
    from nhc.hooks.healthcheck import healthcheck

    if "NHC_PROLOG_MAX_AGE" in settings:
        from nhc.hooks.recent import max_age, remember

        if max_age(PROLOG, settings) > 0:
            remember(state, HEALTHCHECK, report)
    return healthcheck(report, environ, settings, state)


def _end_comment(
    context: str, report: Report, environ: Mapping[str, str], settings: Mapping[str, str], state: State
) -> None:
    """After a hook has judged the node, remove the comment on nhc's own failure from the node."""
    if report.results and os.path.isdir(f"{state.directory}/{NOTES}/{report.host}"):
        from nhc.hooks.internal_error import works_again

        works_again(context, report.host, environ, settings, state)


def _after_prolog(
    context: str, report: Report, environ: Mapping[str, str], settings: Mapping[str, str], state: State
) -> int:
    devices, without = job_devices(environ), skipped(environ, settings)
    if devices is not None or without:
        from nhc.hooks.outcome import results_for_job

        report = results_for_job(report, devices, without)
    if report.verdict is Verdict.CRIT:
        from nhc.hooks.prolog import unhealthy

        return unhealthy(context, report, environ, settings, state)
    if report.verdict is Verdict.UNKNOWN:
        from nhc.hooks.log import warn
        from nhc.hooks.outcome import unknown_cause

        warn(f"{context}: could not tell whether {report.host} is healthy; the job starts{unknown_cause(report)}")
    return 0
