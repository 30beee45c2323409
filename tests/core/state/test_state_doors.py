"""What is remembered is lost where it cannot be kept, and nothing else is: at every door, on a real full disk."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from nhc.core.state.store import LOCK_TIMEOUT, State
from tests.support.require import need
from tests.support.run import ROOT, nhc

SICK = "* || check_file_test -f /no/such/file\n"
WELL = "* || check_file_test -d /\n"


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """A state directory on a file system of one page that holds no byte more."""
    need("root", os.geteuid() == 0, "mounts a small tmpfs")
    place = tmp_path_factory.mktemp("full")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k,nr_inodes=100,mode=700", "small", str(place)], check=True)
    (place / "ballast").write_bytes(b"x" * 4096)
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.fixture(scope="module")
def read_only(tmp_path_factory):
    need("root", os.geteuid() == 0, "mounts a small tmpfs")
    place = tmp_path_factory.mktemp("ro")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=4k,mode=700", "small", str(place)], check=True)
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.fixture(params=["full", "read-only", "a file", "no such place", "others may write"])
def unusable(request, tmp_path):
    if request.param == "full":
        return request.getfixturevalue("full")
    if request.param == "read-only":
        return request.getfixturevalue("read_only")
    place = tmp_path / "state"
    if request.param == "a file":
        place.write_text("x")
        return place
    if request.param == "no such place":
        return "/proc/no/such/place"
    place.mkdir(mode=0o777)
    place.chmod(0o777)
    return place


@pytest.fixture
def conf(tmp_path):
    (tmp_path / "etc").mkdir()
    path = tmp_path / "etc" / "nhc.conf"
    path.write_text(SICK)
    return path


@pytest.mark.thorough
def test_check_local_gives_its_verdict_and_says_what_is_lost(unusable, conf):
    for text, status in ((SICK, 1), (WELL, 0)):
        conf.write_text(text)
        done = nhc("check", "local", "--profile", "none", "-c", conf, "--format", "json", state=unusable)
        assert (done.returncode, done.stderr) == (status, "")
        notes = json.loads(done.stdout)["notes"]
        assert any(str(unusable) in note for note in notes), notes


@pytest.mark.thorough
def test_the_health_check_marks_a_sick_node(unusable, conf, tmp_path):
    marker = tmp_path / "marked"
    helper = tmp_path / "offline"
    helper.write_text(f'#!/bin/sh\necho "$@" > {marker}\n')
    helper.chmod(0o755)
    done = nhc(
        "-D", conf.parent, "-l", "-", f"OFFLINE_NODE={helper}", state=unusable,
        module="nhc.hooks.commands.healthcheck", env={"NHC_LEDGER_DIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 1
    assert "check_file_test" in marker.read_text()


@pytest.mark.thorough
@pytest.mark.parametrize("module", ["prolog", "epilog"])
def test_a_hook_ends_by_its_rule(unusable, conf, module, tmp_path):
    """Nothing marks here (no resource manager): the job starts, and no traceback is in the way."""
    done = nhc("-D", conf.parent, "MARK_OFFLINE=0", state=unusable, module=f"nhc.hooks.commands.{module}")
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr
    assert ("is unhealthy: check_file_test" in done.stderr) == (module == "prolog")


def test_an_agents_round_gives_its_verdict(unusable, conf):
    from nhc.agent.check_round import CheckRound
    from nhc.agent.event_loop import Loop
    from nhc.core.host import Host
    from nhc.core.language.loader import load

    loop, ended = Loop(), []
    state = State(str(unusable))

    def done(finished):
        ended.append(finished)
        loop.stop()

    CheckRound(loop, load([str(conf)], "n1"), Host(memory=state), state, "n1", done)
    loop.after(30, loop.stop)
    loop.run()
    assert ended[0].problem == ""
    assert [result.verdict.name for results in ended[0].results.values() for result in results] == ["CRIT"]
    assert any(str(unusable) in note for note in ended[0].notes)


@pytest.fixture
def holder(tmp_path):
    """A stopped process that holds a lock of the state directory."""
    started = []

    def hold(name):
        (tmp_path / "state").mkdir(mode=0o700, exist_ok=True)
        path = tmp_path / "state" / f"{name}.lock"
        code = ("import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(); "
                "sys.stdout.flush(); sys.stdin.read()")  # fmt: skip
        child = subprocess.Popen([sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE)  # fmt: skip
        child.stdout.readline()
        child.send_signal(signal.SIGSTOP)
        started.append(child)
        return tmp_path / "state"

    yield hold
    for child in started:
        child.kill()
        child.communicate()


@pytest.mark.thorough
def test_a_lock_that_is_held_holds_no_run_up(holder, conf, tmp_path):
    conf.write_text("* |strikes 2| check_file_test -f /no/such/file\n* |strikes 3| check_file_test -f /nor/this\n")
    state = holder("strikes")
    begun = time.monotonic()
    done = nhc("check", "local", "--profile", "none", "-a", "-c", conf, "--format", "json", state=state)
    assert time.monotonic() - begun < 20 + LOCK_TIMEOUT
    assert done.returncode == 0
    notes = json.loads(done.stdout)["notes"]
    assert notes == [f"{state}/strikes.lock: held by another process: not remembered"]


def test_a_run_in_progress_is_named_and_a_lock_that_cannot_be_made_is_no_run(tmp_path):
    first, second = State(str(tmp_path / "state")), State(str(tmp_path / "state"))
    assert first.claim_run() is None
    assert second.claim_run() == os.getpid()
    other = tmp_path / "other"
    (other / "run.lock").mkdir(parents=True)
    other.chmod(0o700)
    third = State(str(other))
    assert third.claim_run() is None
    assert third.warnings == [f"{other}/run.lock: Is a directory: no lock"]


def test_what_killed_runs_left_half_written_is_swept(conf, tmp_path):
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    child = subprocess.Popen(["true"])
    child.wait()
    ours, gone, other = f"a.json.{os.getpid()}.tmp", f"a.json.{child.pid}.tmp", "notes.tmp"
    old = f"b.json.{os.getppid()}.tmp"
    for name in (ours, gone, other, old):
        (state / name).write_text("half")
    os.utime(state / old, (1, 1))
    assert nhc("check", "local", "--profile", "none", "-c", conf, state=state).returncode == 1
    assert {path.name for path in state.glob("*.tmp")} == {ours, other}


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["strikes.json", "stuck.json", "last.json", "run.lock", "strikes.lock"])
@pytest.mark.parametrize("kind", ["directory", "fifo", "huge", "loop"])
def test_a_file_of_another_kind_stops_nobody(conf, tmp_path, name, kind):
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    path = state / name
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path)
    else:
        path.touch()
        os.truncate(path, 1 << 40)
    conf.write_text("* |strikes 2| check_file_test -f /no/such/file\n")
    for _again in range(2):
        memory = State(str(state))
        memory.load(name.partition(".")[0])
        memory.update(name.partition(".")[0], lambda held: held.update(x=1))
    assert "Traceback" not in nhc("check", "local", "--profile", "none", "-c", conf, "--max-age", "60", timeout=60,
                                  state=state).stderr  # fmt: skip


def everywhere(boot, value):
    """Stores whose every known field is `value`."""
    fields = ("findings", "seen", "companions", "history", "tail", "driver", "more", "cursor", "stores", "acks", "rows",
              "inherited", "adopted", "paused", "monitors", "writable", "best", "samples", "sleeping", "logs", "names",
              "report", "results", "asked", "started", "node", "prolog")  # fmt: skip
    return {"boot": boot, "boot_id": boot, **dict.fromkeys(fields, value)}


STORES = ["kernel-log", "kernel-log-acks", "agent", "report-agent", "report-prolog", "last", "detached", "mark",
          "strikes", "stuck", "mounts_writable", "ps_dstate", "node-type", "history"]  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("value", [5, "text", [5], [[1, 2, 3]], {"a": 5}, {"a": {"b": None}}, {"a": [5]}, None, 1e308],
                         ids=repr)  # fmt: skip
def test_files_of_the_wrong_shape_stop_no_check_and_no_agent(tmp_path, value):
    from nhc.agent.sockets import ask
    from nhc.core.host import Host
    from nhc.node.kernlog.read import read_log
    from nhc.node.kernlog.source import LogSource
    from nhc.node.kernlog.store import named, standing

    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    boot = Host().read("/proc/sys/kernel/random/boot_id").strip()
    for name in STORES:
        (state / f"{name}.json").write_text(json.dumps(everywhere(boot, value)))
    memory = State(str(state))
    conf = tmp_path / "nhc.conf"
    conf.write_text("* || check_fs_mount_rw -f /dev/shm\n* || check_ps_dstate\n* || check_mounts_writable\n"
                    "* |strikes 2| check_file_test -d /\n")  # fmt: skip
    done = nhc("check", "local", "-a", "-c", conf, "--format", "json", "--max-age", "60", state=state)
    assert not [r for r in json.loads(done.stdout)["results"] if r["reason"] in ("CheckBroken", "CheckDied")]
    assert standing(memory) == []
    assert named(memory, ["x"], everything=True) == {}
    log = tmp_path / "syslog"
    log.write_text("")
    read_log(Host(memory=memory), LogSource("syslog", str(log)))
    settings = tmp_path / "agent.toml"
    settings.write_text(f'[agent]\nconfig = ["{conf}"]\nstate = "{state}"\nsocket = "{tmp_path}/s"\nlisten = []\n')
    agent = subprocess.Popen(
        [sys.executable, "-m", "nhc", "serve", "agent", "--settings", str(settings)], stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}", "NHC_STATE_DIR": str(state)},
    )  # fmt: skip
    answer = {}
    try:
        until = time.monotonic() + 60
        while not answer and agent.poll() is None and time.monotonic() < until:
            try:
                answer = json.loads(ask(str(tmp_path / "s"), b'{"do": "status"}', 10.0))
            except OSError:
                time.sleep(0.02)
        assert "verdict" in str(answer), agent.poll()
    finally:
        agent.terminate()
        said = agent.communicate(timeout=60)[1]
    assert agent.returncode == 0
    assert "Traceback" not in said
