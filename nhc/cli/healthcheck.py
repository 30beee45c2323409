"""`nhc-healthcheck`: what a scheduler runs every few minutes, and a stand-in for LBNL NHC's `nhc`.

It takes that program's command line, environment and sysconfig file, prints and logs what that program
does, and marks the node through `nhc.hooks`. Exit status: 0 healthy, N failures with -a, else 1; 142 where
a deadline passed; 3 where something could not be told; 2 where the configuration cannot be used; 10 for a
wrong command line.
"""

from __future__ import annotations

import gc
import os
import sys

from nhc.exit_status import EXIT_UNKNOWN, EXIT_USAGE
from nhc.hooks.lbnl_output import LbnlOutput, lbnl_text
from nhc.language import lbnl_settings, site_settings
from nhc.light import TYPE_CHECKING
from nhc.model import Report, Verdict, printable
from nhc.plan import Plan
from nhc.run.call_check import shows_output

if TYPE_CHECKING:
    from typing import Callable, Dict, List, Mapping, Optional, Sequence

    from typing_extensions import TypeAlias

USAGE = """\
Usage: nhc-healthcheck [options] [VAR=value ...]

  -a            run all checks; do not stop at the first failure
  -c FILE       configuration (default: CONFDIR/NAME.conf)
  -d            print debugging output
  -D DIR        configuration directory (default: /etc/nhc)
  -e CHECK      evaluate this one check line and exit; nothing is marked
  -f            accepted for compatibility: checks always run in processes of their own
  -h            show this help
  -l LOGSPEC    log file, - for standard output (default: /var/log/NAME.log)
  -n NAME       name, which the default file names are made of (default: nhc)
  -q            print nothing
  -t SECONDS    deadline of the whole run, 0 for none (default: 30)
  -v            say what is being done
  -x            trace: print every result with its evidence
"""

Say: TypeAlias = "Callable[[str], None]"


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Entry point of the nhc-healthcheck executable."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        settings, warnings = lbnl_settings.resolve(words, os.environ, _program())
    except lbnl_settings.BadCommandLine as error:
        print(f"{USAGE}\nnhc:  ERROR:  {error}", file=sys.stderr)
        return 10
    if settings.get("HELP"):
        print(USAGE, end="")
        return 0
    try:
        return _run(settings, warnings)
    except Exception as error:
        if "SLURMD_NODENAME" not in os.environ:
            raise
        from nhc.hooks.internal_error import broken  # run by slurmd: nobody reads what is printed

        broken("healthcheck", error, os.environ, settings)
        return EXIT_UNKNOWN


def _run(settings: Dict[str, str], warnings: Sequence[str]) -> int:
    if settings.get("NHC_RM") and "EVAL_LINE" not in settings:
        from nhc.facts.resource_manager import adapter_name

        if adapter_name(settings["NHC_RM"]) == "sge":
            return _load_sensor(settings, warnings)
    if settings["DETACHED_MODE"] == "1" and "EVAL_LINE" not in settings:
        return _detached(settings, warnings)
    return _once(settings, warnings)


def _program() -> str:
    name = os.path.basename(sys.argv[0])
    return "nhc" if name in ("nhc-healthcheck", "nhc-healthcheck.pyz", "__main__.py", "-c", "") else name


def _once(settings: Dict[str, str], warnings: Sequence[str]) -> int:
    """One run, with the output of the original."""
    output = LbnlOutput(settings)
    for warning in warnings:
        output.log(f"WARNING:  {warning}")
    report = judge(settings, output)
    if report is None:
        return EXIT_USAGE
    status = _tell(report, settings, output)
    return 0 if _watching(settings) and report.results else status


