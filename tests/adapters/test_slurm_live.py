"""A real slurmctld: states that only it can make, `nhc sync slurm`, slurmrestd, and a controller that dies midway."""

from __future__ import annotations

import json
import re
import shutil
import signal
import threading
import time
from operator import itemgetter

import pytest
from click.testing import CliRunner

from nhc.console.scheduler import Scheduler
from nhc.console.sources import ClusterSource
from nhc.core.limits import Limit
from nhc.core.matching.node_ranges import fold_for_scheduler
from nhc.core.model import Action, CheckResult, Report, crit, ok, unknown
from nhc.core.render.json import to_dict
from nhc.core.state.store import State
from nhc.core.system.process import Completed
from nhc.hooks.healthcheck import healthcheck
from nhc.marks.commands.sync import slurm_command as sync_command
from nhc.marks.policy.ledger import Ledger
from nhc.marks.policy.mark_decision import Policy
from nhc.marks.policy.reconcile import sync
from nhc.marks.ports.adapter import AdapterError, Effect, Mark, Operation
from nhc.marks.ports.marks import mark_of
from nhc_adapters._command import run_command
from nhc_adapters.slurm.adapter import Slurm
from nhc_adapters.slurm.rest import SlurmRest
from tests.console.conftest import Running, settings
from tests.support.ports import free_ports
from tests.support.require import need
from tests.support.run import nhc
from tests.support.waiting import until

MARK = Mark("check_x: bad", Action.REBOOT)
FREELY = Policy().with_ceiling(Limit())


def report(node, outcome):
    return Report(node, "boot", time.time(), 0.1, (CheckResult("check_x", outcome),))


@pytest.fixture
def commands():
    """The command lines that the adapter ran."""
    return []


@pytest.fixture
def slurm(cluster, commands):
    def run(argv, timeout, env):
        commands.append(argv)
        return run_command(argv, timeout, env)

    return Slurm({}, cluster.env, run=run)


@pytest.fixture
def ledger(tmp_path):
    return Ledger(str(tmp_path), "test")


def state(slurm, node):
    return slurm.nodes([node])[0]


@pytest.mark.service
def test_a_busy_node_drains_keeps_its_job_and_comes_back(cluster, slurm):
    job = cluster.submit("sleep 60", "--nodelist=n1")
    until(lambda: cluster.job(job)["JobState"] == "RUNNING", what="the job to run")
    assert state(slurm, "n1").busy
    assert slurm.mark({"n1": MARK})[0].effect is Effect.CHANGED
    found = state(slurm, "n1")
    assert (found.busy, found.available) == (True, False)
    assert {"MIXED", "DRAIN"} <= found.flags or {"ALLOCATED", "DRAIN"} <= found.flags
    assert cluster.job(job)["JobState"] == "RUNNING"
    assert slurm.clear(["n1"])[0].effect is Effect.CHANGED
    assert state(slurm, "n1").available


def test_slurm_reads_every_list_that_is_folded_for_it(cluster):
    names = ["gpu1.example.org", "gpu2.example.org", "r1n01", "r1n02", "r2n01", "rack1-left", "rack2-left", "n8", "n10"]
    shown = cluster.scontrol("show", "hostnames", fold_for_scheduler(names)).stdout.split()
    assert sorted(shown) == sorted(names)


def test_a_node_that_is_down_is_left_alone(cluster, slurm):
    cluster.update("n2", State="DOWN", Reason="smoke")
    assert slurm.mark({"n2": MARK})[0].effect is Effect.REFUSED
    assert slurm.clear(["n2"])[0].effect is Effect.REFUSED
    assert (cluster.state("n2"), cluster.reason("n2")) == ("down", "smoke")


def test_a_drained_node_that_went_down_under_our_mark_comes_back(cluster, slurm):
    slurm.mark({"n2": MARK})
    cluster.update("n2", State="DOWN", Reason="NHC: check_x: bad")
    assert slurm.clear(["n2"])[0].effect is Effect.CHANGED
    until(lambda: cluster.state("n2") == "idle", what="n2 to be idle")


def test_maintenance_is_left_alone(cluster, slurm):
    cluster.scontrol("create", "reservation", "ReservationName=maint", "StartTime=now", "Duration=10", "Nodes=n1",
                     "Users=root", "Flags=MAINT,IGNORE_JOBS")  # fmt: skip
    try:
        until(lambda: "MAINTENANCE" in state(slurm, "n1").flags, what="n1 to be in maintenance")
        assert slurm.mark({"n1": MARK})[0] == ("n1", Effect.REFUSED, "left alone: it is in a maintenance reservation")
    finally:
        cluster.scontrol("delete", "ReservationName=maint")
    until(lambda: "MAINTENANCE" not in state(slurm, "n1").flags, what="maintenance to end")


