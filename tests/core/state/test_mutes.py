"""A check muted on a node until a date: WARN at every door, with who, why and until when; and over when it is over."""

from __future__ import annotations

import json
import time

import pytest

from nhc.agent.agent_plan import Checks
from nhc.agent.kernel_findings import KernelLog, Listener
from nhc.agent.problems import Board
from nhc.agent.schedule import Schedule
from nhc.core.model import Action, Verdict, crit, ok, unknown, warn
from nhc.core.state import mutes
from nhc.core.state.mutes import Mute, Mutes
from nhc.core.state.store import State
from nhc.lab.testing.fake_host import FakeHost
from tests.support.run import nhc

BAD = "* || check_hw_physmem 900TB\n* || check_hw_mem_free 1k\n"


@pytest.fixture
def node(tmp_path):
    """Run nhc with a file of mutes of this test's own."""
    (tmp_path / "nhc.conf").write_text(BAD)
    path = tmp_path / "var/mutes.json"

    def run(*words, module="nhc", **more):
        environ = {"NHC_MUTES": str(path), "NHC_LEDGER_DIR": str(tmp_path / "ledger"), **more}
        return nhc(*words, state=tmp_path / "state", module=module, env=environ)

    run.path, run.conf = path, tmp_path / "nhc.conf"
    return run


def mute(node, *more, check="check_hw_physmem", until="3d"):
    done = node("mute", check, "--until", until, "--why", "board on order", "--by", "alice", *more)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.thorough
def test_a_muted_failure_is_a_warning_that_says_who_why_and_until_when(node):
    assert node("check", "local", "-c", node.conf).returncode == 1
    mute(node)
    done = node("check", "local", "-c", node.conf, "--format", "json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["verdict"], report["not_run"]) == (0, "WARN", 0)
    first, second = report["results"]
    assert (first["verdict"], first["reason"], first["action"]) == ("WARN", "MemoryTooSmall", "none")
    day = time.strftime("%Y-%m-%d", time.localtime(time.time() + 3 * 86400))
    assert f"(muted until {day}" in first["message"]
    assert "by alice: board on order)" in first["message"]
    assert second["verdict"] == "OK"  # the run went on behind the muted failure
    assert any("check_hw_physmem is muted until" in note for note in report["notes"])


@pytest.mark.thorough
@pytest.mark.parametrize("module", ["prolog", "epilog", "healthcheck"])
def test_it_holds_in_every_hook(node, module):
    def hook():
        own = ["-l", "-"] if module == "healthcheck" else []
        return node(*own, "-c", node.conf, "MARK_OFFLINE=0", module=f"nhc.hooks.commands.{module}")

    before = hook()
    assert "is unhealthy" in before.stderr or before.returncode == 1 or module == "epilog"
    mute(node)
    after = hook()
    assert after.returncode == 0
    assert "unhealthy" not in after.stderr
    assert "ERROR" not in after.stdout


def test_it_holds_for_what_the_agent_hears_from_the_kernel_log(tmp_path):
    host = FakeHost({"/var/lib/nhc/mutes.json": mutes.render([Mute("check_kmsg", 4e9, "drill", "bob")])})
    listener = Listener(lambda changes: None, lambda: None, lambda: None)
    log = KernelLog(host, State(str(tmp_path)), Checks(Schedule("n1"), Board()), print, listener, dict)
    from nhc.marks.ports.sinks import Standing

    log.inherited = [Standing("GpuXid", "Xid79", "fell off", 0.0)]
    (result,) = log.results()
    assert result.verdict is Verdict.WARN
    assert "by bob: drill" in result.outcome.message


@pytest.mark.thorough
def test_a_container_mutes_the_node_it_judges(tmp_path):
    """The file lies below $NHC_ROOT, where the hooks and the agent on the node itself find it."""
    root = tmp_path / "node"
    (root / "proc/1").mkdir(parents=True)
    (root / "proc/1/mounts").write_text("/dev/vda / ext4 rw 0 0\n")
    conf = tmp_path / "nhc.conf"
    conf.write_text("* || check_file_test -e /etc/no-such-file\n")
    (tmp_path / "none").mkdir()
    env = {"NHC_ROOT": str(root)}
    check = ("check", "local", "-c", conf, "--profile", "none", "--scripts", tmp_path / "none")
    assert nhc(*check, env=env, state=tmp_path / "state").returncode == 1
    done = nhc("mute", "check_file_test", "--until", "1d", "--why", "drill", "--by", "alice", env=env)
    assert done.returncode == 0, done.stderr
    assert json.loads((root / "var/lib/nhc/mutes.json").read_text())["mutes"][0]["check"] == "check_file_test"
    judged = nhc(*check, env=env, state=tmp_path / "state")
    assert judged.returncode == 0, judged.stdout
    assert "by alice: drill" in judged.stdout
    assert "by alice: drill" in nhc("mute", env=env).stdout
    assert nhc("unmute", "check_file_test", env=env).returncode == 0
    assert nhc(*check, env=env, state=tmp_path / "state").returncode == 1


@pytest.mark.thorough
def test_it_ends_by_itself_and_by_unmute(node):
    mute(node)
    kept = json.loads(node.path.read_text())
    kept["mutes"][0]["until"] = time.time() - 1
    node.path.write_text(json.dumps(kept))
    assert node("check", "local", "-c", node.conf).returncode == 1
    assert node("mute").stdout == "nothing is muted on this node\n"
    mute(node)
    assert len(json.loads(node.path.read_text())["mutes"]) == 1  # what had ended is dropped
    assert node("unmute", "check_hw_physmem").returncode == 0
    assert not node.path.exists()  # a run without mutes reads nothing
    assert node("check", "local", "-c", node.conf).returncode == 1
    again = node("unmute", "check_hw_physmem")
    assert again.returncode == 2
    assert "is not muted here" in again.stderr


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["check_hw_phymem", "--until", "3d", "--why", "x"], "no such check: check_hw_phymem (did you mean"),
        (["chek_hw_physmem", "--until", "3d", "--why", "x"], "no such check or program: chek_hw_physmem (did you mean"),
        (["check_hw_physmem", "--until", "3d"], "expected --until DATE and --why TEXT"),
        (["check_hw_physmem", "--why", "x"], "expected --until DATE and --why TEXT"),
        (["check_hw_physmem", "--until", "soon", "--why", "x"], "'soon' is neither a date"),
        (["check_hw_physmem", "--until", "2020-01-01", "--why", "x"], "2020-01-01 has passed"),
        (["check_hw_physmem", "--until", "3000d", "--why", "x"], "more than a year away"),
        (["--why", "x"], "which check?"),
    ],
)
def test_wrong_usage_mutes_nothing(node, words, said):
    done = node("mute", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert not node.path.exists()


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"schema": 2, "mutes": []}',
     '{"schema": 1, "mutes": [{"check": "check_x", "until": "soon", "why": "y"}]}',
     '{"schema": 1, "mutes": [{"check": "check_x", "until": 4e9}]}', "[" * 100000, '{"schema": 1, "mutes": [7]}'],
)  # fmt: skip
def test_a_damaged_file_mutes_nothing_and_is_noted(text):
    found = mutes.read(text, 0.0)
    assert found.mutes == ()
    assert "cannot be used" in found.notes[0]
    assert "\n" not in found.notes[0]