def judge(settings: Dict[str, str], output: LbnlOutput) -> Optional[Report]:
    """Run the checks that the settings ask for; None where the configuration cannot be used.

    What nhc.conf sets is added to `settings`, so that it counts for marking as well.
    """
    from nhc.hooks.job_environment import node_name, target_name
    from nhc.host import Host
    from nhc.language.problems import ConfigError
    from nhc.planning.node_plan import node_plan
    from nhc.planning.profiles import UNLESS_NAMED, NoProfile
    from nhc.run.engine import run
    from nhc.state.store import State

    state = State()
    host = Host(settings=settings, memory=state)
    hostname = host.read_or("/proc/sys/kernel/hostname") or "localhost"
    name = settings.get("HOSTNAME") or target_name(os.environ, hostname)
    scripts = [settings["INCDIR"]] if os.path.isdir(settings["INCDIR"]) else []
    given = {key: value for key, value in settings.items() if key != "HELP"}
    output.verbose("Node Health Check starting.")
    try:
        if "EVAL_LINE" in settings:
            from nhc.language.loader import load_check

            plan = load_check(settings["EVAL_LINE"], "-e", name, given, scripts_dirs=scripts)
        else:
            plan = node_plan(
                state, host, name, [settings["CONFFILE"]],
                scripts=scripts, settings=given, profile=UNLESS_NAMED, ask=True,
            )  # fmt: skip
    except (ConfigError, NoProfile, OSError) as error:
        for line in str(error).splitlines():
            output.error(line)
        if "SLURMD_NODENAME" in os.environ:  # run by slurmd: nobody reads the line above
            from nhc.hooks.internal_error import broken

            broken("healthcheck", error, os.environ, settings)
        return None
    settings.update(plan.settings)
    whole, plan = plan, _for_context(plan, "healthcheck")
    called = node_name(os.environ, settings, name)
    check_all = settings["NHC_CHECK_ALL"] == "1"
    deadline = 0.0 if "EVAL_LINE" in settings else None
    report = run(plan, host, state=state, check_all=check_all, deadline=deadline, name=called)
    if "NHC_PROLOG_MAX_AGE" in settings and "EVAL_LINE" not in settings:
        from nhc.hooks.recent import max_age
        from nhc.planning.kept_verdict import keep

        keep(state, whole, report, settings, max_age("prolog", settings), "healthcheck")
    return report


def _for_context(plan: Plan, context: str) -> Plan:
    return plan._replace(items=tuple(item for item in plan.items if not item.contexts or context in item.contexts))


def _tell(report: Report, settings: Mapping[str, str], output: LbnlOutput) -> int:
    """Log and print a report, mark the node, return the exit status."""
    for note in report.notes:
        output.log(f"WARNING:  {printable(note)}")
    for result in report.results:
        output.verbose(f'Running check:  "{printable(result.line)}"')
        if settings.get("TRACE") or settings["DEBUG"] == "1":
            output.trace(result)
        elif shows_output(settings):  # the original's log holds what checks print, always
            for line in result.outcome.evidence:
                output.log(printable(line))
        if result.verdict in (Verdict.UNKNOWN, Verdict.WARN):
            output.log(f"WARNING:  {output.name}:  {result.verdict.name}:  {lbnl_text(result)}")
    if not report.results:
        output.log(f"WARNING:  {output.name}:  no line of the configuration is for {report.host}: nothing was checked")
    failures = report.failures()
    if _watching(settings):
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


def _watching(settings: Mapping[str, str]) -> bool:
    """Whether nothing is to be done to the node, not even by a scheduler that reads our output or status."""
    from nhc.hooks.job_environment import watch_only

    return "EVAL_LINE" not in settings and watch_only(settings)


def exit_status(report: Report, check_all: bool) -> int:
    """The original's exit status, with 3 for what it does not know: nothing failed, something could not be told."""
    failures = report.failures()
    if failures:
        if failures[0].outcome.reason in ("CheckTimeout", "CheckStuck") and not check_all:
            return 142
        return min(len(failures), 125) if check_all else 1
    return EXIT_UNKNOWN if report.verdict is Verdict.UNKNOWN else 0


