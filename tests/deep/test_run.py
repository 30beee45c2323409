# ruff: noqa: E501 (lines as tools print them)
"""`nhc deep run` on this machine: real tools, killed midway, a busy node, and what is put back."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nhc.core.host import Host
from nhc.core.model import Action, CheckResult, Metric, Outcome, Verdict
from nhc.core.system.process_identity import KERNEL_THREAD
from nhc.deep import gpu_settings, idle, journal, runner
from nhc.deep.gpu_settings import GpuSettings
from nhc.lab.testing.fake_host import FakeHost, Symlink
from nhc.marks.ports.adapter import Mark, NodeState
from nhc.node.planning import suites
from tests.support.require import need
from tests.support.run import ROOT, nhc

TOOL = """#!/bin/bash
# A slow tool that cleans up when it is told to end.
trap 'sleep 0.3; echo tidy >> {place}/end; exit 0' TERM
setsid sleep 300 &
echo $$ > {place}/pid.new; mv {place}/pid.new {place}/pid
while :; do sleep 0.05; done
"""

NVIDIA_SMI = """#!{python}
# nvidia-smi of two GPUs, whose settings are in a file; `nvidia-smi change` is what a test does to them.
import json, sys
path = "{place}/gpus.json"
gpus = json.load(open(path))
words = sys.argv[1:]
if words[0].startswith("--query-gpu"):
    keys = words[0].partition("=")[2].split(",")
    for uuid, gpu in gpus.items():
        print(", ".join(uuid if key == "uuid" else gpu.get(key, "[N/A]") for key in keys))
elif words[0] == "change":
    gpus["GPU-b"].update({{"persistence_mode": "Disabled", "power.limit": "500.00", "compute_mode": "Prohibited"}})
else:
    key = {{"-pm": "persistence_mode", "-pl": "power.limit", "-c": "compute_mode", "-mig": "mig.mode.current"}}[words[2]]
    value = {{"-pm": ["Disabled", "Enabled"], "-c": ["Default", "Exclusive_Thread", "Prohibited"]}}.get(words[2])
    gpus[words[1]][key] = value[int(words[3])] if value else words[3]
json.dump(gpus, open(path, "w"))
"""

SYSTEMCTL = """#!/bin/bash
# systemctl of one service, whose state is a file
name=${{@: -1}}
case $1 in
is-active) [ -e {place}/active-$name ];;
stop) rm {place}/active-$name; echo stop $name >> {place}/services
    [ ! -e {place}/slow-$name ] || {{ touch {place}/stopping-$name; sleep 300; }};;
start) touch {place}/active-$name; echo start $name >> {place}/services;;
esac
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "bin").mkdir()
    for name, text in (("slow-tool", TOOL), ("nvidia-smi", NVIDIA_SMI), ("systemctl", SYSTEMCTL)):
        path = tmp_path / "bin" / name
        path.write_text(text.format(place=tmp_path, python=sys.executable))
        path.chmod(0o755)
    gpu = {"persistence_mode": "Enabled", "compute_mode": "Default", "power.limit": "700.00"}
    (tmp_path / "gpus.json").write_text(json.dumps({"GPU-a": gpu, "GPU-b": gpu}))
    (tmp_path / "active-exporter").touch()
    return tmp_path


def suite(place, *lines, name="own.conf"):
    text = f"# context deep\n* || PATH={place}/bin\n" + "".join(f"* || {line}\n" for line in lines)
    (place / name).write_text(text)
    return place / name


def environment(place):
    return {"NHC_DEEP_DIR": str(place / "deep"), "NHC_STATE_DIR": str(place / "state"), "NHC_MUTES": "/no/such/file"}


def deep(place, *words, **more):
    return nhc("deep", *words, env=environment(place), timeout=120, **more)


