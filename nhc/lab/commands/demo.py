"""`nhc demo`: a made-up fleet with the real store, remedy loop and console over it."""

from __future__ import annotations

import sys

import click

from nhc.core.command_line.clean_output import bare_streams
from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import FiniteNumber


@click.command()
@click.option("--size", "count", type=click.IntRange(1, 100_000), default=500, show_default=True, help="Made-up nodes.")
@click.option("--faults", type=FiniteNumber(0, 10_000), default=20.0, show_default=True, help="Faults a minute.")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same faults.")
@click.option("--listen", metavar="HOST:PORT", default="127.0.0.1:9810", show_default=True, help="The page's address.")
@click.option("--top", "in_terminal", is_flag=True, help="Show nhc top in this terminal instead of the page.")
def demo(count: int, faults: float, seed: int, listen: str, in_terminal: bool) -> None:
    """Watch nhc at work on a fleet that is made up.

    One process, no root, no cluster: faults come, nodes are marked, repaired and returned; replacements wait for
    you on the page. It ends with Ctrl-C and leaves nothing.

    Exit status: 0 ended by Ctrl-C; 2 wrong usage, or a Python package is missing; 3 the address of --listen, or room
    for the store, cannot be had.
    """
    if in_terminal and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("--top needs a terminal")
    from nhc.console.settings import ConsoleSettings, parse_listen
    from nhc.core.settings.settings_file import SettingsError
    from nhc.lab.demo.play import play

    try:
        parse_listen(ConsoleSettings(listen=listen))
        if in_terminal:
            bare_streams()
        play(count, seed, faults, listen, lambda line: click.echo(line, err=True), in_terminal)
    except OSError as error:
        raise CommandError(f"{listen}: {error.strerror or error}") from None
    except SettingsError as error:
        raise click.UsageError(str(error)) from None
