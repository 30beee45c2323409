"""The options of `nhc check local` have the types that the code is checked with."""

import ast
from pathlib import Path

from nhc.core.command_line.options import CHECK_LOCAL, read

SOURCE = Path(__file__).parents[3] / "nhc/core/command_line/options.py"


def declared():
    """Name to type, of the class that is there for type checkers alone."""
    (kind,) = [node for node in ast.walk(ast.parse(SOURCE.read_text()))
               if isinstance(node, ast.ClassDef) and node.name == "CheckLocalOptions"]  # fmt: skip
    return {node.target.id: ast.unparse(node.annotation) for node in kind.body if isinstance(node, ast.AnnAssign)}


def type_of(option):
    if option.many:
        return "List[str]" if option.metavar else "int"
    if not option.metavar:
        return "bool"
    return "Optional[str]" if option.default is None else "str"


def test_every_option_is_declared_with_its_type():
    assert declared() == {option.name: type_of(option) for option in CHECK_LOCAL}


def test_what_is_read_is_of_those_types():
    names = {"List[str]": list, "int": int, "bool": bool, "str": str}
    given = read(CHECK_LOCAL, ["-c", "a", "-qv", "--check", "x", "-t", "5s", "--max-age", "1m"])
    for name, kind in declared().items():
        assert type(given[name]) is names.get(kind, str), name
