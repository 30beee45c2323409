"""`nhc new adapter|repairer|sink`: a part of the adapters with the contract that it must keep as its test."""

from __future__ import annotations

import os
import re

import click

from nhc.core.data.reader import read
from nhc.lab.commands.new_check import checkout_of, python_of, write_both

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_TABLES = {"adapter": "ADAPTERS", "repairer": "REPAIRERS", "sink": "SINKS"}
_NEXT = """\
wrote {module}
wrote {test}
Next:
  1. Write in {test} the world: how the other side is changed behind nhc's back, and how it goes wrong.
  2. Write the {kind} until the contract passes: {python} -m pytest {test}
  3. Name it in {table} of nhc/marks/plugins.py: "{entry}": "nhc_adapters.{name}:{class_name}".
     A package of your own names it as an entry point of the group nhc.{kind}s: docs/extending.md."""


_HELP = """Begin a new {kind}: its module, and the contract of {kind}s as its test, which fails until it is written.

NAME is the module's name in adapters/nhc_adapters. A file that is there is never overwritten. Exit status: 0, 2 where
nothing was written.
"""


def _command(kind: str) -> click.Command:
    @click.command(kind, help=_HELP.format(kind=kind))
    @click.argument("name", metavar="NAME")
    @click.option("--checkout", default="", metavar="DIR", help="The checkout of nhc. Default: the one you are in.")
    def command(name: str, checkout: str) -> None:
        _begin(kind, name, checkout)

    return command


new_adapter, new_repairer, new_sink = map(_command, _TABLES)


def _begin(kind: str, name: str, checkout: str) -> None:
    if not _NAME.fullmatch(name):
        raise click.UsageError(f"{name!r} is no name for a module: expected lower-case words, as rack_controller")
    top = checkout_of(checkout)
    marks = {"NAME": name, "ENTRY": name.replace("_", "-"), "CLASS": "".join(map(str.capitalize, name.split("_")))}
    text = read(f"new_{kind}.txt")
    for mark, value in marks.items():
        text = text.replace(f"@{mark}@", value)
    module, test = f"adapters/nhc_adapters/{name}.py", f"tests/adapters/test_{name}.py"
    if os.path.isdir(os.path.join(top, module[: -len(".py")])):
        raise click.UsageError(f"there is a package adapters/nhc_adapters/{name} already")
    write_both(top, module, test, text)
    click.echo(_NEXT.format(
        module=module, test=test, kind=kind, python=python_of(top), table=_TABLES[kind], name=name,
        entry=marks["ENTRY"], class_name=marks["CLASS"],
    ))  # fmt: skip
