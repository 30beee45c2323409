"""`nhc new adapter|repairer|sink`: a part of the adapters with the contract that it must keep as its test."""

from __future__ import annotations

import os
import re

import click

from nhc.cli.new_check import checkout_of, python_of, write_all
from nhc.data.reader import read

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_PARTING = "==== TEST ====\n"
_TABLES = {"adapter": "ADAPTERS", "repairer": "REPAIRERS", "sink": "SINKS"}
_NEXT = """\
wrote {module}
wrote {test}
Next:
  1. Write in {test} the world: how the other side is changed behind nhc's back, and how it goes wrong.
  2. Write the {kind} until the contract passes: {python} -m pytest {test}
  3. Name it in {table} of nhc/plugins.py: "{entry}": "nhc_adapters.{name}:{class_name}".
     A package of your own names it as an entry point of the group nhc.{kind}s: docs/extending.md."""

NAME = click.argument("name", metavar="NAME")
CHECKOUT = click.option(
    "--checkout", default="", metavar="DIR", help="The checkout of nhc. Default: the one you are in."
)


@click.command("adapter")
@NAME
@CHECKOUT
def new_adapter(name: str, checkout: str) -> None:
    """Begin a new adapter: its module, and the contract of adapters as its test, which fails until it is written.

    NAME is the module's name in adapters/nhc_adapters. A file that is there is never overwritten. Exit status:
    0, 2 where nothing was written.
    """
    _begin("adapter", name, checkout)


@click.command("repairer")
@NAME
@CHECKOUT
def new_repairer(name: str, checkout: str) -> None:
    """Begin a new repairer: its module, and the contract of repairers as its test, which fails until it is written.

    NAME is the module's name in adapters/nhc_adapters. A file that is there is never overwritten. Exit status:
    0, 2 where nothing was written.
    """
    _begin("repairer", name, checkout)


@click.command("sink")
@NAME
@CHECKOUT
def new_sink(name: str, checkout: str) -> None:
    """Begin a new sink: its module, and the contract of sinks as its test, which fails until it is written.

    NAME is the module's name in adapters/nhc_adapters. A file that is there is never overwritten. Exit status:
    0, 2 where nothing was written.
    """
    _begin("sink", name, checkout)


def _begin(kind: str, name: str, checkout: str) -> None:
    if not _NAME.fullmatch(name):
        raise click.UsageError(f"{name!r} is no name for a module: expected lower-case words, as rack_controller")
    top = checkout_of(checkout)
    words = {"NAME": name, "ENTRY": name.replace("_", "-"), "CLASS": "".join(map(str.capitalize, name.split("_")))}
    text = read(f"new_{kind}.txt")
    for word, value in words.items():
        text = text.replace(f"@{word}@", value)
    module, test = f"adapters/nhc_adapters/{name}.py", f"tests/adapters/test_{name}.py"
    if os.path.isdir(os.path.join(top, module[: -len(".py")])):
        raise click.UsageError(f"there is a package adapters/nhc_adapters/{name} already")
    of_module, of_test = text.split(_PARTING)
    write_all(top, {module: of_module, test: of_test})
    click.echo(_NEXT.format(
        module=module, test=test, kind=kind, python=python_of(top), table=_TABLES[kind], name=name,
        entry=words["ENTRY"], class_name=words["CLASS"],
    ))  # fmt: skip
