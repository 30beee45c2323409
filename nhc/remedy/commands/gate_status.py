"""`nhc status gate` and `nhc doctor gate`: the state of a gate, and what would prevent it from ending."""

from __future__ import annotations

import os
from typing import List

import click

from nhc.core.command_line import options
from nhc.core.command_line.common_options import click_command
from nhc.core.command_line.printing import age, show
from nhc.core.exit_status import EXIT_HEALTHY, EXIT_UNHEALTHY, EXIT_UNKNOWN
from nhc.core.host import Host
from nhc.core.language.site_settings import site_settings
from nhc.core.model import printable
from nhc.core.plugins import NoAdapter
from nhc.core.state import gate_record as record
from nhc.core.state.gate_record import BadRecord
from nhc.core.state.store import State
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.gates import GateLimit, HasLimits, KeepsCluster
from nhc.node.planning import suites
from nhc.remedy.commands.gate_options import NODE, GateOptions, here, hook_of, keeper_of, suite_text
from nhc.remedy.gates import identity
from nhc.remedy.gates.limits import LimitFinding, judge
from nhc.remedy.gates.settings import GateRules, GateSettings, load


class GateStatusOptions(GateOptions, options.Formatted):
    node: str = NODE


@click_command
def status_command(args: GateStatusOptions) -> int:
    """Show how this node's gate stands: its verdict, for what it holds, and what the scheduler says.

    Exit status: 0 work may come, 1 the node is held, 2 wrong usage or settings, 3 there is no verdict.
    """
    settings = load(args.settings)
    place = here(settings, args.node)
    if place is None:
        click.echo("this node is in no group of the settings: it has no gate")
        return EXIT_HEALTHY
    problem, kept, standing = "", None, None
    try:
        kept = record.read(record.path())
    except BadRecord as error:
        problem = str(error)
    try:
        keeper = keeper_of(settings)
        standing = keeper.standing(place.node) if keeper is not None else None
    except AdapterError as error:
        problem = problem or f"the scheduler cannot be asked: {error}"
    changed: List[str] = []
    if kept is not None:
        changed = identity.changed(kept.marks, identity.marks(place.host, suite_text(place.rules, place.host)))
    if args.form == "json":
        show({
            "node": place.node, "group": place.rules.name, "suite": place.rules.suite, "problem": problem,
            "record": {**kept._asdict(), "state": kept.state.value} if kept is not None else None,
            "changed": changed, "standing": standing._asdict() if standing is not None else None,
        })  # fmt: skip
    else:
        state = kept.state.value if kept is not None else "no verdict"
        lines = [f"node       {place.node}, group {place.rules.name}", f"state      {state}"]
        if kept is not None:
            lines += [
                f"why        {kept.why}",
                f"since      {age(kept.at)}",
                f"report     {kept.report or 'none kept'}",
            ]
            lines += [f"changed    {part}" for part in changed]
        if standing is not None:
            parts = [standing.shown, "held by the gate" if standing.held else "", "busy" if standing.busy else ""]
            parts.append(f"out of service: {standing.other}" if standing.other else "")
            lines.append(f"scheduler  {', '.join(part for part in parts if part)}")
        lines += [f"problem    {problem}"] if problem else []
        click.echo("\n".join(printable(line) for line in lines))
    if kept is None:
        return EXIT_UNKNOWN
    return EXIT_HEALTHY if kept.state.lets_in else EXIT_UNHEALTHY


class ShownGateOptions(GateOptions, options.Formatted):
    pass


@click_command
def doctor_command(args: ShownGateOptions) -> int:
    """Look for what would keep gates from working: autoscalers, clouds and power saving that do not wait so long.

    Changes nothing. Exit status: 0 nothing found, 1 a problem, 2 wrong usage or settings.
    """
    settings = load(args.settings)
    findings: List[LimitFinding] = [LimitFinding("ok", "settings", f"{len(settings.groups)} groups")]
    common = _common(settings, findings)
    for rules in settings.groups:
        expected = _expected(rules, findings)
        if expected is not None:
            findings += judge(rules, expected, [*common, *_hooks(rules, findings)])
    findings = list(dict.fromkeys(findings))
    if args.form == "json":
        show([finding._asdict() for finding in findings])
    else:
        for finding in findings:
            click.echo(printable(f"{finding.word:8} {finding.topic}: {finding.message}"))
            if finding.remedy:
                click.echo(printable(f"{'':8} -> {finding.remedy}"))
    return EXIT_UNHEALTHY if any(finding.word == "problem" for finding in findings) else EXIT_HEALTHY


def _common(settings: GateSettings, findings: List[LimitFinding]) -> List[GateLimit]:
    """The limits of the scheduler; if they cannot be read, that is a finding."""
    try:
        keeper = keeper_of(settings)
        if keeper is None:
            explanation = "none: nobody keeps work off a node, except check_gate in a hook"
            findings.append(LimitFinding("warn", "scheduler", explanation, 'scheduler = "slurm" or "kubernetes"'))
            return []
        limits = keeper.limits() if isinstance(keeper, HasLimits) else []
    except (AdapterError, NoAdapter) as error:
        findings.append(LimitFinding("problem", f"scheduler {settings.scheduler}", str(error)))
        return []
    answer = (
        "answers; nhc sync gate has to run beside the nodes' gates" if isinstance(keeper, KeepsCluster) else "answers"
    )
    findings.append(LimitFinding("ok", f"scheduler {settings.scheduler}", answer))
    return limits


def _hooks(rules: GateRules, findings: List[LimitFinding]) -> List[GateLimit]:
    if rules.hook is None:
        return []
    try:
        hook = hook_of(rules)
        return hook.limits() if hook is not None else []
    except (AdapterError, NoAdapter) as error:
        findings.append(LimitFinding("warn", f"group {rules.name} hook", f"cannot be looked at from here: {error}"))
        return []


def _expected(rules: GateRules, findings: List[LimitFinding]) -> float | None:
    """Seconds that the suite takes on a node like this one; None where it cannot be read."""
    host = Host(memory=State())
    try:
        plan = suites.plan_of(rules.suite, host, site_settings().local_node_name(host), State())
    except (suites.NoSuite, ValueError, OSError) as error:
        findings.append(LimitFinding("problem", f"group {rules.name}", f"suite {rules.suite}: {error}"))
        return None
    if not os.access(os.path.dirname(record.path()) or ".", os.W_OK) and os.path.isdir(os.path.dirname(record.path())):
        findings.append(LimitFinding("warn", "record", f"{record.path()} cannot be written by this user"))
    return sum(step.seconds for step in suites.estimate(plan.items, State()))
