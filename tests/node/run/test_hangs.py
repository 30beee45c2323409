"""A true D-state hang: a file system frozen under a check. Nothing can kill that process; the run must not care."""

import os
import shutil
import signal
import subprocess
import time

import pytest

from nhc.core import check as registry
from nhc.core.check import check
from nhc.core.host import Host
from nhc.core.model import ok
from nhc.core.plan import BUILT_IN, COMMAND, Item, Plan
from nhc.core.state.earlier_runs import GRACE, StuckChecks
from nhc.core.state.store import State
from nhc.core.system.process_identity import KnownProcess, identify, is_alive
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.run.engine import run
from tests.support.require import need


@pytest.fixture(scope="module")
def frozen(tmp_path_factory):
    """A mounted ext4 that is frozen: whoever writes to it sleeps uninterruptibly until it is thawed."""
    need("loop mounts", os.geteuid() == 0 and shutil.which("mkfs.ext4") and os.path.exists("/dev/loop-control"))
    base = tmp_path_factory.mktemp("frozen")
    image, mount = base / "image", base / "mount"
    mount.mkdir()
    with open(image, "wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    mounted = subprocess.run(["mount", "-o", "loop", image, mount], capture_output=True, text=True)
    need("loop mounts", mounted.returncode == 0, mounted.stderr.strip())
    subprocess.run(["fsfreeze", "-f", mount], check=True)
    try:
        yield mount
    finally:
        subprocess.run(["fsfreeze", "-u", mount], check=True)
        until = time.monotonic() + 60
        while subprocess.run(["umount", mount], capture_output=True).returncode and time.monotonic() < until:
            time.sleep(0.05)


@pytest.fixture
def checks():
    before = dict(registry.REGISTRY)
    yield
    registry.REGISTRY.clear()
    registry.REGISTRY.update(before)


def items(frozen):
    @check("check_test_touch", timeout=0.5, on_timeout="crit")
    def _(host):
        os.open(frozen / "file", os.O_CREAT | os.O_WRONLY)
        return ok()

    @check("check_test_fine")
    def _fine(host):
        return ok()

    def built_in(name):
        return Item(BUILT_IN, name, name, argv=(name,))

    return [built_in("check_test_fine"), built_in("check_test_touch"), built_in("check_test_fine")]


@pytest.mark.thorough
def test_a_check_in_d_state_is_named_abandoned_and_remembered(frozen, checks, tmp_path):
    state = State(str(tmp_path / "state"))
    report = run(Plan(tuple(items(frozen))), FakeHost(), state=state)
    assert [r.verdict.name for r in report.results] == ["OK", "CRIT", "OK"]
    assert report.elapsed < 30, "it hangs until the file system is thawed"
    (record,) = state.load("stuck").values()
    stuck = KnownProcess(record["pid"], record["start"])
    assert is_alive(stuck), "SIGKILL cannot end it: the test would prove nothing"

    again = run(Plan(tuple(items(frozen))), FakeHost(), state=State(state.directory))
    assert again.results[1].outcome.reason == "CheckStuck"
    assert f"pid {stuck.pid}" in again.results[1].outcome.message
    assert again.results[1].elapsed < report.results[1].elapsed, "the second run must not wait for the deadline again"
    assert [r.verdict.name for r in again.results] == ["OK", "CRIT", "OK"]
    assert list(state.load("stuck").values()) == [record], "no second process was added"


@pytest.mark.thorough
def test_a_command_in_d_state_is_remembered_too(frozen, checks, tmp_path):
    state = State(str(tmp_path / "state"))
    line = Item(COMMAND, "touch", "touch frozen", argv=("touch", str(frozen / "other")), timeout=0.4)
    report = run(Plan((line,)), Host(), state=state)
    assert report.results[0].outcome.reason == "CheckTimeout"
    assert report.elapsed < 30
    (record,) = state.load("stuck").values()
    assert is_alive(KnownProcess(record["pid"], record["start"]))
    again = run(Plan((line,)), Host(), state=State(state.directory))
    assert again.results[0].outcome.reason == "CheckStuck"


@pytest.mark.thorough
def test_the_callers_pipe_closes_although_a_process_stays_behind(frozen, checks, tmp_path):
    """slurmd, sshd and node-problem-detector read our output to its end: an abandoned process must not hold it."""
    script = (
        "import os, sys; from nhc.core.check import check; from nhc.node.run.engine import run; "
        "from nhc.core.plan import *; from nhc.core.state.store import State; "
        "from nhc.lab.testing.fake_host import FakeHost\n"
        "@check('check_test_touch', timeout=0.4)\n"
        f"def _(host): os.open({str(frozen / 'third')!r}, os.O_CREAT | os.O_WRONLY)\n"
        "item = Item(BUILT_IN, 'check_test_touch', 'x', argv=('check_test_touch',))\n"
        f"print(run(Plan((item,)), FakeHost(), state=State({str(tmp_path / 's')!r})).results[0].outcome.reason)\n"
    )
    import sys

    begin = time.monotonic()
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "CheckTimeout", done.stderr
    assert time.monotonic() - begin < 50


def test_a_killed_process_that_ends_late_is_remembered_and_not_called_stuck_at_once(tmp_path):
    """One that waits for a processor is gone in a moment; one that is still there after ten seconds is not."""
    # Forked and not started: to load a program takes moments of uninterruptible sleep.
    waiting = os.fork()
    if waiting == 0:
        time.sleep(60)
        os._exit(0)
    try:
        process = identify(waiting)
        assert process is not None
        state = State(str(tmp_path / "state"))
        young = StuckChecks(state)
        young.add("line", process, time.time())
        young.save()
        assert StuckChecks(state).get("line") is None
        young.add("line", process, time.time() - GRACE - 1)
        young.save()
        assert StuckChecks(state).get("line").process.pid == waiting
    finally:
        os.kill(waiting, signal.SIGKILL)
        os.waitpid(waiting, 0)
    StuckChecks(state).save()
    assert state.load("stuck") == {}
