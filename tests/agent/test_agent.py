"""The agent as its users meet it: a process, its pages, its socket, its files."""

import fcntl
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest

from nhc.core.state.mutes import Mute, render
from nhc.core.system import kernel_ring
from tests.agent.conftest import ROOT
from tests.support.require import need
from tests.support.waiting import until

pytestmark = pytest.mark.thorough

SCHEMA = json.loads((ROOT / "docs/event.schema.json").read_text())


def flag(tmp_path, name="good"):
    """A file that a check wants to be there."""
    path = tmp_path / name
    path.write_text("")
    return path


def wants(path, every="200ms", more=""):
    """A line that fails while `path` is not there."""
    return f"* |every {every}{more}| check_file_test -e {path}\n"


def verdict(agent):
    return agent.report()["verdict"]


def test_a_fault_is_news_once_and_its_end_once(agent, tmp_path):
    good = flag(tmp_path)
    agent.configure(wants(good))
    agent.start()
    assert verdict(agent) == "OK"
    good.unlink()
    until(lambda: verdict(agent) == "CRIT")
    rounds = agent.get("/metrics")[1]
    until(lambda: agent.get("/metrics")[1] != rounds)
    good.write_text("")
    until(lambda: verdict(agent) == "OK")
    until(lambda: len(agent.events("problem")) >= 2)
    assert [piece["event"] for piece in agent.events("problem")] == ["problem.began", "problem.ended"]
    for piece in agent.events():
        jsonschema.validate(piece, SCHEMA)
    metrics = agent.get("/metrics")[1]
    assert 'problem_counter{reason="FileTestFailed"} 1\n' in metrics
    assert 'problem_gauge{type="check_file_test",reason="FileTestFailed"} 0\n' in metrics
    assert "nhc_node_verdict 1\n" in metrics


def test_what_can_be_counted_is_there_as_nought_before_the_first_fault(agent, tmp_path):
    hold = tmp_path / "hold"
    hold.touch()
    wait = f"while test -e {hold}; do sleep 0.05; done"
    agent.configure(f"* |timeout 60s, every 1h| {wait}\n* || check_fs_mount_rw /\n* || check_hw_mem_free 1k\n")
    agent.start(wait=False)
    page = until(lambda: agent.get("/metrics")[1])
    for check in ("check_fs_mount_rw", "check_hw_mem_free"):
        assert f'nhc_check_problems{{check="{check}"}} 0\n' in page
    kinds = SCHEMA["properties"]["event"]["enum"]
    assert re.findall(r'^nhc_agent_events_total\{event="(.+?)"\}', page, re.MULTILINE) == sorted(kinds)
    assert 'nhc_agent_events_total{event="problem.began"} 0\n' in page
    hold.unlink()


def test_a_restart_neither_ends_a_fault_nor_tells_it_again(agent, tmp_path):
    agent.configure(wants(tmp_path / "never"))
    agent.start()
    until(lambda: agent.events("problem"))
    assert agent.stop() == 0
    agent.start()
    assert verdict(agent) == "CRIT"
    agent.nhc("agent", "check")
    assert [piece["event"] for piece in agent.events()] == [
        "agent.started", "problem.began", "agent.stopped", "agent.started",
    ]  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_told_leaving_no_process_and_no_socket(agent, tmp_path, number):
    agent.configure(f"* |every 200ms, timeout 10m| sleep 600\n{wants(flag(tmp_path))}")
    agent.start(wait=False)
    until(lambda: (agent.state / "agent.sock").exists() and len(agent.children()) >= 3)
    group = agent.process.pid
    began = time.monotonic()
    assert agent.stop(number) == 0
    assert time.monotonic() - began < 60, "the check takes ten minutes"
    assert not (agent.state / "agent.sock").exists()
    deadline = time.monotonic() + 60
    while session(group):
        assert time.monotonic() < deadline, [Path(f"/proc/{pid}/cmdline").read_text() for pid in session(group)]
        time.sleep(0.01)


def session(leader):
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == leader and fields[0] != "Z":
                found.append(int(name))
    return found


def test_sigterm_at_any_point_leaves_files_whole(agent, tmp_path):
    agent.configure(wants(tmp_path / "never", "50ms"))
    draw = random.Random(7)
    for _ in range(6):
        agent.start(wait=False)
        time.sleep(draw.uniform(0.0, 0.6))  # the point of the test: any moment, start-up included
        status = agent.stop()
        assert status in (0, -signal.SIGTERM)  # the interpreter itself may still have been starting
        for path in agent.state.glob("*.json"):
            json.loads(path.read_text())
        assert not list(agent.state.glob("*.tmp"))
    for piece in agent.events():
        jsonschema.validate(piece, SCHEMA)


