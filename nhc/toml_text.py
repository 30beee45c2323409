"""TOML, read with what this Python has, and its mistakes in one plain line."""

from __future__ import annotations

import re
from typing import Any, Dict


class BadToml(ValueError):
    """What is no TOML: one line that says where."""


class NoToml(Exception):
    """Nothing here can read TOML."""


def parse(text: str) -> Dict[str, Any]:
    """The tables of a TOML text. Raises BadToml or NoToml."""
    for name in ("tomllib", "tomli"):  # the standard library's since Python 3.11
        try:
            toml = __import__(name)
        except ModuleNotFoundError:
            continue
        try:
            return dict(toml.loads(text))
        except toml.TOMLDecodeError as error:
            raise BadToml(_plain(str(error))) from None
        except RecursionError:
            raise BadToml("nested too deep") from None
    raise NoToml("reading TOML needs Python 3.11, or the package tomli")


_TWICE = re.compile(r"Cannot declare \((.*?),?\) twice(?: \(at line (\d+).*)?")


def _plain(said: str) -> str:
    """A parser's words. It names a table that stands twice as a tuple of its parts."""
    found = _TWICE.match(said)
    if not found:
        return said
    name = ".".join(part.strip().strip("'") for part in found[1].split(","))
    where = f"line {found[2]}: " if found[2] else ""
    return f"{where}the table [{name}] stands a second time: a table may stand once, so put its keys together"
