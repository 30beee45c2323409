"""A whole gate on a real Slurm of five nodes: held before work, tested, let in; the slow node stays out.

The one fake is the tool that the suite runs (`triad`), slow on one node.
"""

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import pytest

from nhc.core.state import gate_record as record
from nhc.core.state.gate_record import GateState
from nhc.deep import idle
from nhc_adapters.slurm.adapter import Slurm
from tests.support.require import need
from tests.support.slurm import Cluster, missing
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
NODES = ["n1", "n2", "n3", "n4", "n5"]
MINE = "NHC-GATE:"
KILLS = int(os.environ.get("NHC_KILLS", "5"))
"""50 take some minutes."""

# Prints what nhc/core/data/triad.c prints. It waits while `hold` is there, is slow where `slow` is, dies where `dies`
# is.
TOOL = """#!/bin/sh
echo run >> {place}/runs
while [ -e {place}/hold ]; do sleep 0.05; done
[ -e {place}/dies ] && exit 1
rate=20.000
[ -e {place}/slow ] && rate=2.000
echo "array $1 bytes 2 threads"
for kernel in copy scale add triad; do echo "rate $kernel $rate GB/s"; done
echo "validated yes"
echo "end"
"""
SETTINGS = """
scheduler = "slurm"
store = "sqlite:///{place}/store.db"
[adapter]
conf = "{conf}"
[groups.gpu]
nodes = "n[1-5]"
suite = "{place}/suite.conf"
pause = "0s"
tries = 2
limit = "2m"
{more}
"""


@pytest.fixture(scope="module")
def cluster():
    need("slurm", not missing(), ", ".join(missing()))
    directory = Path(tempfile.mkdtemp(prefix="nhc-gate-"))
    directory.chmod(0o755)
    made = Cluster(directory, NODES)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(directory, ignore_errors=True)