@pytest.mark.slow
def test_a_hung_check_holds_up_nobody(agent, tmp_path):
    good = flag(tmp_path)
    agent.configure(f"* |every 300ms, timeout 8s| sleep 60\n{wants(good, '100ms')}")
    agent.start(wait=False)
    until(lambda: agent.get("/livez")[0] == 200)
    assert agent.get("/healthz")[0] == 503  # the checks of the first round are not all there yet
    until(lambda: agent.get("/healthz")[0] == 200, within=60)
    # from its second run on the slow one is in a round of its own
    good.unlink()
    began = time.monotonic()
    until(lambda: [p for p in agent.report()["results"] if p["check"] == "check_file_test" and p["verdict"] == "CRIT"])
    assert time.monotonic() - began < 7  # and not when the hung one is given up
    slow = next(result for result in agent.report()["results"] if result["check"] == "sleep")
    assert (slow["verdict"], slow["reason"]) == ("UNKNOWN", "CheckTimeout")


def test_strikes_count_from_run_to_run(agent, tmp_path):
    agent.configure(wants(tmp_path / "never", "100ms", ", strikes 3"))
    agent.start()
    until(lambda: verdict(agent) == "CRIT")
    until(lambda: len(agent.events("problem")) == 2)
    assert [piece["verdict"] for piece in agent.events("problem")] == ["WARN", "CRIT"]


def test_strikes_among_several_runs_count_the_runs_of_the_cadence_alone(agent, tmp_path):
    """A quick second look after a failure is none of the M runs: three within a second are not what comes and goes."""
    agent.configure(wants(tmp_path / "never", "1h", ", strikes 2 of 5") + wants(tmp_path / "no", "1h", ", strikes 2"))
    agent.start()
    until(lambda: [p for p in agent.report()["results"] if p["verdict"] == "CRIT"])  # by its quick second look
    slow = next(p for p in agent.report()["results"] if "never" in p["line"])
    assert (slow["verdict"], slow["strike"], slow["strikes"]) == ("WARN", 1, 2)


def test_the_boot_window_raises_nothing_and_the_kernel_log_all_the_same(agent, tmp_path):
    agent.configure(wants(tmp_path / "never"), agent='kernel-log = false\nboot-window-except = ["never"]')
    text = agent.settings.read_text().replace('boot-window = "0"', 'boot-window = "52w"')
    agent.settings.write_text(text)
    agent.start()
    result = agent.report()["results"][0]
    assert (result["verdict"], result["reason"]) == ("UNKNOWN", "BootWindow")
    agent.settings.write_text(text.replace('["never"]', '["check_file_*"]'))
    assert agent.nhc("agent", "reload").returncode == 0
    until(lambda: verdict(agent) == "CRIT")


def test_a_bad_configuration_is_refused_and_the_old_one_kept(agent, tmp_path):
    good = flag(tmp_path)
    agent.configure(wants(good))
    agent.start()
    agent.config.write_text("* || check_file_stat --no-such-option /\n")
    done = agent.nhc("agent", "reload")
    assert done.returncode == 2
    assert f"{agent.config}:1" in done.stderr
    assert "refused" in done.stderr
    assert [check["check"] for check in agent.status()["checks"]] == ["check_file_test"]
    assert agent.get("/healthz")[0] == 200
    agent.settings.write_text("[agent]\nconfg = []\n")
    assert "did you mean 'config'?" in agent.nhc("agent", "reload").stderr
    agent.configure(f"{wants(good)}* || true\n")
    assert agent.nhc("agent", "reload").stdout == "reloaded: 2 checks\n"
    agent.process.send_signal(signal.SIGHUP)
    until(lambda: len(agent.events("config.reloaded")) == 2)
    assert len(agent.events("config.refused")) == 2
    assert agent.status()["config_problems"] == []


def test_a_check_that_is_configured_no_more_ends_its_fault(agent, tmp_path):
    agent.configure(wants(tmp_path / "never") + wants(flag(tmp_path)))
    agent.start()
    until(lambda: verdict(agent) == "CRIT")
    agent.configure(wants(flag(tmp_path)))
    agent.nhc("agent", "reload")
    until(lambda: verdict(agent) == "OK")


