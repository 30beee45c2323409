"""`nhc approve|abort episode` and `nhc hold|release remedy`: persons' decisions, which the loop follows."""

from __future__ import annotations

import sys
import time
from typing import List, Optional, Sequence

import click
from sqlalchemy.engine import Connection

from nhc.core.command_line import options
from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import click_command, named_nodes, person
from nhc.core.command_line.printing import when
from nhc.core.exit_status import EXIT_USAGE
from nhc.core.matching.node_ranges import NodeNames, fold
from nhc.core.model import printable
from nhc.core.plugins import NoAdapter
from nhc.core.settings.settings_file import SettingsError
from nhc.core.timestamps import from_utc
from nhc.core.units import seconds, show_number
from nhc.marks.policy.bounds import radii_of
from nhc.marks.ports.adapter import AdapterError, NodeState
from nhc.remedy import operators
from nhc.remedy.commands.remedy_options import RemedyOptions, opened, site_of
from nhc.remedy.machine import EpisodeState
from nhc.remedy.operators import close_breaker, decide, hold_scope
from nhc.store import ended_episodes, holds, nodes
from nhc.store.database import Store
from nhc.store.errors import Conflict, StoreError

WHY = options.text("--why", "TEXT", "For everybody who reads the audit log.", heading="What is decided")


class EpisodeApproveOptions(RemedyOptions):
    number: int = options.argument("ID", needed=True, number="whole")
    refuse: bool = options.flag("--refuse", "Refuse it: the episode is escalated.", heading="What is decided")
    why: str = WHY


@click_command
def approve(args: EpisodeApproveOptions) -> None:
    """Agree to the next repair of episode ID. Where the policy asks for two persons, each gives this command.

    A person is the user, or the user behind sudo. Everything is read again before the repair is sent. Exit status: 0,
    2 it waits for nobody, or this person has decided already, 3 the store cannot be used.
    """
    if args.refuse and not args.why.strip():
        raise CommandError("--refuse needs --why", EXIT_USAGE)
    try:
        with opened(args.settings) as store:
            click.echo(decide(store, args.number, by=person(), agree=not args.refuse, why=args.why, now=time.time()))
    except Conflict as error:
        raise CommandError(str(error), EXIT_USAGE) from None


class AbortOptions(RemedyOptions):
    number: int = options.argument("ID", needed=True, number="whole")
    why: str = options.text(
        "--why", "TEXT", "For everybody who reads the audit log.", heading="What is decided", needed=True
    )
    by: str = options.BY


@click_command
def abort(args: AbortOptions) -> None:
    """Stop episode ID. The node stays as it is; what was sent is not taken back.

    `nhc release remedy NODE` proves the node and brings it back. Exit status: 0, 2 there is no such open episode, 3 the
    store cannot be used.
    """
    with opened(args.settings) as store:
        click.echo(operators.abort(store, args.number, by=person(args.by), why=args.why, now=time.time()))


class HoldOptions(RemedyOptions):
    name: str = options.argument("NODES|KIND=GROUP|fleet", needed=True)
    why: str = options.text(
        "--why", "TEXT", "For everybody who meets the hold.", heading="What is decided", needed=True
    )
    until: str = options.text(
        "--until", "TIME", "When it ends: 3d, 12h, or 2026-12-01T15:00:00Z. Default: until it is released."
    )
    by: str = options.BY


@click_command
def hold(args: HoldOptions) -> None:
    """Hold nodes (n17, n[1-8]), a group (rack=r12) or the fleet: no mark, no repair, no clear. What was sent is still
    watched. A name that no node of the store or the cluster has is held as well, and said. A group that no node is in
    is refused, unless the cluster cannot be asked.

    Exit status: 0, 2 wrong usage or no such group, 3 the store cannot be used.
    """
    if not args.why.strip():
        raise CommandError("--why is empty", EXIT_USAGE)
    now, by = time.time(), person(args.by)
    end = _end(args.until, now)
    scope = hold_scope(args.name)
    names = named_nodes(args.name, "NODES") if scope == "node" else [args.name]
    with opened(args.settings) as store:
        with store.read() as connection:
            unknown = [each for each in names if scope != "fleet" and not is_known(connection, scope, each)]
        states = _cluster_nodes(args.settings) if unknown else None
        if states is not None:
            unknown = [each for each in unknown if not _has(states, scope, each)]
            if unknown and scope == "group":
                raise CommandError(f"{printable(args.name)}: no node is in that group: nothing is held", EXIT_USAGE)
        with store.write() as connection:
            for each in names:
                holds.hold(connection, scope, "" if scope == "fleet" else each, by=by, why=args.why, now=now, until=end)
    if unknown:
        what = f"no node of that name has reported to {store.name}" if scope == "node" else "no node is in that group"
        listed = fold(unknown) if scope == "node" else args.name
        print(f"nhc hold remedy: {printable(listed)}: {what}: see that the name is right", file=sys.stderr)
    verb = "is" if len(names) == 1 else "are"
    click.echo(f"{args.name} {verb} held by {by} until {when(end) if end is not None else 'it is released'}")