def test_a_reboot_is_ordered_on_a_drained_node_and_then_left_alone(cluster, slurm):
    slurm.mark({"n3": MARK})
    assert slurm.repair(Operation.REBOOT, ["n3"], MARK.why)[0].effect is Effect.CHANGED
    until(lambda: "REBOOT_ISSUED" in state(slurm, "n3").flags, what="the reboot to be issued")
    assert slurm.mark({"n3": Mark("check_y: other")})[0].effect is Effect.REFUSED
    assert slurm.clear(["n3"])[0].effect is Effect.REFUSED
    cluster.boot_node("n3")
    until(lambda: not state(slurm, "n3").hold, what="n3 to be back from its reboot")
    found = state(slurm, "n3")
    assert not found.available
    assert (found.mark.why, found.mark.action, found.mark.ours) == (MARK.why, Action.REBOOT, True)


def test_powered_down_nodes_are_left_alone(cluster, slurm):
    cluster.update("n2", State="POWER_DOWN_FORCE")
    assert slurm.mark({"n2": MARK})[0].effect is Effect.REFUSED
    until(lambda: "POWERED_DOWN" in state(slurm, "n2").flags, what="n2 to be powered down")
    assert slurm.mark({"n2": MARK})[0].message == "left alone: it is powered down"
    assert slurm.clear(["n2"])[0].effect is Effect.UNCHANGED
    cluster.boot_node("n2")
    until(lambda: not state(slurm, "n2").hold, what="n2 to be up")


def test_hyperpods_reason_is_written_on_request_and_never_cleared(cluster):
    slurm = Slurm({"NHC_HYPERPOD": "1"}, cluster.env)
    assert slurm.mark({"n1": MARK})[0].effect is Effect.CHANGED
    assert cluster.reason("n1") == "Action:Reboot"
    assert "FAIL" in state(slurm, "n1").flags
    assert state(slurm, "n1").mark.action is Action.REBOOT
    assert slurm.clear(["n1"])[0].effect is Effect.REFUSED


def test_nodes_of_one_reason_are_one_call(cluster, slurm, commands, ledger):
    reports = [report(node, crit("X", "bad")) for node in cluster.nodes]
    done = sync(slurm, reports, FREELY, ledger, apply=True)
    assert [applied.effect for _operation, applied in done.applied] == [Effect.CHANGED] * 3
    updates = [argv for argv in commands if "update" in argv]
    assert updates == [("scontrol", "update", "NodeName=n[1-3]", "State=DRAIN", "Reason=NHC: [node] check_x: bad")]
    healthy = [report(node, ok()) for node in cluster.nodes]
    assert not sync(slurm, healthy, FREELY, ledger, apply=True).failed
    updates = [argv for argv in commands if "update" in argv]
    assert updates[1:] == [("scontrol", "update", "NodeName=n[1-3]", "State=RESUME")]
    assert all(found.available for found in slurm.nodes(cluster.nodes))


def test_a_reason_keeps_its_text_and_time_while_only_its_figures_change(
    cluster, slurm, commands, ledger, tmp_path, monkeypatch
):
    """Two doors, `nhc sync slurm` and the health check, each with a figure that is new at every run."""
    monkeypatch.setenv("NHC_LEDGER_DIR", str(tmp_path))
    full = [report("n1", crit("FsFull", f"/ has only {size} kB free", target="/")) for size in (93848, 93847, 512)]
    memory = State(str(tmp_path / "state"))
    settings = {"NHC_RM": "slurm", "NHC_MAX_DRAINED": "none"}
    assert not sync(slurm, full[:1], FREELY, ledger, apply=True).failed
    first = state(slurm, "n1").mark.since
    until(lambda: time.time() > first + 1.1, what="the clock to go on")
    for found in full[1:]:
        assert sync(slurm, [found], FREELY, ledger, apply=True).applied == ()
        assert healthcheck(found, cluster.env, settings, memory) == 0
        assert slurm.mark({"n1": mark_of(found)})[0].effect is Effect.UNCHANGED
    assert [argv for argv in commands if "update" in argv] == [
        ("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=NHC: [node] check_x: / has only \u2026 kB free")
    ]
    assert (cluster.reason("n1"), state(slurm, "n1").mark.since) == (
        "NHC: [node] check_x: / has only \u2026 kB free",
        first,
    )
    assert (
        healthcheck(
            report("n1", crit("FsFull", "/home has only 3 kB free", target="/home")), cluster.env, settings, memory
        )
        == 0
    )
    assert cluster.reason("n1") == "NHC: [node] check_x: /home has only \u2026 kB free"
    assert state(slurm, "n1").mark.since > first


