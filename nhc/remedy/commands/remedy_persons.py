"""`nhc remedy approve|abort|hold|release`: what persons decide, and the loop keeps to."""

from __future__ import annotations

import sys
import time
from typing import Optional

import click
from sqlalchemy.engine import Connection

from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import BY, person
from nhc.core.command_line.option_groups import GroupedCommand, under
from nhc.core.command_line.printing import when
from nhc.core.exit_status import EXIT_USAGE
from nhc.core.matching.node_names import Names
from nhc.core.model import printable
from nhc.core.plugins import NoAdapter
from nhc.core.settings.settings_file import SettingsError
from nhc.core.timestamps import from_utc
from nhc.core.units import seconds
from nhc.marks.policy.bounds import radii_of
from nhc.marks.ports.adapter import AdapterError
from nhc.remedy import persons
from nhc.remedy.commands.remedy_options import SETTINGS, STORE, opened, site_of
from nhc.remedy.persons import close_breaker, decide, hold_scope
from nhc.store import holds, nodes
from nhc.store.errors import Conflict, StoreError

_decided = under("What is decided")
WHY = _decided("--why", default="", metavar="TEXT", help="For everybody who reads the audit log.")


@click.command("approve", cls=GroupedCommand)
@click.argument("number", type=int, metavar="ID")
@_decided("--refuse", is_flag=True, help="Refuse it: the episode is escalated.")
@WHY
@SETTINGS
@STORE
def approve(number: int, refuse: bool, why: str, settings_path: Optional[str], store_url: Optional[str]) -> None:
    """Agree to the next repair of episode ID. Where the policy asks for two persons, each gives this command.

    A person is the user, or the user behind sudo. Everything is read again before the repair is sent. Exit status: 0,
    2 it waits for nobody, or this person has decided already, 3 the store cannot be used.
    """
    if refuse and not why.strip():
        raise CommandError("--refuse needs --why", EXIT_USAGE)
    try:
        with opened(settings_path, store_url) as store:
            click.echo(decide(store, number, by=person(), agree=not refuse, why=why, now=time.time()))
    except Conflict as error:
        raise CommandError(str(error), EXIT_USAGE) from None


@click.command("abort", cls=GroupedCommand)
@click.argument("number", type=int, metavar="ID")
@_decided("--why", required=True, metavar="TEXT", help="For everybody who reads the audit log.")
@BY
@SETTINGS
@STORE
def abort(number: int, why: str, by: str, settings_path: Optional[str], store_url: Optional[str]) -> None:
    """Stop episode ID. The node stays as it is; what was sent is not taken back.

    `nhc remedy release NODE` proves the node and brings it back. Exit status: 0, 2 there is no such open episode, 3 the
    store cannot be used.
    """
    with opened(settings_path, store_url) as store:
        click.echo(persons.abort(store, number, by=person(by), why=why, now=time.time()))


@click.command("hold", cls=GroupedCommand)
@click.argument("name", metavar="NODE|KIND=GROUP|fleet")
@_decided("--why", required=True, metavar="TEXT", help="For everybody who meets the hold.")
@_decided("--until", default="", metavar="TIME", help="When it ends: 3d, 12h, or 2026-12-01T15:00:00Z. "
          "Default: until it is released.")  # fmt: skip
@BY
@SETTINGS
@STORE
def hold(name: str, why: str, until: str, by: str, settings_path: Optional[str], store_url: Optional[str]) -> None:
    """Hold a node (n17), a group (rack=r12) or the fleet: no mark, no repair, no clear. A repair that was sent is still
    watched. A name that no node of the store or the cluster has is held as well, and said. A group that no node is in
    is refused, unless the cluster cannot be asked.

    Exit status: 0, 2 wrong usage or no such group, 3 the store cannot be used.
    """
    if not why.strip():
        raise CommandError("--why is empty", EXIT_USAGE)
    now, by = time.time(), person(by)
    end = _end(until, now)
    scope = hold_scope(name)
    with opened(settings_path, store_url) as store:
        with store.read() as connection:
            known = scope == "fleet" or is_known(connection, scope, name)
        there = None if known else _in_cluster(scope, name, settings_path, store_url)
        if there is False and scope == "group":
            raise CommandError(f"{printable(name)}: no node is in that group: nothing is held", EXIT_USAGE)
        with store.write() as connection:
            holds.hold(connection, scope, "" if scope == "fleet" else name, by=by, why=why, now=now, until=end)
    if not known and not there:
        what = f"no node of that name has reported to {store.name}" if scope == "node" else "no node is in that group"
        print(f"nhc remedy hold: {printable(name)}: {what}: see that the name is right", file=sys.stderr)
    click.echo(f"{name} is held by {by} until {when(end) if end is not None else 'it is released'}")


def _in_cluster(scope: str, name: str, path: Optional[str], url: Optional[str]) -> Optional[bool]:
    """Whether the scheduler or cluster of the settings has that node or group; None where it cannot be asked."""
    try:
        with site_of(path, url, look=True) as site:
            states = site.marker.nodes()
    except (CommandError, SettingsError, NoAdapter, AdapterError, StoreError):
        return None
    if scope == "node":
        return any(state.name == name for state in states)
    kind, _, group = name.partition("=")
    return any((kind, group) in radii_of(state) for state in states)


def is_known(connection: Connection, scope: str, name: str) -> bool:
    """Whether the store knows a node of that name, by its short name as well, or a node in that group."""
    rows = nodes.list_nodes(connection)
    if scope == "node":
        names = Names([name], ())
        return any(names.here(row.node) == name or name.partition(".")[0] == row.node for row in rows)
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


@click.command("release", cls=GroupedCommand)
@click.argument("name", metavar="NODE|KIND=GROUP|fleet|breaker")
@WHY
@BY
@SETTINGS
@STORE
def release(name: str, why: str, by: str, settings_path: Optional[str], store_url: Optional[str]) -> None:
    """End the hold on a node, a group or the fleet; or close the breaker.

    A node that an episode left to a person is proved first, as after a repair, and put back if it is healthy and the
    mark is ours. Exit status: 0, 2 there was nothing to release, 3 the store cannot be used.
    """
    by, now = person(by), time.time()
    with opened(settings_path, store_url) as store:
        if name == "breaker":
            if not why.strip():
                raise CommandError("the breaker is closed with a reason: --why", EXIT_USAGE)
            if not close_breaker(store, by=by, why=why, now=now):
                raise CommandError("the breaker is not open", EXIT_USAGE)
            click.echo(f"the breaker is closed by {by}")
            return
        scope = hold_scope(name)
        if scope == "node":
            done = persons.release(store, name, by=by, why=why, now=now)
            if done.episode:
                click.echo(f"episode {done.episode} proves {name} and brings it back")
            elif not done.holds:
                raise CommandError(f"{name} is neither held nor left to a person", EXIT_USAGE)
            if not done.holds:
                return
        else:
            with store.write() as connection:
                if not holds.release(connection, scope, "" if scope == "fleet" else name, by=by, now=now, why=why):
                    raise CommandError(f"{name} is not held", EXIT_USAGE)
        click.echo(f"{name} is no longer held")
