"""A short suite before a job: `NHC_PROLOG_SUITE`, within a budget that a prolog can afford.

It runs after the prolog's own checks, and only if they passed. If a suite did not end within its budget, or could not
begin beside another job on the machine, its result is unknown: `NHC_PROLOG_SUITE_UNKNOWN` says whether the job starts.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING
from nhc.core.model import CheckResult, Report, Verdict, crit, describe, printable, unknown

if TYPE_CHECKING:
    from typing import Mapping

    from nhc.core.state.store import State

SUITE, BUDGET, UNTOLD = "NHC_PROLOG_SUITE", "NHC_PROLOG_SUITE_TIME", "NHC_PROLOG_SUITE_UNKNOWN"
USUAL = "15s"
MOST = 60.0
"""Longest budget in seconds: the wrapper's own limit and Slurm's PrologEpilogTimeout are longer."""
ENDING = 10.0
"""Seconds that the suite gets to end its tools and restore settings after its budget has ended."""
ITSELF = "nhc_prolog_suite"
"""The name under which results about the suite itself are filed."""
KEPT = ("HOME", "LD_LIBRARY_PATH")


def with_suite(report: Report, settings: Mapping[str, str], environ: Mapping[str, str], state: State) -> Report:
    """The report with the results of the suite that the settings name; the report itself if they name none.

    The suite's results stay in `state`, for the agent.
    """
    suite = settings.get(SUITE, "")
    if not suite or report.verdict in (Verdict.CRIT, Verdict.UNKNOWN):
        return report
    return report._replace(results=(*report.results, *suite_results(suite, report.host, settings, environ, state)))


def suite_results(
    suite: str, node: str, settings: Mapping[str, str], environ: Mapping[str, str], state: State
) -> tuple[CheckResult, ...]:
    """The suite's results for this node, and a PrejobUntold, CRIT if it could not tell and must not admit."""
    results = _run(suite, node, settings, environ, state)
    unsure = [result for result in results if result.verdict is Verdict.UNKNOWN]
    bad = any(result.verdict is Verdict.CRIT for result in results)
    if unsure and not bad and settings.get(UNTOLD, "admit") == "refuse":
        message = printable(describe(unsure[0]), 300)
        results = (*results, CheckResult(ITSELF, crit("PrejobUntold", f"the suite {suite} could not tell: {message}")))
    return results


def _run(
    suite: str, node: str, settings: Mapping[str, str], environ: Mapping[str, str], state: State
) -> tuple[CheckResult, ...]:
    from nhc.core.render.json import parse
    from nhc.core.state import reports
    from nhc.core.system import process
    from nhc.core.system.process import own_command
    from nhc.core.units import seconds

    def itself(why: str) -> tuple[CheckResult, ...]:
        return (CheckResult(ITSELF, unknown("PrejobNotRun", printable(f"suite {suite}: {why}", 400))),)

    try:
        budget = seconds(settings.get(BUDGET, "") or USUAL)
    except ValueError as error:
        return itself(f"{BUDGET}: {error}")
    if not 0 < budget <= MOST:
        return itself(f"{BUDGET}={settings[BUDGET]}: more than 0 and at most {MOST:g} seconds")
    if settings.get(UNTOLD, "admit") not in ("admit", "refuse"):
        return itself(f"{UNTOLD}={settings[UNTOLD]} is neither admit nor refuse")
    beside = _beside(node, settings, environ)
    if beside:
        return itself(beside)
    argv = ["deep", "run", suite, "-n", node, "--adapter", "none", "-f", "json", "-q", "--timeout", f"{budget:g}s"]
    env = {name: value for name, value in environ.items() if name in KEPT or name.startswith("NHC_")}
    process.give_time_to_end(ENDING)
    try:
        done = process.run(own_command(argv), timeout=budget + ENDING, env={"PATH": process.PATH, **env})
    except OSError as error:
        return itself(f"it cannot be started: {error.strerror}")
    finally:
        process.give_time_to_end(process.GRACE)
    if done.timed_out:
        return itself(f"it did not end within {budget:g} s")
    try:
        report = parse(done.stdout)
    except ValueError:
        complaints = [line for line in done.stderr.splitlines() if line.strip()]
        return itself(complaints[-1] if complaints else f"it ended with status {done.status} and no report")
    if report.host != node or report.labels.get("suite") != suite or not report.results:
        return itself("its report is of another run, or judged nothing")
    reports.store_suite(state, done.stdout)
    return report.results


def _beside(node: str, settings: Mapping[str, str], environ: Mapping[str, str]) -> str:
    """Why the suite must not run: other jobs are on this machine, also under another node name of it. Else ""."""
    from nhc.hooks.marking import scheduler
    from nhc.marks.ports.adapter import AdapterError, OtherJobs

    job = environ.get("SLURM_JOB_ID", "")
    adapter: object = scheduler(environ, settings) if job else None
    if not isinstance(adapter, OtherJobs):
        return ""
    try:
        others = adapter.other_jobs(node, "", job)
    except AdapterError as error:
        return f"whether other jobs are here cannot be told: {error}"
    return f"job {others[0]} is on this machine" if others else ""
