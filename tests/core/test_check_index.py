"""Which module a check lies in: told by its name, so that nothing is registered."""

import subprocess
import sys
from pathlib import Path

import pytest

from nhc.core import check_index
from nhc.core.check import find_all

ROOT = Path(__file__).resolve().parents[2]
BUILT_IN = [check for check in find_all() if not check.distribution]


def test_the_families_are_the_modules():
    there = {path.stem for path in (ROOT / "nhc/node/checks").glob("*.py")} - {"__init__"}
    assert set(check_index.families()) == there


@pytest.mark.parametrize("check", BUILT_IN, ids=lambda check: check.name)
def test_a_checks_module_is_told_by_its_name(check):
    assert check_index.module_of(check.name) == check.run.__module__, (
        f"{check.name} stands in {check.run.__module__}: move it to a module that its name begins with, or give its "
        "name's beginning a line in ELSEWHERE of nhc/core/check_index.py"
    )


@pytest.mark.parametrize("begins", check_index.ELSEWHERE)
def test_every_exception_is_needed(begins, monkeypatch):
    """Without the line some check is not found."""
    monkeypatch.delitem(check_index.ELSEWHERE, begins)
    assert any(check_index.module_of(check.name) != check.run.__module__ for check in BUILT_IN)


@pytest.mark.parametrize(
    "name", ["check_", "check__", "check_nosuch_thing", "check___init__", "check_" + "a_" * 50000, "check_.._cli", "x"]
)
def test_a_name_that_is_no_checks_has_no_module(name):
    assert check_index.module_of(name) == ""


def test_asking_where_a_check_is_imports_no_check():
    """A line for the shell that names checks must not pay for their modules."""
    code = ("import sys; from nhc.core import check_index; print(check_index.module_of('check_fs_free'), "
            "check_index.module_of('check_gpu_ecc_mode'), 'nhc.node.checks.fs' in sys.modules)")  # fmt: skip
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["nhc.node.checks.fs", "nhc.node.checks.gpu_modes", "False"]