def _cluster_nodes(path: str) -> Optional[List[NodeState]]:
    """The nodes of the scheduler or cluster of the settings; None if it cannot be asked."""
    try:
        with site_of(path, look=True) as site:
            return site.marker.nodes()
    except (CommandError, SettingsError, NoAdapter, AdapterError, StoreError):
        return None


def _has(states: Sequence[NodeState], scope: str, name: str) -> bool:
    if scope == "node":
        return any(state.name == name for state in states)
    kind, _, group = name.partition("=")
    return any((kind, group) in radii_of(state) for state in states)


def is_known(connection: Connection, scope: str, name: str) -> bool:
    """Whether the store knows a node of that name, by its short name as well, or a node in that group."""
    rows = nodes.list_nodes(connection)
    if scope == "node":
        names = NodeNames([name], ())
        return any(names.scheduler_name(row.node) == name or name.partition(".")[0] == row.node for row in rows)
    kind, _, group = name.partition("=")
    return any(row.groups.get(kind) == group for row in rows)


def _end(text: str, now: float) -> Optional[float]:
    if not text:
        return None
    try:
        return now + seconds(text)
    except ValueError:
        end = from_utc(text)
    if end <= now:
        expected = "a duration such as 3d, or a time to come such as 2026-12-01T15:00:00Z"
        raise CommandError(f"--until: {text!r} is not {expected}", EXIT_USAGE)
    return end


class ReleaseOptions(RemedyOptions):
    name: str = options.argument("NODES|KIND=GROUP|fleet|breaker")
    all_escalated: bool = options.flag(
        "--all-escalated", "Every node that an episode has escalated to a person.", heading="What is decided"
    )
    why: str = WHY
    by: str = options.BY


@click_command
def release(args: ReleaseOptions) -> None:
    """End the hold on nodes (n17, n[1-8]), a group or the fleet; or close the breaker.

    A node that an episode left to a person is proved first, as after a repair, and put back if it is healthy and the
    mark is ours. Exit status: 0, 2 there was nothing to release on one of them, 3 the store cannot be used.
    """
    by, now = person(args.by), time.time()
    if bool(args.name) == args.all_escalated:
        raise CommandError("name what to release, or give --all-escalated", EXIT_USAGE)
    with opened(args.settings) as store:
        if args.name == "breaker":
            if not args.why.strip():
                raise CommandError("the breaker is closed with a reason: --why", EXIT_USAGE)
            if not close_breaker(store, by=by, why=args.why, now=now):
                raise CommandError("the breaker is not open", EXIT_USAGE)
            click.echo(f"the breaker is closed by {by}")
            left = _escalated(store)
            if left:
                what = f"{show_number(len(left), 'node')} left to a person: {fold(left)}"
                click.echo(f"{what}: nhc release remedy --all-escalated proves them and brings them back")
            return
        if not args.all_escalated and hold_scope(args.name) != "node":
            scope = hold_scope(args.name)
            with store.write() as connection:
                if not holds.release(
                    connection, scope, "" if scope == "fleet" else args.name, by=by, now=now, why=args.why
                ):
                    raise CommandError(f"{args.name} is not held", EXIT_USAGE)
            click.echo(f"{args.name} is no longer held")
            return
        names = _escalated(store) if args.all_escalated else named_nodes(args.name, "NODES")
        if not names:
            raise CommandError("no node is left to a person", EXIT_USAGE)
        nothing = [node for node in names if not _released(store, node, by=by, why=args.why, now=now)]
    if nothing:
        raise CommandError(f"{fold(nothing)}: neither held nor left to a person", EXIT_USAGE)


def _escalated(store: Store) -> List[str]:
    """The nodes that wait for a person because an episode could not bring them back, by name."""
    with store.read() as connection:
        left = ended_episodes.left_to_operators(connection)
    return sorted(row.node for row in left if row.state == EpisodeState.ESCALATED.value)


def _released(store: Store, node: str, *, by: str, why: str, now: float) -> bool:
    """Release one node, and print the result; False if there was nothing to release."""
    done = operators.release(store, node, by=by, why=why, now=now)
    if done.episode:
        click.echo(f"episode {done.episode} proves {node} and brings it back")
    if done.holds:
        click.echo(f"{node} is no longer held")
    return bool(done.episode or done.holds)
