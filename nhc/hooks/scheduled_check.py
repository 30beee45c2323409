"""A scheduled check of the node as LBNL NHC does it: judge, print that program's messages, mark the node."""

from __future__ import annotations

import os

from nhc.core.exit_status import EXIT_UNKNOWN
from nhc.core.language import site_settings, trust
from nhc.core.language.site_settings import shows_output
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Report, Verdict, printable
from nhc.hooks.lbnl_output import LbnlOutput, lbnl_text

if TYPE_CHECKING:
    from typing import Dict, Mapping, Optional

    from nhc.core.host import Host
    from nhc.core.plan import Plan
    from nhc.core.state.store import State


def judge(settings: Dict[str, str], output: LbnlOutput) -> Optional[Report]:
    """Run the checks that the settings ask for; None if the configuration cannot be used.

    The variables of nhc.conf are added to `settings`, so that they count for marking as well.
    """
    from nhc.core.host import Host
    from nhc.core.language.problems import ConfigError
    from nhc.core.plan import UNLESS_NAMED
    from nhc.core.state.store import State
    from nhc.core.system.node_name import scheduler_name, target_name
    from nhc.hooks.job_environment import for_context
    from nhc.node.planning.local import node_plan
    from nhc.node.planning.profiles import NoProfile
    from nhc.node.run.engine import run

    state = State()
    host = Host(settings=settings, memory=state)
    hostname = host.read_or("/proc/sys/kernel/hostname") or "localhost"
    name = target_name(os.environ, settings, hostname)
    if name != hostname:
        settings["HOSTNAME"] = name  # a line's shell sees the name that targets are matched against
    scripts = [settings["INCDIR"]] if os.path.isdir(settings["INCDIR"]) else []
    given = {key: value for key, value in settings.items() if key != "HELP"}
    output.verbose("Node Health Check starting.")
    try:
        if "EVAL_LINE" in settings:
            from nhc.core.language.loader import load_check

            plan = load_check(settings["EVAL_LINE"], "-e", name, given, scripts_dirs=scripts)
        else:
            plan = node_plan(
                state, host, name, [settings["CONFFILE"]],
                scripts=scripts, settings=given, profile=UNLESS_NAMED, ask=True,
                trust=trust.rule(settings, hook="SLURMD_NODENAME" in os.environ, named=False),
            )  # fmt: skip
    except (ConfigError, NoProfile, OSError) as error:
        for line in str(error).splitlines():
            output.error(line)
        if "SLURMD_NODENAME" in os.environ:  # run by slurmd: no one reads the line above
            from nhc.hooks.internal_error import broken

            broken("healthcheck", error, os.environ, settings)
        return None
    settings.update(plan.settings)
    whole, plan = plan, for_context(plan, "healthcheck")
    if not whole.items and "EVAL_LINE" not in settings and "SLURMD_NODENAME" in os.environ:
        from nhc.hooks.internal_error import broken, require_a_line

        try:
            require_a_line(whole, settings, name)
        except ConfigError as error:  # run by slurmd: no one reads the log's line that nothing was checked
            broken("healthcheck", error, os.environ, settings)
    called = scheduler_name(os.environ, settings, hostname, host.read_or)
    check_all = settings["NHC_CHECK_ALL"] == "1"
    deadline = 0.0 if "EVAL_LINE" in settings else None
    report = run(plan, host, state=state, check_all=check_all, deadline=deadline, name=called, identify=True)
    if "NHC_PROLOG_MAX_AGE" in settings and "EVAL_LINE" not in settings:
        from nhc.hooks.recent import max_age
        from nhc.node.planning.cached_verdict import store_verdict

        store_verdict(state, whole, report, settings, max_age("prolog", settings), "healthcheck")
    if "NHC_HEALTHCHECK_MAX_AGE" in settings and "EVAL_LINE" not in settings:
        _keep_beside_the_agent(state, host, plan, report, settings)
    return report


