"""What nobody foresaw ends with our status, one line and a file to report; broken streams change no verdict."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.run import ROOT

DOORS = {
    "check local": (["nhc", "check", "local", "--profile", "none", "-c", "{conf}"], "node/run/engine.py", 3),
    "fleet": (["nhc", "fleet", "check", "-w", "n1"], "fleet/commands/fleet.py", 3),
    "log": (["nhc", "log", "classify", "/dev/null"], "node/commands/log.py", 3),
    "list": (["nhc", "list"], "node/commands/catalogue.py", 3),
    "agent": (["nhc", "serve", "agent"], "agent/main.py", 3),
    "controller": (["nhc", "serve", "kubernetes"], "marks/commands/kubernetes.py", 3),
    "healthcheck": (["nhc-healthcheck", "-D", "{etc}", "-l", "-"], "node/run/engine.py", 3),
    "healthcheck, its module": (["nhc-healthcheck", "-D", "{etc}", "-l", "-"], "hooks/commands/healthcheck.py", 3),
    "prolog": (["nhc-prolog", "-D", "{etc}", "MARK_OFFLINE=0"], "node/run/engine.py", 0),
    "epilog": (["nhc-epilog", "-D", "{etc}", "MARK_OFFLINE=0"], "hooks/epilog.py", 0),
    "prolog, its module": (["nhc-prolog", "-D", "{etc}"], "hooks/commands/hook.py", 0),
    "nothing loads": (["nhc", "check", "local"], "cli/main.py", 3),
    "nothing loads for a prolog": (["nhc-prolog"], "cli/main.py", 0),
    "nothing loads for a health check": (["nhc-healthcheck"], "cli/main.py", 3),
}


@pytest.fixture(scope="module")
def installation(tmp_path_factory):
    """A copy of nhc in which one module can be damaged."""
    place = tmp_path_factory.mktemp("damaged")
    shutil.copytree(ROOT / "nhc", place / "nhc", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "adapters/nhc_adapters", place / "nhc_adapters")
    return place


@pytest.fixture
def launch(tmp_path, installation):
    (tmp_path / "etc").mkdir()
    conf = tmp_path / "etc" / "nhc.conf"
    conf.write_text("* || check_file_test -d /\n")

    def run(words, line="exec {words}", place=installation, **env):
        name, *rest = [word.format(conf=conf, etc=conf.parent) for word in words]
        argv = [sys.executable, str(ROOT / "nhc/core/launch" / name), *rest]
        environ = {"PATH": os.environ["PATH"], "HOME": "/", "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1",
                   "NHC_STATE_DIR": str(tmp_path / "state"), **env}  # fmt: skip
        return subprocess.run(["bash", "-c", line.format(words='"$@"'), "x", *argv], env=environ, capture_output=True,
                              text=True, timeout=60)  # fmt: skip

    return run


@pytest.mark.thorough
@pytest.mark.parametrize("door", DOORS)
def test_an_error_that_nobody_foresaw_is_a_line_and_a_status(door, installation, launch, tmp_path):
    words, module, status = DOORS[door]
    path = installation / "nhc" / module
    whole = path.read_text()
    at = whole.index("from __future__ import annotations\n") + len("from __future__ import annotations\n")
    path.write_text(whole[:at] + 'raise RuntimeError("odd\\nend, password=hunter2")\n' + whole[at:])
    try:
        done = launch(words)
    finally:
        path.write_text(whole)
    assert (done.returncode, done.stdout) == (status, "")
    lines = [line for line in done.stderr.splitlines() if "nothing is marked" not in line]
    assert len(lines) == 1
    assert "RuntimeError: odd" in lines[0]
    if "loads" in door:
        return
    assert "hunter2" not in lines[0]
    said = lines[0].rpartition("report it with ")[2]
    text = Path(said).read_text()
    assert "Traceback" in text
    assert module in text
    assert "hunter2" not in text
    assert stat.S_IMODE(os.stat(said).st_mode) == 0o600
    assert os.path.dirname(said) == str(tmp_path / "state")


def test_a_crash_file_is_bounded(tmp_path, monkeypatch):
    from nhc.node.run.crash_report import LARGEST, crash_text

    def deep(number):
        return deep(number - 1) if number else int("x" * 100_000)

    try:
        deep(400)
    except ValueError as error:
        found = crash_text("nhc check local", error)
    assert len(found) <= LARGEST
    assert found.startswith(b"nhc ")
    monkeypatch.setattr(sys, "argv", ["nhc", "SITE=abc", "--flag"])
    assert b"words: SITE=... --flag\n" in crash_text("nhc", ValueError("x"))


@pytest.mark.thorough
def test_the_file_is_not_written_where_it_cannot_be(launch, installation, tmp_path):
    path = installation / "nhc/node/run/engine.py"
    whole = path.read_text()
    path.write_text(whole.replace("import time\n", "import time\nraise RuntimeError('x')\n", 1))
    try:
        (tmp_path / "state").write_text("no directory")
        done = launch(DOORS["check local"][0])
    finally:
        path.write_text(whole)
    assert (done.returncode, done.stderr) == (3, "nhc check local: internal error: RuntimeError: x\n")


BROKEN = {
    "stdout full": "exec {words} > /dev/full",
    "stderr full": "exec {words} 2> /dev/full",
    "both full": "exec {words} > /dev/full 2>&1",
    "closed": "exec {words} >&- 2>&-",
    "all closed": "exec {words} <&- >&- 2>&-",
    "reader gone": "{words} 2>&1 | true; exit ${{PIPESTATUS[0]}}",
}


@pytest.mark.thorough
@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize(("text", "status"), [("* || check_file_test -f /no/such\n", 1),
                                              ("* || check_file_test -d /\n", 0),
                                              ("* || no_such_program\n", 3)])  # fmt: skip
def test_streams_that_take_nothing_change_no_health_check(launch, tmp_path, how, text, status):
    (tmp_path / "etc/nhc.conf").write_text(text)
    marked = tmp_path / "marked"
    for name in ("off", "on"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@" > {marked}\n')
        (tmp_path / name).chmod(0o755)
    done = launch(["nhc-healthcheck", "-D", "{etc}", "-l", "-", "-v", f"OFFLINE_NODE={tmp_path}/off",
                   f"ONLINE_NODE={tmp_path}/on"], BROKEN[how], ROOT)  # fmt: skip
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    assert (marked.read_text().split()[0] if marked.exists() else "") == {0: "on", 1: "off", 3: ""}[status]


@pytest.mark.thorough
@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize("hook", ["prolog", "epilog"])
def test_streams_that_take_nothing_change_no_hook(launch, tmp_path, how, hook):
    """The node is idle: a sick prolog drains it and keeps the job away, whoever reads what it prints."""
    told = tmp_path / "told"
    scontrol = tmp_path / "bin" / "scontrol"
    scontrol.parent.mkdir()
    scontrol.write_text(f"""#!/bin/sh
echo "$@" >> {told}
case "$*" in
*show*) printf 'NodeName=n1 Arch=x86_64\\n   State=IDLE\\n' ;;
esac
""")
    scontrol.chmod(0o755)
    (tmp_path / "etc/nhc.conf").write_text("* || check_file_test -f /no/such\n")
    launched = [launch([f"nhc-{hook}", "-D", "{etc}", "NHC_RM=slurm", "NHC_MAX_DRAINED=none",
                        f"NHC_RM_PATH={scontrol.parent}"], line, ROOT,
                       SLURMD_NODENAME="n1", SLURM_JOB_ID="1",
                       NHC_LEDGER_DIR=str(tmp_path / "ledger"))
                for line in ("exec {words}", BROKEN[how])]  # fmt: skip
    assert launched[0].returncode == launched[1].returncode
    assert "internal error" not in launched[0].stderr + launched[1].stderr
    if hook == "prolog":
        assert launched[1].returncode == 75, launched[0].stderr
        assert told.read_text().count("State=DRAIN") == 2
