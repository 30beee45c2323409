"""`nhc serve server`, `nhc token node`, `nhc token revoke`, `nhc list tokens`: take in the reports that agents push."""

from __future__ import annotations

import contextlib
import json
import time

import click

from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import FORMAT, GroupedCommand, check_settings, person, service_log, under
from nhc.core.command_line.printing import print_result
from nhc.core.exit_status import EXIT_HEALTHY, EXIT_UNHEALTHY, EXIT_USAGE
from nhc.core.light import TYPE_CHECKING
from nhc.core.matching.node_ranges import expand
from nhc.core.matching.nodeset import BadRange
from nhc.core.model import printable
from nhc.core.system.addresses import host_and_port, is_loopback
from nhc.core.timestamps import utc_milliseconds as utc
from nhc.store.commands.store_options import URL, opened

if TYPE_CHECKING:
    from typing import Dict, Optional, Tuple

    from nhc.core.system.stop_signals import StopSignals
    from nhc.store.server.settings import ServerSettings
    from nhc.store.settings import StoreSettings


@click.command("run", cls=GroupedCommand)
@service_log
@check_settings("server.toml", "server_path", "How it serves")
@under("How it serves")(
    "-s", "--settings", "server_path", default="", metavar="FILE", help="Default: /etc/nhc/server.toml, if any."
)
@under("How it serves")("--listen", default="", metavar="HOST:PORT", help="Instead of the settings' listen.")
@URL
def run(server_path: str, listen: str, url: str) -> None:
    """Take in the reports that agents push (the sink `server`), until told to end.

    Exit status: 0 ended as told, 2 wrong settings or an address that cannot be listened on, 3 the store cannot be used.
    """
    server, settings = settings_of(server_path, url=url)
    if listen:
        server = server._replace(listen=listen)
        try:
            host, _port = host_and_port(listen)
        except ValueError as error:
            raise click.UsageError(f"--listen: {error}") from None
        if not server.tls and not is_loopback(host):
            raise click.UsageError(
                f"--listen: {listen} is not on loopback: that takes HTTPS (tls.certificate, tls.key)"
            )
    serve(server, settings)


def settings_of(server_path: str, store_path: str = "", url: str = "") -> Tuple[ServerSettings, StoreSettings]:
    """The settings of the server and of its store, by their files. Raises SettingsError."""
    from nhc.store import settings as store_settings
    from nhc.store.server.settings import load

    return load(server_path), store_settings.load(store_path, url)


def serve(server: ServerSettings, settings: StoreSettings, stop: Optional[StopSignals] = None) -> None:
    """Serve until a signal. Raises StoreError; CommandError where its address cannot be had."""
    from nhc.store import settings as store_settings
    from nhc.store.server import run as serving

    try:
        with contextlib.closing(store_settings.opened(settings)) as store:
            serving.serve(server, store, settings.pace, settings.prune, stop)
    except serving.CannotServe as error:
        raise CommandError(str(error), EXIT_USAGE) from None


@click.command("token", cls=GroupedCommand)
@click.argument("nodes", metavar="NODE|NODESET")
@URL
@under("What it is for")("--only", is_flag=True, help="Revoke the tokens that the nodes had until now.")
def token(nodes: str, url: str, only: bool) -> None:
    """Make a token for a node and print it: it is shown this once, the store keeps its hash.

    For a node set (gpu[001-512]) a line for each node: its name, a blank, its token. All are made, or none.

    Exit status: 0, 2 wrong usage, 3 the store cannot be used.
    """
    if not nodes or nodes != printable(nodes).strip():
        raise click.UsageError(f"{printable(nodes, 60)!r} is no node's name")
    try:
        names = list(dict.fromkeys(expand(nodes)))
    except BadRange as error:
        raise click.UsageError(f"{printable(nodes, 60)}: {error}") from None
    long = [name for name in names if len(name) > 253]
    if long or not names:
        raise click.UsageError(f"{printable((long or [nodes])[0], 60)!r} is no node's name")
    from nhc.store.server import access

    made: Dict[str, str] = {}
    with opened(url, create=True) as store, store.write() as connection:
        for node in names:
            made[node] = access.make_token(connection, node, by=person(), now=time.time())
            if only:
                access.revoke(connection, node, by=person(), now=time.time(), keep=made[node])
    for node, text in made.items():
        print_result(text if names == [nodes] else f"{node} {text}", node=node, token=text)


@click.command("revoke", cls=GroupedCommand)
@click.argument("node")
@URL
def revoke(node: str, url: str) -> int:
    """End all tokens of a node; servers see it within seconds.

    Exit status: 0 ended, 1 the node had none, 2 wrong settings, 3 the store cannot be used.
    """
    from nhc.store.server import access

    with opened(url) as store, store.write() as connection:
        count = access.revoke(connection, node, by=person(), now=time.time())
    print(f"{node}: {count} tokens revoked")
    return EXIT_HEALTHY if count else EXIT_UNHEALTHY


@click.command("tokens", cls=GroupedCommand)
@click.argument("node", required=False, default="")
@URL
@FORMAT
def tokens(node: str, url: str, form: str) -> None:
    """List tokens: for which node, by whom and when they were made and revoked.

    Exit status: 0, 2 wrong settings, 3 the store cannot be used.
    """
    from nhc.store.server import access

    with opened(url) as store, store.read() as connection:
        rows = access.list_tokens(connection, node)
    if form == "json":
        print(json.dumps([row._asdict() for row in rows]))
        return
    for row in rows:
        ended = f", revoked {utc(row.ended)}" if row.ended else ""
        print(f"{row.node}: made {utc(row.made)} by {row.by}{ended}")
