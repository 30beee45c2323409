"""`nhc remedy hold NAME`: nothing is done to a node, a group or the fleet until it is released."""

from __future__ import annotations

import sys
import time
from typing import Optional

import click
from sqlalchemy.engine import Connection

from nhc.cli.command_error import CommandError
from nhc.cli.common_options import BY, person
from nhc.cli.option_groups import GroupedCommand, under
from nhc.cli.remedy_options import SETTINGS, STORE, carried_out, opened, when
from nhc.cli.remedy_site import site_of
from nhc.matching.node_names import Names
from nhc.model import printable
from nhc.policy.bounds import radii_of
from nhc.ports.adapter import AdapterError
from nhc.remedy.persons import hold_scope
from nhc.settings.settings_file import SettingsError
from nhc.store import holds, nodes
from nhc.store.errors import StoreError
from nhc.timestamps import from_utc
from nhc.units import seconds


@click.command("hold", cls=GroupedCommand)
@click.argument("name", metavar="NODE|KIND=GROUP|fleet")
@under("What is decided")("--why", required=True, metavar="TEXT", help="For everybody who meets the hold.")
@under("What is decided")("--until", default="", metavar="TIME", help="When it ends: 3d, 12h, or 2026-12-01T15:00:00Z. "
                          "Default: until it is released.")  # fmt: skip
@BY
@SETTINGS
@STORE
def command(name: str, why: str, until: str, by: str, settings_path: Optional[str], store_url: Optional[str]) -> None:
    """Hold a node (n17), a group (rack=r12) or the fleet: no mark, no repair, no clear. A repair that was sent is still
    watched. A name that no node of the store or the cluster has is held as well, and said. A group that no node is in
    is refused, unless the cluster cannot be asked.

    Exit status: 0, 2 wrong usage or no such group, 3 the store cannot be used.
    """
    carried_out("hold", lambda: _hold(name, why, until, person(by), settings_path, store_url))


def _hold(name: str, why: str, until: str, by: str, path: Optional[str], url: Optional[str]) -> int:
    if not why.strip():
        raise CommandError("--why is empty", 2)
    now = time.time()
    end = _end(until, now)
    scope = hold_scope(name)
    store = opened(path, url)
    try:
        with store.read() as connection:
            known = scope == "fleet" or is_known(connection, scope, name)
        there = None if known else _in_cluster(scope, name, path, url)
        if there is False and scope == "group":
            raise CommandError(f"{printable(name)}: no node is in that group: nothing is held", 2)
        with store.write() as connection:
            holds.hold(connection, scope, "" if scope == "fleet" else name, by=by, why=why, now=now, until=end)
    finally:
        store.close()
    if not known and not there:
        what = f"no node of that name has reported to {store.name}" if scope == "node" else "no node is in that group"
        print(f"nhc remedy hold: {printable(name)}: {what}: see that the name is right", file=sys.stderr)
    click.echo(f"{name} is held by {by} until {when(end) if end is not None else 'it is released'}")
    return 0


def _in_cluster(scope: str, name: str, path: Optional[str], url: Optional[str]) -> Optional[bool]:
    """Whether the scheduler or cluster of the settings has that node or group; None where it cannot be asked."""
    try:
        with site_of(path, url, look=True) as site:
            states = site.marker.nodes()
    except (CommandError, SettingsError, AdapterError, StoreError):
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
        raise CommandError(f"--until: {text!r} is not {expected}", 2)
    return end