def start(place, *words):
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}", **environment(place)}
    return subprocess.Popen(
        [sys.executable, "-m", "nhc", "deep", "run", *map(str, words), "--adapter", "none"],
        env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def appears(path, within=60.0):
    until = time.monotonic() + within
    while not path.exists():
        assert time.monotonic() < until, f"{path.name} never came"
        time.sleep(0.02)
    return path.read_text().strip()


def gone(run, within=60.0):
    """Whether no process of a run is left."""
    until = time.monotonic() + within
    while journal.marked(run):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.thorough
def test_a_run_leaves_a_report_and_nothing_else(place):
    done = deep(place, "run", suite(place, "check_file_test -e /etc/passwd"), "--adapter", "none", "-f", "json")
    report = json.loads(done.stdout)

    assert done.returncode == 0, done.stderr
    assert [result["check"] for result in report["results"]] == ["check_file_test"]
    assert report["labels"]["suite"] == str(place / "own.conf")
    assert report["labels"]["kind"]
    assert sorted(os.listdir(place / "deep")) == ["lock", "runs"]
    [kept] = (place / "deep" / "runs").iterdir()
    assert json.loads(kept.read_text()) == report
    assert "1/1 check_file_test" in done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_tool_in_its_own_way_and_puts_everything_back(place, number):
    lines = suite(place, "NHC_DEEP_STOP=exporter", "nvidia-smi change", "slow-tool", "check_file_test -e /etc/passwd")
    run = start(place, lines)
    appears(place / "pid")
    name = journal.read(str(place / "deep")).run
    run.send_signal(number)
    said, _ = run.communicate(timeout=90)

    assert run.returncode in (128 + number, -number)
    assert (place / "end").read_text() == "tidy\n"
    assert gone(name)  # what it had started in a session of its own, too
    assert "NotRun" in said
    assert "UNKNOWN" in said.splitlines()[-1]
    gpus = json.loads((place / "gpus.json").read_text())
    assert (
        gpus["GPU-a"]
        == gpus["GPU-b"]
        == {"persistence_mode": "Enabled", "compute_mode": "Default", "power.limit": "700.00"}
    )
    assert (place / "services").read_text() == "stop exporter\nstart exporter\n"
    assert not (place / "deep" / journal.NAME).exists()
    assert not [one for one in os.listdir(place / "deep") if one.startswith("scratch")]


@pytest.mark.thorough
def test_a_signal_while_a_service_is_being_stopped_starts_all_of_them_again(place):
    for name in ("active-monitor", "slow-monitor"):
        (place / name).touch()
    run = start(place, suite(place, 'NHC_DEEP_STOP="exporter monitor"', "check_file_test -e /etc/passwd"))
    appears(place / "stopping-monitor")
    run.send_signal(signal.SIGINT)
    said, complaint = run.communicate(timeout=90)

    assert run.returncode == 128 + signal.SIGINT, complaint
    assert (place / "active-exporter").exists()
    assert (place / "active-monitor").exists(), said
    assert not (place / "deep" / journal.NAME).exists()


@pytest.mark.thorough
def test_a_deadline_ends_the_tool_in_its_own_way(place):
    done = deep(
        place,
        "run",
        suite(place, "slow-tool", "check_file_test -e /etc/passwd"),
        "--adapter",
        "none",
        "-t",
        "3s",
        "-f",
        "json",
    )
    reasons = [result["reason"] for result in json.loads(done.stdout)["results"]]

    assert (done.returncode, reasons) == (3, ["CheckTimeout", "NotRun"])
    assert (place / "end").read_text() == "tidy\n"
    assert not (place / "deep" / journal.NAME).exists()


@pytest.mark.thorough
@pytest.mark.parametrize("by", ["run", "restore"])
def test_the_next_run_puts_back_what_a_killed_one_has_left(place, by):
    lines = suite(place, "NHC_DEEP_STOP=exporter", "nvidia-smi change", "slow-tool")
    run = start(place, lines)
    appears(place / "pid")
    name = journal.read(str(place / "deep")).run
    os.kill(run.pid, signal.SIGKILL)
    run.communicate()
    assert not (place / "active-exporter").exists()

    if by == "restore":
        done, begins = deep(place, "restore"), "put back: "
    else:
        done = deep(place, "run", suite(place, "check_file_test -e /etc/passwd", name="next.conf"), "--adapter", "none")
        begins = "put back after a run that was killed: "

    assert done.returncode == 0, done.stderr + done.stdout
    for line in ("exporter started", "nvidia-smi -i GPU-b -pl 700.00"):
        assert f"{begins}{line}" in done.stdout
    assert gone(name)
    assert (place / "active-exporter").exists()
    assert json.loads((place / "gpus.json").read_text())["GPU-b"]["power.limit"] == "700.00"
    assert "nothing is left" in deep(place, "restore").stdout


@pytest.mark.thorough
def test_only_one_run_at_a_time(place):
    first = start(place, suite(place, "slow-tool"))
    appears(place / "pid")
    second = deep(place, "run", suite(place, "check_file_test -e /etc/passwd", name="b.conf"), "--adapter", "none")
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=90)

    assert second.returncode == 3
    assert second.stderr.strip() == f"nhc deep run: another nhc deep run is under way (pid {first.pid})"