class Node:
    """One node's own state, suite and settings, and `nhc gate` as a process there."""

    def __init__(self, cluster, place, name, more=""):
        self.cluster, self.place, self.name = cluster, place, name
        place.mkdir()
        (place / "triad").write_text(TOOL.format(place=place))
        (place / "triad").chmod(0o755)
        (place / "suite.conf").write_text(
            f"# context deep\n* || check_deep_triad -t 1s -s 8M --binary {place}/triad --floor 10\n"
        )
        self.settings = place / "gate.toml"
        self.write(more)

    def write(self, more=""):
        self.settings.write_text(SETTINGS.format(place=self.place, conf=self.cluster.conf, more=more))

    @property
    def env(self):
        return {
            **os.environ, "SLURM_CONF": str(self.cluster.conf), "NHC_GATE_FILE": str(self.place / "gate.json"),
            "NHC_DEEP_DIR": str(self.place / "deep"), "NHC_STATE_DIR": str(self.place / "state"), "NHC_STORE": "",
            "PYTHONPATH": f"{ROOT}:{ROOT}/adapters",
            "TMPDIR": str(self.place),  # what a killed one cannot remove
        }  # fmt: skip

    def argv(self, *words):
        names = [] if words[1] in ("open", "close") or words[1:3] == ("adopt", "n[1-3]") else ["-n", self.name]
        return [sys.executable, "-m", "nhc", *words, "-s", str(self.settings), *names]

    def gate(self, *words, status=0):
        done = subprocess.run(self.argv(*words), env=self.env, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == status, f"{done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def begin(self):
        return subprocess.Popen(
            self.argv("gate", "run", "--apply"), env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    @property
    def record(self):
        return record.read(str(self.place / "gate.json"))

    def runs(self):
        path = self.place / "runs"
        return len(path.read_text().split()) if path.exists() else 0

    def held(self):
        shown = self.cluster.show(self.name)
        return "DRAIN" in shown["State"] and self.cluster.reason(self.name).startswith(MINE)

    def audit(self):
        with closing(sqlite3.connect(self.place / "store.db")) as store, store:
            return [what for (what,) in store.execute("select what from audit order by seq")]


def back_in_service(cluster):
    """All nodes take work again; unlike Cluster.reset, without waiting until slurmctld has pinged them."""
    for name in NODES:
        if f"slurmd.{name}" not in cluster.daemons:
            cluster.start_node(name)
    until(cluster._end_jobs, 60, what="jobs to end")
    for name in NODES:
        if cluster.state(name) not in ("idle", "idle*"):
            cluster.scontrol("update", f"NodeName={name}", "State=RESUME", check=False)
    cluster.scontrol("update", f"NodeName={','.join(NODES)}", "Comment=")


def takes_work(cluster, name):
    return cluster.state(name) in ("idle", "idle*")  # the star: not pinged since


@pytest.fixture
def node(cluster, tmp_path):
    made = []

    def make(name="n1", more=""):
        made.append(Node(cluster, tmp_path / name, name, more))
        return made[-1]

    yield make
    back_in_service(cluster)


def test_a_dry_run_changes_nothing(node, cluster):
    one = node()
    assert "would test: no verdict: a new node" in one.gate("gate", "run", status=1)
    assert one.record is None
    assert one.runs() == 0
    assert takes_work(cluster, "n1")


def test_a_new_node_takes_no_work_until_its_suite_has_passed(node, cluster):
    one = node()
    (one.place / "hold").touch()
    gate = subprocess.Popen(
        one.argv("gate", "run", "--apply"), env=one.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until(one.runs, what="the suite to run")
    assert one.held()
    job = cluster.submit("true", "--nodelist=n1")
    assert cluster.job(job)["JobState"] == "PENDING"
    (one.place / "hold").unlink()
    assert gate.wait(60) == 0
    until(lambda: cluster.job(job)["JobState"] == "COMPLETED", 60, what="the job to run")
    assert one.record.state is GateState.PASSED
    assert json.loads(Path(one.record.report).read_text())["host"] == "n1"
    assert one.audit() == ["gate.closed", "gate.held", "gate.testing", "gate.passed", "gate.released"]


def test_five_nodes_and_the_slow_one_stays_out(node, cluster):
    nodes = [node(name) for name in NODES]
    (nodes[2].place / "slow").touch()
    for one in nodes:
        slow = one.name == "n3"
        said = one.gate("gate", "run", "--apply", status=1 if slow else 0)
        assert ("DeepSlow" in said or "2 GB/s" in said) is slow
    assert [one.name for one in nodes if one.held()] == ["n3"]
    assert [name for name in NODES if not takes_work(cluster, name)] == ["n3"]
    assert "failed" in cluster.reason("n3")
    assert nodes[2].runs() == 2, (
        "what is slow is measured again; a verdict is a verdict: it is not tried until it passes"
    )
    assert "failed" in nodes[2].gate("gate", "run", "--apply", status=1)
    assert nodes[2].runs() == 2


def test_what_passed_is_not_tested_again_until_something_changes(node):
    one = node()
    one.gate("gate", "run", "--apply")
    one.gate("gate", "run", "--apply")
    assert one.runs() == 1
    with (one.place / "suite.conf").open("a") as suite:
        suite.write("# another image's suite\n")
    assert "updated: own suite" in one.gate("gate", "run", "--apply")
    assert one.runs() == 2
    kept = one.record
    record.write(str(one.place / "gate.json"), kept._replace(boot="an-earlier-boot"))
    assert "started anew" in one.gate("gate", "run", "--apply")
    assert one.runs() == 3


def test_each_trigger_is_switched_by_its_group(node):
    one = node(more='on = ["new", "update"]')
    one.gate("gate", "run", "--apply")
    record.write(str(one.place / "gate.json"), one.record._replace(boot="an-earlier-boot"))
    one.gate("gate", "run", "--apply")
    assert one.runs() == 1
    assert "runs no suite on demand" in one.gate("gate", "close", "n1", "--apply", "--why", "x", status=1)
    off = node("n2", more="on = []")
    assert "asks for no suite" in off.gate("gate", "run", "--apply")
    assert off.runs() == 0


def test_a_fleet_that_works_is_adopted_and_its_next_machine_is_not(node, cluster):
    """By an order through slurmctld, which is taken away once it is carried out, and by hand on the node itself."""
    one, other, bad = node("n1"), node("n2"), node("n3")
    (bad.place / "slow").touch()
    bad.gate("gate", "run", "--apply", status=1)
    assert "would adopt n1" in one.gate("gate", "adopt", "n[1-3]", "--why", "in service since May")
    one.gate("gate", "adopt", "n[1-3]", "--why", "in service since May", "--apply")
    one.gate("gate", "run", "--apply")
    assert one.record.state is GateState.OPENED
    assert (one.runs(), takes_work(cluster, "n1")) == (0, True)
    assert "Comment" not in cluster.show("n1") or "adopt" not in cluster.show("n1")["Comment"]
    assert "failed" in bad.gate("gate", "run", "--apply", status=1)  # it has a verdict, and keeps it
    assert "no record" not in other.gate("gate", "adopt", "--why", "by hand", "--apply")
    assert other.record.state is GateState.OPENED
    assert "has a verdict already" in bad.gate("gate", "adopt", "--why", "by hand", "--apply", status=1)
    (one.place / "gate.json").unlink()  # another machine under the name: nothing of it is known
    assert "no verdict: a new node" in one.gate("gate", "run", status=1)


def test_boot_holds_a_node_before_slurmd_is_there_and_tests_nothing(node, cluster):
    one = node("n4")
    cluster.kill("slurmd.n4", signal.SIGTERM)
    one.gate("gate", "boot", "--apply")
    assert one.record.state is GateState.HELD
    assert one.runs() == 0
    cluster.start_node("n4")
    until(lambda: "NOT_RESPONDING" not in cluster.show("n4")["State"], 60, what="n4 to register")
    assert one.held(), "a registration takes no drain away"
    one.gate("gate", "run", "--apply")
    until(lambda: takes_work(cluster, "n4"), 60, what="n4 to be idle")


def test_a_suite_that_could_not_tell_is_tried_again_and_then_the_policy_holds(node, cluster):
    closed, opened = node("n1"), node("n2", more='cannot-tell = "open"')
    for one in (closed, opened):
        (one.place / "dies").touch()
    assert "could-not-tell" in closed.gate("gate", "run", "--apply", status=3)
    assert closed.held()
    assert "held by policy (closed)" in closed.gate("gate", "run", "--apply", status=3)
    assert closed.runs() == 2
    closed.gate("gate", "run", "--apply", status=3)
    assert closed.runs() == 2
    assert closed.held()
    opened.gate("gate", "run", "--apply", status=3)
    assert "opened by policy (open)" in opened.gate("gate", "run", "--apply")
    assert takes_work(cluster, "n2")
    assert opened.record.state is GateState.OPENED


def test_a_gate_that_was_killed_goes_on_and_its_tool_is_gone(node, cluster):
    one = node("n5")
    (one.place / "hold").touch()
    gate = subprocess.Popen(
        one.argv("gate", "run", "--apply"), env=one.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until(one.runs, what="the suite to run")
    gate.terminate()
    assert gate.wait(60) != 0
    place = str(one.place).encode()
    # A gate that is killed leaves its suite, which may still be about to start its tool.
    until(lambda: not [pid for pid in os.listdir("/proc") if pid.isdigit() and place in _argv(pid)], what="its end")
    assert one.held(), "work must not come to a node whose suite was cut off"
    assert one.record.state is GateState.TESTING
    (one.place / "hold").unlink()
    assert "run 2 of 2" in one.gate("gate", "run", "--apply")
    assert takes_work(cluster, "n5")


def test_kills_at_any_moment_let_no_unproved_node_in(node, cluster):
    """SIGKILL: nothing of the run can put things right any more; the next run does."""
    one = node("n5")
    one.settings.write_text(one.settings.read_text().replace("tries = 2", "tries = 100"))
    chance, place = random.Random(1), str(one.place).encode()
    for _ in range(KILLS):
        gate = one.begin()
        time.sleep(chance.uniform(0.2, 3.0))  # where in its work it dies is left to chance
        gate.kill()
        gate.wait(60)
        kept = one.record
        # Its record says so before the scheduler is asked to hold it: `check_gate` refuses jobs in between.
        begun = kept is None or kept.state is GateState.HELD
        assert begun or one.held() or kept.state.lets_in, (kept, cluster.show("n5"))
        if kept is not None and kept.state.lets_in:
            assert one.runs(), "nobody is let in without a run"
            one.gate("gate", "close", one.name, "--apply", "--why", "again", "--by", "anna")
    # A gate that is killed leaves its suite, which may still be about to start its tool.
    until(lambda: not [pid for pid in os.listdir("/proc") if pid.isdigit() and place in _argv(pid)], what="its end")
    before = one.runs()
    one.gate("gate", "run", "--apply")
    assert (one.runs(), one.record.state) == (before + 1, GateState.PASSED)
    assert takes_work(cluster, "n5")
    verified = [sys.executable, "-m", "nhc", "store", "verify", "--store", f"sqlite:///{one.place}/store.db"]
    assert subprocess.run(verified, env=one.env, capture_output=True, timeout=60, check=False).returncode == 0


def _argv(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_running_work_is_waited_for_and_no_test_runs_beside_it(node, cluster):
    one = node("n1")
    job = cluster.submit("sleep 600", "--nodelist=n1")
    until(lambda: cluster.job(job)["JobState"] == "RUNNING", 60, what="the job to run")
    assert "work still runs here" in one.gate("gate", "run", "--apply", status=1)
    assert one.held()
    assert one.runs() == 0
    assert cluster.job(job)["JobState"] == "RUNNING"
    cluster.run("scancel", job)
    until(lambda: cluster.state("n1") == "drain", 60, what="the job to end")
    one.gate("gate", "run", "--apply")
    assert takes_work(cluster, "n1")


def test_a_job_that_shares_its_node_gives_no_right_to_test_it(node, cluster):
    jobs = [cluster.submit("sleep 600", "--nodelist=n2", "-n1") for _ in range(2)]
    until(lambda: all(cluster.job(job)["JobState"] == "RUNNING" for job in jobs), 60, what="both jobs to run")
    slurm = Slurm({}, node("n2").env)
    [busy] = idle.scheduler(slurm, "n2", {"SLURM_JOB_ID": jobs[0]}).busy
    assert f"job {jobs[1]} runs on n2 beside job {jobs[0]}" in str(busy)
    cluster.run("scancel", jobs[1])
    until(lambda: not idle.scheduler(slurm, "n2", {"SLURM_JOB_ID": jobs[0]}).busy, 60, what="the other job to end")


def test_what_somebody_else_took_out_stays_out(node, cluster):
    one = node("n2")
    cluster.update("n2", State="DRAIN", Reason="new DIMM")
    said = one.gate("gate", "run", "--apply")
    assert "stays out of service" in said
    assert cluster.reason("n2") == "new DIMM"
    assert one.record.state is GateState.PASSED
    assert one.runs() == 1


def test_a_health_check_does_not_resume_what_a_gate_holds(node, cluster):
    one = node("n3")
    one.gate("gate", "boot", "--apply")
    adapter = Slurm({}, one.env)
    (done,) = adapter.clear(["n3"])
    assert done.effect.value == "refused"
    assert one.held()


def test_persons_open_and_close_gates(node, cluster):
    one = node("n1")
    (one.place / "slow").touch()
    one.gate("gate", "run", "--apply", status=1)
    assert "would open n1" in one.gate("gate", "open", "n1", "--why", "a known slow board")
    assert one.held()
    one.gate("gate", "open", "n1", "--apply", "--why", "a known slow board", "--by", "anna")
    assert "a person opened it" in one.gate("gate", "run", "--apply")
    assert takes_work(cluster, "n1")
    one.gate("gate", "run", "--apply")
    assert one.runs() == 2, "what is slow is measured again"
    (one.place / "slow").unlink()
    one.gate("gate", "close", "n1", "--apply", "--why", "new firmware", "--by", "anna")
    assert one.held(), "closing takes effect at once"
    assert "a person asked for it" in one.gate("gate", "run", "--apply")
    assert one.runs() == 3
    assert takes_work(cluster, "n1")
    assert "gate.ordered.close" in one.audit()


def test_a_scheduler_that_does_not_answer_is_said_and_nothing_is_tested(node, cluster):
    one = node("n1")
    away = one.settings.read_text().replace(str(cluster.conf), "/nonexistent/slurm.conf")
    away = away.replace("[adapter]", '[adapter]\ntimeout = "1s"')
    one.settings.write_text(away)
    said = one.gate("gate", "boot", "--apply", status=1)
    assert "the scheduler does not answer" in said
    one.settings.write_text(away + 'cannot-tell = "open"\n')
    assert "open by policy" in one.gate("gate", "boot", "--apply")
    assert one.runs() == 0


def test_boot_waits_for_a_controller_that_comes_back(node, cluster):
    one = node("n1")
    cluster.lose_controller()
    words = [*one.argv("gate", "boot", "--apply"), "--patience", "90s"]
    boot = subprocess.Popen(words, env=one.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: (one.place / "gate.json").exists(), what="the record", within=60)
        cluster.start_controller()
        assert boot.wait(90) == 0
    finally:
        boot.kill()
        boot.wait()
    assert one.held()
    # Until a restarted slurmctld has heard a node, work may still run there: it counts as busy.
    until(lambda: "UNKNOWN" not in cluster.show("n1")["State"], 60, what="slurmctld to hear n1")


def test_status_and_doctor(node):
    one = node("n1")
    assert "no verdict" in one.gate("status", "gate", status=3)
    one.gate("gate", "run", "--apply")
    assert "passed" in one.gate("status", "gate")
    shown = json.loads(one.gate("status", "gate", "-f", "json"))
    assert shown["standing"]["held"] is False
    done = subprocess.run(
        [sys.executable, "-m", "nhc", "doctor", "gate", "-s", str(one.settings)],
        env=one.env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "scheduler slurm: answers" in done.stdout


def due(one):
    argv = [sys.executable, "-m", "nhc", "deep", "due", "-w", one.name, "--younger-than", "7d", "--more-than", "0",
            "--store", f"sqlite:///{one.place}/store.db"]  # fmt: skip
    return subprocess.run(argv, env=one.env, capture_output=True, text=True, timeout=60, check=False)


def test_a_gate_s_verdict_counts_in_the_store_as_any_other(node):
    one = node()
    one.gate("gate", "run", "--apply")
    assert due(one).returncode == 0, due(one).stdout
    (one.place / "slow").touch()
    one.gate("gate", "close", one.name, "--why", "new firmware", "--apply")
    one.gate("gate", "run", "--apply", status=1)
    assert "n1 failed suite " in due(one).stdout
    assert due(one).returncode == 1
