"""TOML, read with what this Python has: its values, its mistakes in one plain line, and the line of each key."""

from __future__ import annotations

import re

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple, Union

    Path = Tuple[Union[str, int], ...]
    """Where a value stands: `("rate", "mark")`, or `("rule", 1, "name")` in the second [[rule]]."""


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


def _plain(message: str) -> str:
    """A parser's words. It names a table that stands twice as a tuple of its parts."""
    match = _TWICE.match(message)
    if not match:
        return message
    name = ".".join(part.strip().strip("'") for part in match[1].split(","))
    where = f"line {match[2]}: " if match[2] else ""
    return f"{where}the table [{name}] stands a second time: a table may stand once, so put its keys together"


_TOKEN = re.compile(
    r"""(?P<text>\"{3}(?:\\.|[^\\])*?\"{3,5}(?!\") | '{3}.*?'{3,5}(?!') | "(?:\\.|[^"\\\n])*" | '[^'\n]*')
      | (?P<sign>[\[\]{}=.\n]) | (?P<skip>\#[^\n]*|[^\S\n]+) | (?P<bare>[^\s\[\]{}=.\#"']+)""",
    re.VERBOSE | re.DOTALL,
)


def lines(text: str) -> Dict[Path, int]:
    """The line, from 1, that each table and key of a TOML text stands on first; the text is one that `parse` takes.

    A key within an inline table ({ key = 1 }) is not named: it stands where the table does.
    """
    places: Dict[Path, int] = {}
    counts: Dict[Path, int] = {}  # of the tables [[NAME]]
    prefix: Path = ()
    statement: List[Tuple[str, str]] = []  # what was read since the statement began
    line = begun = 1
    depth = 0  # of brackets and braces; a line ends no statement within them
    for match in _TOKEN.finditer(text):
        kind, piece = str(match.lastgroup), match[0]
        if piece == "\n" and depth == 0:
            prefix = _note(statement, prefix, begun, places, counts)
            statement = []
        elif kind != "skip" and piece != "\n":
            begun = begun if statement else line
            statement.append((kind, piece))
            if kind == "sign":
                depth += (piece in "[{") - (piece in "]}")
        line += piece.count("\n")
    _note(statement, prefix, begun, places, counts)
    return places


def _note(
    statement: List[Tuple[str, str]], prefix: Path, line: int, places: Dict[Path, int], counts: Dict[Path, int]
) -> Path:
    """Note the line of one statement's keys. The table that the statements below belong to."""
    header = statement[:1] == [("sign", "[")]
    several = header and statement[1:2] == [("sign", "[")]  # [[rule]]: one more of its kind
    path: Path = () if header else prefix
    parts: List[str] = []
    for kind, piece in statement[1 + several if header else 0 :]:
        if kind == "sign" and piece in "]=":
            break
        if kind != "sign":
            parts.append(_key(piece))
    for number, part in enumerate(parts):
        path += (part,)
        places.setdefault(path, line)
        last = number == len(parts) - 1
        count = counts.get(path, 0)
        if several and last:
            counts[path] = count + 1
            path += (count,)
            places[path] = line
        elif count and (header or not last):  # what follows belongs to the latest
            path += (count - 1,)
    return path if header else prefix


def _key(piece: str) -> str:
    if piece[0] == '"':
        import json

        try:
            return str(json.loads(piece))
        except ValueError:  # an escape that only TOML has
            return piece[1:-1]
    return piece.strip("'")
