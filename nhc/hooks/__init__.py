"""Scheduler hooks: what nhc does when a scheduler runs it before a job, after one, and every few minutes.

The command line (`nhc.cli`) loads the configuration and runs the checks; this package knows what the
scheduler said, whether a recent report will do, and what is to follow from a report. A healthy prolog gets
through here without importing anything that acts.

Nothing here raises: a broken nhc must never take a cluster down. What goes wrong is logged, left on the
node as a comment, and answered with exit status 0.
"""

from __future__ import annotations

from nhc.hooks.job_environment import (
    EPILOG,
    EPILOG_SLURMCTLD,
    HEALTHCHECK,
    PROLOG,
    PROLOG_SLURMCTLD,
    context_of,
    job_devices,
    node_name,
    target_name,
)
from nhc.hooks.recent import fresh_report, remember
from nhc.light import TYPE_CHECKING
from nhc.model import Report, Verdict
from nhc.state.store import State

if TYPE_CHECKING:
    from typing import FrozenSet, Mapping, Optional

    __all__ = [
        "EPILOG",
        "EPILOG_SLURMCTLD",
        "HEALTHCHECK",
        "PROLOG",
        "PROLOG_SLURMCTLD",
        "UNHEALTHY",
        "Report",
        "Verdict",
        "after_report",
        "broken",
        "context_of",
        "deadline",
        "fresh_report",
        "job_devices",
        "node_name",
        "only_relevant",
        "remember",
        "skipped",
        "target_name",
        "watch_only",
    ]

UNHEALTHY = 75
"""The prolog's exit status for an unhealthy node (sysexits.h: EX_TEMPFAIL, try again elsewhere).

Not 1, which a Python that cannot start exits with as well: the wrapper in adapters/slurm lets this status
alone reach Slurm, so that a damaged installation cannot drain a cluster.
"""

DEADLINES = {HEALTHCHECK: 35.0, PROLOG: 20.0, EPILOG: 30.0, PROLOG_SLURMCTLD: 20.0, EPILOG_SLURMCTLD: 20.0}
"""Seconds a hook's checks may take. slurmd kills a HealthCheckProgram after 60 s; marking comes after the checks."""


def deadline(context: str, settings: Mapping[str, str]) -> float:
    """The checks' deadline in this hook: `NHC_PROLOG_TIMEOUT` and so on, else ours, or TIMEOUT where it is shorter."""
    own = DEADLINES.get(context, 30.0)
    for name in (f"NHC_{context.upper().replace('-', '_')}_TIMEOUT", "TIMEOUT"):
        try:
            asked = float(settings.get(name, ""))
        except ValueError:
            continue
        if asked > 0:
            return asked if name != "TIMEOUT" else min(asked, own)
    return own


def watch_only(settings: Mapping[str, str]) -> bool:
    """Whether the site asks that hooks change nothing and only log what they would do (NHC_WATCH_ONLY=1)."""
    return settings.get("NHC_WATCH_ONLY", "0").strip().lower() not in ("", "0", "no", "off", "false")


def skipped(environ: Mapping[str, str], settings: Mapping[str, str]) -> FrozenSet[str]:
    """The checks that this job's user may have left out, and asked to: `sbatch --comment=nhc-skip=check_a,check_b`.

    The administrator names them in NHC_USER_SKIP; without that a comment skips nothing.
    """
    allowed = set(settings.get("NHC_USER_SKIP", "").replace(",", " ").split())
    if not allowed:
        return frozenset()
    asked = [word[9:] for word in environ.get("SLURM_JOB_COMMENT", "").split() if word.startswith("nhc-skip=")]
    return frozenset(allowed & {name for word in asked for name in word.split(",")})


def only_relevant(report: Report, devices: Optional[str], without: FrozenSet[str] = frozenset()) -> Report:
    """The report as it concerns one job: without results for GPUs that are not the job's, and skipped checks."""
    if devices is None and not without:
        return report
    from nhc.hooks.job_environment import concerns

    kept = tuple(
        result for result in report.results
        if result.check not in without and (devices is None or concerns(result.outcome.target, devices))
    )  # fmt: skip
    return report if len(kept) == len(report.results) else report._replace(results=kept)


def after_report(
    context: str,
    report: Report,
    environ: Mapping[str, str],
    settings: Mapping[str, str],
    state: Optional[State] = None,
) -> int:
    """Do what a report calls for in a hook, and return the hook's exit status.

    `report.host` is what the scheduler calls the node (`node_name`).
    """
    context = context_of(context, environ)
    try:
        state = state or State()
        if context == HEALTHCHECK:
            from nhc.hooks.healthcheck import healthcheck
            from nhc.hooks.recent import max_age

            if max_age(PROLOG, settings) > 0:
                remember(state, HEALTHCHECK, report)
            status = healthcheck(report, environ, settings, state)
            if state.load("internal-error"):
                from nhc.hooks.log import works_again

                works_again(environ, settings, state)
            return status
        if context in (PROLOG, PROLOG_SLURMCTLD):
            report = only_relevant(report, job_devices(environ), skipped(environ, settings))
            if report.verdict is not Verdict.CRIT:
                if report.verdict is Verdict.UNKNOWN:
                    from nhc.hooks.log import warn

                    warn(f"{context}: could not tell whether {report.host} is healthy; the job starts")
                return 0
            from nhc.hooks.prolog import unhealthy

            return unhealthy(context, report, environ, settings, state)
        if context == EPILOG:
            from nhc.hooks.epilog import epilog

            return epilog(report, environ, settings, state)
        return 0
    except Exception as error:
        return broken(context, error, environ, settings, state)


class BadArgument(ValueError):
    """A hook was called with a word that it does not know. One line."""


def broken(
    context: str,
    error: BaseException,
    environ: Mapping[str, str],
    settings: Mapping[str, str],
    state: Optional[State] = None,
) -> int:
    """Say where the fleet can see it that nhc itself is broken here. Returns 0: the job starts, the node stays."""
    try:
        from nhc.hooks.log import internal_error
        from nhc.planning.kept_verdict import forget

        forget(state or State())
        internal_error(context, error, environ, settings, state or State())
    except Exception as second:  # the last resort
        import sys

        print(f"nhc: {context}: {type(error).__name__}: {error}; then {second!r}", file=sys.stderr)
    return 0
