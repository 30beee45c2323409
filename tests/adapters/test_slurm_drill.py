"""A drill on a real node of Slurm: marked by the loop, given to a person, undone; also after Ctrl-C and a kill."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nhc.lab.drills.real import left_over
from nhc.store import attempts, episodes, nodes
from nhc.store.connect import open_store
from tests.support.new_store import new_store
from tests.support.slurm import ROOT_PATH
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
NODE = "n2"
CODE = "import sys; from nhc.cli.main import main; sys.exit(main(sys.argv[1:]))"


def _takes_ctrl_c():
    """A shell that starts tests in the background lets them ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


class DrillRun:
    def __init__(self, place, cluster, settle):
        self.place, self.cluster, self.child, self.env = place, cluster, None, dict(cluster.env)
        new_store(str(place)).close()
        (place / "remedy.toml").write_text(f"""
store = "sqlite:///{place}/store.db"
[actions]
mark = "on"
[sources]
adapter = "slurm"
settle = "{settle}"
[bounds.fleet]
out = "1"
[evidence]
directory = "{place}/evidence"
""")

    def killed_by_scontrol(self, when, change):
        """The drill is killed once, right before or after the scontrol that carries this change out."""
        wrapper, real = self.place / "bin" / "scontrol", shutil.which("scontrol", path=ROOT_PATH)
        wrapper.parent.mkdir()
        first = f'"{real}" "$@"' if when == "after" else ":"
        wrapper.write_text(
            f'#!/bin/sh\ncase " $* " in *" {change} "*)\n'
            f'  if mkdir "{self.place}/killed" 2>/dev/null; then {first}; kill -9 $PPID; exit 1; fi;;\n'
            f'esac\nexec "{real}" "$@"\n'
        )
        wrapper.chmod(0o755)
        self.env["NHC_RM_PATH"] = str(wrapper.parent)

    def start(self, *more, scenario="fault"):
        env = {**self.env, "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}", "HOME": str(self.place)}
        words = ["drill", scenario, "--node", NODE, "--real", "-s", str(self.place / "remedy.toml"), *more]
        self.child = subprocess.Popen([sys.executable, "-c", CODE, *words], env=env, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True, preexec_fn=_takes_ctrl_c)  # fmt: skip
        return self.child

    def run(self, *more, scenario="fault"):
        out, err = self.start(*more, scenario=scenario).communicate(timeout=240)
        return self.child.returncode, out, err

    def said(self):
        """What it said, and its status, where it has ended."""
        if self.child.poll() is None:
            return "it runs"
        return (self.child.returncode, *self.child.communicate(timeout=60))

    def look(self):
        store = open_store(f"sqlite:///{self.place}/store.db", create=False)
        try:
            with store.read() as connection:
                rows = episodes.list_episodes(connection)
                tried = [one for row in rows for one in attempts.attempts_of(connection, row.id)]
            return rows, tried, [one.node for one in left_over(store)]
        finally:
            store.close()


@pytest.fixture
def drill(cluster, tmp_path, request):
    made = DrillRun(tmp_path, cluster, getattr(request, "param", "1s"))
    yield made
    if made.child is not None and made.child.poll() is None:
        made.child.kill()
        made.child.communicate(timeout=60)  # closes its pipes as well


def test_the_loop_marks_the_node_and_the_drill_undoes_it(drill, cluster):
    status, out, err = drill.run()
    assert (status, "would report a fault" in out, drill.look()[0]) == (0, True, []), (out, err)
    status, out, err = drill.run("--apply")
    assert status == 0, (out, err)
    rows, tried, left = drill.look()
    assert ([row.state for row in rows], tried, left) == (["escalated"], [], [])
    until(lambda: cluster.state(NODE) == "idle", what="the node to be in service")
    until(lambda: cluster.unmarked(NODE), what="the reason to go")  # it stays until its slurmd has answered
    assert "fault: kept its promises" in out


@pytest.mark.parametrize("drill", ["10m"], indirect=True)
def test_ctrl_c_undoes_it(drill, cluster):
    child = drill.start("--apply")
    until(lambda: drill.look()[2] == [NODE], 60, what="the drill to be begun", said=drill.said)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, drill.look()[2]) == (1, []), (out, err)
    assert "was stopped, and is undone" in err


@pytest.mark.parametrize("drill", ["0s"], indirect=True)
@pytest.mark.parametrize(
    ("when", "call", "left"),
    [("after", "DRAIN", "drain"), ("before", "RESUME", "drain"), ("after", "RESUME", "idle")],
    ids=["marked", "about to clear the mark", "cleared"],
)
def test_after_a_kill_the_next_drill_undoes_it(drill, cluster, when, call, left):
    drill.killed_by_scontrol(when, f"State={call}")
    status, out, err = drill.run("--apply")
    assert (status, drill.look()[2]) == (-signal.SIGKILL, [NODE]), (out, err)
    assert left in cluster.show(NODE)["State"].lower()
    status, out, err = drill.run("--apply")
    assert (status, f"an earlier drill on {NODE} was undone" in err) == (0, True), (out, err)
    until(lambda: cluster.state(NODE) == "idle", what="the node to be in service", said=lambda: (out, err))
    assert drill.look()[2] == []


def test_a_node_that_somebody_has_drained_is_refused(drill, cluster):
    cluster.update(NODE, State="DRAIN", Reason="mine")
    status, _out, err = drill.run("--apply")
    assert (status, "a drill needs a node in service" in err) == (2, True)
    assert cluster.reason(NODE).startswith("mine")


def test_what_would_be_put_on_the_node_is_shown_and_no_fault_that_the_loop_would_repair(drill, cluster):
    with open(drill.place / "remedy.toml", "a") as file:
        file.write('[repairers.node]\n[drill]\nfile-system = "/scratch"\n')
    store = open_store(f"sqlite:///{drill.place}/store.db", create=False)
    with store.write() as connection:
        nodes.describe(connection, [nodes.NodeDescription(NODE, uuid="4c4c4544-0000-1000-8000-000000000000")])
    store.close()
    status, out, err = drill.run(scenario="full-disk")
    assert (status, f"would run on {NODE}: /usr/bin/nhc inject full-disk --device /scratch --to 97% --apply" in out,
            "dry run: nothing was done" in err) == (0, True, True), (out, err)  # fmt: skip
    text = (drill.place / "remedy.toml").read_text()
    (drill.place / "remedy.toml").write_text(text.replace('mark = "on"', 'mark = "on"\nreboot = "on"')
                                             + 'kernel = "xid-79"\n')  # fmt: skip
    status, out, err = drill.run("--apply", scenario="kernel-line")
    assert (status, "xid-79 asks for a repair, and the loop would begin it (reboot on)" in err) == (2, True), (out, err)
    assert drill.look() == ([], [], [])
    assert cluster.state(NODE) == "idle"
