"""`nhc gate run` and `boot`: the gate of this node; `open`, `close`, `sync`: a person's orders, a cluster's gates."""

from __future__ import annotations

import json
import logging
import os
import signal
import time
from typing import Any, Dict, List, Optional

import click

from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import (
    BY,
    DURATION,
    FORMAT,
    GroupedCommand,
    check_settings,
    named_nodes,
    person,
    service_log,
    under,
)
from nhc.core.exit_status import EXIT_HEALTHY, EXIT_UNHEALTHY, EXIT_UNKNOWN, EXIT_USAGE
from nhc.core.model import printable
from nhc.core.settings.settings_file import SettingsError
from nhc.core.state import gate_record as record
from nhc.core.state.gate_record import GateState
from nhc.core.system.ending_signals import Signals, SignalToEnd
from nhc.core.system.service_log import ServiceLog
from nhc.marks.ports.adapter import AdapterError, Effect
from nhc.marks.ports.gates import GateOrder, GroupOfNodes, KeepsCluster, TakesOrders, Turn
from nhc.remedy.commands.gate_options import (
    APPLY,
    NODE,
    SETTINGS,
    WHY,
    audit,
    here,
    hook_of,
    keeper_of,
    needed_keeper,
    results,
    suite_text,
)
from nhc.remedy.gates.gate import Gate, GatePass, GateWorld
from nhc.remedy.gates.gate_decision import GateStep
from nhc.remedy.gates.settings import GateSettings, Trigger, load

ENVIRONMENT = ("HOME", "USER", "LANG", "LC_ALL", "KUBECONFIG", "NVIDIA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")
PREFIXES = ("NHC_", "SLURM_CONF", "AWS_")
"""What of the environment the suite is given."""


BETWEEN = 2.0
"""Seconds between two tries to hold a node whose scheduler does not answer."""


@click.command("run", cls=GroupedCommand)
@service_log
@check_settings("gate.toml")
@SETTINGS
@NODE
@APPLY
@under("What is done")("--every", type=DURATION, default="0", metavar="TIME", help="Look again so often, as a service.")
@FORMAT
def run_command(**options: Any) -> int:
    """Test this node where its gate is due, and let work in once its suite has passed.

    Decides by the record of this node whether the suite has to run: a new machine, another boot, an update, a person's
    order. Holds the node, runs the suite, and releases it. A suite that could not tell is run again, as often as the
    settings say; then the policy holds. Exit status: 0 work may come, 1 the node is held, 2 wrong usage or settings,
    3 it could not be told.
    """
    return _run(options)


@click.command("boot", cls=GroupedCommand)
@SETTINGS
@NODE
@APPLY
@under("What is done")("--patience", type=DURATION, default="0", metavar="TIME",
                       help="Try again for so long where the scheduler does not answer.")  # fmt: skip
@FORMAT
def boot_command(**options: Any) -> int:
    """Hold this node where its gate is due, within seconds, and test nothing: for the time before slurmd starts.

    Exit status: 0 the gate is open, or the node is held; 1 it must be held and could not be (policy closed), 2 wrong
    usage or settings, 3 the record could not be written.
    """
    return _boot(options)


@click.command("adopt", cls=GroupedCommand)
@click.argument("nodes", nargs=-1, metavar="[NODE...]")
@SETTINGS
@NODE
@APPLY
@WHY
@BY
def adopt_command(**options: Any) -> int:
    """Take nodes as they are, where their gate has no verdict yet: a fleet that works already.

    Without NODE this node: its record is written. With NODE each node's gate is ordered to, through the scheduler; the
    order holds for seven days. A node that has a verdict keeps it, a failed one above all. Exit status: 0 done, 1 not
    for every node, 2 wrong usage or settings, 3 it cannot be done now.
    """
    return order(options, GateOrder.ADOPT) if options["nodes"] else _adopt(options)


def _adopt(options: Dict[str, Any]) -> int:
    world = _world({**options, "form": "text"})
    if world is None:
        return _no_gate()
    why = printable(f"{options['why']} ({person(options['by'])})", 200)
    outcome = Gate(world).adopt(why, apply=options["apply"])
    click.echo(_line(world, outcome, options["apply"]))
    kept = outcome.decision.step is GateStep.NOTHING and not outcome.lets_in
    return EXIT_UNHEALTHY if kept else EXIT_HEALTHY


