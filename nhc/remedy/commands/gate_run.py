"""`nhc gate run` and `boot`: the gate of this node; `open`, `close`, `sync`: a person's orders, a cluster's gates."""

from __future__ import annotations

import json
import logging
import os
import signal
import time
from typing import List, Optional, Tuple, Union

import click

from nhc.core.command_line import options
from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import click_command, named_nodes, person, service_command
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
    WHY,
    GateOptions,
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


class GateRoundOptions(GateOptions, options.Formatted):
    node: str = NODE
    apply: bool = APPLY


class GateRunOptions(GateRoundOptions):
    settings: str = options.settings_file("gate.toml", needed=True, checked=True, heading="Where")
    every: float = options.duration("--every", "Look again so often, as a service.", "0", heading="What is done")


@service_command
def run_command(args: GateRunOptions) -> int:
    """Test this node where its gate is due, and let work in once its suite has passed.

    Decides by the record of this node whether the suite has to run: a new machine, another boot, an update, a person's
    order. Holds the node, runs the suite, and releases it. A suite that could not tell is run again, as often as the
    settings say; then the policy holds. Exit status: 0 work may come, 1 the node is held, 2 wrong usage or settings,
    3 it could not be told.
    """
    return _run(args)


class GateBootOptions(GateRoundOptions):
    patience: float = options.duration(
        "--patience", "Try again for so long where the scheduler does not answer.", "0", heading="What is done"
    )


@click_command
def boot_command(args: GateBootOptions) -> int:
    """Hold this node where its gate is due, within seconds, and test nothing: for the time before slurmd starts.

    Exit status: 0 the gate is open, or the node is held; 1 it must be held and could not be (policy closed), 2 wrong
    usage or settings, 3 the record could not be written.
    """
    return _boot(args)


class GateOrderOptions(GateOptions):
    nodes: Tuple[str, ...] = options.arguments("NODE...", needed=True)
    apply: bool = APPLY
    why: str = WHY
    by: str = options.BY


class GateAdoptOptions(GateOrderOptions):
    nodes: Tuple[str, ...] = options.arguments("[NODE...]")
    node: str = NODE


@click_command
def adopt_command(args: GateAdoptOptions) -> int:
    """Take nodes as they are, where their gate has no verdict yet: a fleet that works already.

    Without NODE this node: its record is written. With NODE each node's gate is ordered to, through the scheduler; the
    order holds for seven days. A node that has a verdict keeps it, a failed one above all. Exit status: 0 done, 1 not
    for every node, 2 wrong usage or settings, 3 it cannot be done now.
    """
    return order(args, GateOrder.ADOPT) if args.nodes else _adopt(args)


def _adopt(args: GateAdoptOptions) -> int:
    world = _world(args)
    if world is None:
        return _no_gate()
    why = printable(f"{args.why} ({person(args.by)})", 200)
    outcome = Gate(world).adopt(why, apply=args.apply)
    click.echo(_line(world, outcome, args.apply))
    kept = outcome.decision.step is GateStep.NOTHING and not outcome.lets_in
    return EXIT_UNHEALTHY if kept else EXIT_HEALTHY


def _world(args: Union[GateRoundOptions, GateAdoptOptions]) -> Optional[GateWorld]:
    """What the gate of this node works with, None where it has none."""
    settings = load(args.settings)
    place = here(settings, args.node)
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


def _run(args: GateRunOptions) -> int:
    world = _world(args)
    if world is None:
        return _no_gate()
    last_line, signals = "", Signals()
    try:
        signals.take()
        while True:
            outcome = Gate(world).once(apply=args.apply)
            line = _line(world, outcome, args.apply)
            if line != last_line or args.form == "json":
                _show(world, outcome, args, line)
                last_line = line
            if not args.every:
                return _status(outcome)
            time.sleep(args.every)
            try:
                world = _world(args) or world
            except (SettingsError, CommandError) as error:
                _say(f"the settings in force stay: {error}")
    except SignalToEnd:
        return 128 + signal.SIGTERM if not args.every else EXIT_HEALTHY
    finally:
        signals.hold()


def _boot(args: GateBootOptions) -> int:
    world = _world(args)
    if world is None:
        return _no_gate()
    until = time.monotonic() + args.patience
    while True:
        outcome = Gate(world).once(apply=args.apply, hold_only=True)
        standing = Gate(world).look().standing
        out = world.keeper is None or (standing is not None and (standing.held or bool(standing.other)))
        if outcome.lets_in or out or not args.apply or time.monotonic() >= until:
            break
        time.sleep(BETWEEN)
    _show(world, outcome, args, _line(world, outcome, args.apply))
    if outcome.lets_in or out or not args.apply:
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


