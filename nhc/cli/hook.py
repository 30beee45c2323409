"""What nhc-prolog and nhc-epilog share: load the hook's checks, run them, let `nhc.hooks` act on the report.

Whatever goes wrong with nhc itself, a configuration that cannot be read among it, is logged, left on the node
as a comment, and ends with status 0: the job starts, the node stays.
"""

from __future__ import annotations

import os
import sys

from nhc import hooks
from nhc.plan import Plan
from nhc.state import State
from nhc.values import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Dict, FrozenSet, Mapping, Optional, Sequence

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
        from nhc import lbnl

        settings, warnings = lbnl.resolve(words, environ, "nhc")
        if settings.get("HELP"):
            print(USAGE.format(hook=hook, title=hook.capitalize()), end="")
            return 0
        if "-c" not in words and not any(word.startswith("CONFFILE=") for word in words):
            own = f"{settings['CONFDIR']}/nhc-{hook}.conf"
            if os.path.exists(own):
                settings["CONFFILE"] = own
        return _run(hook, settings, environ, warnings)
    except Exception as error:
        return hooks.broken(hook, error, environ, settings)


def _run(hook: str, settings: Mapping[str, str], environ: Mapping[str, str], warnings: Sequence[str]) -> int:
    from nhc import config
    from nhc.hooks.recent import max_age
    from nhc.host import Host

    context = hooks.context_of(hook, environ)
    host = Host(settings=settings)
    hostname = host.read_or("/proc/sys/kernel/hostname") or "localhost"
    state = State()
    scripts = [settings["INCDIR"]] if os.path.isdir(settings["INCDIR"]) else []
    given = {key: value for key, value in settings.items() if key != "HELP"}
    target = hooks.target_name(environ, hostname)
    plan = config.load([settings["CONFFILE"]], target, given, scripts_dirs=scripts)
    everything = {**settings, **plan.settings}
    name = hooks.node_name(environ, everything, hostname)
    for warning in (*warnings, *plan.notes):
        _say(f"{hook}: {warning}")
    boot_id = host.read_or("/proc/sys/kernel/random/boot_id")
    age = max_age(hook, everything) if context == hooks.PROLOG else 0.0
    recent = hooks.fresh_report(state, name, age, host.time(), boot_id)
    if recent is not None:
        return hooks.after_report(hook, recent, environ, everything, state)
    plan = _for_context(plan, context, hooks.skipped(environ, everything))
    if not plan.items and context != hooks.EPILOG:
        return 0  # this hook has nothing to judge by
    devices = hooks.job_devices(environ)
    if devices is not None:
        host = host.with_settings({**settings, "NHC_JOB_DEVICES": devices})
    from nhc.engine import run
    from nhc.model import Report

    if plan.items:
        limit = hooks.deadline(context, everything)
        # The first failure decides, unless it may be one that does not concern this job.
        report = run(plan, host, state=state, check_all=devices is not None, deadline=limit, name=name)
    else:
        report = Report(name, boot_id, host.time(), 0.0, ())
    if age > 0 and devices is None:
        hooks.remember(state, hook, report)
    return hooks.after_report(hook, report, environ, everything, state)


def _for_context(plan: Plan, context: str, without: FrozenSet[str]) -> Plan:
    """The items of this hook. The controller's hooks run only what names them: the rest judges compute nodes."""
    on_controller = context.endswith("-slurmctld")
    items = tuple(
        item
        for item in plan.items
        if (context in item.contexts or (not item.contexts and not on_controller)) and item.name not in without
    )
    return plan._replace(items=items)


def _say(text: str) -> None:
    from nhc.hooks.log import warn

    warn(text)
