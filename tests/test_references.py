"""Names that no type checker follows: what benchmarks import, what Ansible's plugins ask nhc for by its name, what a
comment or a document calls `nhc.x.y`.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import Iterator, Optional, Tuple

import pytest

from nhc.core.plugins import RENDERERS
from nhc.marks import plugins

ROOT = Path(__file__).parents[1]
PLUGINS = ROOT / "playbooks/collections/ansible_collections/nhc/nhc/plugins"
QUOTED = re.compile(r"`((?:nhc|nhc_adapters)(?:\.[A-Za-z_]\w*)+)`")
ASKED = re.compile(r"import_nhc\(\"([\w.]+)\"\)(?:\.(\w+))?")
OTHERS = {
    *(kind.group for kind in (*plugins.KINDS, RENDERERS)),
    "nhc.checks",
    "nhc.conf",
    "nhc.pyz",
}
"""Groups of entry points, and files."""
NOT_OURS = re.compile(r"nhc\.(check|node|reason|incident|apart|service|timer|nhc|css|fish|example)\b")
"""Fields of events, units, files and templates, which look like modules."""


@cache
def source(module: str) -> Optional[str]:
    """The text of a module, None where there is none of that name."""
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return None
    if found is None:
        return None
    return Path(found.origin).read_text() if found.origin else ""  # a package without a file of its own


def has(module: str, name: str) -> bool:
    text = source(module)
    return text is not None and (source(f"{module}.{name}") is not None or re.search(rf"\b{name}\b", text) is not None)


def is_there(dotted: str) -> bool:
    """Whether a name is a module, or something that a module's text has."""
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        if source(".".join(parts[:end])) is not None:
            return all(has(".".join(parts[:end]), part) for part in parts[end:])
    return False


def imports(path: Path) -> Iterator[Tuple[str, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("nhc", "nhc_adapters", "tests"):
            yield from ((str(node.module), alias.name) for alias in node.names)


@pytest.mark.parametrize("path", sorted((ROOT / "bench").glob("*.py")), ids=lambda path: path.name)
def test_what_a_benchmark_imports_is_there(path):
    assert [f"{module}.{name}" for module, name in imports(path) if not has(module, name)] == []


def test_what_ansibles_plugins_ask_nhc_for_is_there():
    asked = {(found[1], found[2]) for path in PLUGINS.rglob("*.py") for found in ASKED.finditer(path.read_text())}
    assert asked
    assert [f"{module}.{name}" for module, name in asked if not (has(module, name) if name else source(module))] == []


def test_what_comments_and_documents_name_is_there():
    files = [path for room in ("nhc", "adapters/nhc_adapters", "bench") for path in sorted((ROOT / room).rglob("*.py"))]
    files += sorted((ROOT / "docs").glob("*.md"))  # decisions speak of their time
    named = {(found[1], path) for path in files for found in QUOTED.finditer(path.read_text())}
    assert len(named) > 100
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for name, path in sorted(named)
        if name not in OTHERS and not NOT_OURS.match(name) and not is_there(name)
    ]
    assert wrong == []
