"""A whole sweep over SSH on twelve nodes with a real all_reduce over MPI; killed, taken by real work, ended in order.

The nodes are namespaces of this machine behind a real sshd; mpirun, its daemons and the ranks are Open MPI's.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nhc.deep.group_output import held
from nhc.deep.ssh_launch import SshLauncher, SshSettings
from nhc.marks.ports.adapter import AdapterError, SettingError
from nhc.marks.ports.part_settings import read
from nhc.marks.ports.runner import RunPhase
from nhc.store import deep
from nhc.store.connect import open_store
from tests.support.group_runs import at_work, group_run, is_running, look, result
from tests.support.node_namespaces import nodes
from tests.support.require import need
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
NODES = [f"n{number:02}" for number in range(1, 13)]
SLOW = "n05"
MCA = "--mca btl self,tcp --mca btl_tcp_if_include lo --mca oob_tcp_if_include lo --mca mpi_yield_when_idle 1"


class Site:
    def __init__(self, place, spaces):
        self.place, self.spaces = place, spaces
        self.hold = place / "hold"
        self.settings = {
            "ssh-config": str(spaces.config), "rsh": f"ssh -F {spaces.config} -o BatchMode=yes",
            "directory": f"{place}/nodes/{{node}}", "state": f"{place}/state", "grace": "3s", "work": "sleepy*",
            "mpi-args": f"{MCA} -x ALLREDUCE_SLOW={SLOW} -x ALLREDUCE_HOLD={self.hold}",
        }  # fmt: skip
        self.children = []

    def url(self, name):
        return f"sqlite:///{self.place}/{name}.db"

    def sweep(self, name, *words, count=12):
        given = [word for key, value in self.settings.items() for word in ("--set", f"{key}={value}")]
        new = () if "--go-on" in words else (
            "-w", f"n[01-{count:02}]", "--launcher", "ssh", "--tasks", "1", "--size", "1M", "--floor", "0.0012",
            "--any-transport", "--limit", "60s", *given,
        )  # fmt: skip
        tool = () if "--go-on" in words else ("--", f"{self.place}/allreduce", str(1 << 20))
        child = subprocess.Popen(
            [sys.executable, "-m", "nhc", "deep", "sweep", "--every", "0.5s", "--store", self.url(name), *new, *words,
             *tool],
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}", "HOME": str(self.place)}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.children.append(child)
        return child

    def ended(self, child):
        out, err = child.communicate(timeout=240)
        assert "Traceback" not in err, err
        return child.returncode, out, err

    def rows(self, name):
        if not (self.place / f"{name}.db").exists():
            return []
        store = open_store(self.url(name), create=False)
        with store.read() as connection:
            rows = [row for one in deep.newest_sweeps(connection) for row in deep.tests_of(connection, one.id)]
        store.close()
        return rows

    def running(self, *names):
        """The names of all processes on nodes."""
        return [comm for name in names or NODES for comm in self.spaces.processes(name).values()]


@pytest.fixture(scope="module")
def mpi_fleet(tmp_path_factory):
    need("openmpi", shutil.which("mpicc") and shutil.which("mpirun"), "mpicc and mpirun")
    place = tmp_path_factory.mktemp("mpi")
    subprocess.run(["mpicc", "-O2", "-o", place / "allreduce", ROOT / "tests/support/allreduce.c"], check=True)
    with nodes(place, NODES) as spaces:
        made = Site(place, spaces)
        try:
            yield made
        finally:
            made.hold.unlink(missing_ok=True)
            for child in made.children:
                if child.poll() is None:
                    child.kill()
                    child.wait(60)
                for stream in (child.stdout, child.stderr):
                    stream.close()


@pytest.fixture(autouse=True)
def nothing_left(request):
    yield
    if "mpi_fleet" in request.fixturenames:
        made = request.getfixturevalue("mpi_fleet")
        made.hold.unlink(missing_ok=True)
        until(lambda: not made.running(), 60)


def test_the_slow_one_of_twelve_nodes_is_named(mpi_fleet):
    status, out, err = mpi_fleet.ended(mpi_fleet.sweep("whole", "-f", "json"))

    assert status == 1, err
    found = json.loads(out)
    assert [(blame["culprit"], blame["names"]) for blame in found["blames"]] == [("node", [SLOW])], err
    assert found["nodes"] == {**dict.fromkeys(NODES, "passed"), SLOW: "failed"}
    assert all(0 < test["value"] < 0.0012 for test in found["tests"] if SLOW in test["nodes"].split())
    output = next((mpi_fleet.place / "state").glob("*/*/output")).read_text()
    assert "# Rank  0" in output.replace("#  Rank", "# Rank")
    assert len(list((mpi_fleet.place / "state").glob("*/*/marker"))) == len(found["tests"])


def test_a_sweep_killed_midway_leaves_no_process_and_goes_on(mpi_fleet):
    mpi_fleet.hold.touch()
    child = mpi_fleet.sweep("killed", count=6)
    until(lambda: mpi_fleet.running().count("allreduce") == 6, 60, 0.2)
    assert "orted" in mpi_fleet.running()
    child.send_signal(signal.SIGKILL)
    child.wait(60)
    until(lambda: not mpi_fleet.running(), 60, 0.2)  # nobody told the nodes: their guards saw it
    mpi_fleet.hold.unlink()

    status, out, err = mpi_fleet.ended(mpi_fleet.sweep("killed", "--go-on", "1"))

    assert status == 1, err
    assert f"{SLOW}: bad with 2 proven partners" in out
    lost = [row for row in mpi_fleet.rows("killed") if row.state == "unknown"]
    assert sorted(row.nodes for row in lost) == ["n01 n02", "n03 n04", "n05 n06"]
    assert {row.why for row in lost} == {"preempted or cancelled: it left no completion marker"}


def test_real_work_on_a_node_ends_its_test_at_once_and_the_node_is_left_alone(mpi_fleet):
    mpi_fleet.hold.touch()
    child = mpi_fleet.sweep("taken", "--patience", "3s", count=4)
    until(lambda: mpi_fleet.running().count("allreduce") == 4, 60, 0.2)
    (mpi_fleet.place / "sleepy-job").unlink(missing_ok=True)
    shutil.copy("/bin/sleep", mpi_fleet.place / "sleepy-job")
    work = mpi_fleet.spaces.run("n03", str(mpi_fleet.place / "sleepy-job"), "600")
    try:
        until(lambda: "allreduce" not in mpi_fleet.running("n03", "n04"), 60, 0.2)
        assert "allreduce" in mpi_fleet.running("n01")
        mpi_fleet.hold.unlink()
        status, out, err = mpi_fleet.ended(child)
    finally:
        for pid, comm in mpi_fleet.spaces.processes("n03").items():
            if comm == "sleepy-job":
                os.kill(pid, signal.SIGKILL)
        work.wait(60)
    assert status == 3, err
    assert "not tested: n03" in out
    assert any("not idle within 3 s: n03" in row.why for row in mpi_fleet.rows("taken"))


# The launcher by itself.


def sleeps(group, *names, argv=("sleep", "600"), seconds=60.0):
    return group_run(group, names, argv, seconds=seconds)


@pytest.fixture
def launcher(mpi_fleet):
    return SshLauncher(mpi_fleet.settings)


def test_idle_is_what_the_node_itself_says(mpi_fleet, launcher):
    assert launcher.idle(["n01", "n02", "nowhere"]) == {"n01", "n02"}
    assert "not resolve" in launcher._probed["nowhere"][1]
    run = sleeps("idle", "n01", "n02")
    launcher.start(run)
    until(lambda: is_running(launcher, run))
    assert launcher.idle(["n01", "n02", "n07"]) == {"n07"}
    assert SshLauncher(mpi_fleet.settings).idle(["n01", "n07"]) == {"n07"}  # another process sees the lock
    assert look(SshLauncher(mpi_fleet.settings), run).phase is RunPhase.RUNNING  # and that its test goes on
    launcher.stop(run)
    launcher.finish("idle")
    assert look(launcher, run).phase is RunPhase.STOPPED
    launcher.start(run)
    assert look(launcher, run).phase is RunPhase.STOPPED


def test_what_ignores_the_request_to_end_is_killed_after_the_grace_period(mpi_fleet, launcher):
    run = sleeps("deaf", "n01", "n02", argv=("sh", "-c", "trap '' TERM; while :; do sleep 0.2; done"))
    launcher.start(run)
    until(lambda: mpi_fleet.running("n01", "n02").count("sh") >= 2, 60)
    launcher.stop(run)
    until(lambda: not mpi_fleet.running("n01", "n02"), 60)
    assert result(launcher, run) is None


def test_a_test_runs_into_its_limit_although_nobody_ends_it(mpi_fleet, launcher):
    run = sleeps("limit", "n01", "n02", seconds=-27.0)  # with the spare time: 3 s
    launcher.start(run)
    until(lambda: is_running(launcher, run))
    until(lambda: not at_work(launcher, run), 60)
    state = look(launcher, run)
    assert (state.phase, "the limit of 3 s has passed" in state.why) == (RunPhase.LOST, True)


def test_a_guard_that_is_killed_is_cleaned_up_after_by_the_next(mpi_fleet, launcher):
    run = sleeps("orphan", "n08", "n09")
    launcher.start(run)
    until(lambda: "sleep" in mpi_fleet.running("n09"), 60)
    before = mpi_fleet.spaces.processes("n09")
    guards = [pid for pid, comm in before.items() if comm.startswith("python")]
    assert guards
    for pid in guards:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not at_work(launcher, run), 60)
    assert launcher.idle(["n08", "n09"]) == {"n08", "n09"}
    assert "sleep" not in mpi_fleet.running("n08", "n09")


def test_a_command_that_is_not_there_has_a_status_and_no_figure(mpi_fleet):
    launcher = SshLauncher({**mpi_fleet.settings, "mpirun": "/no/such/mpirun"})
    run = sleeps("none", "n01", "n02")
    launcher.start(run)
    found = until(lambda: result(launcher, run))
    assert (found.status, found.output) == (127, "/no/such/mpirun: No such file or directory\n")
    launcher.finish("none")


def test_a_rail_reaches_every_rank_on_every_node(mpi_fleet):
    tool = ("sh", "-c", 'echo "$OMPI_COMM_WORLD_RANK $NCCL_IB_HCA $UCX_NET_DEVICES"')
    launcher = SshLauncher(mpi_fleet.settings)
    run = group_run("rail", ["n01", "n02"], held(tool, "mlx5_3", "hca"), tasks=2)
    launcher.start(run)
    found = until(lambda: result(launcher, run), 60)
    assert sorted(found.output.splitlines()) == [f"{rank} =mlx5_3 mlx5_3:1" for rank in range(4)]
    assert found.status == 0
    launcher.finish("rail")


@pytest.mark.parametrize(("given", "said"), [
    ({"stat": "/x"}, "stat: there is no such key"), ({"state": "x"}, "state: 'x' is not an absolute path"),
    ({"grace": "soon"}, "grace: "), ({"mpi-args": "'"}, "mpi-args: No closing quotation"),
])  # fmt: skip
def test_settings_that_make_no_sense_are_one_line(given, said):
    with pytest.raises(SettingError) as refused:
        read(SshSettings, given)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_state_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "state").write_text("")
    launcher = SshLauncher({"state": str(tmp_path / "state")})
    with pytest.raises(AdapterError, match="state/s/k1: Not a directory"):
        launcher.start(sleeps("s", "n1", "n2"))