@pytest.mark.thorough
def test_wrong_suites_are_one_line_each(place):
    for words, said in (
        (["nosuch"], "nhc deep run: there is no suite 'nosuch'; nhc list suites shows them"),
        (["quik"], "nhc deep run: there is no suite 'quik' (did you mean quick?); nhc list suites shows them"),
        ([place / "none.conf"], f"nhc deep run: {place}/none.conf: No such file or directory"),
    ):
        done = deep(place, "run", *words, "--adapter", "none")
        assert (done.returncode, done.stderr.strip()) == (2, said)
    bad = suite(place, "check_deep_cpu -t never")
    done = deep(place, "run", bad, "--adapter", "none")
    assert done.returncode == 2
    assert f"{bad}:3" in done.stderr
    assert not (place / "deep").exists()


@pytest.mark.thorough
def test_a_damaged_journal_stops_everything(place):
    (place / "deep").mkdir()
    (place / "deep" / journal.NAME).write_text('{"run": 1')
    done = deep(place, "run", suite(place, "check_file_test -e /etc/passwd"), "--adapter", "none")
    assert done.returncode == 3
    assert "is damaged" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.thorough
def test_a_deep_line_is_run_by_nothing_else(place):
    config = place / "nhc.conf"
    config.write_text("* || check_deep_cpu -t 1s\n* |context prolog healthcheck agent| check_deep_disk\n* || check_file_test -e /etc/passwd\n"
                      "* || [[ -d / ]] && check_deep_cpu -t 1s\n")  # fmt: skip
    for context in ([], ["--context", "prolog"], ["--context", "healthcheck"], ["--context", "agent"]):
        done = nhc(
            "check", "local", "-c", config, "--profile", "none", "--all", "-f", "json", *context, state=place / "s"
        )
        results = json.loads(done.stdout)["results"]
        assert [result["check"] for result in results if result["reason"] != "DeepNotAlone"] == ["check_file_test"]
    done = nhc("check", "local", "-c", config, "--context", "deep", state=place / "s")
    assert (done.returncode, "nhc deep run" in done.stderr) == (2, True)


@pytest.mark.thorough
def test_suites_that_come_with_nhc():
    fragments = {path.stem: path.read_text() for path in (ROOT / "conf" / "suites").glob("*.conf")}
    assert suites.join(fragments) == (ROOT / "nhc/core/data/suites.conf").read_text(), (
        "run python -m nhc.node.planning.suites"
    )
    for name in fragments:
        done = nhc("list", "suites", name, "-f", "json")
        assert json.loads(done.stdout)[0]["count"] > 1, done.stderr


# What is slow is measured again; what is not there is said.