def _mark(report: Report, settings: Mapping[str, str], output: LbnlOutput) -> None:
    """Tell the resource manager: by the site's own helper programs where it names them, else by our adapter."""
    helper = settings.get("OFFLINE_NODE" if report.failures() else "ONLINE_NODE")
    if helper is None:
        from nhc.hooks.after_report import after_report

        after_report("healthcheck", report, os.environ, settings)
        return
    if report.verdict is Verdict.UNKNOWN:
        return  # could not tell: the node stays as it is
    from nhc.facts.resource_manager import lbnl_name, resource_manager
    from nhc.host import Host

    seen = Host(settings=settings)
    environment = {**settings, "NHC_RM": settings.get("NHC_RM") or lbnl_name(resource_manager(seen))}
    # The original hands the message to the helper through `eval`; an argument cannot be misread.
    argv = [*helper.split(), _helpers_name(report.host, settings)]
    argv += [lbnl_text(report.failures()[0])] if report.failures() else []
    if _watching(settings):
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


def _helpers_name(node: str, settings: Mapping[str, str]) -> str:
    """What a helper program is told the node is called: $HOSTNAME as ever, unless the scheduler has another name."""
    name = settings.get("HOSTNAME") or site_settings.host_names()["HOSTNAME"]
    return name if node == name.partition(".")[0] else node


def _detached(settings: Dict[str, str], warnings: Sequence[str]) -> int:
    """DETACHED_MODE: return the last run's verdict at once and run the checks behind the caller's back.

    Unlike the original, a healthy run writes its result too (there, DETACHED_MODE_FAIL_NODATA fails every
    healthy node) and the detached run keeps the command line.
    """
    from nhc.render.json import from_dict, to_dict
    from nhc.state.store import State
    from nhc.system.children import fork

    kept = State().load("detached")
    try:
        report: Optional[Report] = from_dict(kept["report"])
    except (KeyError, ValueError):
        report = None
    if report is not None and report.boot_id != _boot_id():
        report = None

    def child() -> None:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        output = LbnlOutput(settings)
        for warning in warnings:
            output.log(f"WARNING:  {warning}")
        found = judge(settings, output)
        if found is not None:
            _tell(found, settings, output)
            State().save("detached", {"report": to_dict(found)})
            from nhc.system.children import reap_all

            reap_all()

    try:
        fork(child, pipes=0)
    except OSError as error:
        LbnlOutput(settings).error(f"no process can be started for the checks: {error.strerror}")
        return EXIT_UNKNOWN
    if report is None:
        if settings.get("DETACHED_MODE_FAIL_NODATA") == "1" and not _watching(settings):
            print("ERROR Health check failed:  Detached mode -- pending checks (no data found)")
            return 1
        return 0
    if _watching(settings):
        return 0
    if report.failures():
        print(f"ERROR Health check failed:  {lbnl_text(report.failures()[0])}")
    return exit_status(report, settings["NHC_CHECK_ALL"] == "1")


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _load_sensor(settings: Dict[str, str], warnings: Sequence[str]) -> int:
    """Grid Engine's load sensor protocol: a report for every line on standard input, until `quit` or its end."""
    output = LbnlOutput(settings)
    for warning in warnings:
        output.log(f"WARNING:  {warning}")
    gc.enable()  # a load sensor stays: `nhc.cli.main.entry` takes us for a run that is over in a moment
    for line in sys.stdin:
        if line.strip() == "quit":
            break
        report = judge(settings, output)
        name = _helpers_name(report.host, settings) if report else ""
        for said in load_values(report, name, _watching(settings)):
            print(said, flush=True)
    return 0


def load_values(report: Optional[Report], name: str, watching: bool = False) -> List[str]:
    """A report as the load values `healthy` and `diagnosis`. An UNKNOWN leaves the node in service, watching too."""
    if report is None:
        return ["begin", "end"]
    failures = report.failures()
    diagnosis = f"NHC: {lbnl_text(failures[0])}" if failures else "HEALTHY"
    if failures and watching:
        diagnosis = f"NHC watch only: {lbnl_text(failures[0])}"
    healthy = "false" if failures and not watching else "true"
    return ["begin", f"{name}:healthy:{healthy}", f"{name}:diagnosis:{diagnosis}", "end"]
