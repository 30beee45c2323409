"""nhc.api: what packages of others import. Each name is there, and a check pays for no adapter's imports."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import nhc.api

ROOT = Path(__file__).resolve().parents[1]


def defined():
    """The names that the module's imports for type checkers name, each with its module."""
    tree = ast.parse((ROOT / "nhc/api.py").read_text())
    return {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module != "__future__"
        for alias in node.names
        if alias.name != "TYPE_CHECKING"
    }


def test_type_checkers_and_python_see_the_same_names():
    assert set(defined()) == set(nhc.api.__all__)


@pytest.mark.parametrize("name", nhc.api.__all__)
def test_each_name_is_what_its_module_defines(name):
    module = __import__(defined()[name], fromlist=[name])
    assert getattr(nhc.api, name) is getattr(module, name)


def test_another_name_is_not_there():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        nhc.api.nothing  # noqa: B018


def test_a_check_pays_for_no_adapter():
    code = (
        "import sys; from nhc.api import Host, Outcome, arg, check, crit, ok, opt, skip, unknown, warn; "
        "print(*(name for name in sys.modules if name.startswith('nhc.marks') or name in ('re', 'json', 'typing')))"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