def _keep_beside_the_agent(state: State, host: Host, plan: Plan, report: Report, settings: Mapping[str, str]) -> None:
    """Let the wrapper answer the next health checks with the agent's results, until the node's mark must be read again.

    Only if the agent judges every line of this plan, and the node is known to carry no mark of ours.
    """
    from nhc.core.state.reports import report_name
    from nhc.hooks.healthcheck import seconds_to_read
    from nhc.hooks.recent import fresh_report, max_age
    from nhc.node.planning.cached_verdict import store_healthcheck_verdict

    age, lines = max_age("healthcheck", settings), state.load(report_name("agent")).get("lines")
    agents = fresh_report(state, report.host, age, host.time(), report.boot_id, plan, settings, ("agent",))
    covered = lines if agents is not None and isinstance(lines, str) else ""
    store_healthcheck_verdict(state, plan, report, settings, seconds_to_read(report, settings, state), age, covered)


def log_and_mark(report: Report, settings: Mapping[str, str], output: LbnlOutput) -> int:
    """Log and print a report, mark the node, return the exit status."""
    for note in report.notes:
        output.log(f"WARNING:  {printable(note)}")
    for result in report.results:
        output.verbose(f'Running check:  "{printable(result.line)}"')
        if settings.get("TRACE") or settings["DEBUG"] == "1":
            output.trace(result)
        elif shows_output(settings):  # the original's log always holds what checks print
            for line in result.outcome.evidence:
                output.log(printable(line))
        if result.verdict in (Verdict.UNKNOWN, Verdict.WARN):
            output.log(f"WARNING:  {output.name}:  {result.verdict.name}:  {lbnl_text(result)}")
    if not report.results:
        output.log(f"WARNING:  {output.name}:  no line of the configuration is for {report.host}: nothing was checked")
    failures = report.failures()
    if watching(settings):
        output.mute_failures()  # Torque marks a node whose health check prints ERROR
    for result in failures:
        output.error(f"Health check failed:  {lbnl_text(result)}")
    if len(failures) > 1:
        output.error(f"{len(failures)} health checks failed.")
    if not failures:
        output.verbose(f"Node Health Check completed successfully ({report.elapsed:.0f}s).")
    if settings["MARK_OFFLINE"] == "1" and "EVAL_LINE" not in settings:
        _mark(report, settings, output)
    return exit_status(report, settings["NHC_CHECK_ALL"] == "1")


def watching(settings: Mapping[str, str]) -> bool:
    """Whether nothing may be done to the node, not even by a scheduler that reads our output or status."""
    from nhc.hooks.job_environment import watch_only

    return "EVAL_LINE" not in settings and watch_only(settings)


def exit_status(report: Report, check_all: bool) -> int:
    """The original's exit status, and 3, which it does not have: nothing failed, but something could not be told."""
    failures = report.failures()
    if failures:
        if failures[0].outcome.reason in ("CheckTimeout", "CheckStuck") and not check_all:
            return 142
        return min(len(failures), 125) if check_all else 1
    return EXIT_UNKNOWN if report.verdict is Verdict.UNKNOWN else 0


def _mark(report: Report, settings: Mapping[str, str], output: LbnlOutput) -> None:
    """Tell the resource manager: by the site's own helper programs if it names them, else by our adapter."""
    helper = settings.get("OFFLINE_NODE" if report.failures() else "ONLINE_NODE")
    if helper is None:
        from nhc.hooks.after_report import after_report

        after_report("healthcheck", report, os.environ, settings)
        return
    if report.verdict is Verdict.UNKNOWN:
        return  # could not tell: the node stays as it is
    from nhc.core.host import Host
    from nhc.core.resource_manager import lbnl_name, resource_manager

    seen = Host(settings=settings)
    environment = {**settings, "NHC_RM": settings.get("NHC_RM") or lbnl_name(resource_manager(seen))}
    # The original hands the message to the helper through `eval`; an argument cannot be misread.
    argv = [*helper.split(), helpers_name(report.host, settings)]
    argv += [lbnl_text(report.failures()[0])] if report.failures() else []
    if watching(settings):
        from nhc.hooks.log import warn

        if report.failures():
            warn(f"watch only: otherwise this would be run: {' '.join(argv)}")
        return
    try:
        ended = seen.with_settings(environment).run(argv, timeout=20.0)
        for line in (ended.stdout + ended.stderr).splitlines():
            output.log(line)
    except OSError as error:
        output.error(f"{argv[0]} cannot be run: {error.strerror}")


def helpers_name(node: str, settings: Mapping[str, str]) -> str:
    """The node's name for a helper program: $HOSTNAME, unless the scheduler has another name."""
    name = settings.get("HOSTNAME") or site_settings.host_names()["HOSTNAME"]
    return name if node == name.partition(".")[0] else node