def _show(world: GateWorld, outcome: GatePass, args: GateRoundOptions, line: str) -> None:
    if args.form == "text":
        click.echo(line)
        return
    kept = outcome.record
    click.echo(json.dumps({
        "node": world.node, "group": world.rules.name, "step": outcome.decision.step.value,
        "why": outcome.decision.why, "lets_in": outcome.lets_in, "problem": outcome.problem,
        "applied": args.apply,
        "record": {**kept._asdict(), "state": kept.state.value} if kept is not None else None,
    }, ensure_ascii=False))  # fmt: skip


def _status(outcome: GatePass) -> int:
    if outcome.lets_in:
        return EXIT_HEALTHY
    kept = outcome.record
    return EXIT_UNKNOWN if kept is not None and kept.state is GateState.UNTOLD else EXIT_UNHEALTHY


_complain = ServiceLog("gate", logging.WARNING)


@click_command
def open_command(args: GateOrderOptions) -> int:
    """Let work onto nodes although their suite has not passed.

    The order is written where the node's gate reads it, and holds until the next new boot, update or order. Exit
    status: 0 ordered, 1 not for every node, 2 wrong usage or settings, 3 the scheduler cannot be asked.
    """
    return order(args, GateOrder.OPEN)


@click_command
def close_command(args: GateOrderOptions) -> int:
    """Hold nodes until their suite has passed anew.

    Running work goes on; the suite begins when it has ended. Exit status: 0 ordered, 1 not for every node, 2 wrong
    usage or settings, 3 the scheduler cannot be asked.
    """
    return order(args, GateOrder.CLOSE)


def order(args: GateOrderOptions, what: GateOrder) -> int:
    """Leave an order for each node; the exit status. Raises CommandError, SettingsError, AdapterError."""
    settings = load(args.settings)
    keeper, by = needed_keeper(settings), person(args.by)
    if not isinstance(keeper, TakesOrders):
        raise CommandError(f"{settings.scheduler} takes no orders", EXIT_USAGE)
    tell, failed = audit(settings, by, _complain), False
    verb = what.value
    for node in [name for nodes in args.nodes for name in named_nodes(nodes, "NODE")]:
        rules = settings.rules(node)
        if rules is None:
            _complain(f"{node}: is in no group of {settings.path}: it has no gate")
            failed = True
            continue
        if what is GateOrder.CLOSE and Trigger.DEMAND not in rules.on:
            _complain(f"{node}: group {rules.name} runs no suite on demand (on)")
            failed = True
            continue
        if not args.apply:
            click.echo(f"would {verb} {node}")
            continue
        done = keeper.order(node, what, args.why, by)
        bad = done.effect in (Effect.FAILED, Effect.REFUSED)
        failed |= bad
        click.echo(printable(f"{node}: {'not ordered' if bad else verb}: {done.message or 'ordered'}"))
        if not bad:
            tell(f"gate.ordered.{verb}", node, {"why": args.why})
    return EXIT_UNHEALTHY if failed else EXIT_HEALTHY


class GateSyncOptions(GateOptions, options.Formatted):
    apply: bool = APPLY
    every: float = options.duration("--every", "Go round so often, as a service.", "0")


@service_command
def sync_command(args: GateSyncOptions) -> int:
    """Bring the gates of a cluster's nodes in line with what the nodes' own gates say (Kubernetes).

    Sets the startup taint on new and changed nodes, removes it where the suite has passed. Exit status: 0 done, 1 not
    every change could be made, 2 wrong usage or settings, 3 the cluster cannot be used.
    """
    settings = load(args.settings)
    keeper = needed_keeper(settings)
    if not isinstance(keeper, KeepsCluster):
        raise CommandError(f"{settings.scheduler}: gates act from their nodes: nhc gate run", EXIT_USAGE)
    groups, tell = _groups(settings), audit(settings, "nhc sync gate", _complain)
    last_problem = ""
    while True:
        try:
            turns = keeper.keep(groups, apply=args.apply)
        except AdapterError as error:
            if not args.every:
                raise
            if str(error) != last_problem:
                last_problem = str(error)
                _complain(last_problem)
            time.sleep(args.every)
            continue
        last_problem = ""
        for turn in turns:
            _show_turn(turn, args)
            if turn.done and turn.what in ("open", "close"):
                tell(f"gate.{'released' if turn.what == 'open' else 'held'}", turn.node, {"why": turn.why})
        if not args.every:
            if args.form == "text" and not turns:
                click.echo("every gate is as it should be")
            return EXIT_UNHEALTHY if any(turn.failed for turn in turns) else EXIT_HEALTHY
        time.sleep(args.every)


def _show_turn(turn: Turn, args: GateSyncOptions) -> None:
    if args.form == "json":
        click.echo(json.dumps(turn._asdict(), ensure_ascii=False))
        return
    would = "" if args.apply else "would "
    click.echo(printable(f"{would}{turn.what}  {turn.node}  {turn.failed or turn.why}"))


def _groups(settings: GateSettings) -> List[GroupOfNodes]:
    return [
        GroupOfNodes(group.name, group.contains, tuple(sorted(trigger.value for trigger in group.on)), group.out)
        for group in settings.groups
    ]
