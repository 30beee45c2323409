"""`nhc serve server`, `nhc token node`, `nhc token revoke`, `nhc list tokens`: take in the reports that agents push."""

from __future__ import annotations

import contextlib
import json
import time

import click

from nhc.core.command_line import options
from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import click_command, person, service_command
from nhc.core.command_line.printing import print_result
from nhc.core.exit_status import EXIT_HEALTHY, EXIT_UNHEALTHY, EXIT_USAGE
from nhc.core.light import TYPE_CHECKING
from nhc.core.matching.node_ranges import expand
from nhc.core.matching.nodeset import BadRange
from nhc.core.model import printable
from nhc.core.timestamps import utc_milliseconds as utc
from nhc.store.commands.store_options import StoreOptions, opened
from nhc.store.server.settings import FILE, ServerSettings

if TYPE_CHECKING:
    from typing import Dict, Optional

    from nhc.core.system.stop_signals import StopSignals
    from nhc.store.settings import StoreSettings


load = FILE.load


class ServerOptions(StoreOptions):
    settings: str = options.settings_file("server.toml", checked=True, heading="How it serves")
    listen: Optional[str] = options.setting("--listen", ServerSettings, "listen", "HOST:PORT")


@service_command
def run(args: ServerOptions) -> None:
    """Take in the reports that agents push (the sink `server`), until told to end.

    Exit status: 0 ended as told, 2 wrong settings or an address that cannot be listened on, 3 the store cannot be used.
    """
    from nhc.store import settings as store_settings

    serve(FILE.load(args.settings, overrides=args.overrides(ServerSettings)), store_settings.load(url=args.url))


def serve(server: ServerSettings, settings: StoreSettings, stop: Optional[StopSignals] = None) -> None:
    """Serve until a signal. Raises StoreError; CommandError where its address cannot be had."""
    from nhc.store import settings as store_settings
    from nhc.store.server import run as serving

    try:
        with contextlib.closing(store_settings.opened(settings)) as store:
            serving.serve(server, store, settings.pace, settings.prune, stop)
    except serving.CannotServe as error:
        raise CommandError(str(error), EXIT_USAGE) from None


class ServerTokenOptions(StoreOptions):
    nodes: str = options.argument("NODE|NODESET", needed=True)
    only: bool = options.flag("--only", "Revoke the tokens that the nodes had until now.", heading="What it is for")


@click_command
def token(args: ServerTokenOptions) -> None:
    """Make a token for a node and print it: it is shown this once, the store keeps its hash.

    For a node set (gpu[001-512]) a line for each node: its name, a blank, its token. All are made, or none.

    Exit status: 0, 2 wrong usage, 3 the store cannot be used.
    """
    if not args.nodes or args.nodes != printable(args.nodes).strip():
        raise click.UsageError(f"{printable(args.nodes, 60)!r} is no node's name")
    try:
        names = list(dict.fromkeys(expand(args.nodes)))
    except BadRange as error:
        raise click.UsageError(f"{printable(args.nodes, 60)}: {error}") from None
    long = [name for name in names if len(name) > 253]
    if long or not names:
        raise click.UsageError(f"{printable((long or [args.nodes])[0], 60)!r} is no node's name")
    from nhc.store.server import access

    made: Dict[str, str] = {}
    with opened(args.url, create=True) as store, store.write() as connection:
        for node in names:
            made[node] = access.make_token(connection, node, by=person(), now=time.time())
            if args.only:
                access.revoke(connection, node, by=person(), now=time.time(), keep=made[node])
    for node, text in made.items():
        print_result(text if names == [args.nodes] else f"{node} {text}", node=node, token=text)


class RevokeOptions(StoreOptions):
    node: str = options.argument("NODE", needed=True)


@click_command
def revoke(args: RevokeOptions) -> int:
    """End all tokens of a node; servers see it within seconds.

    Exit status: 0 ended, 1 the node had none, 2 wrong settings, 3 the store cannot be used.
    """
    from nhc.store.server import access

    with opened(args.url) as store, store.write() as connection:
        count = access.revoke(connection, args.node, by=person(), now=time.time())
    print(f"{args.node}: {count} tokens revoked")
    return EXIT_HEALTHY if count else EXIT_UNHEALTHY


class TokensOptions(StoreOptions, options.Formatted):
    node: str = options.argument("[NODE]")


@click_command
def tokens(args: TokensOptions) -> None:
    """List tokens: for which node, by whom and when they were made and revoked.

    Exit status: 0, 2 wrong settings, 3 the store cannot be used.
    """
    from nhc.store.server import access

    with opened(args.url) as store, store.read() as connection:
        rows = access.list_tokens(connection, args.node)
    if args.form == "json":
        print(json.dumps([row._asdict() for row in rows]))
        return
    for row in rows:
        ended = f", revoked {utc(row.ended)}" if row.ended else ""
        print(f"{row.node}: made {utc(row.made)} by {row.by}{ended}")
