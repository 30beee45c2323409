"""What nhc-prolog and nhc-epilog share: load the hook's checks, run them, let `nhc.hooks` act on the report.

Whatever goes wrong with nhc itself, a configuration that cannot be read among it, is logged, left on the node
as a comment, and ends with status 0: the job starts, the node stays.
"""

from __future__ import annotations

import os
import sys

from nhc.hooks.after_report import after_report
from nhc.hooks.job_environment import (
    EPILOG,
    PROLOG,
    BadArgument,
    context_of,
    deadline,
    job_devices,
    job_size,
    node_name,
    skipped,
    target_name,
)
from nhc.language import site_settings
from nhc.light import TYPE_CHECKING
from nhc.model import Report, Verdict
from nhc.state.store import State

if TYPE_CHECKING:
    from typing import Any, Dict, FrozenSet, List, Mapping, Optional, Sequence

    from nhc.plan import Plan

USAGE = """\
Usage: nhc-{hook} [-c FILE] [-D DIR] [-t SECONDS] [VAR=value ...]

Slurm's {title}: judge the node by the checks whose context is {hook}, and act on the result.

  -c FILE       configuration (default: DIR/nhc-{hook}.conf where there is one, else DIR/nhc.conf)
  -D DIR        configuration directory (default: /etc/nhc)
  -t SECONDS    deadline of the checks
  -h            show this help

Settings come from /etc/default/nhc or /etc/sysconfig/nhc, and from the configuration: see docs/slurm.md.
Exit status: 0, or 75 where the job must not start here (epilog: where Slurm must drain the node).
"""


def main(hook: str, argv: Optional[Sequence[str]] = None) -> int:
    """Run one hook; its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    environ: Mapping[str, str] = os.environ
    settings: Dict[str, str] = {}
    try:
        settings = resolve(hook, words)
        if "HELP" in settings:
            print(USAGE.format(hook=hook, title=hook.capitalize()), end="")
            return 0
        return _run(hook, settings, environ)
    except Exception as error:
        from nhc.hooks.internal_error import broken

        return broken(hook, error, environ, settings)


def resolve(hook: str, words: List[str]) -> Dict[str, str]:
    """The settings in force before the configuration is read: the command line's, then the sysconfig file's.

    Raises BadArgument for a word that is not understood.
    """
    settings = {"NAME": "nhc", "CONFDIR": "/etc/nhc", "MARK_OFFLINE": "1"}
    words = list(words)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if word in ("-h", "--help"):
            settings["HELP"] = "1"
        elif word[:2] in ("-c", "-D", "-t"):
            if not word[2:] and not words:
                raise BadArgument(f"option {word} needs a value")
            settings[{"-c": "CONFFILE", "-D": "CONFDIR", "-t": f"NHC_{hook.upper()}_TIMEOUT"}[word[:2]]] = word[
                2:
            ] or words.pop(0)
        elif equals and name.isidentifier():
            settings[name] = value
        else:
            raise BadArgument(f"{word!r} is not an option of nhc-{hook}")
    path = site_settings.path_of()
    if path:
        settings.update(site_settings.read(path, settings))
    directory = settings["CONFDIR"]
    if "CONFFILE" not in settings:
        own = f"{directory}/nhc-{hook}.conf"
        settings["CONFFILE"] = own if os.path.exists(own) else f"{directory}/nhc.conf"
    settings.setdefault("INCDIR", f"{directory}/scripts")
    return settings


def _run(hook: str, settings: Dict[str, str], environ: Mapping[str, str]) -> int:
    from nhc.host import Host
    from nhc.planning.node_plan import node_plan
    from nhc.planning.profiles import NONE, UNLESS_NAMED

    context = context_of(hook, environ)
    state = State()
    host = Host(settings=settings, memory=state)
    hostname = host.read_or("/proc/sys/kernel/hostname") or "localhost"
    target = target_name(environ, hostname)

    # What drains nodes without being watched runs what the site wrote, and a profile where that names one. The
    # controller's machine is none of the nodes its hooks judge.
    profile = NONE if context.endswith("-slurmctld") else UNLESS_NAMED
    plan = node_plan(
        state, host, target, [settings["CONFFILE"]],
        scripts=[settings["INCDIR"]], settings=settings, profile=profile,
    )  # fmt: skip
    everything = {**settings, **plan.settings}
    name = node_name(environ, everything, hostname)
    if plan.notes:
        from nhc.hooks.log import warn

        for note in plan.notes:
            warn(f"{hook}: {note}")
    boot_id = host.read_or("/proc/sys/kernel/random/boot_id")
    age = 0.0
    whole = plan
    plan = _for_context(plan, context, skipped(environ, everything))
    if context == PROLOG and "NHC_PROLOG_MAX_AGE" in everything:
        from nhc.hooks.recent import fresh_report, max_age

        age = max_age(hook, everything)
        recent = fresh_report(state, name, age, host.time(), boot_id, plan, everything)
        if recent is not None:
            return after_report(hook, recent, environ, everything, state)
    if not plan.items and context != EPILOG:
        return 0  # this hook has nothing to judge by
    devices = job_devices(environ)
    report = _judge(plan, host, state, name, boot_id, devices, deadline(context, everything))
    if context == PROLOG and "NHC_PROLOG_SUITE" in everything:
        from nhc.hooks.prejob import with_suite

        report = with_suite(report, everything, environ)
    if age > 0 and devices is None:
        from nhc.hooks.recent import remember

        remember(state, hook, report)
        if not skipped(environ, everything):
            from nhc.planning.kept_verdict import keep

            keep(state, whole, report, everything, age, context)
    elif age > 0 and report.verdict is not Verdict.OK:
        from nhc.planning.kept_verdict import forget

        forget(state)
    return after_report(hook, report, environ, everything, state)


def _judge(
    plan: Plan, host: Any, state: State, name: str, boot_id: str, devices: Optional[str], limit: float
) -> Report:
    if not plan.items:
        return Report(name, boot_id, host.time(), 0.0, ())
    from nhc.run.engine import run

    size = job_size(os.environ)
    if size:  # check_gate -a asks
        sized = tuple(item._replace(settings={**item.settings, "NHC_JOB_NODES": size}) for item in plan.items)
        plan = plan._replace(items=sized)
    if devices is not None:  # the GPU checks judge these alone
        ours = tuple(item._replace(settings={**item.settings, "NHC_DEVICES": devices}) for item in plan.items)
        plan = plan._replace(items=ours)
    # The first failure decides, unless it may be one that does not concern this job.
    return run(plan, host, state=state, check_all=devices is not None, deadline=limit, name=name)


def _for_context(plan: Plan, context: str, without: FrozenSet[str]) -> Plan:
    """The items of this hook. The controller's hooks run only what names them: the rest judges compute nodes."""
    on_controller = context.endswith("-slurmctld")
    items = tuple(
        item
        for item in plan.items
        if (context in item.contexts or (not item.contexts and not on_controller)) and item.name not in without
    )
    return plan._replace(items=items)