def test_paused_means_that_nothing_runs_and_health_says_so(agent, tmp_path):
    good = flag(tmp_path)
    agent.configure(wants(good, "50ms"))
    agent.start()
    assert agent.nhc("hold", "agent", "--for", "1h", "new", "disk").returncode == 0
    good.unlink()
    status, text = agent.get("/healthz")
    assert status == 503
    assert "new disk" in text
    assert agent.get("/livez")[0] == 200
    agent.stop()
    agent.start(wait=False)  # a restart does not end a pause
    until(lambda: agent.get("/healthz")[1].startswith("paused"))
    assert verdict(agent) == "OK"
    assert agent.nhc("release", "agent").stdout == "resumed\n"
    until(lambda: verdict(agent) == "CRIT")


def test_a_check_under_way_when_a_pause_comes_is_ended_and_its_result_is_no_news(agent, tmp_path):
    started = tmp_path / "started"
    script = tmp_path / "slow"
    script.write_text(f"#!/bin/sh\ntrap '' TERM\necho $$ > {started}.new; mv {started}.new {started}\nsleep 500\n")
    script.chmod(0o755)
    agent.configure(f"* |every 1h, timeout 10m| {script}\n")
    agent.start(wait=False)
    until(started.exists)
    with socket.socket(socket.AF_UNIX) as waiting:
        waiting.connect(str(agent.state / "agent.sock"))
        waiting.sendall(b'{"do": "check"}\n')
        assert agent.nhc("hold", "agent").returncode == 0
        until(lambda: not Path("/proc", started.read_text().strip()).exists())
        waiting.settimeout(60)
        assert "paused by" in json.loads(waiting.recv(4096))["error"]
    assert not agent.events("problem")
    asked = agent.nhc("agent", "check")
    assert (asked.returncode, asked.stdout) == (3, "")
    assert "paused by" in asked.stderr
    started.unlink()
    agent.nhc("release", "agent")
    until(started.exists)


def test_a_check_asked_for_now_answers_with_its_result(agent, tmp_path):
    good = flag(tmp_path)
    agent.configure(wants(good, "1h"))
    agent.start()
    good.unlink()
    done = agent.nhc("agent", "check", "check_f*")
    assert done.returncode == 1
    assert done.stdout.startswith("CRIT     check_file_test")
    assert agent.nhc("agent", "check", "nothing").returncode == 3


def test_check_local_takes_a_fresh_answer(agent, tmp_path):
    marks = tmp_path / "marks"
    marks.write_text("")
    script = tmp_path / "mark"
    script.write_text(f"#!/bin/sh\necho x >> {marks}\n")
    script.chmod(0o755)
    agent.configure(f"* |every 1h| {script}\n* |every 1h| check_hw_mem_free 1k\n")
    agent.start()
    until(lambda: (agent.state / "report-agent.json").exists())
    done = agent.nhc("check", "local", "-c", str(agent.config), "--max-age", "60s", "-v")
    assert done.returncode == 0, done.stdout
    assert "the agent's report" in done.stdout
    assert marks.read_text() == "x\n"
    only = agent.nhc("check", "local", "-c", str(agent.config), "--max-age", "60s", "--tag", "hw", "-f", "npd")
    assert (only.stdout, only.returncode) == ("healthy\n", 0)
    # another configuration is another question
    other = tmp_path / "other.conf"
    other.write_text("* || true\n")
    assert "the agent's" not in agent.nhc("check", "local", "-c", str(other), "--max-age", "60s").stdout


def test_each_mute_is_a_note_in_its_report(agent, tmp_path):
    """As in every report, also while the muted check is well: who looks at the node sees what would be passed over."""
    path = tmp_path / "mutes.json"
    agent.env["NHC_MUTES"] = str(path)
    agent.configure("* || check_fs_mount /\n")
    agent.start()
    assert agent.report()["notes"] == []
    path.write_text(render([Mute("check_fs_*", 4e9, "disk on order", "alice")]))
    (note,) = until(lambda: agent.report()["notes"])
    assert note.startswith("check_fs_* is muted until ")
    assert note.endswith(" by alice: disk on order")