def test_a_hook_knows_the_cause_of_its_own_mark_whatever_its_words(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("NHC_LEDGER_DIR", str(tmp_path))
    memory, settings = State(str(tmp_path / "state")), {"NHC_RM": "slurm", "NHC_MAX_DRAINED": "none"}
    for words, reason, shown in [
        ("bash is not allowed", "Stranger", "bash is not allowed"),
        ("zsh is not allowed", "Stranger", "bash is not allowed"),
        ("zsh is not allowed", "Other", "zsh is not allowed"),
    ]:  # fmt: skip
        assert healthcheck(report("n2", crit(reason, words)), cluster.env, settings, memory) == 0
        assert cluster.reason("n2") == f"NHC: [node] check_x: {shown}"


def test_a_ceiling_survives_restarts_because_slurm_itself_holds_the_count(cluster, ledger):
    policy = Policy().with_ceiling(Limit(nodes=1))
    sync(Slurm({}, cluster.env), [report("n1", crit("X", "bad"))], policy, ledger, apply=True)
    cluster.kill("slurmctld", signal.SIGTERM)
    cluster.start_controller()
    until(lambda: cluster.state("n2") == "idle", what="n2 to register")
    again = sync(Slurm({}, cluster.env), [report("n2", crit("X", "bad"))], policy, ledger, apply=True)
    assert again.operations == ()
    assert "at most 1" in again.withheld[0].why
    assert cluster.state("n2").startswith("idle")


def test_an_unknown_report_leaves_the_node_drained_and_another_in_service(cluster, slurm, ledger):
    slurm.mark({"n1": MARK})
    reports = [report(node, unknown("X", "?")) for node in ("n1", "n2")]
    assert not sync(slurm, reports, FREELY, ledger, apply=True)
    assert not state(slurm, "n1").available
    assert state(slurm, "n2").available


def test_a_controller_killed_midway_loses_nothing(cluster, slurm, ledger):
    """It dies after the first update and before the second, without saving; it comes back a second later."""
    done = []
    original = slurm.command._run

    def run(argv, timeout, env):
        ended = original(argv, timeout, env)
        if "update" in argv and not done:
            done.append(argv)
            cluster.kill("slurmctld", signal.SIGKILL)
            threading.Timer(1.0, cluster.start_controller).start()
        return ended

    slurm.command._run = run
    slurm.command.timeout = 10.0
    reports = [report("n1", crit("X", "one")), report("n2", crit("X", "two")), report("n3", crit("X", "three"))]
    ended = sync(slurm, reports, FREELY, ledger, apply=True, retry_for=90)
    assert ended.failed == []
    until(cluster.answers, what="the controller")
    found = {node: state(slurm, node).mark.why for node in cluster.nodes}
    assert found == {"n1": "check_x: one", "n2": "check_x: two", "n3": "check_x: three"}
    # Each operation is in the history once, however often it was tried.
    assert sorted((past.node, past.action) for past in ledger.history()) == [(n, "mark") for n in cluster.nodes]


def test_the_command_shows_its_plan_and_changes_nothing_until_told(cluster, tmp_path, monkeypatch):
    for name, value in cluster.env.items():
        monkeypatch.setenv(name, value)
    file = tmp_path / "reports.json"
    file.write_text(json.dumps([to_dict(report(f"{n}.example.org", crit("X", "bad"))) for n in ("n1", "n2")]))
    common = ["--report", str(file), "--ledger", str(tmp_path / "ledger"), "--max-drained", "1"]
    shown = CliRunner().invoke(sync_command, common)
    assert shown.exit_code == 0
    assert "would drain  n1  check_x: bad" in shown.output
    assert "not drain    n2  1 of 3 nodes in the fleet are out, at most 1" in shown.output
    assert cluster.state("n1") == "idle"
    assert not (tmp_path / "ledger").exists()
    done = CliRunner().invoke(sync_command, [*common, "--apply", "--format", "json"])
    assert done.exit_code == 0
    value = json.loads(done.output)
    assert [(r["node"], r["effect"]) for r in value["remedies"]] == [("n1", "changed")]
    assert cluster.state("n1") == "drain"


def test_the_command_says_in_one_line_that_the_controller_does_not_answer(tmp_path, monkeypatch):
    said = "slurm_load_node error: Unable to contact slurm controller (connect failure)\n"

    def run(argv, timeout, env):
        return Completed(0, "slurm 22.05.8\n") if "--version" in argv else Completed(1, "", said)

    monkeypatch.setattr("nhc.marks.commands.sync.slurm", lambda options: Slurm({}, {}, run=run))
    file = tmp_path / "reports.json"
    file.write_text(json.dumps(to_dict(report("n1", crit("X", "bad")))))
    done = CliRunner().invoke(sync_command, ["--report", str(file), "--ledger", str(tmp_path), "--apply"])
    assert done.exit_code == 3
    assert done.output == f"nhc sync slurm: sinfo -a: {said}"


@pytest.fixture
def rest_settings(cluster, tmp_path):
    """How the cluster's slurmrestd is reached."""
    need("slurmrestd", shutil.which("slurmrestd"))
    if "slurmrestd" not in cluster.daemons:
        cluster.rest = cluster.start_rest()
    token = tmp_path / "token"
    token.write_text(f"SLURM_JWT={cluster.token()}\n")
    return {"NHC_SLURMREST": f"unix:{cluster.rest}", "NHC_SLURMREST_TOKEN_FILE": str(token)}


@pytest.mark.service
def test_the_console_lists_the_jobs_on_a_node_and_their_names_forge_none(cluster):
    name = "x\n9|RUNNING|1|root|forged"
    before = time.time()
    job = cluster.submit("sleep 600", "--nodelist=n1", "-n1", f"--job-name={name}")
    until(lambda: cluster.job(job)["JobState"] == "RUNNING", what="the job to run")
    found = settings(free_ports(1)[0])
    console = Running(found, ClusterSource("slurm", Slurm({}, cluster.env), found.stale), None)
    try:
        console.server.scheduler = Scheduler("slurm", Slurm({}, cluster.env), wait=30)
        until(lambda: console.server.hub.snapshot, what="the first snapshot")
        ((row,), note) = itemgetter("rows", "note")(console.ask("GET", "/api/node/n1/work", who="olga")[1])
        assert (row["id"], row["name"], row["user"]) == (job, "x 9|RUNNING|1|root|forged", "root")
        assert (row["state"], note) == ("RUNNING", "")
        assert before - 1 <= row["started"] <= time.time() + 1
        assert console.ask("GET", "/api/node/n2/work", who="olga")[1]["rows"] == []
    finally:
        console.stop()


@pytest.mark.service
def test_a_node_that_slurmrestd_is_asked_for_by_itself_is_busy_until_its_job_has_ended(cluster, rest_settings):
    rest = SlurmRest(rest_settings, {})
    job = cluster.submit("sleep 600", "--nodelist=n1", "-n1")
    until(lambda: cluster.job(job)["JobState"] == "RUNNING", what="the job to run")
    assert {state.name: state.busy for state in rest.nodes()}["n1"]
    assert rest.nodes(["n1"])[0].busy
    assert rest.work_on("n1") == Slurm({}, cluster.env).work_on("n1")
    cluster.run("scancel", job)
    until(lambda: not rest.nodes(["n1"])[0].busy, 30, what="the job to end")


@pytest.mark.service
def test_a_real_slurmrestd_is_read_and_written_or_says_that_it_cannot_be(cluster, slurm, rest_settings):
    rest = SlurmRest(rest_settings, {})
    slurm.mark({"n1": MARK})
    assert rest.nodes(["n1", "n2", "n3"]) == [
        found._replace(shown=found.shown) for found in slurm.nodes(["n1", "n2", "n3"])
    ]
    assert rest.nodes(["n1"])[0].mark.why == MARK.why
    if cluster.openapi == "openapi/v0.0.38":  # Slurm 22.05's
        with pytest.raises(AdapterError, match=r"cannot change them before v0\.0\.39"):
            rest.mark({"n2": MARK})
    else:
        assert [one.effect for one in rest.mark({"n2": MARK})] == [Effect.CHANGED]
        found = slurm.nodes(["n2"])[0]
        assert (found.available, found.mark.why) == (False, MARK.why)
        assert [one.effect for one in rest.clear(["n2"])] == [Effect.CHANGED]
        assert slurm.nodes(["n2"])[0].available  # the reason stays until its slurmd has answered
    with pytest.raises(AdapterError, match="none: No such file"):
        SlurmRest({**rest_settings, "NHC_SLURMREST_TOKEN_FILE": "/none"}, {}).nodes()


@pytest.mark.service
def test_nhc_top_shows_a_slurm_cluster_without_a_store(cluster, slurm):
    """Slurm knows no verdicts: a node that is out of service is shown with its reason, the rest as not judged."""
    slurm.mark({"n2": MARK})
    done = nhc("top", "--adapter", "slurm", "--once", env={**cluster.env, "COLUMNS": "200"})
    assert done.returncode == 0, done
    # Newer releases show the nodes of the cloud, of which a test before may have left one out of service.
    assert re.search(r"\b[12] CRIT", done.stdout.splitlines()[0])
    assert re.search(r"CRIT [12] OutOfService \(mark\) (far1,n2: |n2: check_x: bad)", done.stdout)
