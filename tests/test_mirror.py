"""Where a test lies: tests/ROOM/ for nhc/ROOM/. What is about the whole lies flat."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = {path.name for path in (ROOT / "nhc").iterdir() if (path / "__init__.py").exists()}

#: The folders that mirror no room of nhc/.
OTHERS = {
    "adapters": "adapters/",
    "ansible": "playbooks/ and inventories/, with the real ansible-playbook",
    "faults": "every command under every fault",
    "fresh": "a minimal root, in which the documents' commands are typed",
    "fuzz": "generated inputs for every parser",
    "lbnl": "the same lines for LBNL NHC and for nhc",
    "machines": "machines with systemd",
    "npd": "node-problem-detector's place in a cluster",
    "packaging": "packaging/: what is released, built and installed",
}
TESTS = sorted(path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py"))
FLAT = [path for path in TESTS if len(path.parts) == 2]


def test_each_folder_of_tests_is_a_room_or_says_what_else_it_is():
    folders = {path.parts[1] for path in TESTS if len(path.parts) > 2}
    assert folders - ROOMS == set(OTHERS)
    assert not ROOMS & set(OTHERS)


def rooms_of(path):
    """The rooms of nhc/ that a test file imports."""
    names = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "nhc":
            names |= {alias.name for alias in node.names}
        elif isinstance(node, (ast.ImportFrom, ast.Import)):
            modules = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            names |= {module.split(".")[1] for module in modules if module and module.startswith("nhc.")}
    return names & ROOMS


@pytest.mark.parametrize("path", FLAT, ids=str)
def test_what_is_about_one_room_lies_in_its_folder(path):
    rooms = rooms_of(path)  # every test may use core
    assert rooms == {"core"} or len(rooms) != 1, f"{path} is about nhc/{min(rooms)}: move it to tests/{min(rooms)}/"


def test_the_rule_sees_a_test_that_lies_wrong():
    assert rooms_of(Path("tests/core/matching/test_nodeset.py")) == {"core"}
    assert len(rooms_of(Path("tests/test_settings_files.py"))) > 1