def test_only_what_is_muted_changes():
    found = Mutes((Mute("check_gpu_*", 4e9, "why", "alice", "gpu3"),))
    assert found.judge("check_gpu_ecc", crit("X", "bad", target="gpu3", action=Action.REBOOT)).verdict is Verdict.WARN
    assert found.judge("check_gpu_ecc", unknown("X", "?", target="gpu3")).verdict is Verdict.WARN
    for name, outcome in (("check_gpu_ecc", crit("X", "bad", target="gpu2")), ("check_fs_free", crit("X", "bad")),
                          ("check_gpu_ecc", ok("fine", target="gpu3")), ("check_x", warn("W", "slow"))):  # fmt: skip
        assert found.judge(name, outcome) is outcome


@pytest.mark.thorough
def test_the_local_path_loads_nothing_more_where_nothing_is_muted(node):
    code = (
        "import sys; from nhc.hooks.commands.prolog import main; main(); print('nhc.core.state.mutes' in sys.modules)"
    )
    import os
    import subprocess
    import sys

    from tests.support.run import ROOT

    environ = {**os.environ, "NHC_MUTES": str(node.path), "NHC_STATE_DIR": str(node.path.parent / "state"),
               "PYTHONPATH": f"{ROOT}:{ROOT}/adapters"}  # fmt: skip
    argv = [sys.executable, "-c", code, "-c", str(node.conf), "MARK_OFFLINE=0"]
    assert subprocess.run(argv, env=environ, capture_output=True, text=True).stdout.strip() == "False"
    mute(node)
    assert subprocess.run(argv, env=environ, capture_output=True, text=True).stdout.strip() == "True"
