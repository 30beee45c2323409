"""A SIGINT in the first moments: the process ends by the signal or with 130, without a traceback.

Python's own answer is a traceback and, while it imports site, status 1, which a scheduler takes for an unhealthy node.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAUNCHERS = sorted(path.name for path in (ROOT / "nhc/core/launch").iterdir() if path.is_file())
PACKAGE = f"""\
import os, signal, sys

class Interrupter:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["INTERRUPT_AT"]:
            os.kill(os.getpid(), signal.SIGINT)

if os.environ["INTERRUPT_AT"] == "nhc":
    os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupter())
__path__ = [{str(ROOT / "nhc")!r}]
"""


def interrupted(tmp_path, argv, moment):
    (tmp_path / "nhc").mkdir()
    (tmp_path / "nhc" / "__init__.py").write_text(PACKAGE + (ROOT / "nhc/__init__.py").read_text())
    env = {
        "PATH": os.environ["PATH"], "INTERRUPT_AT": moment, "PYTHONPATH": f"{tmp_path}:{ROOT}:{ROOT}/adapters",
        "NHC_STATE_DIR": str(tmp_path / "state"),
    }  # fmt: skip
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, cwd=tmp_path)


def orderly(run):
    assert run.stderr == ""
    assert run.returncode in (-signal.SIGINT, 130)


@pytest.mark.thorough
@pytest.mark.parametrize("moment", ["nhc", "nhc.cli.main", "nhc.core.light", "nhc.core.model"])
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_launcher_is_interrupted_while_it_loads(tmp_path, launcher, moment):
    path = ROOT / "nhc/core/launch" / launcher
    first = path.read_text().partition("\n")[0]
    flags = ["-S"] if first == "#!/bin/sh" else first.split()[1:]  # as its shell, or the kernel, passes them
    words = ["check", "local", "-c", "/dev/null"] if launcher == "nhc" else ["-D", str(tmp_path)]
    orderly(interrupted(tmp_path, [sys.executable, *flags, str(path), *words], moment))


@pytest.mark.slow
@pytest.mark.parametrize(("launcher", "words"), [
    ("nhc", ["check", "local", "-c", "/dev/null"]),
    ("nhc-healthcheck", ["-l", "-", "-c", "/dev/null", "MARK_OFFLINE=0"]),
])  # fmt: skip
def test_a_program_that_pip_installed_is_interrupted_at_any_moment(tmp_path, launcher, words):
    """tests/packaging/test_release.py sees that pip writes these first lines."""
    for name in LAUNCHERS:
        first, rest = (ROOT / "nhc/core/launch" / name).read_text().split("\n", 1)
        (tmp_path / name).write_text(f"{first if first == '#!/bin/sh' else f'#!{sys.executable}'}\n{rest}")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "linked").symlink_to(tmp_path / launcher)  # as pipx and update-alternatives do it
    env = {
        "PATH": os.environ["PATH"],
        "NHC_STATE_DIR": str(tmp_path / "state"),
        "PYTHONPATH": f"{ROOT}:{ROOT}/adapters",
    }

    def begin(program):
        argv = [tmp_path / program, *words]
        return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)

    at = time.monotonic()
    whole = begin(launcher)
    complaint = whole.communicate(timeout=60)[1]
    length = time.monotonic() - at
    for number in range(60):
        process = begin("linked" if number % 10 == 0 else launcher)
        time.sleep(random.uniform(0, length))  # not a wait: the moment itself
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60)[1] in ("", complaint)
        assert process.returncode in (-signal.SIGINT, 130, whole.returncode)


@pytest.mark.thorough
@pytest.mark.parametrize("moment", ["nhc.cli.main", "nhc.core.light", "nhc.node.commands.check_local"])
def test_the_module_is_interrupted_while_it_loads(tmp_path, moment):
    argv = [sys.executable, "-m", "nhc", "check", "local", "-c", "/dev/null"]
    orderly(interrupted(tmp_path, argv, moment))


@pytest.mark.thorough
def test_what_has_ended_well_is_not_interrupted_any_more(tmp_path):
    """The status of a run that is over is that run's, whatever comes while Python writes the rest."""
    code = (
        "import os, signal, sys\nfrom nhc.cli.main import entry\n"
        "class Last:\n def write(self, text): pass\n def flush(self): os.kill(os.getpid(), signal.SIGINT)\n"
        "def run():\n sys.stdout = Last()\n return 0\n"
        "entry(run)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert (run.returncode, run.stderr) == (0, "")