def test_only_its_owner_may_open_the_socket(agent, tmp_path):
    agent.configure(wants(flag(tmp_path)))
    agent.start()
    assert (agent.state / "agent.sock").stat().st_mode & 0o777 == 0o600
    second = subprocess.run(
        [sys.executable, "-m", "nhc", "serve", "agent", "-s", str(agent.settings)],
        env=agent.env, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert second.returncode == 2
    assert "another agent listens there" in second.stderr
    assert agent.status()["node"] == "n1"  # and the first one's socket is still its own


def test_an_agent_that_cannot_begin_changes_nothing_of_what_another_keeps(agent, tmp_path):
    agent.configure(wants(flag(tmp_path)))
    agent.start()
    assert agent.nhc("hold", "agent", "a disk is changed").returncode == 0

    def kept():
        return [(agent.state / name).read_text() for name in ("agent.json", "lasting/agent-life.json")]

    before = kept()
    assert (json.loads(before[0])["paused"][2], json.loads(before[1])["ended"]) == ("a disk is changed", False)
    assert agent.nhc("serve", "agent", "-s", str(agent.settings)).returncode == 2
    assert kept() == before
    agent.stop(signal.SIGKILL)
    agent.config.write_text("")
    assert agent.nhc("serve", "agent", "-s", str(agent.settings)).returncode == 2
    assert kept() == before, "a machine that dies now has told no agent to end"


def test_no_agent_is_one_clear_line(agent):
    done = agent.nhc("status", "agent")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == f"nhc status agent: no agent listens at {agent.state}/agent.sock\n"


def test_a_socket_whose_path_is_too_long_is_one_clear_line(agent, tmp_path):
    agent.state = tmp_path / ("s" * 108)
    agent.configure("* || true\n")
    path = f"{agent.state}/agent.sock"
    said = f": {path}: a socket's path has at most 107 bytes, this one has {len(path)}\n"
    runs = (
        (("serve", "agent", "-s", agent.settings), 2, "nhc agent"),
        (("status", "agent", "--socket", path), 3, "nhc status agent"),
    )
    for words, status, command in runs:
        done = agent.nhc(*map(str, words))
        assert (done.returncode, done.stdout, done.stderr) == (status, "", f"{command}{said}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[agent]\nretry = 'soon'\n", "agent.retry: 'soon' is not a duration"),
        ("[agent\n", "agent.toml"),
        ("[event]\n", "did you mean 'events'?"),
        ("[sinks.nothing]\n", "no sink called 'nothing'"),
        ("[npd]\nsystem-log-monitor = '/nonexistent'\n", "/nonexistent: No such file or directory"),
        ("[agent]\nlisten = ['127.0.0.1']\n", "is not HOST:PORT"),
        ("[agent]\nprofile = 'nosuch'\n", "profile: there is no profile 'nosuch'"),
    ],
)
def test_a_mistake_in_the_settings_is_one_clear_line(agent, text, said):
    agent.settings.write_text(text)
    done = agent.nhc("serve", "agent", "-s", str(agent.settings))
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_who_holds_connections_open_keeps_nobody_from_an_answer(agent, tmp_path):
    agent.configure(wants(flag(tmp_path)))
    agent.start()
    held = [socket.create_connection(("127.0.0.1", agent.port)) for _number in range(200)]
    try:
        for _number in range(5):
            assert agent.get("/livez")[0] == 200
    finally:
        for peer in held:
            peer.close()


def test_http_tells_strangers_nothing_else(agent, tmp_path):
    agent.configure(wants(flag(tmp_path)))
    agent.start()
    import socket

    for sent, status in ((b"POST /metrics HTTP/1.1\r\n\r\n", b"405"), (b"nonsense\r\n\r\n", b"400"),
                         (b"GET /etc/passwd HTTP/1.0\r\n\r\n", b"404")):  # fmt: skip
        with socket.create_connection(("127.0.0.1", agent.port), 60) as peer:
            peer.sendall(sent)
            assert peer.recv(100).split(b" ")[1] == status
    with socket.create_connection(("127.0.0.1", agent.port), 60) as peer:
        try:
            peer.sendall(b"x" * 100_000)
            assert peer.recv(100) == b""
        except OSError:
            pass  # reset: as good as closed
    assert agent.get("/healthz")[0] == 200


