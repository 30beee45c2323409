"""The demonstration, run as somebody does who has just installed nhc."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import sqlalchemy as sa

from nhc.core.check import find
from nhc.core.model import Verdict
from nhc.lab.demo import play
from nhc.lab.demo.play import BY_PERSONS, KINDS, SWITCH, DemoFleet
from nhc.marks.ports.adapter import Mark
from nhc.marks.ports.repair import LADDER, Machine, Order, Rung, Stage
from nhc.node.planning.runbooks import find as runbook
from nhc.store import audit
from nhc.store.schema import report_history
from tests.support.ports import free_ports
from tests.support.waiting import until


@pytest.mark.slow
def test_faults_come_nodes_are_repaired_and_nothing_is_left(tmp_path):
    address = f"127.0.0.1:{free_ports(1)[0]}"
    running = subprocess.Popen(
        [sys.executable, "-m", "nhc", "demo", "--size", "60", "--faults", "60", "--listen", address],
        env={**os.environ, "TMPDIR": str(tmp_path)}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip

    def ask(path):
        try:
            with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as answer:
                return json.load(answer)
        except OSError:
            return None

    try:
        until(lambda: ask("/api/me"), 60, what="the page")
        until(
            lambda: any(one["state"] == "returned" for one in ask("/api/episodes?which=ended")["episodes"]),
            120,
            what="a node to be back in service",
        )
        assert len(ask("/api/fleet")["letters"]) == 60
        assert list(tmp_path.iterdir())
    finally:
        running.send_signal(signal.SIGINT)
        said = running.communicate(timeout=60)[1]
    assert running.returncode in (0, 130)
    assert "60 made-up nodes" in said
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
def test_what_is_over_an_hour_old_is_deleted(tmp_path):
    demo = play.make(str(tmp_path), 20, 1, "127.0.0.1:0")
    try:
        for _ in range(4):
            play.step(demo, 10.0)
        assert play.forget(demo, str(tmp_path), time.time()).rows["report_history"] == 0
        gone = play.forget(demo, str(tmp_path), time.time() + play.HOUR)
        assert gone.rows["report_history"] > 0
        assert gone.segment
        with demo.store.read() as connection:
            assert connection.scalar(sa.select(sa.func.count()).select_from(report_history)) == 0
            assert len(audit.entries(connection, limit=1000)) <= 2  # that it was deleted, and archived
    finally:
        demo.actuators.close()
        demo.store.close()


@pytest.mark.slow
def test_a_demonstration_that_is_told_to_end_leaves_nothing_either(tmp_path):
    running = subprocess.Popen(
        [sys.executable, "-m", "nhc", "demo", "--size", "5", "--listen", f"127.0.0.1:{free_ports(1)[0]}"],
        env={**os.environ, "TMPDIR": str(tmp_path)}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    for line in running.stderr:
        if "Ctrl-C" in line:  # the last that it says
            break
    assert list(tmp_path.iterdir())
    running.terminate()
    assert running.communicate(timeout=60)[1] == ""
    assert running.returncode == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
def test_an_address_that_is_taken_is_one_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "nhc", "demo", "--listen", "nowhere"],
        env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1] == "Error: --listen: 'nowhere' is not HOST:PORT or unix:PATH"
    assert list(Path(tmp_path).iterdir()) == []


class Ticks:
    now = 0.0

    def __call__(self):
        return self.now


def test_a_repair_mends_what_it_mends_and_no_more():
    ticks = Ticks()
    fleet = DemoFleet(4, 1, ticks)
    node = fleet.fleet["gpu1"]
    mild, hard = (next(kind for kind in KINDS if kind.cure is cure) for cure in (Rung.RESET_DEVICE, Rung.POWER_CYCLE))
    node.faults.update({mild.reason: mild, hard.reason: hard})
    repairer = fleet
    before = repairer.look(Machine("gpu1"))
    order = Order("k", "1", 1, Machine("gpu1"), Rung.REBOOT, "why")
    sent = repairer.send(order)
    assert repairer.progress(order, sent, before).stage is Stage.WORKING
    assert "gpu1" not in [report.host for report in fleet.reports(1.0)]

    ticks.now = 60.0
    fleet.pass_time(0)

    assert repairer.progress(order, sent, before).stage is Stage.DONE
    assert list(node.faults) == [hard.reason]
    assert repairer.look(Machine("gpu1")).boot != before.boot


def test_marks_of_others_stay():
    marker = DemoFleet(2, 1)
    marker.fleet["gpu1"].marked(Mark("mine", owner="anna"), False)

    assert marker.clear(["gpu1"])[0].effect.value == "refused"
    assert marker.mark({"gpu1": Mark("ours")})[0].effect.value == "refused"
    assert marker.mark({"gpu2": Mark("ours")})[0].effect.value == "changed"
    assert [state.available for state in marker.nodes()] == [False, False]


def test_the_same_seed_gives_the_same_faults():
    def faults(seed):
        fleet = DemoFleet(100, seed, Ticks())
        for _ in range(50):
            fleet.pass_time(1.0)
        return [sorted(node.faults) for node in fleet.fleet.values()]

    assert faults(3) == faults(3)
    assert faults(3) != faults(4)


@pytest.mark.thorough
def test_faults_that_wait_for_a_person_leave_room_for_others():
    fleet = DemoFleet(500, 1, Ticks())
    for _ in range(200):
        fleet.pass_time(5.0)
        for node in fleet.fleet.values():  # what needs no person is mended
            node.begin(Rung.POWER_CYCLE, -100.0)

    of = [next(iter(node.faults.values())) for node in fleet.fleet.values() if node.faults]
    waiting = [kind.reason for kind in of if kind.cure in BY_PERSONS]
    assert sorted(waiting) == ["GpuRowRemapFailed"] * 5 + ["IbPortDown"] * 5


def test_every_kind_of_fault_can_be_mended_or_is_for_a_person():
    assert all(kind.cure is Rung.ESCALATE or kind.cure in LADDER for kind in KINDS)
    assert {kind.verdict for kind in KINDS} == {Verdict.CRIT, Verdict.WARN}


@pytest.mark.thorough
def test_whatever_it_shows_can_be_explained():
    """Every check and reason that a report of the made-up fleet has, good ones too."""
    fleet = DemoFleet(200, 1, Ticks())
    seen = {}
    for at in range(100):
        fleet.pass_time(5.0)
        for report in fleet.reports(float(at)):
            seen.update({(result.check, result.outcome.reason): result.outcome for result in report.results})
    reasons = {reason for _check, reason in seen if reason}
    assert reasons == {kind.reason for kind in (*KINDS, SWITCH)}
    for check, reason in seen:
        assert find(check) is not None, check
        if reason:
            page = runbook(reason)
            assert page is not None, reason
            if seen[check, reason].verdict is Verdict.CRIT:
                assert page.action == seen[check, reason].action.value, reason