TRIAD = """#!/bin/bash
# A triad of the next speed in a list, the last again and again.
speed=$(head -1 {place}/speeds); [ $(wc -l < {place}/speeds) -lt 2 ] || sed -i 1d {place}/speeds
echo x >> {place}/measured
echo "array $1 bytes 2 threads"
for name in copy scale add triad; do echo "rate $name $speed GB/s"; done
echo "validated yes"
echo "end"
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("speeds", "status", "verdict", "said"),
    [
        ("8 8", 1, "CRIT", "host triad 8 GB/s, expected at least 50 (--floor); measured again: 8 GB/s"),
        ("8 90", 0, "WARN", "expected at least 50 (--floor); measured again it was 90 GB/s"),
        ("90", 0, "OK", "host triad 90 GB/s"),
    ],
)
def test_what_is_slow_convicts_when_it_is_slow_again(place, speeds, status, verdict, said):
    (place / "triad").write_text(TRIAD.format(place=place))
    (place / "triad").chmod(0o755)
    (place / "speeds").write_text("\n".join(speeds.split()) + "\n")
    text = f"# context deep\n* || check_deep_triad -t 1s -s 1M -b {place}/triad --floor 50\n"
    (place / "own.conf").write_text(text)
    done = deep(place, "run", place / "own.conf", "--adapter", "none", "-f", "json", "-q")
    [result] = json.loads(done.stdout)["results"]
    assert (done.returncode, result["verdict"]) == (status, verdict), done.stderr
    assert said in result["message"]
    assert len((place / "measured").read_text().splitlines()) == (1 if verdict == "OK" else 2)


@pytest.mark.thorough
def test_a_tool_that_is_not_installed_is_skipped_and_named(place):
    lines = suite(
        place,
        "check_file_test -e /etc/passwd",
        "check_deep_cpu_gemm -t 1s -b /no/cores",
        "check_deep_triad -s 1M -b /no/triad",
    )
    done = deep(place, "run", lines, "--adapter", "none")
    assert done.returncode == 0
    assert "not tested: cores is not installed; triad is not installed" in done.stdout + done.stderr
    needed = deep(place, "run", lines, "--adapter", "none", "--require", "cores", "-f", "json")
    assert needed.returncode == 3
    assert [one["verdict"] for one in json.loads(needed.stdout)["results"]] == ["OK", "UNKNOWN", "SKIP"]
    nothing = deep(place, "run", suite(place, "check_deep_cpu_gemm -b /no/x", name="x.conf"), "--adapter", "none")
    assert nothing.returncode == 3  # nothing was judged


def result(check, verdict, target="", reason="", line="line", metric=None, message="said"):
    outcome = Outcome(verdict, reason, message, target=target, metrics=(metric,) if metric else ())
    return CheckResult(check, outcome, 1.0, "suite", line)


def test_a_device_on_which_no_test_ran_has_not_passed():
    lost = result("check_deep_dcgm", Verdict.SKIP, reason="CommandMissing", message="dcgmi is not installed")
    burnt = result("check_deep_gemm", Verdict.OK, "gpu0")
    read = result("check_gpu_ecc", Verdict.OK, "gpu1")  # what a device says of itself is no test
    cores = result("check_deep_gemm", Verdict.OK, "processors")
    gpus = ["gpu0", "gpu1"]
    assert [one.target for one in runner.untested([lost, burnt, read, cores], gpus)] == ["gpu1"]
    assert runner.untested([burnt, read], gpus) == []  # a suite that asks for no tool
    whole = result("check_deep_collective", Verdict.OK)
    assert runner.untested([lost, whole], gpus) == []
    assert "dcgmi is not installed" in runner.untested([lost], gpus)[0].message


def test_what_the_second_measurement_makes_of_a_slow_result():
    def speed(value, verdict=Verdict.CRIT, reason="DeepSlow", target="gpu0"):
        return result(
            "c", verdict, target, reason if verdict is not Verdict.OK else "", metric=Metric("m", value, "GB/s")
        )

    wrong = result("c", Verdict.CRIT, "gpu0", "DeepWrongResult")
    first = [speed(8.0), speed(90.0, Verdict.OK, target="gpu1"), wrong]
    confirmed = runner.merge(first, [speed(7.0), speed(90.0, Verdict.OK, target="gpu1")])
    assert [one.verdict for one in confirmed] == [Verdict.CRIT, Verdict.OK, Verdict.CRIT]
    assert confirmed[2] == wrong
    once = runner.merge(first[:1], [speed(88.0, Verdict.OK)])[0]
    assert (once.verdict, once.outcome.action) == (Verdict.WARN, Action.NONE)
    assert runner.merge(first[:1], [wrong])[1] == wrong  # wrong data convicts, whenever it shows
    other = runner.merge(first[:1], [speed(88.0, Verdict.OK), speed(9.0, target="gpu1")])
    assert [one.verdict for one in other] == [Verdict.WARN]  # gpu1 was slow once, too
    late = runner.merge(first[:1], [], "the run's deadline had passed")[0]
    assert (late.verdict, "deadline" in late.outcome.message) == (Verdict.WARN, True)


# The node is free.


def holder(target, comm="python3", pid=4242):
    return FakeHost(
        {f"/proc/{pid}/comm": f"{comm}\n", f"/proc/{pid}/fd/3": Symlink(target), "/proc/bus/pci/devices": ""}
    )


@pytest.mark.parametrize(
    "device", ["/dev/nvidia3", "/dev/kfd", "/dev/infiniband/uverbs2", "/dev/neuron11", "/dev/accel/accel0"]
)
def test_who_holds_a_device_is_in_the_way(device):
    [busy] = idle.devices(holder(device)).busy
    assert str(busy) == f"{device}: process 4242 (python3)"


def test_monitoring_and_other_files_are_not():
    for target, comm in (("/dev/nvidia3", "nv-hostengine"), ("/dev/null", "python3"), ("/dev/nvidiactl", "python3"),
                         ("/dev/infiniband/uverbs0", "ibacm")):  # fmt: skip
        assert idle.devices(holder(target, comm)).busy == ()
    assert idle.devices(holder("/dev/nvidia0", "telemetryd"), ["telemetry"]).busy == ()


class Unseen(FakeHost):
    """A host on which the kernel refuses what /proc/PID/fd points to, or even the list of it."""

    def __init__(self, files, refuse):
        super().__init__({"/proc/bus/pci/devices": "", "/dev/nvidia0": "", **files})
        self.refuse = refuse

    def readlink(self, path):
        if self.refuse == "readlink":
            raise PermissionError(13, "Permission denied", path)
        return super().readlink(path)

    def listdir(self, path):
        if self.refuse == "listdir" and path.endswith("/fd"):
            raise PermissionError(13, "Permission denied", path)
        return super().listdir(path)


@pytest.mark.parametrize("refuse", ["readlink", "listdir"])
def test_processes_whose_files_may_not_be_seen_are_in_the_way(refuse):
    """A container's default: root without CAP_SYS_PTRACE, in the host's PID namespace."""
    job = {"/proc/4242/comm": "python3\n", "/proc/4242/fd/3": Symlink("/dev/nvidia3"),
           "/proc/4242/stat": "4242 (python3) S 1 4242"}  # fmt: skip
    thread = f"77 (kworker/0:1) I 2 0 0 0 -1 {KERNEL_THREAD} {'0 ' * 40}"
    kernel = {"/proc/77/comm": "kworker/0:1\n", "/proc/77/stat": thread, "/proc/77/fd/3": ""}
    daemon = {"/proc/9/comm": "nvidia-persiste\n", "/proc/9/fd/3": Symlink("/dev/nvidia0"),
              "/proc/9/stat": "9 (nvidia-persiste) S 1 9"}  # fmt: skip
    [busy] = idle.devices(Unseen({**job, **kernel, **daemon}, refuse)).busy
    assert str(busy) == (
        "which files it holds open may not be seen (that takes root with CAP_SYS_PTRACE): process 4242 (python3)"
    )
    assert idle.devices(Unseen({**kernel, **daemon}, refuse)).busy == ()
    assert idle.devices(Unseen(job, refuse), ["python"]).busy == ()


def test_where_there_is_no_device_nobody_holds_one():
    host = Unseen({"/proc/4242/comm": "x\n", "/proc/4242/fd/3": "", "/proc/4242/stat": "4242 (x) S 1 4242"}, "listdir")
    host.glob = lambda pattern: []
    assert idle.devices(host).busy == ()


@pytest.mark.thorough
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="root and setpriv are needed")
def test_the_kernel_refuses_a_process_without_the_capability_and_that_is_seen():
    code = (
        "import sys; from nhc.deep import idle; from nhc.core.host import Host\n"
        "try: print(idle._held(Host(), sys.argv[1]))\n"
        "except PermissionError: print('refused')"
    )
    without = ["setpriv", "--inh-caps=-sys_ptrace", "--bounding-set=-sys_ptrace"]
    for before, said in ((without, "refused"), ([], "[]")):
        done = subprocess.run(
            [*before, sys.executable, "-c", code, str(os.getpid())], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == said


def state(**more):
    return NodeState("n1", **{"shown": "idle", "available": True, **more})


@pytest.mark.parametrize(
    ("seen", "environ", "busy", "note"),
    [
        (state(), {}, "takes new work", ""),
        (state(busy=True, shown="mixed"), {}, "work runs on n1", ""),
        (state(available=False, busy=True, shown="draining"), {}, "work runs on n1", ""),
        (state(available=False, shown="drained", mark=Mark("repair")), {}, "", ""),
        (state(available=False, shown="drained", mark=Mark("fan", owner="alice")), {}, "", "out of service by alice"),
        (state(available=False, shown="reserved", hold="reserved for maintenance"), {}, "", ""),
        (state(busy=True, shown="allocated", available=False), {"SLURM_JOB_ID": "7"}, "", "runs as job 7"),
        (None, {}, "does not know n1: name the node as it does", ""),
        (None, {"SLURM_JOB_ID": "7"}, "does not know n1", ""),  # in salloc's shell on a login node
    ],
)
def test_what_the_scheduler_says(seen, environ, busy, note):
    view = idle.judge_idle(seen, "n1", environ)
    assert [busy in str(one) for one in view.busy] == ([True] if busy else [])
    assert [note in one for one in view.notes] == ([True] if note else [])


def test_a_job_that_has_a_part_of_the_node_is_beside_others():
    """Real Slurm, two jobs on one node: tests/adapters/test_slurm_gate.py."""
    shared = state(busy=True, shown="mixed", available=False)
    [busy] = idle.judge_idle(shared, "n1", {"SLURM_JOB_ID": "7"}, ["8", "9", "10", "11"]).busy
    assert "job 8, 9, 10 and 1 more runs on n1 beside job 7" in str(busy)


@pytest.mark.thorough
def test_a_node_in_use_is_left_alone_and_force_says_what_it_disturbs(place):
    """A real process that holds what looks like a device: a file of that name below another root would not be seen."""
    node = place / "uverbs"
    held = Path("/dev/infiniband")
    made = not held.exists()
    need("root", os.geteuid() == 0, "to make a device's name")
    held.mkdir(exist_ok=True)
    device = held / "uverbs250"
    device.touch()
    try:
        with open(device):
            own = deep(place, "run", suite(place, "check_file_test -e /etc/passwd"), "--adapter", "none", "-f", "json")
            forced = deep(place, "run", place / "own.conf", "--adapter", "none", "--force")
    finally:
        device.unlink()
        if made:
            held.rmdir()
    assert not node.exists()
    results = json.loads(own.stdout)["results"]  # in a container there may be a process that we may not look at
    assert own.returncode == 3
    assert {(one["reason"], one["verdict"]) for one in results} == {("DeepNodeBusy", "UNKNOWN")}
    assert any(f"uverbs250: process {os.getpid()}" in one["message"] for one in results)
    assert forced.returncode == 0
    assert f"--force: this disturbs process {os.getpid()}" in forced.stderr


def test_settings_are_put_back_in_order():
    before = GpuSettings("GPU-a", "Enabled", "Default", "700.00", "1980", "2619", "Enabled")
    now = GpuSettings("GPU-a", "Disabled", "Prohibited", "500.00", "1410", "2619", "Disabled")
    assert [argv[3:] for argv in gpu_settings.commands(before, now)] == [
        ("-mig", "1"), ("-pm", "1"), ("-c", "0"), ("-pl", "700.00"), ("-ac", "2619,1980")]  # fmt: skip
    assert gpu_settings.commands(before, before) == []
    with pytest.raises(ValueError, match="nvidia-smi"):
        gpu_settings.parse("Unable to determine the device handle")


@pytest.mark.thorough
def test_settings_that_cannot_be_read_stop_a_run(place):
    (place / "bin" / "nvidia-smi").write_text("#!/bin/sh\necho broken >&2\nexit 9\n")
    done = deep(place, "run", suite(place, "check_file_test -e /etc/passwd"), "--adapter", "none")
    assert done.returncode == 3
    assert "nothing could be put back: nvidia-smi: broken" in done.stderr


def test_leftovers_are_found_by_their_mark():
    env = {**os.environ, "NHC_DEEP_RUN": "abcdef"}
    process = subprocess.Popen(["setsid", "sleep", "300"], env=env)
    try:
        until = time.monotonic() + 60
        while not journal.marked("abcdef") and time.monotonic() < until:
            time.sleep(0.02)
        assert journal.end("abcdef", grace=5) == []
        assert journal.marked("abcdef") == []
        assert journal.marked("abc") == []
    finally:
        process.wait()


def test_the_host_of_a_run_looks_for_commands_where_the_suite_says(place):
    host = Host().with_settings({"PATH": f"{place}/bin"})
    assert [gpu.uuid for gpu in gpu_settings.read(host)] == ["GPU-a", "GPU-b"]


@pytest.mark.thorough
def test_a_recorded_run_is_judged_again_without_any_tool(place):
    need_cc = subprocess.run(["sh", "-c", "command -v cc"], capture_output=True)
    need("cc", need_cc.returncode == 0)
    lines = suite(place, "check_deep_triad -t 100ms -s 1M -f none", "check_deep_cpu -t 1s -s nosuch=1")
    done = deep(place, "run", lines, "--adapter", "none", "--record", place / "kept", "-q")
    assert "2 results recorded" in done.stdout, done.stderr
    assert "differently" not in done.stdout
    again = nhc("replay", place / "kept", "--compare")
    assert (again.returncode, again.stdout) == (0, "")
