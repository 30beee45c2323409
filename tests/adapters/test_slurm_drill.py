"""A drill on a real node of Slurm: marked by the loop, given to a person, undone; also after Ctrl-C and a kill."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nhc.drills.real import left_over
from nhc.store import attempts, episodes
from nhc.store.connect import open_store
from tests.support.remedy_world import new_store
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
NODE = "n2"
CODE = "import sys; from nhc.cli.main import main; sys.exit(main(sys.argv[1:]))"


class DrillRun:
    def __init__(self, place, cluster, settle):
        self.place, self.cluster, self.child = place, cluster, None
        new_store(str(place)).close()
        (place / "remedy.toml").write_text(f"""
store = "sqlite:///{place}/store.db"
[actions]
mark = "on"
[sources]
adapter = "slurm"
settle = "{settle}"
[bounds.fleet]
out = {{ nodes = 1 }}
[evidence]
directory = "{place}/evidence"
""")

    def start(self, *more):
        env = {**self.cluster.env, "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}", "HOME": str(self.place)}
        words = ["remedy", "drill", "fault", "--node", NODE, "--real", "-s", str(self.place / "remedy.toml"), *more]
        self.child = subprocess.Popen([sys.executable, "-c", CODE, *words], env=env, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True)  # fmt: skip
        return self.child

    def run(self, *more):
        out, err = self.start(*more).communicate(timeout=120)
        return self.child.returncode, out, err

    def look(self):
        store = open_store(f"sqlite:///{self.place}/store.db", create=False)
        try:
            with store.read() as connection:
                rows = episodes.list_episodes(connection)
                tried = [one for row in rows for one in attempts.attempts_of(connection, row.id)]
            return rows, tried, left_over(store)
        finally:
            store.close()


@pytest.fixture
def drill(cluster, tmp_path, request):
    made = DrillRun(tmp_path, cluster, getattr(request, "param", "1s"))
    yield made
    if made.child is not None and made.child.poll() is None:
        made.child.kill()
        made.child.wait(30)


def test_the_loop_marks_the_node_and_the_drill_undoes_it(drill, cluster):
    status, out, err = drill.run()
    assert (status, "would report a fault" in out, drill.look()[0]) == (0, True, []), (out, err)
    status, out, err = drill.run("--apply")
    assert status == 0, (out, err)
    rows, tried, left = drill.look()
    assert ([row.state for row in rows], tried, left) == (["escalated"], [], [])
    until(lambda: cluster.state(NODE) == "idle", what="the node to be in service")
    assert cluster.reason(NODE) == ""
    assert "fault: kept its promises" in out


@pytest.mark.parametrize("drill", ["10m"], indirect=True)
def test_ctrl_c_undoes_it(drill, cluster):
    child = drill.start("--apply")
    until(lambda: drill.look()[2] == [NODE], 60, what="the fault to be reported")
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, drill.look()[2]) == (1, []), (out, err)
    assert "was stopped, and is undone" in err


def test_after_a_kill_the_next_drill_undoes_it(drill, cluster):
    child = drill.start("--apply")
    until(lambda: "drain" in cluster.show(NODE)["State"].lower(), 60, what="the node to be marked")
    child.kill()
    child.communicate(timeout=30)
    status, out, err = drill.run("--apply")
    if "drill on" not in err:  # it was killed after it had undone everything
        assert status == 0, (out, err)
        return
    until(lambda: cluster.state(NODE) == "idle", what="the node to be in service")
    assert drill.look()[2] == []


def test_a_node_that_somebody_has_drained_is_refused(drill, cluster):
    cluster.update(NODE, State="DRAIN", Reason="mine")
    status, _out, err = drill.run("--apply")
    assert (status, "a drill needs a node in service" in err) == (2, True)
    assert cluster.reason(NODE).startswith("mine")
