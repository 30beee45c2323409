"""How commands show what they know: JSON, rows in columns, a time, an age.

With `--format json` a command that prints lines prints one document when it ends (docs/reference.md, "JSON of
commands"):

    {"command": "hold remedy", "status": 0, "results": [{"message": "n1: on hold", ...}, ...]}

A result is a line that the command prints, and what `tell` says of it beside the message. A command with a document of
its own declares `--format` itself (`nhc.core.command_line.options.Formatted`).
"""

from __future__ import annotations

import io
import json
import sys
import time
from contextlib import redirect_stdout
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import click

from nhc.core.command_line.common_options import parameters
from nhc.core.command_line.options import Formatted
from nhc.core.timestamps import utc
from nhc.core.units import show_age


def show(value: object) -> None:
    """A value as JSON on standard output."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows in columns; the last one is as wide as it is."""
    widths = [max((len(row[at]) for row in rows), default=0) for at in range(len(rows[0]) - 1)] if rows else []
    for row in rows:
        cells: List[str] = [f"{cell:<{width}}" for cell, width in zip(row, widths)]
        yield "  ".join([*cells, row[-1]]).rstrip()


def show_table(rows: Sequence[Sequence[str]], nothing: str = "") -> None:
    """Rows in columns on standard output. With `nothing` the first is a head, and that line stands for no others."""
    for line in [nothing] if nothing and len(rows) < 2 else table(rows):
        click.echo(line)


def when(at: Optional[float]) -> str:
    """A time as a person reads it, "-" for none."""
    return "-" if at is None else utc(at)


def age(at: float) -> str:
    """How long ago, in the largest unit that fits."""
    return show_age(time.time() - at)


class ResultStream(io.StringIO):
    """Standard output of a command whose lines become results."""

    def __init__(self) -> None:
        super().__init__()
        self.results: List[Dict[str, object]] = []

    def end_lines(self) -> List[Dict[str, object]]:
        """The results, with all that was printed until now."""
        self.results += [{"message": line} for line in self.getvalue().splitlines() if line]
        self.seek(0)
        self.truncate()
        return self.results


def print_result(message: str, **more: object) -> None:
    """Print a line, which is a result with more to it in JSON."""
    if isinstance(sys.stdout, ResultStream):
        sys.stdout.end_lines().append({"message": message, **more})
    else:
        click.echo(message)


def formatted(command: click.Command) -> click.Command:
    """The same command, which takes `--format` unless it has one."""
    run = command.callback
    if run is None or any("--format" in param.opts for param in command.params):
        return command

    def callback(*args: Any, form: str, **options: Any) -> Any:
        return results(form, lambda: run(*args, **options))

    command.params += parameters(Formatted)
    command.callback = callback
    return command


def results(form: str, run: Callable[[], Any]) -> Any:
    """Run a command that prints lines; in JSON they are one document. Its exit status."""
    if form != "json":
        return run()
    stream = ResultStream()
    with redirect_stdout(stream):
        status = _status(run)
    words = click.get_current_context().command_path.split()[1:]
    show({"command": " ".join(words), "status": status, "results": stream.end_lines()})
    return status


def _status(run: Callable[[], Any]) -> int:
    """The exit status that a command returns, or ends with."""
    try:
        return int(run() or 0)
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except SystemExit as ending:
        if isinstance(ending.code, str):
            raise
        return int(ending.code or 0)