def _world(options: Dict[str, Any]) -> Optional[GateWorld]:
    """What the gate of this node works with, None where it has none."""
    settings = load(options["path"])
    place = here(settings, options["node"])
    if place is None:
        return None
    environ = {name: value for name, value in os.environ.items() if name in ENVIRONMENT or name.startswith(PREFIXES)}
    return GateWorld(
        place.node, place.rules, place.host, keeper_of(settings), hook_of(place.rules),
        suite_text(place.rules, place.host), record.path(), "slurm" if settings.scheduler == "slurm" else "none",
        environ, _say, audit(settings, f"gate of {place.node}", _say),
        results(settings, place.rules.suite, _say),
    )  # fmt: skip


_say = ServiceLog("gate", logging.WARNING)


def _run(options: Dict[str, Any]) -> int:
    world = _world(options)
    if world is None:
        return _no_gate()
    last_line, signals = "", Signals()
    try:
        signals.take()
        while True:
            outcome = Gate(world).once(apply=options["apply"])
            line = _line(world, outcome, options["apply"])
            if line != last_line or options["form"] == "json":
                _show(world, outcome, options, line)
                last_line = line
            if not options["every"]:
                return _status(outcome)
            time.sleep(options["every"])
            try:
                world = _world(options) or world
            except (SettingsError, CommandError) as error:
                _say(f"the settings in force stay: {error}")
    except SignalToEnd:
        return 128 + signal.SIGTERM if not options["every"] else EXIT_HEALTHY
    finally:
        signals.hold()


def _boot(options: Dict[str, Any]) -> int:
    world = _world(options)
    if world is None:
        return _no_gate()
    until = time.monotonic() + options["patience"]
    while True:
        outcome = Gate(world).once(apply=options["apply"], hold_only=True)
        standing = Gate(world).look().standing
        out = world.keeper is None or (standing is not None and (standing.held or bool(standing.other)))
        if outcome.lets_in or out or not options["apply"] or time.monotonic() >= until:
            break
        time.sleep(BETWEEN)
    _show(world, outcome, options, _line(world, outcome, options["apply"]))
    if outcome.lets_in or out or not options["apply"]:
        return EXIT_HEALTHY
    if not world.rules.closed:
        _say(f"{world.node} is not held and its suite has not passed: open by policy")
        return EXIT_HEALTHY
    return EXIT_UNHEALTHY


def _no_gate() -> int:
    _say("this node is in no group of the settings: it has no gate")
    return EXIT_HEALTHY


def _line(world: GateWorld, outcome: GatePass, apply: bool) -> str:
    state = outcome.record.state.value if outcome.record is not None else "no verdict"
    would = "" if apply else "would "
    line = f"{world.node}  {state}  {would}{outcome.decision.step.value}: {outcome.decision.why}"
    return printable(f"{line}{f'; {outcome.problem}' if outcome.problem and apply else ''}")


def _show(world: GateWorld, outcome: GatePass, options: Dict[str, Any], line: str) -> None:
    if options["form"] == "text":
        click.echo(line)
        return
    kept = outcome.record
    click.echo(json.dumps({
        "node": world.node, "group": world.rules.name, "step": outcome.decision.step.value,
        "why": outcome.decision.why, "lets_in": outcome.lets_in, "problem": outcome.problem,
        "applied": options["apply"],
        "record": {**kept._asdict(), "state": kept.state.value} if kept is not None else None,
    }, ensure_ascii=False))  # fmt: skip


def _status(outcome: GatePass) -> int:
    if outcome.lets_in:
        return EXIT_HEALTHY
    kept = outcome.record
    return EXIT_UNKNOWN if kept is not None and kept.state is GateState.UNTOLD else EXIT_UNHEALTHY


_complain = ServiceLog("gate", logging.WARNING)


@click.command("open", cls=GroupedCommand)
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
@SETTINGS
@APPLY
@WHY
@BY
def open_command(**options: Any) -> int:
    """Let work onto nodes although their suite has not passed.

    The order is written where the node's gate reads it, and holds until the next new boot, update or order. Exit
    status: 0 ordered, 1 not for every node, 2 wrong usage or settings, 3 the scheduler cannot be asked.
    """
    return order(options, GateOrder.OPEN)


