"""`nhc gate open`, `close` and `sync`: a person's orders, and the gates of a whole cluster."""

from __future__ import annotations

import json
import logging
import time
from typing import Any, Dict, List

import click

from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import (
    BY,
    DURATION,
    FORMAT,
    GroupedCommand,
    named_nodes,
    person,
    service_log,
    under,
)
from nhc.core.exit_status import EXIT_HEALTHY, EXIT_UNHEALTHY, EXIT_USAGE
from nhc.core.model import printable
from nhc.core.system.service_log import ServiceLog
from nhc.marks.ports.adapter import AdapterError, Effect
from nhc.marks.ports.gates import GateOrder, GroupOfNodes, KeepsCluster, TakesOrders, Turn
from nhc.remedy.commands.gate_options import APPLY, SETTINGS, WHY, audit, needed_keeper
from nhc.remedy.gates.settings import GateSettings, Trigger, load

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
        GroupOfNodes(group.name, group.contains, tuple(sorted(trigger.value for trigger in group.on)))
        for group in settings.groups
    ]
