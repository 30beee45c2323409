"""`nhc new adapter|repairer|sink`: a part of the adapters with the contract that it must keep as its test."""

from __future__ import annotations

import os
import re

import click

from nhc.core.command_line import options
from nhc.core.command_line.common_options import click_command
from nhc.core.data.reader import read
from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Dict, Optional


# `nhc new check`: the two files that a new built-in check begins with, in a checkout of nhc.
#
# Nothing has to be registered: nhc finds a check's module by the check's name (`nhc.core.check_index`).


_CHECK_NAME = re.compile(r"check(?:_[a-z][a-z0-9]*)(?:_[a-z0-9]+)*")
_PARTING = "==== TEST ====\n"
_MARKS = ("pyproject.toml", "nhc/core/check.py", "tests/node/checks")
"""What a checkout has at its top."""

NEXT = """\
wrote {module}
wrote {test}
Next:
  1. Write in {test} what a healthy and a sick node have.
  2. Write the check until the test passes: {python} -m pytest {test}
     Files are parsed in a module of nhc/node/facts/, with a test in tests/node/facts/.
  3. Give each new reason a runbook: RUNBOOKS in {module}, as in nhc/core/data/runbooks.txt.
  4. See it work: echo '* || {check}' | nhc check local -c /dev/stdin; then make quick."""


CHECKOUT = options.text("--checkout", "DIR", "The checkout of nhc. Default: the one you are in.")


class NewCheckOptions(options.CommandOptions):
    check: str = options.argument("CHECK", needed=True)
    checkout: str = CHECKOUT


@click_command
def new_check(args: NewCheckOptions) -> None:
    """Begin a new built-in check: write its module and a test that fails until the check judges something.

    CHECK is its name, as check_thermal_zones. Its module is named for the first part of the name (thermal.py), or,
    where there is such a module, for the whole of it (thermal_zones.py). A file that is there is never overwritten.
    For a check in a package of your own see docs/extending.md. Exit status: 0, 2 where nothing was written.
    """
    if not _CHECK_NAME.fullmatch(args.check):
        raise click.UsageError(
            f"{args.check!r} is no name for a check: expected lower-case words, as check_thermal_zones"
        )
    top = checkout_of(args.checkout)
    from nhc.core.check import find

    declared = find(args.check)
    if declared is not None and not declared.distribution:
        where = declared.run.__module__.replace(".", "/")
        raise click.UsageError(f"there is a check called {args.check}, in {where}.py")
    family = _family(args.check, top)
    module, test = f"nhc/node/checks/{family}.py", f"tests/node/checks/test_{family}.py"
    write_both(top, module, test, read("new_check.txt").replace("@CHECK@", args.check))
    click.echo(NEXT.format(module=module, test=test, python=python_of(top), check=args.check))


def checkout_of(named: str) -> str:
    """The top of the checkout. Raises UsageError."""
    start = os.path.abspath(named or os.curdir)
    at = start
    while not all(os.path.exists(os.path.join(at, mark)) for mark in _MARKS):
        above = os.path.dirname(at)
        if named or above == at:
            raise click.UsageError(
                f"{start} is {'no' if named else 'not in a'} checkout of nhc; "
                "a part in a package of your own: docs/extending.md"
            )
        at = above
    return at


def python_of(top: str) -> str:
    """How a person runs the tests of a checkout."""
    venv = ".venv/bin/python"
    return venv if os.path.exists(os.path.join(top, venv)) else "python3"


def _family(check: str, top: str) -> str:
    """The name of the check's module: its first part, or all of it where there is such a module already."""
    whole = check.partition("_")[2]
    first = whole.partition("_")[0]
    return whole if os.path.exists(os.path.join(top, f"nhc/node/checks/{first}.py")) else first


def write_both(top: str, module: str, test: str, text: str) -> None:
    """Write a module and its test, which stand in one text. Raises UsageError."""
    of_module, of_test = text.split(_PARTING)
    _write_all(top, {module: of_module, test: of_test})


def _write_all(top: str, files: Dict[str, str]) -> None:
    """All of the files or none. Raises UsageError."""
    written = []
    wrong: Optional[str] = None
    for name, text in files.items():
        path = os.path.join(top, name)
        try:
            with open(path, "x", encoding="utf-8") as file:
                written.append(path)
                file.write(text)
        except FileExistsError:
            wrong = f"{name} is there already: write in it"
        except OSError as error:
            wrong = f"{path}: {error.strerror}: nothing was written"
        if wrong:
            break
    if wrong:
        for path in written:
            os.unlink(path)
        raise click.UsageError(wrong)


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


class NewPartOptions(options.CommandOptions):
    name: str = options.argument("NAME", needed=True)
    checkout: str = CHECKOUT


def _command(kind: str) -> click.Command:
    def begin(args: NewPartOptions) -> None:
        _begin(kind, args.name, args.checkout)

    return click_command(begin, _HELP.format(kind=kind))


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
