"""`nhc new adapter|repairer|sink`: a module, and its contract as a test that fails until the module is written."""

import os
import subprocess
import sys

import pytest

from nhc.lab.commands.new_part import _TABLES as KINDS
from tests.support.run import ROOT, nhc


@pytest.fixture
def checkout(tmp_path):
    """What a newcomer touches, and what its tests need."""
    for part in ("nhc", "tests/support", "tests/node/checks", "tests/conftest.py", "adapters/nhc_adapters/__init__.py"):
        (tmp_path / part).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / part).symlink_to(ROOT / part)
    (tmp_path / "tests/adapters").mkdir()
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    return tmp_path


@pytest.mark.thorough
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_it_begins_with_the_contract_that_fails(checkout, kind):
    done = nhc("new", kind, "rack_controller", "--checkout", checkout)
    assert done.returncode == 0, done.stderr
    module, test = "adapters/nhc_adapters/rack_controller.py", "tests/adapters/test_rack_controller.py"
    assert f"wrote {module}\nwrote {test}\n" in done.stdout
    assert '"rack-controller": "nhc_adapters.rack_controller:RackController"' in done.stdout
    for tool in (["ruff", "check", "-q"], ["ruff", "format", "-q", "--check"], ["mypy", "--no-incremental"]):
        files = [module] if tool[0] == "mypy" else [module, test]
        said = subprocess.run([sys.executable, "-m", *tool, *files], cwd=checkout, capture_output=True, text=True)
        assert said.returncode == 0, said.stdout + said.stderr
    pytest_of = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    env = {key: value for key, value in os.environ.items() if key != "NHC_FAILED_TESTS"}  # these shall fail
    ran = subprocess.run([*pytest_of, test], cwd=checkout, env=env, capture_output=True, text=True)
    assert ran.returncode == 1, ran.stdout
    assert "not written yet" in ran.stdout
    assert "error" not in ran.stdout.splitlines()[-1]  # it fails as a test, not as a file
    again = nhc("new", kind, "rack_controller", "--checkout", checkout)
    assert (again.returncode, len(again.stderr.splitlines()[-1:])) == (2, 1)
    assert f"{module} is there already" in again.stderr


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "said"), [("Rack", "is no name for a module"), ("../x", "is no name for a module")])
def test_a_name_that_is_none_is_refused(checkout, name, said):
    done = nhc("new", "sink", name, "--checkout", checkout)
    assert done.returncode == 2
    assert said in done.stderr