@click.command("close", cls=GroupedCommand)
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
@SETTINGS
@APPLY
@WHY
@BY
def close_command(**options: Any) -> int:
    """Hold nodes until their suite has passed anew.

    Running work goes on; the suite begins when it has ended. Exit status: 0 ordered, 1 not for every node, 2 wrong
    usage or settings, 3 the scheduler cannot be asked.
    """
    return order(options, GateOrder.CLOSE)


def order(options: Dict[str, Any], what: GateOrder) -> int:
    """Leave an order for each node; the exit status. Raises CommandError, SettingsError, AdapterError."""
    settings = load(options["path"])
    keeper, by = needed_keeper(settings), person(options["by"])
    if not isinstance(keeper, TakesOrders):
        raise CommandError(f"{settings.scheduler} takes no orders", EXIT_USAGE)
    tell, failed = audit(settings, by, _complain), False
    verb = what.value
    for node in [name for nodes in options["nodes"] for name in named_nodes(nodes, "NODE")]:
        rules = settings.rules(node)
        if rules is None:
            _complain(f"{node}: is in no group of {settings.path}: it has no gate")
            failed = True
            continue
        if what is GateOrder.CLOSE and Trigger.DEMAND not in rules.on:
            _complain(f"{node}: group {rules.name} runs no suite on demand (on)")
            failed = True
            continue
        if not options["apply"]:
            click.echo(f"would {verb} {node}")
            continue
        done = keeper.order(node, what, options["why"], by)
        bad = done.effect in (Effect.FAILED, Effect.REFUSED)
        failed |= bad
        click.echo(printable(f"{node}: {'not ordered' if bad else verb}: {done.message or 'ordered'}"))
        if not bad:
            tell(f"gate.ordered.{verb}", node, {"why": options["why"]})
    return EXIT_UNHEALTHY if failed else EXIT_HEALTHY


@click.command("sync", cls=GroupedCommand)
@service_log
@SETTINGS
@APPLY
@under("What is done")("--every", type=DURATION, default="0", metavar="TIME", help="Go round so often, as a service.")
@FORMAT
def sync_command(**options: Any) -> int:
    """Bring the gates of a cluster's nodes in line with what the nodes' own gates say (Kubernetes).

    Sets the startup taint on new and changed nodes, removes it where the suite has passed. Exit status: 0 done, 1 not
    every change could be made, 2 wrong usage or settings, 3 the cluster cannot be used.
    """
    settings = load(options["path"])
    keeper = needed_keeper(settings)
    if not isinstance(keeper, KeepsCluster):
        raise CommandError(f"{settings.scheduler}: gates act from their nodes: nhc gate run", EXIT_USAGE)
    groups, tell = _groups(settings), audit(settings, "nhc sync gate", _complain)
    last_problem = ""
    while True:
        try:
            turns = keeper.keep(groups, apply=options["apply"])
        except AdapterError as error:
            if not options["every"]:
                raise
            if str(error) != last_problem:
                last_problem = str(error)
                _complain(last_problem)
            time.sleep(options["every"])
            continue
        last_problem = ""
        for turn in turns:
            _show_turn(turn, options)
            if turn.done and turn.what in ("open", "close"):
                tell(f"gate.{'released' if turn.what == 'open' else 'held'}", turn.node, {"why": turn.why})
        if not options["every"]:
            if options["form"] == "text" and not turns:
                click.echo("every gate is as it should be")
            return EXIT_UNHEALTHY if any(turn.failed for turn in turns) else EXIT_HEALTHY
        time.sleep(options["every"])


def _show_turn(turn: Turn, options: Dict[str, Any]) -> None:
    if options["form"] == "json":
        click.echo(json.dumps(turn._asdict(), ensure_ascii=False))
        return
    would = "" if options["apply"] else "would "
    click.echo(printable(f"{would}{turn.what}  {turn.node}  {turn.failed or turn.why}"))


def _groups(settings: GateSettings) -> List[GroupOfNodes]:
    return [
        GroupOfNodes(group.name, group.contains, tuple(sorted(trigger.value for trigger in group.on)), group.out)
        for group in settings.groups
    ]
