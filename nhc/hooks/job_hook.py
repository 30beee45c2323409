"""A hook at a job's start or end: load the hook's checks, run them, act on the report."""

from __future__ import annotations

import os

from nhc.core.language import trust
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Report, Verdict
from nhc.core.state.store import State
from nhc.core.system.node_name import scheduler_name, target_name
from nhc.hooks.after_report import after_report
from nhc.hooks.job_environment import (
    EPILOG,
    PROLOG,
    context_of,
    deadline,
    for_context,
    job_devices,
    job_size,
    skipped,
)

if TYPE_CHECKING:
    from typing import Any, Dict, Mapping, Optional

    from nhc.core.plan import Plan


def run(hook: str, settings: Dict[str, str], environ: Mapping[str, str]) -> int:
    """Run one hook; its exit status."""
    from nhc.core.host import Host
    from nhc.core.plan import NONE, UNLESS_NAMED
    from nhc.node.planning.local import node_plan

    context = context_of(hook, environ)
    state = State()
    host = Host(settings=settings, memory=state)
    hostname = host.read_or("/proc/sys/kernel/hostname") or "localhost"
    target = target_name(environ, settings, hostname)
    if target != hostname:
        settings["HOSTNAME"] = target  # a line's shell sees the name that targets are matched against

    # A hook drains nodes unattended, so it runs only what the site wrote, and a profile if the site names one. The
    # controller's machine is not one of the nodes that its hooks judge.
    profile = NONE if context.endswith("-slurmctld") else UNLESS_NAMED
    plan = node_plan(
        state, host, target, [settings["CONFFILE"]],
        scripts=[settings["INCDIR"]], settings=settings, profile=profile,
        trust=trust.rule(settings, hook=True, named=False),
    )  # fmt: skip
    everything = {**settings, **plan.settings}
    name = scheduler_name(environ, everything, hostname, host.read_or)
    if plan.notes:
        from nhc.hooks.log import warn

        for note in plan.notes:
            warn(f"{hook}: {note}")
    boot_id = host.boot_id()
    age = 0.0
    whole = plan
    plan = for_context(plan, context, skipped(environ, everything))
    if context == PROLOG and "NHC_PROLOG_MAX_AGE" in everything:
        from nhc.hooks.recent import fresh_report, max_age

        age = max_age(hook, everything)
        recent = fresh_report(state, name, age, host.time(), boot_id, plan, everything)
        if recent is not None:
            return after_report(hook, recent, environ, everything, state)
    if not plan.items and context != EPILOG:
        if not whole.items and context == PROLOG:
            from nhc.hooks.internal_error import require_a_line

            require_a_line(whole, everything, target)
        return 0  # this hook has no checks
    devices = job_devices(environ)
    report = _judge(plan, host, state, name, boot_id, devices, deadline(context, everything))
    if age > 0 or report.verdict is not Verdict.OK:  # a healthy node's is not read, and may cost a request
        from nhc.node.facts import machine_identity

        report = report._replace(labels=machine_identity.labels(host))
    if context == PROLOG and "NHC_PROLOG_SUITE" in everything:
        from nhc.hooks.prejob import with_suite

        report = with_suite(report, everything, environ, state)
    if age > 0 and devices is None:
        from nhc.hooks.recent import remember

        remember(state, hook, report)
        if not skipped(environ, everything):
            from nhc.node.planning.cached_verdict import store_verdict

            store_verdict(state, whole, report, everything, age, context)
    elif age > 0 and report.verdict is not Verdict.OK:
        from nhc.node.planning.cached_verdict import drop_verdict

        drop_verdict(state)
    return after_report(hook, report, environ, everything, state)


def _judge(
    plan: Plan, host: Any, state: State, name: str, boot_id: str, devices: Optional[str], limit: float
) -> Report:
    if not plan.items:
        return Report(name, boot_id, host.time(), 0.0, ())
    from nhc.node.run.engine import run as run_plan

    size = job_size(os.environ)
    about_job = {"NHC_JOB_NODES": size} if size else {}  # check_gate -a asks
    if devices is not None:  # the GPU checks judge only these
        about_job["NHC_DEVICES"] = devices
    if about_job:
        plan = plan._replace(items=tuple(item._replace(settings={**item.settings, **about_job}) for item in plan.items))
    # The first failure decides, unless it might not concern this job.
    return run_plan(plan, host, state=state, check_all=devices is not None, deadline=limit, name=name)
