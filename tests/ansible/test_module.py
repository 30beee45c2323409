"""Parts of the modules that need no machine."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import time
from pathlib import Path
from types import ModuleType
from typing import Iterator

import pytest

from nhc.core.command_line.options import CommandOptions
from tests.ansible.conftest import ROOT
from tests.support.require import need

PLUGINS = ROOT / "playbooks/collections/ansible_collections/nhc/nhc/plugins"


def names_of_nhc(source: str) -> Iterator[tuple[str, str, ast.Call | None]]:
    """Each name of nhc's that a plugin uses, with its module and its call: what `import_nhc` brings has no types."""
    tree = ast.parse(source)
    imported: dict[str, str] = {}

    def module(value: ast.expr) -> str:
        asked = isinstance(value, ast.Call) and ast.unparse(value.func) == "import_nhc"
        return ast.literal_eval(value.args[0]) if isinstance(value, ast.Call) and asked else ""

    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            (target,) = node.targets
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts))
            imported.update({ast.unparse(name): module(value) for name, value in pairs if module(value)})
    calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            where = module(node.value) or imported.get(ast.unparse(node.value), "")
            if where:
                yield where, node.attr, calls.get(id(node))


def takes(called: object, call: ast.Call) -> bool:
    """Whether a function or a class of nhc's takes a call's arguments."""
    words = {one.arg: None for one in call.keywords if one.arg}
    if any(isinstance(one, ast.Starred) for one in call.args) or len(words) < len(call.keywords):
        return True
    try:
        inspect.signature(called).bind(*call.args, **words)  # type: ignore[arg-type]
    except TypeError:
        return False
    return (
        not isinstance(called, type) or not issubclass(called, CommandOptions) or words.keys() <= set(called.declared)
    )


@pytest.mark.parametrize("path", ["plugin_utils/fold.py", "action/nhc_mark.py", "action/nhc_preflight.py"])
def test_what_a_plugin_uses_of_nhc_is_there(path: str) -> None:
    used = list(names_of_nhc((PLUGINS / path).read_text()))
    assert used
    assert {(where, name) for where, name, _call in used if not hasattr(importlib.import_module(where), name)} == set()
    called = {(where, name): call for where, name, call in used if call is not None}
    wrong = [key for key, call in called.items() if not takes(getattr(importlib.import_module(key[0]), key[1]), call)]
    assert wrong == []


def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, PLUGINS / path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_command_that_hangs_is_ended_with_its_children() -> None:
    process = load("module_utils/process.py")
    begin = time.monotonic()
    with pytest.raises(process.Overdue):
        process.run_until(["/bin/sh", "-c", "sleep 600 & wait"], 0.2)
    assert time.monotonic() - begin < 60


def test_a_child_that_keeps_the_output_open_does_not_hold_the_answer() -> None:
    process = load("module_utils/process.py")
    begin = time.monotonic()
    assert process.run_until(["/bin/sh", "-c", "sleep 30 & echo said; exit 3"], 60) == (3, "said\n", "")
    assert time.monotonic() - begin < 25


@pytest.fixture
def snapshot() -> ModuleType:
    need("ansible-core", importlib.util.find_spec("ansible"))
    return load("modules/nhc_snapshot.py")


def test_restoring_brings_back_what_was_there_and_nothing_else(snapshot: ModuleType, tmp_path: Path) -> None:
    managed = tmp_path / "etc"
    (managed / "sub").mkdir(parents=True)
    (managed / "kept").write_text("before")
    (managed / "kept").chmod(0o640)
    (managed / "link").symlink_to("kept")
    paths, archive = [str(managed), str(tmp_path / "absent")], str(tmp_path / "tar")
    before = snapshot.look(paths)
    snapshot.save(paths, archive)
    assert snapshot.remembered(archive) == before
    (managed / "kept").write_text("after")
    (managed / "new").write_text("new")
    (managed / "link").unlink()
    (tmp_path / "absent").write_text("new")
    assert snapshot.differing(before, snapshot.look(paths)) == [
        str(tmp_path / "absent"), *(str(managed / name) for name in ("kept", "link", "new")),
    ]  # fmt: skip
    snapshot.restore(paths, archive)
    assert snapshot.look(paths) == before
