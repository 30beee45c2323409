"""`nhc demo`: a made-up fleet with the real store, remedy loop and console over it."""

from __future__ import annotations

import sys

import click

from nhc.core.command_line import options
from nhc.core.command_line.clean_output import bare_streams
from nhc.core.command_line.command_error import CommandError
from nhc.core.command_line.common_options import click_command


class DemoOptions(options.CommandOptions):
    count: int = options.whole("--size", "N", "Made-up nodes.", 500, least=1, most=100_000)
    faults: float = options.real("--faults", "NUMBER", "Faults a minute.", 20.0, least=0, most=10_000)
    seed: int = options.whole("--seed", "N", "The same seed gives the same faults.", 1)
    listen: str = options.text("--listen", "HOST:PORT", "The page's address.", "127.0.0.1:9810")
    in_terminal: bool = options.flag("--top", "Show nhc top in this terminal instead of the page.")


@click_command
def demo(args: DemoOptions) -> None:
    """Watch nhc at work on a fleet that is made up.

    One process, no root, no cluster: faults come, nodes are marked, repaired and returned; replacements wait for
    you on the page. It ends with Ctrl-C and leaves nothing.

    Exit status: 0 ended by Ctrl-C; 2 wrong usage, or a Python package is missing; 3 the address of --listen, or room
    for the store, cannot be had.
    """
    if args.in_terminal and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("--top needs a terminal")
    from nhc.console.settings import ConsoleSettings, parse_listen
    from nhc.core.settings.settings_file import SettingsError
    from nhc.lab.demo.play import play

    try:
        parse_listen(ConsoleSettings(listen=args.listen))
        if args.in_terminal:
            bare_streams()
        play(args.count, args.seed, args.faults, args.listen, lambda line: click.echo(line, err=True), args.in_terminal)
    except OSError as error:
        raise CommandError(f"{args.listen}: {error.strerror or error}") from None
    except SettingsError as error:
        raise click.UsageError(str(error)) from None
