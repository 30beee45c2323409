"""`nhc new check`: two files, and nothing to register."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.support.run import ROOT

pytestmark = pytest.mark.thorough

ZONE = "/sys/class/thermal/thermal_zone0"
WRITTEN = '''\
"""Thermal zones stay below their critical temperature."""

from __future__ import annotations

from nhc.core.check import check
from nhc.core.host import Host
from nhc.core.model import Outcome, crit, ok, skip, unknown

RUNBOOKS = """
ZoneIsCritical
means: A thermal zone is at its critical temperature.
causes: A fan has failed.
do: Look at the fans.
confirm: The check is OK under load.
action: inspect
source: the kernel's thermal documentation
"""


@check("check_thermal_zones")
def check_thermal_zones(host: Host) -> Outcome:
    """The first thermal zone is below 100 degrees.

    Example: * || check_thermal_zones
    """
    text = host.read_or("{zone}/temp")
    if not text:
        return skip("NoHardware", "no thermal zone")
    if not text.strip().isdigit():
        return unknown("BadData", f"{zone}/temp: {{text!r}}")
    return crit("ZoneIsCritical", "too hot") if int(text) >= 100000 else ok()
'''


@pytest.fixture
def checkout(tmp_path):
    """A checkout: the parts that a newcomer touches, and what the test of a check needs."""
    shared = [path.relative_to(ROOT) for room in ("nhc", "nhc/node") for path in (ROOT / room).iterdir()]
    for part in (*map(str, shared), "tests/support", "tests/conftest.py"):
        (tmp_path / part).parent.mkdir(exist_ok=True)
        if not part.endswith(("nhc/node", "/checks", "__pycache__")):
            (tmp_path / part).symlink_to(ROOT / part)
    shutil.copytree(
        ROOT / "nhc/node/checks", tmp_path / "nhc/node/checks", ignore=shutil.ignore_patterns("__pycache__")
    )
    (tmp_path / "tests/node/checks").mkdir(parents=True)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def run(checkout, *argv, cwd=None, stdin=""):
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1",
           "NHC_STATE_DIR": str(checkout / "state"), "NHC_MUTES": "/no/such/file"}  # fmt: skip
    return subprocess.run([sys.executable, *map(str, argv)], cwd=cwd or checkout, env=env, input=stdin,
                          capture_output=True, text=True, timeout=60)  # fmt: skip


def run_test(checkout):
    return run(checkout, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/node/checks")


@pytest.mark.slow
def test_a_newcomer_adds_a_check_by_writing_two_files(checkout):
    done = run(checkout, "-m", "nhc", "new", "check", "check_thermal_zones", cwd=checkout / "nhc/node/checks")
    assert done.returncode == 0, done.stderr
    assert "tests/node/checks/test_thermal.py" in done.stdout
    module, test = checkout / "nhc/node/checks/thermal.py", checkout / "tests/node/checks/test_thermal.py"

    # As it was written it is a check like the others, and its test fails because it judges nothing.
    assert "check_thermal_zones " in run(checkout, "-m", "nhc", "list").stdout
    assert "4 failed" in run_test(checkout).stdout
    report = json.loads(run(checkout, "-m", "nhc", "check", "local", "-c", "/dev/stdin", "--profile", "none",
                            "--format", "json", stdin="* || check_thermal_zones\n").stdout)  # fmt: skip
    assert [(one["check"], one["verdict"]) for one in report["results"]] == [("check_thermal_zones", "UNKNOWN")]

    module.write_text(WRITTEN.format(zone=ZONE))
    files = [f'"{ZONE}/temp": "{text}"' for text in ("45000", "101000", "hot")]
    for name, file in zip(("HEALTHY", "FAULT", "NONSENSE"), files):
        test.write_text(test.read_text().replace(f'{name}: "dict[str, str]" = {{}}', f"{name} = {{{file}}}"))
    said = run_test(checkout).stdout
    assert "4 passed" in said, said

    checked = run(checkout, "-m", "nhc", "config", "check", "/dev/stdin", stdin="* || check_thermal_zones -x\n")
    assert "Invalid option" in checked.stderr
    assert "Look at the fans." in run(checkout, "-m", "nhc", "explain", "ZoneIsCritical").stdout
    assert "Look at the fans." not in run(checkout, "-m", "nhc", "explain", "Xid79").stdout


def test_what_it_writes_passes_the_linter(checkout):
    assert run(checkout, "-m", "nhc", "new", "check", "check_thermal_zones").returncode == 0
    files = ("nhc/node/checks/thermal.py", "tests/node/checks/test_thermal.py")
    for words in (["ruff", "check"], ["ruff", "format", "--check"]):
        done = run(checkout, "-m", *words, "--no-cache", *files)
        assert done.returncode == 0, done.stdout


def test_a_second_check_of_a_family_gets_a_module_of_its_own(checkout):
    for name, family in (("check_thermal_zones", "thermal"), ("check_thermal_trips", "thermal_trips")):
        assert run(checkout, "-m", "nhc", "new", "check", name).returncode == 0
        assert (checkout / f"nhc/node/checks/{family}.py").exists()
        assert f"{name} " in run(checkout, "-m", "nhc", "list", "--tag", "thermal").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["thermal_zones"],
            "'thermal_zones' is no name for a check: expected lower-case words, as check_thermal_zones",
        ),
        (["check_../x"], "is no name for a check"),
        (["check_Thermal"], "is no name for a check"),
        (["check_fs_free"], "there is a check called check_fs_free, in nhc/node/checks/fs.py"),
        (["check_fs"], "nhc/node/checks/fs.py is there already: write in it"),
        (["check_thermal", "--checkout", "/"], "/ is no checkout of nhc"),
        ([], "Missing argument"),
    ],
)
def test_wrong_usage_is_one_line_and_writes_nothing(checkout, words, said):
    before = sorted(checkout.rglob("*"))
    done = run(checkout, "-m", "nhc", "new", "check", *words)
    assert done.returncode == 2
    assert said in done.stderr.splitlines()[-1]
    assert sorted(checkout.rglob("*")) == before


def test_a_test_that_is_there_is_not_touched_and_no_half_is_left(checkout):
    mine = checkout / "tests/node/checks/test_thermal.py"
    mine.write_text("# mine\n")
    done = run(checkout, "-m", "nhc", "new", "check", "check_thermal_zones")
    assert done.returncode == 2
    assert "tests/node/checks/test_thermal.py is there already" in done.stderr
    assert mine.read_text() == "# mine\n"
    assert not (checkout / "nhc/node/checks/thermal.py").exists()


def test_outside_a_checkout_it_says_where_else_a_check_can_live(checkout, tmp_path_factory):
    done = run(checkout, "-m", "nhc", "new", "check", "check_thermal_zones", cwd=tmp_path_factory.mktemp("elsewhere"))
    assert done.returncode == 2
    assert "not in a checkout of nhc; a part in a package of your own: docs/extending.md" in done.stderr