def test_a_full_disk_stops_nothing_and_what_was_kept_is_written_when_there_is_room(agent, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(disk)], capture_output=True, check=False
    ).returncode == 0  # fmt: skip
    need("tmpfs", mounted, "a small tmpfs cannot be mounted here")
    try:
        good = flag(tmp_path)
        agent.state, agent.events_path = disk / "state", disk / "events.jsonl"
        agent.env["NHC_STATE_DIR"] = str(agent.state)
        agent.configure(wants(good, "100ms"), f'[history]\npath = "{disk}/history"\n')
        agent.start()
        filler = disk / "filler"
        with open(filler, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 512)
            except OSError:
                pass
        good.unlink()
        until(lambda: verdict(agent) == "CRIT")
        assert agent.get("/healthz")[0] == 200
        good.write_text("")
        until(lambda: verdict(agent) == "OK")
        assert not agent.events("problem.ended")
        until(lambda: agent.status()["sinks"]["local"]["problem"])
        filler.unlink()
        until(lambda: agent.events("problem.ended"))
        assert len(agent.events("problem")) == 2
        until(lambda: not agent.status()["sinks"]["local"]["problem"], within=60)
        assert agent.nhc("status", "agent", "--history", "9").stdout.count("problem.") == 2
    finally:
        agent.stop()
        subprocess.run(["umount", "-l", str(disk)], check=True)


def rounds(agent):
    """How many rounds of checks have ended."""
    return int(
        float(re.search(r"^nhc_agent_rounds_total{outcome=\"done\"} (.+)", agent.get("/metrics")[1], re.MULTILINE)[1])
    )


@pytest.mark.usefixtures("kernel_log_alone")
def test_a_kernel_line_waits_neither_for_a_round_nor_for_the_store_of_findings(agent, tmp_path):
    """The round that judges the log is under way and does not end; the store is locked by a process that is stopped."""
    need("kmsg", os.access(kernel_ring.KMSG, os.W_OK), "this user may not write to the kernel log")
    hold, held = tmp_path / "hold", tmp_path / "held"
    line = f"while test -e {hold}; do touch {held}; sleep 0.05; done"
    agent.configure(f"* || check_kmsg\n* |timeout 60s, every 1h| {line}\n", agent="kernel-log = true")
    agent.start()
    until(lambda: rounds(agent))
    hold.touch()
    with open(agent.state / "kernel-log.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        asking = subprocess.Popen([sys.executable, "-m", "nhc", "agent", "check"], env=agent.env,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        try:
            until(held.exists)
            before = rounds(agent)
            device = f"0000:{random.randrange(16, 255):02x}:{random.randrange(32):02x}.0"
            kernel_ring.write(f"NVRM: Xid (PCI:{device[:-2]}): 79, pid=1, GPU has fallen off the bus. (nhc-drill)", 3)
            until(lambda: [p for p in agent.events("problem.began") if p["target"] == device], every=0.001)
            assert rounds(agent) == before
            assert held.exists()
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)
            hold.unlink()
            asking.wait(60)
            kernel_ring.write("nhc-drill ended", 6)
    until(lambda: [p for p in agent.events("problem.ended") if p["target"] == device])
    assert len([p for p in agent.events("problem") if p["target"] == device]) == 2


@pytest.mark.usefixtures("kernel_log_alone")
def test_a_kernel_line_is_an_event_at_once_and_stays_until_it_is_acknowledged(agent, tmp_path):
    need("kmsg", os.access(kernel_ring.KMSG, os.W_OK), "this user may not write to the kernel log")
    agent.configure(wants(flag(tmp_path), "1h"), agent="kernel-log = true")
    agent.start()
    before = {r["target"] for r in agent.report()["results"]}
    device = f"0000:{random.randrange(16, 255):02x}:{random.randrange(32):02x}.0"
    began = time.monotonic()
    kernel_ring.write(f"NVRM: Xid (PCI:{device[:-2]}): 79, pid=1, GPU has fallen off the bus. (nhc-drill)", 3)
    until(lambda: [p for p in agent.events("problem.began") if p["target"] == device], every=0.001)
    assert time.monotonic() - began < 30, "a round is an hour away"
    assert device not in before
    assert verdict(agent) == "CRIT"
    agent.nhc("agent", "check", "check_kmsg")
    assert len([p for p in agent.events("problem") if p["target"] == device]) == 1
    agent.stop()
    agent.start()
    assert [r for r in agent.report()["results"] if r["target"] == device]
    done = agent.nhc("ack", "agent", f"xid/79/{device}", "--note", "replaced")
    assert done.stdout == f"acknowledged xid/79/{device}\n"
    until(lambda: [p for p in agent.events("problem.ended") if p["target"] == device])
    agent.nhc("agent", "check", "check_kmsg")
    assert not [r for r in agent.report()["results"] if r["target"] == device]
    assert agent.nhc("ack", "agent", f"xid/79/{device}").returncode == 1
